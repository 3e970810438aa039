"""Graph copies and comparison node by node beside the real library: the same calls, the same nodes, the same values."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAssert, GgmlError
from ggmltool.ggml.graph_copy import compare_graph_backend
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.oracle import structs
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.mock import World
from ggmltool.oracle.run import Runner
from ggmltool.oracle.tensors import Builder, read_values
from ggmltool.scenario.devices.backends import read_backends
from ggmltool.scenario.run.devices import make_backends, make_bufts
from ggmltool.scenario.run.placed import OneBackendGraph
from ggmltool.scenario.run.run import values_of
from ggmltool.scenario.scenario import LoadedScenario
from tests.conformance.compare import calls_of, trace_of
from tests.conformance.releases import release_of
from tests.conformance.test_compute import nmse, with_data
from tests.drawn import Drawn

SEEDS = 80
BATCH = 40

LARGEST = 1 << 20
"""Bytes of tensors that are worth computing one by one, twice, on each."""

COMPARE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

Answer = Callable[[int], bool]
"""Whether to go on after the node of this number."""

Seen = list[tuple[int, str, Any, Any]]
"""What the callback got: the node's number and id, its values on the first backend and on the second."""

ALWAYS: Answer = lambda _i: True  # noqa: E731

EVERY_KIND: dict[str, Any] = {
    "ggmltool": 1,
    "contexts": {
        "w": {
            "buft": "CPU",
            "usage": "weights",
            "tensors": {
                "w": {"type": "f16", "ne": [32, 8], "data": {"normal": {"seed": 1}}},
                "unused": {"type": "f32", "ne": [100]},
                "cache": {"type": "f32", "ne": [8, 16], "data": {"fill": 0}},
            },
        },
        "in": {"tensors": {"x": {"type": "f32", "ne": [32, 6], "data": {"normal": {"seed": 2}}, "flags": ["input"]}}},
    },
    "graphs": {
        "main": {
            "nodes": {
                "a": "mul_mat(w, x)",
                "cast": "cast(a, type=f16)",
                "part": "view(cache, ne=[8, 6], nb=[32], offset=128)",
                "store": "cpy(a, part)",
                "turned": "permute(a, 1, 0, 2, 3)",
                "again": "view(part, ne=[8, 2], nb=[32], offset=32)",
                "cont": "cont(turned)",
                "twice": {"op": "scale", "src": ["cont"], "s": 2.0, "inplace": True},
                "y": "soft_max(twice)",
                "z": "sqr(again)",
                "half": "cont(cast)",
            },
            "expand": ["half", "store", "y", "z"],
        }
    },
}


def on(scenario: LoadedScenario, first: str, second: str) -> LoadedScenario:
    """The scenario with two mock devices of the oracle, nothing assigned, and ids for names: copies have no others."""
    specs = {"GPU": {"name": "GPU", "profile": "custom"}, "CPU": "CPU"}
    model = scenario.model
    free = [replace(c, tensors=[replace(t, backend=None, name=t.id) for t in c.tensors]) for c in model.contexts]
    graphs = {
        name: replace(g, nodes=[replace(n, backend=None, name=n.id) for n in g.nodes])
        for name, g in model.graphs.items()
    }
    backends = read_backends([specs[first], specs[second]])
    return LoadedScenario(replace(model, backends=backends, contexts=free, graphs=graphs))


def ours(scenario: LoadedScenario, answer: Answer, tests: Sequence[str] = ()) -> tuple[list[str], Seen]:
    """The engine's calls, and what its callback got."""
    model = scenario.model
    first, second = make_backends(model, make_bufts(model))
    events: list[Any] = []
    placed = OneBackendGraph(scenario.compiled, next(iter(model.graphs)), first, events.append)
    seen: Seen = []

    def callback(i: int, a: Any, b: Any) -> bool:
        seen.append((i, a.id, values_of(a), values_of(b)))
        return answer(i)

    placed.allocate(None)
    nodes = [t for t in placed.graph.nodes if t.id in tests] if tests else []
    compare(first, second, placed, callback, events, nodes)
    return trace_of(events, lambda buft: buft != "CPU"), seen


def compare(
    first: Backend,
    second: Backend,
    placed: OneBackendGraph,
    callback: Any,
    events: list[Any],
    nodes: Sequence[Any] = (),
) -> bool:
    return compare_graph_backend(
        first,
        second,
        placed.graph,
        callback,
        backend_graph_compute,
        placed.indices,
        placed.addresses,
        events.append,
        nodes,
    )


def theirs(
    lib: Lib, scenario: LoadedScenario, answer: Answer, tests: Sequence[str] = ()
) -> tuple[list[str], Seen] | Abort:
    """The same of the real library, which may abort."""
    model = scenario.model
    graph_name = next(iter(model.graphs))
    needed = OneBackendGraph(scenario.compiled, graph_name, make_backends(model, make_bufts(model))[0], None)
    ids = [t.id for t in needed.context.tensors]

    def child() -> tuple[list[str], Seen]:
        world = World(Runner(lib, 0).callbacks, model, True)
        builder = Builder(lib)
        world.names = builder.ids
        spec = model.graphs[graph_name]
        specs = [t for t in (*model.tensors(), *spec.nodes) if t.id in ids]
        size = scenario.compiled.cgraph_size
        ctx = builder.context(len(specs), size)
        known: dict[str, int] = {}
        builder.tensors(ctx, specs, known)
        graph = builder.graph(ctx, spec, known, size)
        first, second = world.order
        lib.ggml_backend_alloc_ctx_tensors_from_buft(ctx, first.buft.address)
        for t in specs:
            if t.data is not None and structs.Tensor.from_address(known[t.id]).buffer:
                lib.set(known[t.id], t.data.raw(t.type, t.ne, t.nb))
        seen: Seen = []

        def on_compared(i: int, a: int, b: int, _user: int | None) -> bool:
            length = len(world.trace)
            seen.append((i, world.tensor_name(a), read_values(lib, a), read_values(lib, b)))
            del world.trace[length:]
            return answer(i)

        callback = COMPARE(on_compared)
        nodes = (ctypes.c_void_p * len(tests))(*[known[t] for t in tests]) if tests else None
        assert lib.ggml_backend_compare_graph_backend(
            first.address, second.address, graph, callback, None, nodes, len(tests)
        )
        return calls_of(world.trace), seen

    made: tuple[list[str], Seen] | Abort = lib.run_forked(child)
    return made


def check_same(
    lib: Lib, scenario: LoadedScenario, answer: Answer, tests: Sequence[str] = (), allowed: float = 2e-3
) -> int:
    """Compare both; how many nodes the callback got."""
    lines, seen = ours(scenario, answer, tests)
    expected = theirs(lib, scenario, answer, tests)
    if isinstance(expected, Abort):
        return 0
    assert lines == expected[0]
    assert [(i, name) for i, name, _, _ in seen] == [(i, name) for i, name, _, _ in expected[1]]
    unsure = hang_on_an_order(scenario)
    for (_, name, *our_values), (_, _, *their_values) in zip(seen, expected[1], strict=True):
        if name not in unsure:
            for a, b in zip(our_values, their_values, strict=True):
                assert nmse(a, b) < allowed, name
    return len(seen)


def nbytes(scenario: LoadedScenario) -> int:
    model = scenario.model
    nodes = [n for graph in model.graphs.values() for n in graph.nodes]
    return sum(nbytes_of(t.type, t.ne, t.nb) for t in (*model.tensors(), *nodes))


def hang_on_an_order(scenario: LoadedScenario) -> set[str]:
    """The nodes that hang on the order of a row's elements: of nearly equal ones any may come first."""
    unsure: set[str] = set()
    for graph in scenario.model.graphs.values():
        for n in graph.nodes:
            if n.op in (Op.ARGSORT, Op.TOP_K, Op.ARGMAX) or not unsure.isdisjoint((*n.src, n.view_src)):
                unsure.add(n.id)
    return unsure


PAIRS = [("GPU", "CPU"), ("CPU", "GPU")]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_kind_of_tensor_is_copied_and_compared_as_ggml_does(pair: tuple[str, str], lib: Lib) -> None:
    assert check_same(lib, on(ggmltool.load(EVERY_KIND, ggml=release_of(lib).name), *pair), ALWAYS) == 8


def test_a_callback_that_refuses_ends_the_comparison(lib: Lib) -> None:
    assert check_same(lib, on(ggmltool.load(EVERY_KIND, ggml=release_of(lib).name), "GPU", "CPU"), lambda i: i < 2) == 3


def test_with_test_nodes_the_whole_graph_is_computed_and_only_they_are_compared(lib: Lib) -> None:
    scenario = on(ggmltool.load(EVERY_KIND, ggml=release_of(lib).name), "GPU", "CPU")
    assert check_same(lib, scenario, lambda _i: False, ["y", "again"]) == 2


def test_a_test_node_that_is_no_node_is_an_assertion(lib: Lib) -> None:
    scenario = on(ggmltool.load(EVERY_KIND, ggml=release_of(lib).name), "GPU", "CPU")
    first, second = make_backends(scenario.model, make_bufts(scenario.model))
    placed = OneBackendGraph(scenario.compiled, "main", first, None)
    placed.allocate(None)
    x = next(t for t in placed.context.tensors if t.id == "x")
    with pytest.raises(GgmlAssert) as ours_:
        compare(first, second, placed, ALWAYS, [], [x])
    real = theirs(lib, scenario, ALWAYS, ["x"])
    assert isinstance(real, Abort)
    assert real.condition == ours_.value.condition == "verified"


def test_a_graph_without_memory_is_an_assertion(lib: Lib) -> None:
    scenario = on(ggmltool.load(EVERY_KIND, ggml=release_of(lib).name), "GPU", "CPU")
    first, second = make_backends(scenario.model, make_bufts(scenario.model))
    with pytest.raises(GgmlAssert) as ours_:
        compare(first, second, OneBackendGraph(scenario.compiled, "main", first, None), ALWAYS, [])

    def child() -> None:
        world = World(Runner(lib, 0).callbacks, scenario.model, True)
        builder = Builder(lib)
        spec = scenario.model.graphs["main"]
        specs = [*scenario.model.tensors(), *spec.nodes]
        ctx = builder.context(len(specs), 64)
        known: dict[str, int] = {}
        builder.tensors(ctx, specs, known)
        graph = builder.graph(ctx, spec, known, 64)
        addresses = [device.address for device in world.order]
        lib.ggml_backend_compare_graph_backend(*addresses, graph, COMPARE(lambda *_: True), None, None, 0)

    real = lib.run_forked(child)
    assert isinstance(real, Abort)
    assert real.condition == ours_.value.condition


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_random_graphs_are_copied_and_compared_as_ggml_does(first: int, lib: Lib) -> None:
    for seed in (drawn := Drawn(range(first, first + BATCH), BATCH // 5)):
        scenario = with_data(seed, release_of(lib).name)
        if scenario is None or nbytes(scenario) > LARGEST:
            continue
        try:
            drawn.found += check_same(lib, on(scenario, *PAIRS[seed % 2]), lambda i, seed=seed: i % 16 != seed % 16) > 0
        except GgmlError:
            continue
