"""Graph copies of January 2024 beside those of today."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend, Device, op_table
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import LineAssert
from ggmltool.ggml.events import Event, Logged
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import compare_graph_backend, graph_copy
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.january_2024.graph_copy import Copier
from ggmltool.ggml.releases.january_2024.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor
from ggmltool.ggml.transfer import tensor_get, tensor_set

CPU = BufferType("CPU", "CPU", 64, host=True, slack=64)
GPU = BufferType("GPU0", "GPU0", 128)


class Made:
    """x → y = sqr(x) → v, a view of y, on the CPU; `w` would come behind an empty slot of y's sources."""

    def __init__(self, allocate: bool = True) -> None:
        self.indices, self.addresses = IndexSpace(), AddressSpace()
        self.ctx = Context(indices=self.indices)
        self.x, self.w, self.y = (self.ctx.new_tensor(F32, (4,), name=name) for name in "xwy")
        self.y.set_op(Op.SQR, (), self.x)
        self.v = self.ctx.view_tensor(self.y)
        self.v.set_op(Op.VIEW, (), self.y)
        self.y.flags |= FLAG_OUTPUT
        self.graph = CGraph(16, self.indices.top)
        self.graph.build_forward_expand(self.v)
        if allocate:
            alloc_ctx_tensors_from_buft(self.ctx, CPU, self.addresses)
            tensor_set(self.x, np.arange(4, dtype=np.float32).tobytes())

    def copy(self, events: list[Event] | None = None) -> Tensor:
        backend = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
        listener = events.append if events is not None else None
        made = graph_copy(backend, self.graph, self.indices, self.addresses, listener, Copier)
        assert made is not None
        return made.graph.nodes[-1]


def test_values_and_views_are_on_the_other_backend() -> None:
    v = Made().copy()
    y = v.src[0]
    assert y is not None
    assert y.src[0] is not None
    assert v.view_src is y
    assert v.data == y.data
    assert y.buffer is v.buffer
    assert y.buffer is not None
    assert y.buffer.buft is GPU
    assert tensor_get(y.src[0]).tobytes() == np.arange(4, dtype=np.float32).tobytes()


def test_sources_end_at_the_first_empty_slot() -> None:
    made = Made()
    made.y.src = [made.x, None, made.w]
    y = made.copy().src[0]
    assert y is not None
    assert [s.name if s else None for s in y.src] == ["x"]


def test_a_graph_without_memory_is_refused() -> None:
    with pytest.raises(LineAssert, match=r"ggml-backend\.c:1496: src->data"):
        Made(allocate=False).copy()


def test_nodes_are_compared_one_by_one_and_views_are_not() -> None:
    made = Made()
    cpu = Backend("CPU", Device("CPU", "cpu", CPU, op_table((), True)))
    other = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
    seen: list[str] = []

    def compared(_: int, a: Tensor, b: Tensor) -> bool:
        seen.append(a.name)
        assert b.name == a.name
        return True

    assert compare_graph_backend(
        cpu, other, made.graph, compared, lambda *_: None, made.indices, made.addresses, copier_class=Copier
    )
    assert seen == ["y"]


def test_nothing_to_allocate_is_a_failure() -> None:
    made = Made()
    made.graph.nodes = []
    events: list[Event] = []
    backend = Backend("GPU0", Device("GPU0", "gpu", GPU, op_table((), True)))
    assert graph_copy(backend, made.graph, made.indices, made.addresses, events.append, Copier) is None
    assert Logged("error", "failed to allocate buffer for graph copy\n") in events
