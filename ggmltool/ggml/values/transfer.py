"""Moving bytes between tensors: ggml_backend_tensor_set, _get and _copy, announced as events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.errors import GgmlAssert, advice
from ggmltool.ggml.events import Listener, TensorCopied, TensorWritten
from ggmltool.ggml.tensor import Tensor, are_same_layout
from ggmltool.ggml.values.arrays import HostArrays

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from ggmltool.ggml.devices.gpu import Queue

_HOST = HostArrays()


def tensor_set(
    t: Tensor, data: bytes | NDArray[uint8], offset: int = 0, size: int | None = None, events: Listener | None = None
) -> None:
    """ggml_backend_tensor_set: write bytes at `offset`. Raises GgmlAssert without a buffer or out of bounds."""
    size = len(data) if size is None else size
    check_access("ggml_backend_tensor_set", "write", t, offset, size)
    if size:
        if events:
            events(TensorWritten(t.label, _buft(t), offset, size))
        _HOST.set_bytes(t, data, offset)


def tensor_set_async(queue: Queue, t: Tensor, data: NDArray[uint8], offset: int, events: Listener | None) -> None:
    """ggml_backend_tensor_set_async on a GPU: the bytes are written behind what its stream has to do."""
    check_access("ggml_backend_tensor_set_async", "write", t, offset, data.size)
    if t.buffer is None or not data.size:
        return
    if events:
        events(TensorWritten(t.label, _buft(t), offset, data.size))
    memory, place = _HOST.extent("ggml_backend_tensor_set_async", "write", t, offset, data.size)
    queue.set_async(memory, place.start, data)
    _HOST.written(t)


def tensor_map(t: Tensor, content: NDArray[uint8], events: Listener | None = None) -> None:
    """What tensor_set does with all bytes of `t`, which is no view, without a copy: its memory is `content` itself.

    Memory of a GPU gets a copy.
    """
    check_access("ggml_backend_tensor_set", "write", t, 0, content.size)
    if t.buffer is None or not content.size:
        return
    if events:
        events(TensorWritten(t.label, _buft(t), 0, content.size))
    if t.buffer.buft.gpu is not None:
        _HOST.set_bytes(t, content)
        return
    t.buffer.mapped[t.data] = content
    _HOST.written(t)


def tensor_get(t: Tensor, offset: int = 0, size: int | None = None, events: Listener | None = None) -> NDArray[uint8]:
    """ggml_backend_tensor_get: a copy of the bytes from `offset` on. Raises GgmlAssert as `tensor_set` does."""
    size = t.nbytes - offset if size is None else size
    announce_get(t, events, offset, size)
    return _HOST.get_bytes(t, offset, size)


def announce_get(t: Tensor, events: Listener | None, offset: int = 0, size: int | None = None) -> None:
    """All of ggml_backend_tensor_get but the reading, for who reads values and not bytes."""
    size = t.nbytes - offset if size is None else size
    check_access("ggml_backend_tensor_get", "read", t, offset, size)
    if size and events:
        events(TensorWritten(t.label, _buft(t), offset, size, get=True))


def check_access(function: str, verb: str, t: Tensor, offset: int, size: int) -> None:
    """What ggml_backend_tensor_set and _get assert before they touch memory. `verb` is "write" or "read"."""
    name = t.name or t.id
    buffer = t.view_src.buffer if t.view_src is not None else t.buffer
    if buffer is None:
        raise GgmlAssert(
            function,
            'buf != NULL && "tensor buffer not set"',
            f"{name} has no memory: its graph was not allocated, no node of the graph uses it, or it is a view of "
            f"something without memory; {advice('buffer_not_set')}",
        )
    if size == 0:
        return
    if not t.data:
        raise GgmlAssert(
            function, 'tensor->data != NULL && "tensor not allocated"', f"{name} is in a buffer of no bytes"
        )
    if offset + size > t.nbytes:
        raise GgmlAssert(
            function,
            f'offset + size <= ggml_nbytes(tensor) && "tensor {verb} out of bounds"',
            f"bytes {offset} to {offset + size} of {name}, which has {t.nbytes}",
        )


def _buft(t: Tensor) -> str:
    return t.buffer.buft.name if t.buffer is not None else ""


def way_of(source: BufferType, to: BufferType) -> str:
    """How bytes go from one memory to another: from or to the host, by the device, or by way of the host."""
    if source.host:
        return "set"
    if to.host:
        return "get"
    return "cpy" if source.family == to.family != "custom" else "bounce"


def tensor_copy(src: Tensor, dst: Tensor, events: Listener | None = None) -> None:
    """ggml_backend_tensor_copy: all bytes of `src`, by way of the host where neither side can do it alone."""
    if not are_same_layout(src, dst):
        raise GgmlAssert(
            "ggml_backend_tensor_copy",
            'ggml_are_same_layout(src, dst) && "cannot copy tensors with different layouts"',
            f"{src.name} and {dst.name} differ in type, ne or nb; {advice('other_layouts')}",
        )
    if src is dst:
        return
    check_access("ggml_backend_tensor_copy", "read", src, 0, 0)
    check_access("ggml_backend_tensor_copy", "write", dst, 0, 0)
    if src.buffer is None or dst.buffer is None:
        return
    if events:
        how = way_of(src.buffer.buft, dst.buffer.buft)
        events(TensorCopied(src.label, dst.label, src.nbytes, how, _buft(src), _buft(dst)))
    _HOST.copy(src, dst)
