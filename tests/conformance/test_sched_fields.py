"""The plain fields of struct ggml_backend_sched are those in the real library's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggmltool
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn, release_of
from tests.sched_memory import splits_of

Found = tuple[dict[str, int], list[int], list[int]]


def in_memory(lib: Lib, model: ScenarioSpec, graph: str) -> Found | None:
    """The library's fields after it allocated the graph; None where it did not."""
    runner = Runner(lib, debug=0, values=False)
    run = ScenarioRun(runner, model, World(runner.callbacks, model, False))
    run.start()
    built = run._build(graph)
    run._assign(model.tensors())
    run._assign(model.graphs[graph].nodes)
    if not lib.ggml_backend_sched_alloc_graph(run.sched, built):
        return None
    s = lib.structs["ggml_backend_sched"].from_address(run.sched)
    fields: dict[str, int] = {
        "is_reset": s.is_reset, "is_alloc": s.is_alloc, "n_backends": s.n_backends, "hash_set.size": s.hash_set.size,
        "graph.size": s.graph.size, "graph.n_nodes": s.graph.n_nodes, "graph.n_leafs": s.graph.n_leafs,
        "n_splits": s.n_splits, "splits_capacity": s.splits_capacity, "n_copies": s.n_copies, "cur_copy": s.cur_copy,
        "n_graph_inputs": s.n_graph_inputs, "context_buffer_size": s.context_buffer_size,
    }  # fmt: skip
    for i, split in enumerate(splits_of(s)):
        for name in ("backend_id", "i_start", "i_end", "n_inputs"):
            fields[f"splits[{i}].{name}"] = getattr(split, name)
    n = s.graph.n_nodes
    return fields, s.node_backend_ids[:n], s.prev_node_backend_ids[:n]


def compare(lib: Lib, loaded: LoadedScenario) -> None:
    graph = loaded.graph_name()
    run = loaded.start()
    plan = run.alloc(graph)
    if not plan.ok:
        pytest.skip("the scenario is one on which ggml fails")
    theirs = lib.run_forked(lambda: in_memory(lib, loaded.model, graph))
    assert not isinstance(theirs, Abort), theirs
    assert theirs is not None
    assert run.sched is not None
    assert (run.sched.fields(), *run.sched.id_arrays().values()) == theirs


def test_the_fields_of_a_sample_are_the_librarys(sample: Path, lib: Lib) -> None:
    compare(lib, ggmltool.load(sample, ggml=release_of(lib).name))


@in_turn("seed", range(100, 140))
def test_the_fields_of_random_graphs_are_the_librarys(seed: int, lib: Lib) -> None:
    try:
        compare(lib, ggmltool.load(scenario(seed), ggml=release_of(lib).name))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")
