"""Reading, writing and copying tensors: what ggml asserts first, and what is announced."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc, view_init
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.events import Event, TensorCopied, TensorWritten
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.transfer import tensor_copy, tensor_get, tensor_set

HOST = BufferType("HOST", "CPU", host=True)
GPU = BufferType("GPU", "GPU")
CUDA0, CUDA1 = (BufferType(name, name, family="CUDA") for name in ("CUDA0", "CUDA1"))


def tensor(buft: BufferType = HOST, *ne: int, name: str = "t") -> Tensor:
    t = Context().new_tensor(F32, ne or (4,), name=name)
    tensor_alloc(Buffer(buft, t.nbytes, AddressSpace()), t, 0)
    return t


def floats(*values: float) -> bytes:
    return np.float32(values).tobytes()


def test_bytes_written_are_read_back() -> None:
    t = tensor()
    tensor_set(t, floats(1, 2, 3, 4))
    tensor_set(t, floats(9), 8)
    assert tensor_get(t).view(np.float32).tolist() == [1, 2, 9, 4]
    assert tensor_get(t, 4, 8).view(np.float32).tolist() == [2, 9]


def test_what_is_read_is_a_copy() -> None:
    t = tensor()
    read = tensor_get(t)
    tensor_set(t, floats(1, 2, 3, 4))
    assert not read.any()


def test_a_view_reads_and_writes_its_root() -> None:
    root = tensor()
    view = Context().new_tensor(F32, (2,), root, 8)
    view_init(view)
    tensor_set(view, floats(5, 6))
    assert tensor_get(root).view(np.float32).tolist() == [0, 0, 5, 6]


@pytest.mark.parametrize(("offset", "size"), [(0, 20), (16, 4), (12, 8)])
def test_bytes_beyond_the_end_are_ggmls_assertion(offset: int, size: int) -> None:
    t = tensor()
    with pytest.raises(GgmlAssert) as error:
        tensor_set(t, bytes(size), offset)
    assert error.value.condition == 'offset + size <= ggml_nbytes(tensor) && "tensor write out of bounds"'
    with pytest.raises(GgmlAssert) as error:
        tensor_get(t, offset, size)
    assert error.value.condition == 'offset + size <= ggml_nbytes(tensor) && "tensor read out of bounds"'


def test_a_tensor_without_a_buffer_is_ggmls_assertion_even_for_no_bytes() -> None:
    t = Context().new_tensor(F32, (4,), name="t")
    for size in (0, 4):
        with pytest.raises(GgmlAssert) as error:
            tensor_set(t, bytes(size))
        assert error.value.condition == 'buf != NULL && "tensor buffer not set"'
        assert error.value.function == "ggml_backend_tensor_set"


def test_no_bytes_may_be_written_to_an_empty_tensor() -> None:
    t = tensor(HOST, 0)
    tensor_set(t, b"")
    with pytest.raises(GgmlAssert) as error:
        tensor_set(t, bytes(4))
    assert error.value.condition == 'tensor->data != NULL && "tensor not allocated"'


def test_reads_and_writes_are_announced_with_their_memory() -> None:
    events: list[Event] = []
    t = tensor(GPU)
    tensor_set(t, bytes(8), 4, None, events.append)
    tensor_get(t, 0, 4, events.append)
    tensor_set(t, b"", 0, None, events.append)
    assert events == [TensorWritten("t", "GPU", 4, 8), TensorWritten("t", "GPU", 0, 4, get=True)]


@pytest.mark.parametrize(
    ("src", "dst", "how"),
    [
        (HOST, GPU, "set"),
        (HOST, HOST, "set"),
        (GPU, HOST, "get"),
        (GPU, GPU, "bounce"),
        (CUDA0, CUDA1, "cpy"),
        (CUDA0, GPU, "bounce"),
    ],
)
def test_a_copy_goes_the_way_its_two_ends_allow(src: BufferType, dst: BufferType, how: str) -> None:
    events: list[Event] = []
    a, b = tensor(src, name="a"), tensor(dst, name="b")
    tensor_set(a, floats(1, 2, 3, 4))
    tensor_copy(a, b, events.append)
    assert tensor_get(b).view(np.float32).tolist() == [1, 2, 3, 4]
    assert events == [TensorCopied("a", "b", 16, how, src.name, dst.name)]


def test_a_copy_to_itself_is_nothing() -> None:
    events: list[Event] = []
    t = tensor()
    tensor_copy(t, t, events.append)
    assert events == []


def test_a_copy_between_layouts_is_ggmls_assertion() -> None:
    a, b = tensor(HOST, 4), tensor(HOST, 2, 2)
    with pytest.raises(GgmlAssert) as error:
        tensor_copy(a, b)
    assert error.value.condition == ('ggml_are_same_layout(src, dst) && "cannot copy tensors with different layouts"')


def test_a_copy_of_what_has_no_memory_is_ggmls_assertion() -> None:
    a = Context().new_tensor(F32, (4,), name="a")
    with pytest.raises(GgmlAssert, match="tensor buffer not set"):
        tensor_copy(a, tensor())
