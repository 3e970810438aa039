"""What building a graph comes to, found beforehand: the same as building it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.build_order import NONE, build_order
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_PARAM, Tensor
from tests.ggml.graphs import Builder


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


def test_a_graph_may_be_far_deeper_than_pythons_stack() -> None:
    b = Builder()
    n = 30_000
    node = b.node("n", Op.SQR, b.leaf("x", 4))
    order = build_order([(n, True)], [b.leaf("x", 4), *[node] * n], [[], *([i] for i in range(n))])
    assert order is not None
    assert order.nodes == tuple(range(1, n + 1))
