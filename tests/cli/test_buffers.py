"""`buffers` and `lifetime`: charts, chunks, pipeline copies, and memory that is used after it was freed."""

from __future__ import annotations

import json
import pickle
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.buffers.text import grid
from ggmltool.ask.lifetime.record import Lifetimes
from ggmltool.ask.lifetime.text import collision, shared, story, together
from ggmltool.ggml.events import Event
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.inspect.opened import Moment, Opened
from tests.cli.conftest import SAMPLES, Call
from tests.conformance.fuzz import scenario as random_scenario
from tests.invariants import violations
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
        drawn = grid(memory, buft, 0, nbytes, columns)
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


def test_a_pickle_is_for_the_memory_viewer_of_pytorch(call: Call) -> None:
    result = call("buffers", "-o", "memory.pickle", "transformer")
    assert result.err == "Devices in the viewer: 0 is CUDA0, 1 is CPU\nWrote memory.pickle\n"
    snapshot = pickle.loads(Path("memory.pickle").read_bytes())
    assert [segment["total_size"] for segment in snapshot["segments"]] == [10624, 14336]
    assert len(snapshot["device_traces"]) == 2
    assert call("buffers", "-o", "memory.pkl", "-q", "transformer").err == ""
    assert Path("memory.pkl").read_bytes() == Path("memory.pickle").read_bytes()


def lived(call: Call, *args: str, stdin: bytes = b"", status: int = 0) -> dict[str, Any]:
    result = call("lifetime", *args, "--json", stdin=stdin)
    assert result.status == status, result.err
    document: dict[str, Any] = json.loads(result.out)
    return document


@pytest.mark.parametrize("sample", ["transformer", "moe", "inplace", "missing-op", "pipeline", "allocator"])
def test_places_are_the_plans(call: Call, sample: str) -> None:
    plan = ggmltool.load(SAMPLES / f"{sample}.yaml").plan().as_dict()
    for row in (*plan["nodes"], *plan["leafs"]):
        (life,) = lived(call, row["id"], sample)["tensors"]
        if life["where"] is not None:
            assert (life["chunk"], life["offset"]) == (row["chunk"], row["offset"])
            assert life["where"].startswith(row["buffer"])


@pytest.mark.parametrize("sample", ["transformer", "moe", "inplace", "pipeline"])
def test_what_ggml_plans_never_collides(sample: str) -> None:
    found = Lifetimes(Opened(ggmltool.load(SAMPLES / f"{sample}.yaml"), sample), Moment(None, "alloc"))
    lives = [found.of(name) for name in found.tensors]
    over = 0
    for a, b in combinations(lives, 2):
        assert "DANGER" not in " ".join([*collision(a, b, found.nodes), *story(a, found.nodes, "")])
        if a.life != b.life and shared(a, b) is not None:
            assert together(a, b, len(found.nodes)) is None
            over += 1
    assert over >= 1


def test_a_copy_that_lies_over_what_it_is_made_of_is_a_danger(call: Call) -> None:
    """ggml gives the memory of the tensor back just before it gives some to the copy, in the same buffer."""
    scenario = {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "host": True, "alignment": 64, "profile": "custom"}, "CPU"],
        "contexts": {
            "w": {"buft": "CUDA0", "usage": "weights", "tensors": {"w": "f32[32, 32]", "w2": "f32[32, 64]"}},
            "in": {"tensors": {"x": {"type": "f32", "ne": [32, 4], "flags": ["input"]}}},
        },
        "graphs": {
            "g": {
                "nodes": {
                    "h": "mul_mat(w, x)",
                    "t": "sum_rows(h)",
                    "big": "mul_mat(w2, h)",
                    "s": {"op": "scale", "src": ["big"], "s": 2, "backend": "CPU"},
                    "y": {"op": "add", "src": ["s", "t"], "backend": "CUDA0"},
                }
            }
        },
    }
    text = json.dumps(scenario).encode()
    (life,) = lived(call, "s", "-", stdin=text)["tensors"]
    assert life["overwritten_too_early"] == [{"by": "CUDA0#s#0", "read_by": "CUDA0#s#0"}]
    out = " ".join(call("lifetime", "s", "-", stdin=text, columns=200).out.split())
    assert "DANGER: CUDA0#s#0 overwrites it at node" in out
    assert "bytes are overwritten before they are copied" in out
    told = " ".join(lived(call, "s", "CUDA0#s#0", "-", stdin=text)["told"])
    assert "DANGER" in told


@pytest.mark.parametrize("seed", range(40))
def test_danger_is_told_only_where_ggml_itself_goes_wrong(seed: int) -> None:
    """Another checker, which knows nothing of the allocator's events, sees the same in random scenarios."""
    scenario = ggmltool.load(random_scenario(seed))
    for graph in scenario.model.graphs:
        plan = scenario.plan(graph)
        if plan.ok:
            kinds = {v.kind for v in violations(scenario.model, plan.as_dict())}
            found = Lifetimes(Opened(scenario, "it"), Moment(graph, "alloc"))
            dangers = [name for name in found.tensors if found.of(name).overwritten_too_early]
            assert not dangers or kinds & {"self_copy", "leaf_view", "early"}
            assert dangers or "self_copy" not in kinds


def test_of_two_words_the_second_is_a_scenario_where_there_is_one(call: Call) -> None:
    assert [t["id"] for t in lived(call, "q", "transformer")["tensors"]] == ["q"]
    Path("graph.yaml").write_bytes((SAMPLES / "transformer.yaml").read_bytes())
    assert [t["id"] for t in lived(call, "q", "k")["tensors"]] == ["q", "k"]
    assert [t["id"] for t in lived(call, "q")["tensors"]] == ["q"]


def test_what_was_measured_only_has_a_lifetime_too(call: Call) -> None:
    (alloc,) = lived(call, "q", "transformer")["tensors"]
    (reserve,) = lived(call, "q", "transformer", "--step", "reserve")["tensors"]
    assert reserve == alloc


SAMPLE = "use-after-free"


def test_no_value_of_it_is_shown(call: Call) -> None:
    result = call("run", "--json", SAMPLE)
    document = json.loads(result.out)
    assert (result.status, document["ok"]) == (1, False)
    assert document["outputs"]["product"] is None
    assert document["use_after_free"] == [
        {
            "step": 6,
            "did": "compute small",
            "tensors": ["a", "b", "product"],
            "results": ["product"],
            "freed": {"step": 3, "did": "alloc large", "buft": "CPU", "old_size": 64, "new_size": 4096},
        }
    ]


def test_in_python_a_value_of_it_is_an_error() -> None:
    import ggmltool
    from ggmltool.ggml.errors import UseAfterFree

    scenario = ggmltool.load(SAMPLE).opened.scenario
    run = scenario.start(values=True)
    for step in scenario.model.steps:
        run.step(step)
    with pytest.raises(UseAfterFree, match="product lies in freed memory: use after free"):
        run.get("product")
    assert issubclass(UseAfterFree, ggmltool.Error)
