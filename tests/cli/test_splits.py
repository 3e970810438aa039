"""The views of `splits` that count, add up and go pass by pass, against the plan itself."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from tests.cli.conftest import SAMPLES, Call

SCENARIOS = ["moe.yaml", "transformer.yaml", "gemma-3-270m-ngl9.json.gz"]
NO_CPU_ADD = b"""ggmltool: 1
backends: [{name: CUDA0, supports: {only: [mul]}}, {name: CPU, supports: {only: [mul]}}]
contexts: {c: {tensors: {x: 'f32[4]'}}}
graphs: {main: {nodes: {y: 'mul(x, x)', z: 'add(y, x)'}}}
"""


def plan_of(sample: str) -> Plan:
    return ggmltool.load(SAMPLES / sample).plan()


@pytest.mark.parametrize("sample", SCENARIOS)
@pytest.mark.parametrize("keys", ["op", "op,backend", "cause,type", "split,op,backend"])
def test_the_counts_of_a_matrix_add_up_to_the_nodes(call: Call, sample: str, keys: str) -> None:
    document = json.loads(call("splits", "--by", keys, "--json", SAMPLES / sample).out)
    n = len(plan_of(sample).nodes)
    assert document["nodes"] == n == sum(c["nodes"] for c in document["counts"])


@pytest.mark.parametrize("columns", [50, 80, 200])
@pytest.mark.parametrize("keys", ["op,backend", "backend,split", "backend,cause,op", "op,split"])
def test_a_matrix_shows_all_nodes_in_every_width(call: Call, keys: str, columns: int) -> None:
    lines = call("splits", "--by", keys, SAMPLES / "gemma-3-270m-ngl9.json.gz", columns=columns).out.splitlines()
    assert max(len(line) for line in lines[1:]) <= columns
    start = next(i for i, line in enumerate(lines) if line == "") + 2
    rows = [[0 if cell == "–" else int(cell) for cell in line.split()[len(keys.split(",")) - 1 :]]
            for line in lines[start:-1]]  # fmt: skip
    total = [int(cell) for cell in lines[-1].split()[1:]]
    assert total[-1] == 727
    assert [sum(column) for column in zip(*rows, strict=True)] == total
    assert all(sum(row[:-1]) == row[-1] for row in rows)


@pytest.mark.parametrize("sample", SCENARIOS)
def test_the_bytes_are_those_of_the_copies_of_the_plan(call: Call, sample: str) -> None:
    document = json.loads(call("splits", "--bytes", "--json", SAMPLES / sample).out)
    plan = plan_of(sample)
    assert [(i["id"], i["to"]) for i in document["inputs"]] == [(c.of, c.backend) for c in plan.copies]
    model = ggmltool.load(SAMPLES / sample).model
    tensors = {t.id: t for t in (*model.tensors(), *model.graphs["main"].nodes)}
    by_hand = [
        t.nb[0] * (t.ne[0] // t.type.block_size - 1)
        + t.type.type_size
        + sum((n - 1) * b for n, b in zip(t.ne[1:], t.nb[1:], strict=True))
        for t in (tensors[c.of] for c in plan.copies)
    ]
    assert [i["nbytes"] for i in document["inputs"]] == by_hand
    assert document["nbytes"] == sum(by_hand) == sum(pair["nbytes"] for pair in document["pairs"])


def test_op_offload_is_compared_with_the_plan_without_it(call: Call, tmp_path: Path) -> None:
    sample = SAMPLES / "gemma-3-270m-ngl9.json.gz"
    compared = json.loads(call("splits", "--bytes", "--json", sample).out)["without_op_offload"]
    scenario = ggmltool.load(sample)
    scenario.model.scheduler = type(scenario.model.scheduler)(op_offload=False)
    assert compared["inputs"] == sum(len(split.inputs) for split in scenario.plan().splits)


@pytest.mark.parametrize("sample", SCENARIOS)
@pytest.mark.parametrize("step", ["reserve", "alloc"])
def test_the_passes_end_in_the_backends_and_causes_of_the_plan(sample: str, step: str) -> None:
    watched = watch(Opened(ggmltool.load(SAMPLES / sample), sample), Moment("main", step), Record(Keep.PASSES))
    records = watched.record.passes.records
    plan = watched.plan
    assert [record.number for record in records] == list(range(len(watched.sched.passes)))
    last = records[5]
    nodes = [(n.index, n.id, n.backend, n.cause) for n in plan.nodes]
    assert [(a.index, a.tensor, a.backend, a.cause) for a in last.assignments if not a.is_leaf] == nodes
    leafs = [(leaf.id, leaf.backend) for leaf in plan.leafs]
    assert [(a.tensor, a.backend) for a in last.assignments if a.is_leaf] == leafs
    assert [(s.split, s.backend, s.at) for s in last.splits] == [(s.id, s.backend, s.i_start) for s in plan.splits]
    assert [(i.split, i.tensor) for i in last.inputs] == [(s.id, i) for s in plan.splits for i in s.inputs]


@pytest.mark.parametrize("sample", SCENARIOS)
def test_a_pass_changes_what_it_announces_and_nothing_else(sample: str) -> None:
    opened = Opened(ggmltool.load(SAMPLES / sample), sample)
    records = watch(opened, Moment("main"), Record(Keep.PASSES)).record.passes.records
    for before, after in pairwise(records):
        announced = {e.tensor: (e.backend, e.cause) for e in after.assigned}
        for old, new in zip(before.assignments, after.assignments, strict=True):
            expected = announced.get(new.tensor, (old.backend, old.cause))
            assert (new.backend, new.cause) == expected


def test_pipeline_copies_of_inputs_are_made_in_pass_6_since_0_26_and_in_pass_5_before(call: Call) -> None:
    for ggml, number, cause in (("0.20.2", "5", "4.cpy"), ("0.26", "6", "6.cpy")):
        args = ("splits", "--pass", number, "--ggml", ggml, "--json", SAMPLES / "pipeline.yaml")
        document = json.loads(call(*args).out)
        assert document["graph_inputs"] == [
            {"tensor": "x", "backend": "CPU", "copies": ["x", "CPU#x#1", "CPU#x#2", "CPU#x#3"]}
        ]
        assert next(t["cause"] for t in document["tensors"] if t["id"] == "x") == cause
        before = json.loads(call("splits", "--pass", str(int(number) - 1), *args[3:]).out)
        assert before["graph_inputs"] == []
    result = call("splits", "--pass", "6", "--ggml", "0.20.2", SAMPLES / "pipeline.yaml")
    assert (result.status, result.err) == (2, "Error: the scheduler of ggml 0.20.2 has 5 passes, no pass 6\n")


def test_the_choices_of_the_user_are_pass_zero(call: Call) -> None:
    scenario = NO_CPU_ADD.replace(b"y: 'mul(x, x)', z: 'add(y, x)'", b"y: {op: mul, src: [x, x], backend: CPU}")
    result = call("splits", "--pass", "1", "-", stdin=scenario, columns=80)
    assert result.status == 0
    assert "0  the user's choices" in result.out
    assert "usr" in next(line for line in result.out.splitlines() if " y " in line)


def test_a_pass_that_ggml_does_not_finish_shows_the_ones_before(call: Call) -> None:
    result = call("splits", "--pass", "4", "-", stdin=NO_CPU_ADD, columns=80)
    assert result.status == 1
    assert "     3  the rest, and upgrades" in result.out
    assert result.err.startswith("GGML_ASSERT(*cur_backend_id != -1) failed")
    document = json.loads(call("splits", "--pass", "4", "--json", "-", stdin=NO_CPU_ADD).out)
    assert (document["complete"], document["ok"]) == (False, False)


GPUS = ("--device", "2x RTX 3090", "--device", "CPU=Ryzen 9 7950X")
MODEL = "gemma-3-270m"


@pytest.fixture
def placed(call: Call, tmp_path: Path) -> Path:
    path = tmp_path / "placed.json.gz"
    assert call("place", "-ngl", "9", *GPUS, "-o", path, MODEL).status == 0
    return path


def seconds(call: Call, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("splits", "--seconds", "--json", *args).out)
    return found


def test_the_seconds_of_all_are_those_of_the_splits(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    plan = json.loads(call("plan", "--json", placed).out)
    assert [s["backend"] for s in found["splits"]] == [s["backend"] for s in plan["splits"]]
    for case in ("low", "mid", "high"):
        parts = [s[what][case] for s in found["splits"] for what in ("computes", "copies")]
        assert sum(parts) == pytest.approx(found["seconds"][case], rel=1e-2)
    assert found["rates"]["CPU"] == "Ryzen 9 7950X"
    assert found["assumed"] == []
    assert found["n_tokens"] == 512


def test_python_is_told_the_same(call: Call, placed: Path) -> None:
    result = ggmltool.load(placed).splits(seconds=True, n_depth=100)
    assert result.as_dict() == seconds(call, "-d", "100", placed)
    assert "copies" in str(result)
    assert [row.split for row in result.rows] == [split.id for split in result.plan.splits]


def test_every_estimate_has_a_range(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    for part in (found["seconds"], found["computes"], *(s["computes"] for s in found["splits"])):
        assert 0 < part["low"] < part["mid"] < part["high"]


def test_a_deeper_cache_takes_longer(call: Call, placed: Path) -> None:
    empty, full = seconds(call, placed), seconds(call, "-d", 700, placed)
    assert full["n_depth"] == 700
    assert full["seconds"]["mid"] > empty["seconds"]["mid"]


def test_the_other_op_offload_is_what_its_plan_takes(call: Call, placed: Path) -> None:
    other = seconds(call, placed)["without_op_offload"]
    assert other == pytest.approx(seconds(call, "--no-op-offload", placed)["seconds"], rel=1e-3)


def test_weights_from_pinned_memory_come_faster(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    assert any(s["nbytes"] > 1 << 20 for s in found["splits"])
    assert found["with_pinned_weights"]["mid"] < found["seconds"]["mid"]


def test_a_placement_is_as_fast_as_its_splits(call: Call, placed: Path) -> None:
    told = json.loads(call("place", "-ngl", "9", *GPUS, "-p", "512", "--json", MODEL).out)["speeds"]
    assert told["first_token"] == pytest.approx(seconds(call, placed)["seconds"], rel=1e-3)
    assert told["tokens_per_second"] is None
    assert told["prompt_tokens_per_second"]["mid"] == pytest.approx(512 / told["first_token"]["mid"], rel=1e-3)


def test_a_sweep_tells_what_place_tells(call: Call) -> None:
    rows = list(
        csv.DictReader(call("sweep", "-ngl", "0,9,all", *GPUS, "-d", "100", "-f", "csv", MODEL).out.splitlines())
    )
    assert [row["-ngl"] for row in rows] == ["0", "9", "19"]
    for row in rows:
        told = json.loads(call("place", "-ngl", row["-ngl"], *GPUS, "-d", "100", "--json", MODEL).out)["speeds"]
        assert float(row["prompt/s"]) == told["prompt_tokens_per_second"]["mid"]
        assert float(row["prompt/s low"]) == told["prompt_tokens_per_second"]["low"]
    out = call("sweep", "-ngl", "0,9,all", *GPUS, MODEL, columns=200).out
    assert "prompt/s" in out
    assert "\nfastest that fits, by an estimate of prompt/s: -ngl 19, " in out


def test_a_placement_says_its_speed_with_a_range_and_whose_it_is(call: Call) -> None:
    out = call("place", "--device", "RTX 3090", "-d", "100", "-p", "1024", MODEL, columns=200).out
    assert "estimate: first token of a prompt of 1024 with 100 in the cache after " in out
    assert "CUDA0 is RTX 3090; CPU not named, taken for some desktop's CPU" in out


@pytest.mark.parametrize("command", ["place", "sweep -ngl 0,9"])
def test_without_rates_no_seconds_are_told(call: Call, command: str) -> None:
    for device in (["CUDA0:24GiB"], ["CUDA0:24GiB", "CPU=Ryzen 9 7950X"]):
        named = [word for d in device for word in ("--device", d)]
        assert "/s" not in call(*command.split(), *named, MODEL, columns=200).out
        assert "speeds" not in json.loads(call(*command.split(), *named, "--json", MODEL).out)


def test_gpus_that_share_every_tensor_are_not_estimated(call: Call) -> None:
    """What they tell each other in every layer is not known."""
    assert "speeds" not in json.loads(call("place", "-sm", "tensor", *GPUS, "--json", MODEL).out)


def test_seconds_are_a_view_of_their_own(call: Call, placed: Path) -> None:
    assert "choose one" in call("splits", "--seconds", "--bytes", placed).err


def test_any_scenario_whose_hardware_is_named_has_seconds(call: Call, tmp_path: Path) -> None:
    """Rates of one's own are as good as known ones; a graph without tokens has no tokens a second."""
    sample = (SAMPLES / "moe.yaml").read_text("utf-8")
    own = "backends: [{name: CUDA0, rates: {bandwidth: 900, f32: 30}}, CPU]"
    path = tmp_path / "moe.yaml"
    path.write_text(sample.replace("backends: [CUDA0, CPU]", own), "utf-8")
    assert seconds(call, path)["n_tokens"] is None
    out = call("splits", "--seconds", path, columns=200).out
    assert "tokens/s" not in out
    assert "CPU not named, taken for some desktop's CPU" in out


COUNTED = [
    "moe.yaml",
    "transformer.yaml",
    "chunks.yaml",
    "pipeline.yaml",
    "inplace.yaml",
    "gemma-3-270m-ngl9.json.gz",
]


@pytest.mark.parametrize("sample", COUNTED)
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


@pytest.mark.parametrize("sample", COUNTED)
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


@pytest.mark.parametrize("sample", COUNTED)
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
