"""A memory plan for PyTorch's viewer: only what its reader knows, and replayed it is the plan again."""

from __future__ import annotations

import pickle
import pickletools
from functools import cache
from typing import Any

import pytest

from ggmltool.api.loading import load
from ggmltool.ask.buffers.torch_snapshot import devices_of, snapshot_pickle
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, Watched, watch
from ggmltool.scenario.errors import ScenarioError
from tests.conformance.fuzz import scenario

READ = {
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "EMPTY_DICT", "EMPTY_LIST", "SETITEM", "SETITEMS", "APPEND", "APPENDS",
    "BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE", "BINUNICODE",
}  # fmt: skip
"""The opcodes that the viewer's own reader of pickles has a case for, as far as they can be needed here."""


def watched(spec: Any, ggml: str | None = None) -> Watched:
    return watch(Opened(load(spec, ggml), "it"), Moment(), Record(Keep.MEMORY))


@cache
def matmul() -> Opened:
    return Opened(load("matmul"), "it")


def written(found: Watched, tensors: Any = None) -> bytes:
    numbers = {node.id: node.index for node in found.plan.nodes}
    return snapshot_pickle(found.plan, found.record.memory, tensors or matmul().tensors("main"), numbers)


def replayed(data: bytes) -> list[tuple[int, dict[int, int]]]:
    """Of each device the most bytes at once, and what is there at the end, as its events say; every rule checked."""
    snapshot = pickle.loads(data)
    out = []
    for device, trace in enumerate(snapshot["device_traces"]):
        segments: dict[int, int] = {}
        there: dict[int, int] = {}
        most = 0
        requested = None
        for event in trace:
            assert event["stream"] == 0
            assert all(set(frame) == {"filename", "line", "name"} for frame in event["frames"])
            address, size = event["addr"], event["size"]
            match event["action"]:
                case "segment_alloc":
                    assert not any(a < address + size and address < a + n for a, n in segments.items())
                    segments[address] = size
                case "alloc":
                    assert any(a <= address and address + size <= a + n for a, n in segments.items())
                    assert not any(a < address + size and address < a + n for a, n in there.items())
                    there[address] = size
                    most = max(most, sum(there.values()))
                case "free_requested":
                    requested = address
                case "free_completed":
                    assert requested == address
                    assert there.pop(address) == size
                case other:
                    raise AssertionError(other)
        own = [segment for segment in snapshot["segments"] if segment["device"] == device]
        assert {segment["address"]: segment["total_size"] for segment in own} == segments
        at_the_end = {}
        for segment in own:
            at = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    at_the_end[at] = block["size"]
                at += block["size"]
            assert at == segment["address"] + segment["total_size"]
        assert at_the_end == there
        out.append((most, there))
    return out


def seeds_of_each(ggml: str) -> range:
    """Seeds for a release that no other has: what writes the file is the same. An old one refuses most of them."""
    if RELEASES[ggml].library is None:
        return range(80)
    first = 25 * list(RELEASES).index(ggml)
    return range(first, first + 25)


@pytest.mark.parametrize("ggml", RELEASES)
def test_replayed_it_has_the_peaks_of_the_plan(ggml: str) -> None:
    n_devices = 0
    for seed in seeds_of_each(ggml):
        try:
            found = watched(scenario(seed), ggml)
        except ScenarioError:
            continue
        memory = found.record.memory
        bufts = dict(reversed(found.plan.backends))
        peaks = [memory.peak(bufts[name]) for name in devices_of(found.plan, memory)]
        assert [most for most, _ in replayed(written(found))] == [peak.nbytes for peak in peaks if peak is not None]
        n_devices += len(peaks)
    assert n_devices > 5


@pytest.mark.parametrize(
    "sample", ["transformer", "chunks", "pipeline", "inplace", "versions-metal", "gemma-3-270m-ngl9"]
)
def test_the_reader_of_the_viewer_knows_every_opcode(sample: str) -> None:
    data = written(watched(sample))
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= READ
    assert replayed(data)


def test_a_stack_has_the_tensor_the_reason_and_ggmls_functions() -> None:
    found = watched("transformer")
    tensors = Opened(load("transformer"), "it").tensors("main")
    trace = pickle.loads(written(found, tensors))["device_traces"][0]
    texts = [[f"{f['filename']}:{f['line']}:{f['name']}" for f in event["frames"]] for event in trace]
    assert texts[0] == ["CUDA0:0:chunk 0 of the compute buffer of CUDA0"]
    assert [
        "attn_in:1:MUL f32[64, 8]",
        "why:0:in the memory of norm, at node 1 attn_in",
        "ggml:0:ggml_gallocr_allocate_node",
        "ggml:0:ggml_gallocr_alloc_graph_impl",
        "ggml:0:ggml_gallocr_reserve_n_impl",
        "ggml:0:ggml_gallocr_reserve_n",
        "ggml:0:ggml_backend_sched_alloc_splits",
        "ggml:0:ggml_backend_sched_alloc_graph",
    ] in texts
