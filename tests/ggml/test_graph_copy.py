"""Copies of graphs on a second backend: what is made anew, what it is linked to, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ggmltool.ggml.buffer import AddressSpace
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profiles import PROFILES, make_buft, make_device
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Computed, Event, Logged, Synchronized, TensorCopied
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS
from ggmltool.ggml.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.tensor import Tensor

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
