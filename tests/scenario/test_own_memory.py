"""Memory that a program gave out itself: tensors of a context and nodes that say where they lie."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import ggmltool
from ggmltool.oracle import run_many
from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from tests.conformance.compare import compare_runs

OWN: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["CUDA0", "CPU"],
    "contexts": {
        "own": {
            "buft": "CPU",
            "size": 4096,
            "tensors": {
                "cache": {"type": "f32", "ne": [8, 32], "at": 64},
                "rows": {"type": "f32", "ne": [8, 2], "view_src": "cache", "view_offs": 32},
            },
        },
        "w": {
            "buft": "CUDA0",
            "usage": "weights",
            "size": 4096,
            "tensors": {"w": {"type": "f32", "ne": [8, 8], "at": 512}},
        },
    },
    "graphs": {
        "main": {
            "nodes": {
                "y": {"op": "scale", "src": ["cache"], "s": 0.5, "in": "own", "at": 1088},
                "z": "mul_mat(w, y)",
                "a": "add(z, z)",
                "b": "add(a, rows)",
            }
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_it_is_planned_as_ggml_does_with_tensors_placed_so(release: str) -> None:
    loaded = ggmltool.load(OWN, ggml=release)
    (real,) = run_many([loaded.model], values=False)
    ours = [plan.as_dict() for plan in loaded.start().run(loaded.model.steps)]
    assert compare_runs(ours, real.plans) == []
    places = {t["id"]: (t["buffer"], t["offset"]) for t in (*ours[-1]["nodes"], *ours[-1]["leafs"])}
    assert [places[id] for id in ("cache", "rows", "y", "w")] == [
        ("CPU", 64), ("CPU", 96), ("CPU", 1088), ("CUDA0", 512),
    ]  # fmt: skip


def test_it_is_written_as_it_was_read() -> None:
    model = ggmltool.load(OWN).model
    assert ggmltool.load(dump(model)).model.contexts == model.contexts
    assert dump(model)["graphs"]["main"]["nodes"]["y"]["in"] == "own"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("contexts", "own", "tensors", "cache", "at"), 4000, "does not end within the 4096 bytes of its context"),
        (("contexts", "own", "tensors", "cache", "at"), None, "does not say where it lies"),
        (("contexts", "own", "tensors", "rows", "at"), 0, "lies where its view_src lies"),
        (("contexts", "own", "tensors", "cache", "in"), "w", "no node can lie in"),
        (("contexts", "own", "size"), None, "at needs the size of the context"),
        (("contexts", "own", "buft"), None, "a context with a size needs a buft"),
        (("graphs", "main", "nodes", "y", "in"), "inputs", "no node can lie in"),
        (("graphs", "main", "nodes", "y", "in"), None, "at needs a context"),
        (("graphs", "main", "nodes", "y", "at"), 4000, "does not end within the 4096 bytes of its context"),
    ],
)
def test_a_place_that_cannot_be_is_refused(path: tuple[str, ...], value: object, message: str) -> None:
    scenario = copy.deepcopy(OWN)
    where = scenario
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    with pytest.raises(ScenarioError, match=message):
        ggmltool.load(scenario)


def test_packed_weights_may_have_less_memory_than_bytes() -> None:
    """AMX packs one matrix of a weight of four: that is the memory that the program's buffer has."""
    scenario: dict[str, Any] = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {
            "packed": {"buft": "AMX", "usage": "weights", "size": 2304, "tensors": {
                "w": {"type": "q4_0", "ne": [256, 16, 4], "at": 0}}},
            "inputs": {"tensors": {"x": "f32[256, 2, 4]"}},
        },
        "graphs": {"main": {"nodes": {"y": "silu(x)"}}},
    }  # fmt: skip
    assert ggmltool.load(scenario).plan("main").ok
    scenario["contexts"]["packed"]["tensors"]["w"]["at"] = 2305
    with pytest.raises(ScenarioError, match="does not end within the 2304 bytes"):
        ggmltool.load(scenario)
