"""Several builds of graphs on one scheduler beside the real library: places, freed memory, values."""

from __future__ import annotations

from typing import Any

import ggmltool
from ggmltool.ggml.events import UsedAfterFree
from ggmltool.oracle import run
from tests.conformance.builds import engine_run, outcomes
from tests.conformance.releases import seeds_of
from tests.conformance.run import outcomes as plan_outcomes

TWO: dict[str, Any] = {
    "ggmltool": 1,
    "backends": [{"name": "GPU0", "profile": "custom"}, "CPU"],
    "contexts": {
        "weights": {
            "buft": "GPU0",
            "usage": "weights",
            "tensors": {"w": {"type": "f32", "ne": [4, 4], "data": {"fill": 1}}},
        },
        "inputs": {
            "tensors": {
                "x": {"type": "f32", "ne": [4, 1], "flags": ["input"], "data": [1, 2, 3, 4]},
                "z": {"type": "f32", "ne": [4, 64], "flags": ["input"], "data": {"fill": 2}},
            }
        },
    },
    "graphs": {
        "small": {"nodes": {"h": "mul_mat(w, x)", "y": {"op": "scale", "src": ["h"], "s": 2.0, "flags": ["output"]}}},
        "large": {"nodes": {"g": "mul_mat(w, z)", "u": {"op": "scale", "src": ["g"], "s": 3.0, "flags": ["output"]}}},
    },
}


def test_the_engine_does_what_the_real_library_does(release: str) -> None:
    results = list(outcomes(seeds_of(release, 120), release))
    assert {r.seed: r.differences for r in results if r.differences} == {}
    assert sum(r.n for r in results) > 30
    assert sum(r.freed for r in results) > 100


def test_plans_of_older_builds_are_the_librarys(release: str) -> None:
    """The last seed has copies that are made of the copies in whose places they lie."""
    results = list(plan_outcomes([*seeds_of(release, 100), 7_100_319], release, kind="builds"))
    assert {r.seed: r.differences for r in results if r.differences} == {}


def test_an_older_build_keeps_its_memory_and_its_values_where_no_buffer_grows(release: str) -> None:
    steps = [
        "reserve large",
        "alloc small",
        "compute small",
        "reset",
        "alloc large",
        {"get": ["y"]},
        {"set": {"x": [1, 1, 1, 1]}},
    ]
    loaded = ggmltool.load(TWO | {"steps": [*steps, "reset", "compute small", {"get": ["y"]}]}, ggml=release)
    real = run(loaded.model, 0)
    _, where, read, used = engine_run(loaded)
    assert where == real.builds
    assert not used
    assert [v["y"].ravel().tolist() for v in read] == [v["y"].ravel().tolist() for v in real.values]


def test_compute_computes_the_graph_that_the_scheduler_holds(release: str) -> None:
    steps = [
        "reserve large",
        "alloc small",
        "compute small",
        "reset",
        "alloc large",
        "compute small",
        {"get": ["u", "y"]},
    ]
    loaded = ggmltool.load(TWO | {"steps": steps}, ggml=release)
    real = run(loaded.model, 0)
    engine, where, read, _ = engine_run(loaded)
    assert engine.held == "large"
    assert [line for line in real.trace if line.startswith("graph_compute")][-1] == "graph_compute GPU0 [g, u]"
    assert where == real.builds
    assert read[0]["u"].tolist() == real.values[0]["u"].tolist()


def test_a_buffer_that_grows_leaves_older_builds_in_freed_memory(release: str) -> None:
    steps = [
        "alloc small",
        "compute small",
        "reset",
        "alloc large",
        "compute large",
        "reset",
        "compute small",
        {"get": ["y", "u"]},
    ]
    weights = TWO["contexts"]["weights"] | {"buft": "CPU"}
    one_device = {"backends": ["CPU"], "contexts": TWO["contexts"] | {"weights": weights}}
    loaded = ggmltool.load(TWO | one_device | {"steps": steps}, ggml=release)
    real = run(loaded.model, 0)
    engine, where, read, used = engine_run(loaded)
    assert where == real.builds
    assert {id for id, place in where[-1]["small"].items() if place == "freed"} == used
    assert list(read[0]) == ["u"]
    assert read[0]["u"].tolist() == real.values[0]["u"].tolist()
    first = engine.freed.uses[0]
    assert (first.step, first.freed.step, first.freed.buft) == (7, 4, "CPU")
    assert "y" in first.results


def test_listeners_are_told_before_the_nodes_are_computed() -> None:
    events: list[object] = []
    loaded = ggmltool.load(TWO | {"steps": ["alloc small", "reset", "alloc large", "reset", "compute small"]})
    loaded.opened.scenario.start(events.append, values=True).run(loaded.model.steps)
    kinds = [type(e).__name__ for e in events]
    assert kinds.index("UsedAfterFree") < kinds.index("Computed")
    uses = [e for e in events if isinstance(e, UsedAfterFree)]
    assert {(e.buft, e.step) for e in uses} == {("GPU0", 3)}
