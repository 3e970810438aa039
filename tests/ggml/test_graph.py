"""Building a graph: what is a leaf and what a node, their order, use counts and default names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.alloc.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.buffer import AddressSpace
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Event, Logged
from ggmltool.ggml.graph import NONE, CGraph, build_order
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM, Tensor
from tests.ggml.graphs import Builder


def names(tensors: list[Tensor]) -> list[str]:
    return [t.name for t in tensors]


def test_ordering_leaves_the_marks_to_a_later_expansion() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    y = b.node("y", Op.SQR, x)
    z = b.node("z", Op.SQR, y)
    other = b.node("other", Op.SQRT, x)
    g = CGraph(16)
    g.build_forward_order(z)
    g.build_forward_order(other)
    assert names(g.nodes) == ["y", "z", "other"]
    assert not any(t.flags & FLAG_COMPUTE for t in (y, z, other))
    g.build_forward_expand(z)
    assert [bool(t.flags & FLAG_COMPUTE) for t in (y, z, other)] == [True, True, False]


def test_a_leaf_with_sources_cannot_be_expanded_behind_them() -> None:
    b = Builder()
    leaf = b.leaf("leaf", 4)
    leaf.src = [b.node("y", Op.SQR, b.leaf("x", 4))]
    with pytest.raises(GgmlAssert) as error:
        b.graph(leaf)
    assert error.value.condition == "cgraph->nodes[cgraph->n_nodes - 1] == tensor"


def test_a_graph_may_be_far_deeper_than_pythons_stack() -> None:
    b = Builder()
    t = b.leaf("x", 4)
    for _ in range(30_000):
        t = b.node("n", Op.SQR, t)
    assert b.graph(t, size=30_000).n_nodes == 30_000


def linked(tensors: list[Tensor], sources: list[list[int]]) -> list[Tensor]:
    """The tensors anew, with their sources."""
    made = [t.clone(i) for i, t in enumerate(tensors)]
    for t, src in zip(made, sources, strict=True):
        t.src = [None if s == NONE else made[s] for s in src]
    return made


def seen(graph: CGraph, tensors: list[Tensor]) -> tuple[object, ...]:
    """All that building a graph leaves in it and in its tensors."""
    lists = [[t.index for t in of] for of in (graph.nodes, graph.leafs, graph.visited)]
    uses = [(graph.use_count(t), graph.contains(t)) for t in tensors]
    return lists, uses, [(t.name, t.flags) for t in tensors]


@given(st.data())
def test_building_in_order_leaves_what_building_leaves(data: st.DataObject) -> None:
    b = Builder()
    name = st.sampled_from(["", "", "named"])
    tensors = [b.leaf(data.draw(name), 4, flags=FLAG_PARAM * data.draw(st.booleans())) for _ in range(3)]
    sources: list[list[int]] = [[] for _ in tensors]
    for i in range(3, 3 + data.draw(st.integers(1, 20))):
        # A cast has itself as a source.
        sources.append(data.draw(st.lists(st.sampled_from([*range(i + 1), NONE]), max_size=5)))
        tensors.append(b.node(data.draw(name), Op.ADD, tensors[0]))
    roots = data.draw(st.lists(st.tuples(st.integers(0, len(tensors) - 1), st.booleans()), min_size=1))

    built, made = CGraph(64), linked(tensors, sources)
    for root, is_computed in roots:
        (built.build_forward_expand if is_computed else built.build_forward_order)(made[root])
    order = build_order(roots, tensors, sources)
    assert order is not None
    again, made_again = CGraph(64), linked(tensors, sources)
    again.build_in_order(order, made_again.__getitem__)

    assert seen(again, made_again) == seen(built, made)


def test_a_leaf_with_sources_of_its_own_has_no_order() -> None:
    b = Builder()
    tensors = [b.leaf("x", 4), b.node("y", Op.SQR, b.leaf("x", 4)), b.leaf("leaf", 4)]
    assert build_order([(2, True)], tensors, [[], [0], [1]]) is None
    assert build_order([(1, True)], tensors, [[], [0], [1]]) is not None


def test_an_order_may_be_far_deeper_than_pythons_stack() -> None:
    b = Builder()
    n = 30_000
    node = b.node("n", Op.SQR, b.leaf("x", 4))
    order = build_order([(n, True)], [b.leaf("x", 4), *[node] * n], [[], *([i] for i in range(n))])
    assert order is not None
    assert order.nodes == tuple(range(1, n + 1))


load()


def backend(name: str) -> Backend:
    profile = PROFILES[name.rstrip("0")]
    return Backend(name, make_device(profile, name, make_buft(profile, name, name), []))


CPU, CUDA0 = backend("CPU"), backend("CUDA0")


class Made:
    """A graph of two products with a cast and a view of it, on CUDA0 if `allocated`."""

    def __init__(self, allocated: bool = True, size: int = 64) -> None:
        self.indices, self.addresses = IndexSpace(), AddressSpace()
        self.ctx = ctx = Context(indices=self.indices)
        self.x = ctx.new_tensor(TYPES["f32"], (8, 4), name="x")
        self.cast = CONSTRUCTORS["cast"].build(ctx, self.x, TYPES["f16"])
        self.view = CONSTRUCTORS["transpose"].build(ctx, self.cast)
        self.y = CONSTRUCTORS["sqr"].build(ctx, self.x)
        if allocated:
            alloc_ctx_tensors_from_buft(ctx, CUDA0.device.buft, self.addresses)
        self.graph = CGraph(size)
        self.graph.build_forward_expand(self.view)
        self.graph.build_forward_expand(self.y)
        self.events: list[Event] = []

    def copy(self) -> Sequence[Tensor]:
        made = graph_copy(CPU, self.graph, self.indices, self.addresses, self.events.append)
        assert made is not None
        self.made = made
        return made.graph.nodes


def test_the_indices_of_a_freed_copy_come_again() -> None:
    made = Made()
    made.copy()
    top = made.indices.top
    made.made.free(made.indices)
    made.copy()
    assert made.indices.top == top


def test_more_tensors_than_the_hash_set_of_the_graph_has_slots_is_an_abort() -> None:
    made = Made()
    more = Made()
    made.graph.size = 1
    made.graph.nodes += more.graph.nodes
    with pytest.raises(GgmlAbort) as refused:
        made.copy()
    assert refused.value.function == "ggml_hash_insert"


def test_an_empty_graph_has_no_copy_and_cannot_be_compared() -> None:
    made = Made()
    made.graph.nodes.clear()
    assert graph_copy(CPU, made.graph, made.indices, made.addresses, made.events.append) is None
    assert isinstance(made.events[-2], Logged)
    ok = compare_graph_backend(CUDA0, CPU, made.graph, lambda *_: True, lambda *_: None, made.indices, made.addresses)
    assert not ok
