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
from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Computed, Event, Logged, Synchronized, TensorCopied
from ggmltool.ggml.graph import NONE, CGraph, build_order
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM, Tensor
from tests.ggml.graphs import Builder


def names(tensors: list[Tensor]) -> list[str]:
    return [t.name for t in tensors]


@pytest.mark.parametrize(
    ("text", "outputs", "nodes", "leafs", "uses"),
    [
        # Sources come before their node, in the order of their slots.
        ("x:4 y:4 left=SQR(y) right=SQRT(x) sum=ADD(left,right)", "sum", "left right sum", "y x", {"x": 1}),
        # Expanding again adds only what is new.
        ("x:4 a=SQR(x) c=SQR(a)", "a c a", "a c", "x", {"a": 1}),
        # Every edge counts as a use.
        ("x:4 twice=MUL(x,x) once=SQR(x)", "twice once", "twice once", "x", {"x": 3, "twice": 0}),
        # Holes among the sources are passed over.
        ("x:4 y=FLASH_ATTN_EXT(_,x)", "y", "y", "x", {"x": 1}),
    ],
)
def test_a_graph_has_these_nodes_and_leafs(
    text: str, outputs: str, nodes: str, leafs: str, uses: dict[str, int]
) -> None:
    b = Builder()
    tensors = b.parse(text)
    g = b.graph(*(tensors[name] for name in outputs.split()))
    assert (names(g.nodes), names(g.leafs)) == (nodes.split(), leafs.split())
    assert {name: g.use_count(tensors[name]) for name in uses} == uses
    for t in tensors.values():
        # Nodes are marked for computing, leafs are not.
        assert bool(t.flags & FLAG_COMPUTE) == bool(t.op)


def test_a_view_without_an_op_is_a_leaf_and_brings_no_root() -> None:
    b = Builder()
    root = b.leaf("root", 4)
    view = b.none_view("view", root)
    g = b.graph(b.node("y", Op.SQR, view))
    assert names(g.leafs) == ["view"]
    assert not g.contains(root)
    assert g.contains(view)


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


@pytest.mark.parametrize(
    ("text", "outputs", "size", "condition", "breach"),
    [
        ("x:4 a=SQR(x) c=SQR(a) d=SQR(c)", "d", 2, "cgraph->n_nodes < cgraph->size", ("cgraph_nodes", 3)),
        ("a:4 c:4", "a c", 1, "cgraph->n_leafs < cgraph->size", ("cgraph_leafs", 2)),
        # Tensors take their slots on the way down.
        ("a:4 c:4 y=ADD(a,c)", "y", 1, "node_hash_pos != GGML_HASHSET_FULL", ("cgraph_slots", 3)),
    ],
)
def test_a_full_graph_refuses_one_more(
    text: str, outputs: str, size: int, condition: str, breach: tuple[str, int]
) -> None:
    b = Builder()
    tensors = b.parse(text)
    with pytest.raises(GgmlAssert) as error:
        b.graph(*(tensors[name] for name in outputs.split()), size=size)
    assert (error.value.condition, error.value.breach) == (condition, breach)
    assert f"{outputs[-1] if outputs != 'y' else 'c'} is one more" in error.value.explanation


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


def test_tensors_made_after_the_graph_can_be_added() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    g = b.graph(b.node("a", Op.SQR, x))
    late = b.node("late", Op.SQR, x)
    assert not g.contains(late)
    assert g.use_count(late) == 0
    g.build_forward_expand(late)
    assert g.contains(late)
    assert g.use_count(x) == 2


def naive_order(root: Tensor, seen: set[int], nodes: list[Tensor], leafs: list[Tensor]) -> None:
    if id(root) in seen:
        return
    seen.add(id(root))
    for s in root.src:
        if s is not None:
            naive_order(s, seen, nodes, leafs)
    (leafs if root.op == Op.NONE and not root.flags & FLAG_PARAM else nodes).append(root)


@given(st.data())
def test_a_random_graph_is_in_post_order_with_every_edge_counted(data: st.DataObject) -> None:
    b = Builder()
    tensors = [b.leaf(f"l{i}", 4, flags=FLAG_PARAM * data.draw(st.booleans())) for i in range(3)]
    for i in range(data.draw(st.integers(1, 25))):
        src = data.draw(st.lists(st.sampled_from([*tensors, None]), max_size=10))
        t = b.ctx.new_tensor(F32, (4,), name=f"n{i}")
        t.set_op(Op.ADD, (), *src)
        tensors.append(t)
    outputs = data.draw(st.lists(st.sampled_from(tensors), min_size=1))
    g = b.graph(*outputs)
    nodes: list[Tensor] = []
    leafs: list[Tensor] = []
    seen: set[int] = set()
    for t in outputs:
        naive_order(t, seen, nodes, leafs)
    assert g.nodes == nodes
    assert g.leafs == leafs
    for t in (*nodes, *leafs):
        assert g.use_count(t) == sum(s is t for n in nodes for s in n.src)


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


def test_the_copy_has_the_nodes_in_order_with_memory_of_its_own() -> None:
    made = Made()
    cast, view, y = made.copy()
    assert [n.name for n in (cast, view, y)] == [n.name for n in made.graph.nodes]
    assert made.made.graph.leafs == []
    x = y.src[0]
    assert x is not None
    assert x is not made.x
    assert [t.name for t in made.made.ctx_allocated.tensors] == [cast.name, "x", y.name]
    assert made.made.ctx_unallocated.tensors == [view]
    assert view.view_src is cast
    assert all(t.buffer is made.made.buffers[0] for t in (cast, view, y, x))
    assert (view.ne, view.nb, view.data) == (made.view.ne, made.view.nb, cast.data)


def test_the_copy_of_a_cast_has_no_edge_to_itself() -> None:
    made = Made()
    assert made.cast.src[1] is made.cast
    cast = made.copy()[0]
    assert [s.name if s else None for s in cast.src] == ["x"]


def test_every_tensor_with_memory_is_copied_once_nodes_before_their_sources() -> None:
    made = Made()
    made.copy()
    copied = [e.src for e in made.events if isinstance(e, TensorCopied)]
    assert copied == [made.cast.name, "x", made.y.name]


def test_the_indices_of_a_freed_copy_come_again() -> None:
    made = Made()
    made.copy()
    top = made.indices.top
    made.made.free(made.indices)
    made.copy()
    assert made.indices.top == top


def test_a_graph_without_memory_is_refused() -> None:
    with pytest.raises(GgmlAssert, match="graph must be allocated") as refused:
        Made(allocated=False).copy()
    assert refused.value.function == "graph_copy_dup_tensor"


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


def test_each_node_is_computed_on_the_first_backend_and_then_on_the_second() -> None:
    made = Made()
    seen: list[int] = []
    computed: list[tuple[str, int]] = []

    def callback(i: int, a: Tensor, b: Tensor) -> bool:
        seen.append(i)
        assert a is made.graph.nodes[i]
        assert b is not a
        return True

    compare_graph_backend(
        CUDA0,
        CPU,
        made.graph,
        callback,
        lambda b, nodes: computed.append((b.name, len(nodes))),
        made.indices,
        made.addresses,
        made.events.append,
    )
    assert seen == [0, 2]
    assert computed == [("CUDA0", 1), ("CPU", 1)] * 3
    story = [type(e) for e in made.events if isinstance(e, Computed | Synchronized)]
    assert story == [Computed, Synchronized] * 6
