"""The node orders of Metal and Vulkan: laws on random graphs, and what they are for on small ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.devices import metal, vulkan
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor
from tests.ggml.devices.cases import graph
from tests.ggml.graphs import Builder

Optimize = Callable[[list[Tensor], Callable[[Tensor], int]], list[Tensor]]
BOTH: dict[str, Optimize] = {"Metal": metal.graph_optimize, "Vulkan": vulkan.graph_optimize}
seeds = st.integers(1000, 1 << 32)


def reorder(name: str, b: Builder, *nodes: Tensor) -> list[str]:
    made = b.graph(*nodes)
    made.nodes = list(nodes)
    return [n.id for n in BOTH[name](list(nodes), made.use_count, keep_nothing)]


def keep_nothing(tensor: Tensor, until: Tensor) -> None:
    raise AssertionError(f"{tensor.id} is to be kept until {until.id}")


def root(t: Tensor) -> Tensor:
    return t if t.view_src is None else t.view_src


@pytest.mark.parametrize("name", BOTH)
@given(seed=seeds)
def test_no_node_is_lost_or_doubled_and_none_comes_before_its_sources(name: str, seed: int) -> None:
    g = graph(seed)
    ordered = BOTH[name](list(g.nodes), g.use_count, keep_nothing)
    assert {id(n) for n in ordered} == {id(n) for n in g.nodes}
    assert len(ordered) == len(g.nodes)
    at = {id(n): i for i, n in enumerate(ordered)}
    for n in ordered:
        for s in n.src:
            assert s is None or id(s) not in at or at[id(s)] < at[id(n)]


@given(seed=seeds)
def test_metal_never_swaps_a_write_with_another_access_to_the_same_memory(seed: int) -> None:
    g = graph(seed)
    ordered = BOTH["Metal"](list(g.nodes), g.use_count, keep_nothing)
    at = {id(n): i for i, n in enumerate(ordered)}
    for i, n in enumerate(g.nodes):
        for m in g.nodes[i + 1 :]:
            touched = {id(root(t)) for t in (m, *m.src) if t is not None}
            read = {id(root(s)) for s in n.src if s is not None}
            if n.is_view_op or m.is_view_op:
                continue
            if id(root(n)) in touched or id(root(m)) in read:
                assert at[id(n)] < at[id(m)]


@pytest.mark.parametrize("name", BOTH)
@given(seed=seeds)
def test_the_order_is_the_same_every_time(name: str, seed: int) -> None:
    orders = []
    for _ in range(2):
        g = graph(seed)
        orders.append([n.id for n in BOTH[name](list(g.nodes), g.use_count, keep_nothing)])
    assert orders[0] == orders[1]


def attention_inputs(b: Builder) -> list[Tensor]:
    """Q, K and V, each a product that is scaled, as a model writes them."""
    x = b.leaf("x", 8, 8)
    out = []
    for name in "qkv":
        product = b.node(f"{name}_product", Op.MUL_MAT, b.leaf(f"w{name}", 8, 8), x, ne=(8, 8))
        out += [product, b.node(name, Op.SCALE, product)]
    return out


@pytest.mark.parametrize("name", BOTH)
def test_three_products_of_one_input_run_side_by_side(name: str) -> None:
    b = Builder()
    order = reorder(name, b, *attention_inputs(b))
    assert order == ["q_product", "k_product", "v_product", "q", "k", "v"]


@pytest.mark.parametrize("name", BOTH)
def test_a_chain_stays_as_it_is(name: str) -> None:
    b = Builder()
    nodes = [b.node("n0", Op.SCALE, b.leaf("x", 8))]
    for i in range(1, 40):
        nodes.append(b.node(f"n{i}", Random(i).choice((Op.SCALE, Op.UNARY, Op.CONT)), nodes[-1]))
    assert reorder(name, b, *nodes) == [n.id for n in nodes]


@pytest.mark.parametrize("name", BOTH)
def test_a_norm_and_its_weight_are_not_taken_apart(name: str) -> None:
    b = Builder()
    x = b.leaf("x", 8)
    first = b.node("first", Op.SCALE, x)
    norm = b.node("norm", Op.RMS_NORM, first)
    weighted = b.node("weighted", Op.MUL, norm, b.leaf("w", 8))
    other = b.node("other", Op.MUL_MAT, b.leaf("v", 8, 8), x, ne=(8,))
    order = reorder(name, b, first, norm, weighted, other)
    assert order.index("weighted") == order.index("norm") + 1
    assert order.index("other") < order.index("norm")


@pytest.mark.parametrize("flags", [0, FLAG_OUTPUT])
def test_metal_does_not_fuse_what_is_an_output(flags: int) -> None:
    b = Builder()
    x = b.leaf("x", 8)
    norm = b.node("norm", Op.RMS_NORM, x)
    norm.flags |= flags
    weighted = b.node("weighted", Op.MUL, norm, b.leaf("w", 8))
    other = b.node("other", Op.SCALE, x)
    order = reorder("Metal", b, norm, weighted, other)
    assert order == (["norm", "other", "weighted"] if flags else ["norm", "weighted", "other"])


def test_metal_does_not_fuse_what_is_not_computed() -> None:
    b = Builder()
    x = b.leaf("x", 8)
    norm = b.node("norm", Op.RMS_NORM, x)
    weighted = b.node("weighted", Op.MUL, norm, b.leaf("w", 8))
    other = b.node("other", Op.SCALE, x)
    made = b.graph(norm, weighted, other)
    weighted.flags &= ~FLAG_COMPUTE
    ordered = BOTH["Metal"]([norm, weighted, other], made.use_count, keep_nothing)
    assert [n.id for n in ordered] == ["norm", "other", "weighted"]


def test_metal_looks_no_further_than_an_op_that_may_not_be_passed() -> None:
    b = Builder()
    x = b.leaf("x", 8)
    first = b.node("first", Op.SCALE, x)
    second = b.node("second", Op.SCALE, first)
    barrier = b.node("barrier", Op.SOFT_MAX, x)
    last = b.node("last", Op.SCALE, x)
    assert reorder("Metal", b, first, second, barrier, last) == ["first", "second", "barrier", "last"]
    assert reorder("Metal", b, first, second, last) == ["first", "last", "second"]


def test_vulkan_sets_rows_right_after_the_rotation_that_makes_them() -> None:
    b = Builder()
    x, pos, cache, rows = b.leaf("x", 8, 8), b.leaf("pos", 8, type="i32"), b.leaf("c", 8, 8), b.leaf("r", 8, type="i64")
    k = b.node("k", Op.ROPE, x, pos)
    other = b.node("other", Op.MUL_MAT, b.leaf("w", 8, 8), x, ne=(8, 8))
    view = b.view("view", k)
    stored = b.view("stored", cache, op=Op.SET_ROWS, src=(view, rows))
    first = b.node("first", Op.SCALE, x)
    assert reorder("Vulkan", b, first, k, other, view, stored) == ["first", "k", "view", "stored", "other"]


def test_vulkan_keeps_a_choice_of_experts_whole() -> None:
    b = Builder()
    x = b.leaf("x", 8)
    probs = b.node("probs", Op.SOFT_MAX, x)
    shaped = b.view("shaped", probs, op=Op.RESHAPE)
    order = b.node("order", Op.ARGSORT, probs)
    top = b.view("top", order)
    weights = b.node("weights", Op.GET_ROWS, shaped, top, ne=(8,))
    other = b.node("other", Op.MUL_MAT, b.leaf("w", 8, 8), x, ne=(8,))
    nodes = [probs, shaped, order, top, weights, other]
    assert reorder("Vulkan", b, *nodes) == [n.id for n in nodes]
    before = b.node("before", Op.SCALE, x)
    assert reorder("Vulkan", b, before, *nodes) == ["before", "other", *(n.id for n in nodes[:-1])]
