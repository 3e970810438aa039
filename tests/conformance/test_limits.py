"""The fields of the real scheduler and its gauges: at ggml's limits it goes on with the same figures; one further it
refuses, in the same words.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.check.record import check_graph
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.oracle import run as run_on_library
from ggmltool.oracle import structs
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner, ScenarioRun
from ggmltool.scenario.spec import ScenarioSpec
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn, release_of
from tests.limits import AT, split_inputs
from tests.sched_memory import splits_of

REFUSED = "preallocated.yaml"


DynTallocr = structs.KNOWN["ggml_dyn_tallocr"]


def taken(hashes: Any) -> int:
    used = ctypes.string_at(hashes.used, (hashes.size + 31) // 32 * 4)
    return sum(byte.bit_count() for byte in used)


Figures = dict[str, tuple[int, int]]
Fields = tuple[dict[str, int], list[int], list[int]]


def figures(lib: Lib, model: ScenarioSpec, graph: str) -> tuple[Figures, Fields] | None:
    """(used, limit) by the gauge's key, from the library's memory after the graph was allocated, and the scheduler's
    plain fields.
    """
    runner = Runner(lib, debug=0, values=False)
    run = ScenarioRun(runner, model, World(runner.callbacks, model, False))
    run.start()
    built = run._build(graph)
    run._assign(model.tensors())
    run._assign(model.graphs[graph].nodes)
    if not lib.ggml_backend_sched_alloc_graph(run.sched, built):
        return None
    s = lib.structs["ggml_backend_sched"].from_address(run.sched)
    galloc = structs.KNOWN["ggml_gallocr"].from_address(s.galloc)
    g = structs.CGraphStruct.from_address(built)
    splits = splits_of(s)
    out = {
        "backends": (s.n_backends, len(s.backends)),
        "copies": (s.n_copies, len(s.events[0])),
        "sched_tensors": (g.n_nodes + g.n_leafs, s.hash_set.size),
        "sched_slots": (taken(s.hash_set), s.hash_set.size),
        "sched_context": (lib.ggml_used_mem(s.ctx), s.context_buffer_size),
        "splits": (len(splits), 0),
        "split_inputs": (max(split.n_inputs for split in splits), 30),
        "sched_nodes": (s.graph.n_nodes, 0),
        "sched_leafs": (s.graph.n_leafs, 0),
        "cgraph_nodes": (g.n_nodes, 0),
        "cgraph_leafs": (g.n_leafs, 0),
        "cgraph_slots": (taken(g.visited_hash_set), 0),
        "gallocr_slots": (taken(galloc.hash_set), galloc.hash_set.size),
        "room": (s.graph.size, 0),
        "chunks": (max(DynTallocr.from_address(t).n_chunks for t in galloc.buf_tallocs[: galloc.n_buffers]), 16),
    }
    if s.n_copies > 1:
        out["graph_inputs"] = (s.n_graph_inputs, 30)
    fields: dict[str, int] = {
        "hash_set.size": s.hash_set.size, "graph.size": s.graph.size, "graph.n_nodes": s.graph.n_nodes,
        "graph.n_leafs": s.graph.n_leafs,
    }  # fmt: skip
    names = (
        "is_reset", "is_alloc", "n_backends", "n_splits", "splits_capacity", "n_copies", "cur_copy", "n_graph_inputs",
        "context_buffer_size",
    )  # fmt: skip
    fields |= {name: getattr(s, name) for name in names}
    for i, split in enumerate(splits):
        for name in ("backend_id", "i_start", "i_end", "n_inputs"):
            fields[f"splits[{i}].{name}"] = getattr(split, name)
    n = s.graph.n_nodes
    return out, (fields, s.node_backend_ids[:n], s.prev_node_backend_ids[:n])


def compare_figures(lib: Lib, source: object) -> None:
    loaded = ggmltool.load(source, ggml=release_of(lib).name)  # type: ignore[arg-type]
    graph = loaded.graph_name()
    mine = check_graph(loaded, graph)
    if not mine.plan.ok:
        pytest.skip("the scenario is one on which ggml fails")
    made = lib.run_forked(lambda: figures(lib, loaded.model, graph))
    assert made is not None
    assert not isinstance(made, Abort), made
    theirs, fields = made
    run = loaded.start()
    run.alloc(graph)
    assert run.sched is not None
    assert (run.sched.fields(), *run.sched.id_arrays().values()) == fields
    gauges = {g.key: (g.used, g.limit) for g in mine.gauges}
    room, _ = theirs.pop("room", (0, 0))
    where = next((g.where for g in mine.gauges if g.key == "sched_nodes"), "")
    assert not room or where.startswith(f"capacity so far: {room}; ")
    assert {key: gauges[key][: 2 if limit else 1] for key, (_, limit) in theirs.items()} == {
        key: (used, limit)[: 2 if limit else 1] for key, (used, limit) in theirs.items()
    }


def test_the_gauges_of_a_sample_are_the_librarys(sample: Path, lib: Lib) -> None:
    compare_figures(lib, sample)


@in_turn("seed", range(60))
def test_the_gauges_of_random_graphs_are_the_librarys(seed: int, lib: Lib) -> None:
    try:
        compare_figures(lib, scenario(seed))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")


@pytest.mark.parametrize("key", [k for k in AT if k != "chunks"])
def test_the_library_goes_on_at_the_limit_with_the_same_figures(key: str, lib: Lib) -> None:
    real = run_on_library(
        ggmltool.load({**AT[key][0], "steps": ["reserve main", "alloc main"]}, ggml=release_of(lib).name).model, 0
    )
    assert [plan["ok"] for plan in real.plans] == [True, True]
    compare_figures(lib, AT[key][0])


@pytest.mark.parametrize("key", AT)
def test_the_library_refuses_one_more_in_the_same_words(key: str, lib: Lib) -> None:
    loaded = ggmltool.load({**AT[key][1], "steps": ["reserve main"]}, ggml=release_of(lib).name)
    real = run_on_library(loaded.model, 0).plans[-1]
    mine = check_graph(loaded, "main", "reserve").plan.as_dict()
    assert not real["ok"]
    assert [mine["error"][k] for k in ("kind", "condition", "message")] == [
        real["error"][k] for k in ("kind", "condition", "message")
    ]


@pytest.mark.parametrize("n", [29, 30, 31])
def test_a_split_has_thirty_inputs_and_then_the_next_begins(n: int, lib: Lib) -> None:
    compare_figures(lib, split_inputs(n))


def test_a_node_that_needs_more_makes_the_array_grow(lib: Lib) -> None:
    compare_figures(lib, split_inputs(32, at_once=5))
    real = run_on_library(
        ggmltool.load({**split_inputs(32, at_once=5), "steps": ["alloc main"]}, ggml=release_of(lib).name).model, 0
    )
    log = real.plans[-1]["log"][0] if release_of(lib).rules.full_split_ends else real.debug[-1].decode()
    assert "increasing split inputs capacity from 30 to 60" in log


def fill(lib: Lib, size: int, nodes: int, leafs: int) -> bool:
    """Builds a graph that was made for `size`, in the library."""
    with lib.context() as ctx:
        graph = lib.graph(ctx, [lib.tensor(ctx, "f32", [4]) for _ in range(leafs)], size)
        x = lib.tensor(ctx, "f32", [4])
        for _ in range(nodes):
            x = lib.call("sqr", ctx, x)
        if nodes:
            lib.ggml_build_forward_expand(graph, x)
    return True


def ours(size: int, nodes: int, leafs: int) -> GgmlError | None:
    """The same in the engine."""
    ctx = Context()
    graph = CGraph(size)
    try:
        for _ in range(leafs):
            graph.build_forward_expand(ctx.new_tensor(TYPES["f32"], [4]))
        x = ctx.new_tensor(TYPES["f32"], [4])
        for _ in range(nodes):
            source, x = x, ctx.new_tensor(TYPES["f32"], [4])
            x.set_op(Op.SQR, (), source)
        if nodes:
            graph.build_forward_expand(x)
    except GgmlError as error:
        return error
    return None


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("more", [0, 1, 20])
def test_a_cgraph_takes_as_many_nodes_and_leafs_as_it_was_made_for(size: int, more: int, lib: Lib) -> None:
    for nodes, leafs in ((0, size + more), (size + more, 0), (size + more, size - 1), (0, size), (size, size - 1)):
        abort = lib.run_forked(lambda nodes=nodes, leafs=leafs: fill(lib, size, nodes, leafs))
        error = ours(size, nodes, leafs)
        if nodes <= size and leafs <= size:
            assert (abort, error) == (True, None)
        else:
            assert isinstance(abort, Abort)
            assert error is not None
            assert error.condition == abort.condition
            assert error.breach is not None
            assert error.breach.limit in ("cgraph_nodes", "cgraph_leafs", "cgraph_slots")
