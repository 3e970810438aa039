"""The node orders of Metal and Vulkan: laws on random graphs, and what they are for on small ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ggml.devices import metal, vulkan
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import graph

Optimize = Callable[[list[Tensor], Callable[[Tensor], int]], list[Tensor]]
BOTH: dict[str, Optimize] = {"Metal": metal.graph_optimize, "Vulkan": vulkan.graph_optimize}
seeds = st.integers(1000, 1 << 32)


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
