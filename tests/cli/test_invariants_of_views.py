"""Views that show what the real library has nowhere: what they say is added up again from other views."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict

import numpy as np
import pytest

import ggmltool
from tests.cli.conftest import SAMPLES, Call

SCENARIOS = [
    "moe.yaml",
    "transformer.yaml",
    "chunks.yaml",
    "pipeline.yaml",
    "inplace.yaml",
    "gemma-3-270m-ngl9.json.gz",
]


@pytest.mark.parametrize("sample", SCENARIOS)
def test_the_peak_is_the_largest_sum_of_what_the_allocator_has_given_out(call: Call, sample: str) -> None:
    """`buffers` beside `allocs --trace`; memory that is handed on to a result in place stays given out."""
    buffers = json.loads(call("buffers", "--json", SAMPLES / sample).out)["buffers"]
    steps = json.loads(call("allocs", "--trace", "--json", SAMPLES / sample).out)["steps"]
    alive: Counter[str] = Counter()
    peaks: defaultdict[str, int] = defaultdict(int)
    for step in steps:
        if step["event"] == "Allocated":
            alive[step["buft"]] += step["size"]
        elif step["event"] == "Freed":
            alive[step["buft"]] -= step["size"]
        for buft, nbytes in alive.items():
            peaks[buft] = max(peaks[buft], nbytes)
    assert {b["buft"]: b["peak"]["nbytes"] for b in buffers if b["peak"]} == dict(peaks)
    for buffer in buffers:
        assert buffer["size"] == sum(buffer["chunks"]) >= peaks[buffer["buft"]]
        if buffer["peak"]:
            assert sum(t["size"] for t in buffer["peak"]["tensors"]) == buffer["peak"]["nbytes"]


@pytest.mark.parametrize("sample", SCENARIOS)
def test_free_and_given_out_bytes_fill_each_chunk(call: Call, sample: str) -> None:
    """Free blocks never touch, never overlap what is given out, and with it cover all up to the highest byte."""
    steps = json.loads(call("allocs", "--trace", "--json", SAMPLES / sample).out)["steps"]
    given: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for step in steps:
        if step["free_blocks"] is None:
            continue
        blocks = given[step["buft"], step["chunk"]]
        if step["event"] == "Allocated":
            blocks[step["offset"]] = step["size"]
        elif step["extra"]:
            start = max(at for at in blocks if at <= step["offset"])
            blocks[start] -= step["size"]
        else:
            assert blocks.pop(step["offset"]) == step["size"]
        parts = sorted([*blocks.items(), *map(tuple, step["free_blocks"])])
        end = 0
        for at, nbytes in parts:
            assert at == end
            end = at + nbytes
        ends = [at + nbytes for at, nbytes in blocks.items()]
        assert max(ends, default=0) <= step["max_size"]
        free = [at for at, _ in step["free_blocks"]]
        assert not {at + nbytes for at, nbytes in step["free_blocks"]} & set(free)


@pytest.mark.parametrize(
    ("sample", "tensor"),
    [
        ("views", "columns"),
        ("views", "lower"),
        ("transformer", "v_perm"),
        ("transformer", "kqv_perm"),
        ("moe", "second"),
    ],
)
def test_offsets_of_elements_are_those_of_numpy(call: Call, sample: str, tensor: str) -> None:
    scenario = ggmltool.load(SAMPLES / f"{sample}.yaml")
    plan = next(node for node in scenario.plan().nodes if node.id == tensor)
    ne, nb = plan.ne, plan.nb
    room = sum((n - 1) * b for n, b in zip(ne, nb, strict=True)) + 4
    array = np.ndarray(ne[::-1], "f4", bytes(room), strides=nb[::-1])
    base = array.__array_interface__["data"][0]
    out = call("tensor", "--strides", tensor, SAMPLES / f"{sample}.yaml", columns=200).out
    rows = re.findall(r"^ +i1 = (\d+)((?: +\d+)+)", out, re.MULTILINE)
    assert rows
    for i1, offsets in rows:
        for i0, offset in enumerate(offsets.split()):
            assert array[0, 0, int(i1) :, i0:].__array_interface__["data"][0] - base == int(offset)


@pytest.mark.parametrize("sample", SCENARIOS)
def test_the_screen_of_plan_adds_up(call: Call, sample: str) -> None:
    """Nodes per backend and split, tensors copied: counted again from the plan's rows."""
    plan = json.loads(call("plan", "--json", SAMPLES / sample).out)
    table = call("splits", "-f", "table", SAMPLES / sample).out
    nodes = Counter(node["split"] for node in plan["nodes"])
    shown = {
        int(number): (backend, int(count))
        for number, backend, count in re.findall(r"^ +#(\d+) +(\S+) +\d+(?:–\d+)? +(\d+)", table, re.MULTILINE)
    }
    assert shown == {split["id"]: (split["backend"], nodes[split["id"]]) for split in plan["splits"]}
    pairs = re.findall(r"^copies (\S+) → (\S+): (\d+) tensors?", call("plan", SAMPLES / sample).out, re.MULTILINE)
    assert sum(int(n) for _, _, n in pairs) == sum(len(split["inputs"]) for split in plan["splits"])
