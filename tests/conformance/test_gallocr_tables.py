"""The allocator's hash nodes, slot by slot, its free blocks and its plan beside the real library's, same addresses."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import astuple

import ggmltool
from ggmltool.ask.explain.realloc import ExplainedReallocShown, Side, explain_realloc
from ggmltool.ggml.alloc.common import TensorAlloc, hash_keys
from ggmltool.ggml.alloc.gallocr import Gallocr
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.sched.reader import hash_node
from ggmltool.inspect.opened import Opened
from ggmltool.oracle import run_many
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import KNOWN
from ggmltool.oracle.tensors import Builder
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from tests.conformance.fuzz import scenario
from tests.conformance.releases import in_turn, release_of, samples
from tests.drawn import Drawn

Chunk = KNOWN["tallocr_chunk"]
DynTallocr = KNOWN["ggml_dyn_tallocr"]


def tables(lib: Lib, model: ScenarioSpec, graph: str, size: int) -> dict[str, Any]:
    """What ggml_gallocr_reserve leaves in its tables for the graph on one CPU buffer, {} where memory is short."""
    builder = Builder(lib)
    known: dict[str, int] = {}
    for context in model.contexts:
        made = builder.context(len(context.tensors))
        builder.tensors(made, context.tensors, known)
        if context.buft is not None:
            lib.allocate(made)
    spec = model.graphs[graph]
    made = builder.context(len(spec.nodes), size)
    builder.tensors(made, spec.nodes, known)
    built = builder.graph(made, spec, known, size)
    buft = ctypes.c_void_p(lib.ggml_backend_cpu_buffer_type())
    address = lib.ggml_gallocr_new_n(ctypes.addressof(buft), 1)
    if not lib.ggml_gallocr_reserve(address, built):
        return {}
    talloc = DynTallocr.from_address(KNOWN["ggml_gallocr"].from_address(address).buf_tallocs[0] or 0)
    chunks = [Chunk.from_address(talloc.chunks[i]) for i in range(talloc.n_chunks)]
    blocks = [[[b.offset, b.size] for b in chunk.free_blocks[: chunk.n_free_blocks]] for chunk in chunks]
    return {
        "known": known,
        "alignment": talloc.alignment,
        "chunks": [(of, chunk.max_size) for of, chunk in zip(blocks, chunks, strict=True)],
        "tables": real_tables(address),
    }


Place = tuple[int, int, int, int]
NOWHERE: Place = (-1, -1, -1, 0)


class Tables(NamedTuple):
    """Slots of the hash set, the keys in those that are taken, their hash nodes; node_allocs and leaf_allocs."""

    size: int
    keys: dict[int, int]
    hash_nodes: dict[int, tuple[int, ...]]
    node_allocs: list[tuple[Place, list[Place]]]
    leaf_allocs: list[Place]


def real_tables(gallocr: int) -> Tables:
    """Those of the real allocator at an address."""

    def pointed(field: int | None, to: Any) -> Any:
        return ctypes.cast(field, ctypes.POINTER(to))

    def place(a: Any) -> Place:
        return NOWHERE if a.buffer_id == -1 else (a.buffer_id, a.addr.chunk, a.addr.offset, a.size_max)

    real = KNOWN["ggml_gallocr"].from_address(gallocr)
    used, n = pointed(real.hash_set.used, ctypes.c_uint32), real.hash_set.size
    taken = [i for i in range(n) if used[i // 32] >> i % 32 & 1]
    keys, values = pointed(real.hash_set.keys, ctypes.c_void_p), pointed(real.hash_values, KNOWN["hash_node"])
    nodes, leafs = pointed(real.node_allocs, KNOWN["node_alloc"]), pointed(real.leaf_allocs, KNOWN["leaf_alloc"])
    hash_nodes = {}
    for i in taken:
        v = values[i]
        hash_nodes[i] = (v.n_children, v.n_views, v.buffer_id, v.addr.chunk, v.addr.offset, int(v.allocated))
    return Tables(
        n,
        {i: keys[i] for i in taken},
        hash_nodes,
        [(place(a.dst), [place(s) for s in a.src]) for a in (nodes[i] for i in range(real.n_nodes))],
        [place(leafs[i].leaf) for i in range(real.n_leafs)],
    )


def places_of(gallocr: Gallocr) -> tuple[list[tuple[Place, list[Place]]], list[Place]]:
    """The engine's node_allocs and leaf_allocs."""

    def place(a: TensorAlloc) -> Place:
        return NOWHERE if a.buffer_id == -1 else (a.buffer_id, a.chunk, a.offset, a.size_max)

    padding = [NOWHERE] * 10
    nodes = [(place(dst), [*map(place, srcs), *padding][:10]) for dst, srcs in gallocr.node_allocs]
    return nodes, [place(a) for a in gallocr.leaf_allocs]


def check_tables(lib: Lib, source: object) -> None:
    loaded = ggmltool.load(source, ggml=release_of(lib).name)  # type: ignore[arg-type]
    graph = loaded.graph_name()
    run = loaded.start()
    built = run.build(graph)
    rules = release_of(lib).rules
    ours = Gallocr([BufferType("CPU", "CPU", host=True)], run.addresses, rules.max_chunks, rules.inplace_ops)
    ours.reserve_n(built.nodes, built.leafs, None, None, run.indices.top)
    theirs = lib.run_forked(lambda: tables(lib, loaded.model, graph, built.size))
    assert not isinstance(theirs, Abort), theirs
    if not theirs:
        pytest.skip("the machine has not that much memory")

    (talloc,) = set(ours.buf_tallocs)
    assert talloc.alignment == theirs["alignment"]
    assert [(chunk.free_blocks, chunk.max_size) for chunk in talloc.chunks] == theirs["chunks"]
    keys, known, real = hash_keys(ours.planned_nodes, ours.planned_leafs), theirs["known"], theirs["tables"]
    slots = HashSet(ours.hash_size)
    where = {slots.find_or_insert(known[t.id]): t for t in keys}
    assert slots.size == real.size
    assert {i: known[t.id] for i, t in where.items()} == real.keys
    assert {i: astuple(hash_node(ours, t.index)) for i, t in where.items()} == real.hash_nodes
    assert places_of(ours) == (real.node_allocs, real.leaf_allocs)


def test_the_tables_of_a_sample_are_those_of_the_real_allocator(sample: Path, lib: Lib) -> None:
    check_tables(lib, sample)


@in_turn("seed", range(60))
def test_the_tables_of_random_graphs_are_those_of_the_real_allocator(seed: int, lib: Lib) -> None:
    try:
        check_tables(lib, scenario(seed))
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")


SEEDS = range(60)
"""In the last graphs are of the same size."""

LEVELS = (1, 2)


def pairs(scenario: LoadedScenario) -> list[tuple[str, str]]:
    return list(permutations(scenario.model.graphs, 2))


def ours(scenario: LoadedScenario, first: str, second: str) -> ExplainedReallocShown:
    opened = Opened(scenario, "it")
    return explain_realloc(Side(opened, first, first), Side(opened, second, second))


def real_model(scenario: LoadedScenario, first: str, second: str) -> ScenarioSpec:
    return replace(scenario.model, steps=[Step("reserve", first), Step("alloc", second)])


def check(cases: list[tuple[ExplainedReallocShown, ScenarioSpec]], level: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many aborted; each as it was foretold."""
    monkeypatch.setenv("GGML_SCHED_DEBUG_REALLOC", str(level))
    aborted = 0
    for (facts, _), real in zip(cases, run_many([model for _, model in cases], 0), strict=True):
        message = str((real.plans[-1].get("error") or {}).get("message"))
        expected = not facts.serves and facts.n_buffers > 1 if level > 1 else facts.unexpected
        assert ("unexpected graph reallocation" in message) == expected
        if expected:
            aborted += 1
            told = re.search(r"graph size = (\d+), nodes = (\d+), leafs = (\d+)", message)
            assert told is not None
            assert tuple(map(int, told.groups())) == (facts.second.size, facts.second.nodes, facts.second.leafs)
    return aborted


def cases_of(scenarios: list[LoadedScenario]) -> list[tuple[ExplainedReallocShown, ScenarioSpec]]:
    out = []
    for loaded in scenarios:
        for first, second in pairs(loaded):
            if all(loaded.plan(graph).ok and loaded.plan(graph, "reserve").ok for graph in (first, second)):
                out.append((ours(loaded, first, second), real_model(loaded, first, second)))
    return out


def test_the_samples_graphs_serve_each_other_as_in_ggml(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = [ggmltool.load(path, ggml=release) for path in samples(release)]
    cases = cases_of([s for s in scenarios if len(s.model.graphs) > 1])
    for level in LEVELS:
        assert check(cases, level, monkeypatch) >= 1


def test_random_graphs_serve_each_other_as_in_ggml(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = []
    for seed in (drawn := Drawn(SEEDS, len(SEEDS) // 10, 388)):
        loaded = ggmltool.load(scenario(seed), ggml=release)
        cases += cases_of([loaded]) if len(loaded.model.graphs) > 1 else []
        drawn.found = len(cases) if any(facts.unexpected for facts, _ in cases) else 0
    for level in LEVELS:
        assert check(cases, level, monkeypatch) >= 1
