"""The debugger's memory, read back: it holds what the library's does after a split."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.oracle import run_on, structs
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from ggmltool.state.story.history import History, record_history
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn, release_of

Names = tuple[list[str], list[tuple[str, int]]]
"""The tensors in the scheduler's hash set, and those of the graph with their use counts."""


def _keys(hashes: Any) -> dict[int, int]:
    """The addresses in a hash set by their slots."""
    used = ctypes.cast(hashes.used, ctypes.POINTER(ctypes.c_uint32))
    keys = ctypes.cast(hashes.keys, ctypes.POINTER(ctypes.c_void_p))
    return {i: keys[i] or 0 for i in range(hashes.size) if used[i // 32] >> i % 32 & 1}


def of_library(lib: Lib, model: ScenarioSpec, graph: str) -> Names:
    runner = Runner(lib, debug=0, values=False)
    run = ScenarioRun(runner, model, World(runner.callbacks, model, False))
    run.start()
    built = run._build(graph)
    run._assign(model.tensors())
    run._assign(model.graphs[graph].nodes)
    assert lib.ggml_backend_sched_alloc_graph(run.sched, built)
    s, g = lib.structs["ggml_backend_sched"].from_address(run.sched), structs.CGraphStruct.from_address(built)

    def name(address: int) -> str:
        return str(structs.Tensor.from_address(address).name.decode()) if address else "NULL"

    counts = sorted((name(key), g.use_counts[slot]) for slot, key in _keys(g.visited_hash_set).items())
    return sorted(name(key) for key in _keys(s.hash_set).values()), counts


def of_image(history: History, graph: str) -> Names:
    image = Scope(history, len(history.points) - 1).image
    (hashes, counts), cells = image.graphs.hash_set(graph), image.tensors

    def name(address: int | None) -> str:
        if not address:
            return "NULL"
        index = cells.index(address)
        cell = None if index is None else cells.cell(index)
        assert cell is not None
        return cell.name

    named = sorted((name(key), counts[slot]) for slot, key in enumerate(hashes.keys) if key is not None)
    return sorted(name(key) for key in image.sched.slots.keys if key is not None), named  # type: ignore[union-attr]


def compare(lib: Lib, source: object) -> None:
    loaded = ggmltool.load(source, ggml=release_of(lib).name)  # type: ignore[arg-type]
    graph = loaded.graph_name()
    history = record_history(LoadedScenario(replace(loaded.model, steps=(Step("alloc", graph),))))
    if history.error is not None:
        pytest.skip("the scenario is one on which ggml fails")
    theirs = lib.run_forked(lambda: of_library(lib, loaded.model, graph))
    assert not isinstance(theirs, Abort), theirs
    assert of_image(history, graph) == theirs


def test_the_image_of_a_sample_is_the_librarys(sample: Path, lib: Lib) -> None:
    compare(lib, sample)


@in_turn("seed", range(20))
def test_the_image_of_a_random_graph_is_the_librarys(seed: int, lib: Lib) -> None:
    try:
        compare(lib, scenario(seed))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")


TWO_GRAPHS = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {"inputs": {"tensors": {"x": {"type": "f32", "ne": [64], "flags": ["input"]}}}},
    "graphs": {
        "large": {"nodes": {"a": "sqr(x)", "b": "add(a, x)", "c": "sqr(b)"}},
        "small": {"nodes": {"d": "sqr(x)", "e": "sqr(d)"}},
    },
}


@pytest.mark.parametrize("graphs", [("large", "small"), ("small", "large")])
def test_the_allocators_hash_set_is_of_the_graph_that_it_walked_last(graphs: tuple[str, str], lib: Lib) -> None:
    """It keeps that of a larger graph where the next one fits in its plan."""
    first, second = graphs
    steps = [f"alloc {first}", "reset", f"alloc {second}"]
    loaded = ggmltool.load({**TWO_GRAPHS, "steps": steps}, ggml=release_of(lib).name)
    (run,) = run_on(lib, [loaded.model], debug=0, values=False, states=True)
    names = {address: t.name for state in run.states for address, t in state.tensors.items()}
    theirs = [sorted(names[key] for key in state.sched.galloc.hash_set.keys) for state in run.states]
    history = record_history(loaded)
    image = Scope(history, len(history.points) - 1).image
    cells = [image.tensors.cell(image.tensors.index(key)) for key in image.galloc.slots.keys if key is not None]
    assert sorted(cell.name for cell in cells if cell is not None) == theirs[-1]
