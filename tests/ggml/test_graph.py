"""Building a graph: what is a leaf and what a node, their order, use counts and default names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM, Tensor
from tests.ggml.graphs import Builder


def names(tensors: list[Tensor]) -> list[str]:
    return [t.name for t in tensors]


def test_sources_come_before_their_node_in_the_order_of_their_slots() -> None:
    b = Builder()
    x, y = b.leaf("x", 4), b.leaf("y", 4)
    left, right = b.node("left", Op.SQR, y), b.node("right", Op.SQRT, x)
    g = b.graph(b.node("sum", Op.ADD, left, right))
    assert names(g.nodes) == ["left", "right", "sum"]
    assert names(g.leafs) == ["y", "x"]


def test_expanding_again_adds_only_what_is_new() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    a = b.node("a", Op.SQR, x)
    c = b.node("c", Op.SQR, a)
    g = b.graph(a, c, a)
    assert names(g.nodes) == ["a", "c"]
    assert g.use_count(a) == 1


def test_every_edge_counts_as_a_use() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    twice = b.node("twice", Op.MUL, x, x)
    g = b.graph(twice, b.node("once", Op.SQR, x))
    assert g.use_count(x) == 3
    assert g.use_count(twice) == 0


def test_a_cast_uses_itself() -> None:
    b = Builder()
    cast = b.node("cast", Op.CPY, b.leaf("x", 4), type="f16")
    cast.src.append(cast)
    g = b.graph(cast)
    assert names(g.nodes) == ["cast"]
    assert g.use_count(cast) == 1


def test_holes_among_the_sources_are_passed_over() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    g = b.graph(b.node("y", Op.FLASH_ATTN_EXT, None, x, ne=(4,)))
    assert names(g.leafs) == ["x"]


def test_tensors_without_names_are_called_by_their_place() -> None:
    b = Builder()
    x, y = b.leaf("", 4), b.leaf("", 4)
    g = b.graph(b.node("", Op.SQR, b.node("named", Op.ADD, x, y)))
    assert names(g.leafs) == ["leaf_0", "leaf_1"]
    assert names(g.nodes) == ["named", "node_1"]


def test_a_parameter_is_a_node_though_it_has_no_op() -> None:
    b = Builder()
    p = b.leaf("", 4, flags=FLAG_PARAM)
    g = b.graph(b.node("y", Op.SQR, p))
    assert g.leafs == []
    assert names(g.nodes) == ["node_0", "y"]


def test_an_op_without_sources_is_a_node() -> None:
    b = Builder()
    g = b.graph(b.node("a", Op.ARANGE, ne=(4,), type="f32"))
    assert (names(g.nodes), g.leafs) == (["a"], [])


def test_a_view_without_an_op_is_a_leaf_and_brings_no_root() -> None:
    b = Builder()
    root = b.leaf("root", 4)
    view = b.none_view("view", root)
    g = b.graph(b.node("y", Op.SQR, view))
    assert names(g.leafs) == ["view"]
    assert not g.contains(root)
    assert g.contains(view)


def test_expanding_marks_nodes_for_computing_and_leafs_not() -> None:
    b = Builder()
    x = b.leaf("x", 4)
    y = b.node("y", Op.SQR, x)
    b.graph(y)
    assert y.flags & FLAG_COMPUTE
    assert not x.flags & FLAG_COMPUTE


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


def test_a_full_graph_refuses_another_node() -> None:
    b = Builder()
    t = b.leaf("x", 4)
    for i in range(3):
        t = b.node(f"n{i}", Op.SQR, t)
    with pytest.raises(GgmlAssert) as error:
        b.graph(t, size=2)
    assert error.value.condition == "cgraph->n_nodes < cgraph->size"


def test_a_full_graph_refuses_another_leaf() -> None:
    b = Builder()
    graph = CGraph(1)
    graph.build_forward_expand(b.leaf("a", 4))
    with pytest.raises(GgmlAssert) as error:
        graph.build_forward_expand(b.leaf("c", 4))
    assert error.value.condition == "cgraph->n_leafs < cgraph->size"
    assert error.value.breach == ("cgraph_leafs", 2)


def test_a_graph_that_is_far_too_small_runs_out_of_slots_on_the_way_down() -> None:
    b = Builder()
    with pytest.raises(GgmlAssert) as error:
        b.graph(b.node("y", Op.ADD, b.leaf("a", 4), b.leaf("c", 4)), size=1)
    assert error.value.condition == "node_hash_pos != GGML_HASHSET_FULL"
    assert "c is one more" in error.value.explanation


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
