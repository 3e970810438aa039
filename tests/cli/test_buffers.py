"""The chart, the chunks and the pipeline copies of `buffers`, against the plan and the events themselves."""

from __future__ import annotations

import json
import pickle
from itertools import combinations
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.events import Event
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.views.memory.chart import grid
from tests.cli.conftest import SAMPLES, Call
from tests.lifetimes import memory_plan

SCENARIOS = ["moe.yaml", "transformer.yaml", "gemma-3-270m-ngl9.json.gz"]
CHUNKED = b"""ggmltool: 1
backends: [{name: CUDA0, alignment: 32, max_size: 1024}, CPU]
contexts: {w: {buft: CUDA0, tensors: {x: 'f32[200]', y: 'f32[1000]'}}}
graphs: {main: {nodes: {a: 'mul(x, x)', b: 'mul(y, y)', s: 'sum(a)', e: 'cumsum(b)', d: 'cumsum(a)'},
                expand: [a, b, s, e, d]}}
"""


def memory_of(sample: str) -> MemoryPlan:
    events: list[Event] = []
    ggmltool.load(SAMPLES / sample).plan(events=events.append)
    return memory_plan(events)


@pytest.mark.parametrize("sample", SCENARIOS)
@pytest.mark.parametrize("columns", [10, 66, 160])
def test_a_chart_shows_the_only_tensor_that_is_there(sample: str, columns: int) -> None:
    memory = memory_of(sample)
    for buft in {life.buft for life in memory.lifetimes}:
        (nbytes,) = memory.chunk_sizes(buft)
        lives = memory.of(buft)
        drawn = grid(lives, nbytes, len(memory.nodes), columns)
        assert list(drawn.steps) == sorted(drawn.steps)
        assert len(drawn.steps) <= max(columns, len(memory.nodes) + 1)
        for offset, row in zip(drawn.offsets, drawn.cells, strict=True):
            for step, shown in zip(drawn.steps, row, strict=True):
                there = [
                    life
                    for life in lives
                    if life.offset <= offset < life.offset + life.size
                    and life.start <= step
                    and (life.end is None or step <= life.end)
                ]
                assert there == ([] if shown is None else [shown])


@pytest.mark.parametrize("sample", SCENARIOS)
def test_no_two_tensors_of_a_chart_share_bytes_and_time(sample: str) -> None:
    for one, other in combinations(memory_of(sample).lifetimes, 2):
        if (one.buft, one.chunk) != (other.buft, other.chunk):
            continue
        apart = one.offset + one.size <= other.offset or other.offset + other.size <= one.offset
        ends = [float("inf") if life.end is None else life.end for life in (one, other)]
        assert apart or ends[0] < other.start or ends[1] < one.start


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_chart_fits_and_shows_the_peak_of_a_real_model(call: Call, columns: int) -> None:
    result = call("buffers", "--chart", SAMPLES / "gemma-3-270m-ngl9.json.gz", columns=columns)
    assert result.status == 0
    lines = result.out.splitlines()
    assert max(map(len, lines[1:])) <= columns
    assert any(line.endswith("│" + " " * (len(line) - line.index("│") - 2) + "a") for line in lines if "│" in line)


def test_chunks_add_up_to_the_buffers_and_name_who_opened_them(call: Call) -> None:
    result = call("buffers", "--chunks", "--json", "-", stdin=CHUNKED)
    assert result.status == 0, result.err
    chunks = json.loads(result.out)["chunks"]
    sizes = dict(ggmltool.load(_scenario()).plan().buffer_sizes)
    assert len(chunks) > 2
    assert sum(c["size"] for c in chunks if c["backend"] == "CUDA0") == sizes["CUDA0"]
    assert [(c["opened_by"], c["opened_by_size"], c["limit"]) for c in chunks[:2]] == [
        ("a", 800, 1024),
        ("b", 4000, 1024),
    ]
    assert "over it" in call("buffers", "--chunks", "-", stdin=CHUNKED, columns=80).out


def _scenario() -> dict[str, object]:
    import yaml

    document: dict[str, object] = yaml.safe_load(CHUNKED)
    return document


@pytest.mark.parametrize("sample", SCENARIOS)
def test_copies_compares_the_plans_with_and_without_parallel(call: Call, sample: str) -> None:
    document = json.loads(call("buffers", "--copies", "--json", SAMPLES / sample).out)
    plan = ggmltool.load(SAMPLES / sample).plan()
    assert document["without"]["buffer_sizes"] == dict(plan.buffer_sizes)
    assert document["without"]["copies"] == len(plan.copies)
    assert document["with"]["copies"] >= 4 * len(plan.copies)


def test_the_ascii_chart_is_ascii(call: Call) -> None:
    out = call("buffers", "--chart", "--ascii", SAMPLES / "transformer.yaml").out
    assert out.split("\n", 1)[1].isascii()


def test_a_pickle_is_for_the_memory_viewer_of_pytorch(call: Call) -> None:
    result = call("buffers", "-o", "memory.pickle", "transformer")
    assert result.err == "Devices in the viewer: 0 is CUDA0, 1 is CPU\nWrote memory.pickle\n"
    snapshot = pickle.loads(Path("memory.pickle").read_bytes())
    assert [segment["total_size"] for segment in snapshot["segments"]] == [10624, 14336]
    assert len(snapshot["device_traces"]) == 2
    assert call("buffers", "-o", "memory.pkl", "-q", "transformer").err == ""
    assert Path("memory.pkl").read_bytes() == Path("memory.pickle").read_bytes()


def test_a_pickle_is_no_view_and_not_for_a_terminal(call: Call) -> None:
    chart = call("buffers", "--chart", "-o", "memory.pickle", "transformer")
    assert (chart.status, "leave out --chart" in chart.err) == (2, True)
    shown = call("buffers", "-f", "pickle", "transformer", tty=True)
    assert (shown.status, shown.out) == (2, "")
    assert "name a file with -o memory.pickle" in shown.err
