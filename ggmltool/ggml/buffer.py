"""Buffer types and buffers: where tensors live, how large they may be and how much a tensor takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.bounds import BOUNDS, Bounds
from ggmltool.ggml.errors import GgmlAssert, GgmlFailed, advice
from ggmltool.ggml.op import EMPTY_OPS, Op
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from ggmltool.ggml.devices.gpu import Gpu

USAGE_ANY = 0
USAGE_WEIGHTS = 1
USAGE_COMPUTE = 2
USAGE_NAMES = ("any", "weights", "compute")

AllocSize = Callable[[Tensor], int]
"""A device's own rule for the bytes a tensor needs, not less than ggml_nbytes."""


@dataclass(slots=True, eq=False, repr=False)
class BufferType:
    """A ggml_backend_buffer_type.

    `alignment` and `max_size` are bytes, and so is `largest`, the largest buffer that can be made: what `max_size` is
    too small for gets a larger one, if the device has it. Quantized rows are padded to a multiple of `row_padding`
    elements (0: not). `host` says that the data is host memory in ggml's standard layout. `device` names the device the
    type belongs to. `ops` are the op keys that device can run with a source 0 in this type (None: no restriction);
    `alloc_size` replaces the rule for the bytes a tensor takes, and `alloc_more` says how; `family` is the kind of
    memory. `rule` decides alone about an op that has one of its first sources in this type (None: no such rule).
    `slack` is how many bytes larger than asked for its buffers are. `gpu` is the device of this machine whose memory
    the bytes lie in, `pinned_by` the one that has pinned them in the host's (None: they are the process's own, whatever
    the type stands for). A tensor may take more than its own bytes only where it is a view or nothing computed it,
    where it is quantized, or where its op is one of `expanding_ops` (None: whatever its op).
    """

    name: str
    device: str
    alignment: int = TENSOR_ALIGNMENT
    max_size: int = SIZE_MAX
    row_padding: int = 0
    host: bool = False
    ops: frozenset[int] | None = None
    alloc_size: AllocSize | None = None
    family: str = "custom"
    rule: Callable[[Tensor], str | None] | None = None
    alloc_more: str = ""
    slack: int = 0
    largest: int = field(init=False)
    plain: bool = field(init=False)
    expanding_ops: frozenset[Op] | None = field(init=False, default=None)
    gpu: Gpu | None = field(init=False, default=None)
    pinned_by: Gpu | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.largest = self.max_size
        self.plain = not self.row_padding and self.alloc_size is None

    def __repr__(self) -> str:
        return f"<BufferType {self.name}>"

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """What it is; without the functions that its device has for it, and without what the bytes lie in."""
        gone = ("alloc_size", "rule", "gpu", "pinned_by")
        return None, {name: None if name in gone else getattr(self, name) for name in self.__slots__}

    def get_alloc_size(self, t: Tensor) -> int:
        """ggml_backend_buft_get_alloc_size: the bytes `t` takes in this type, before alignment."""
        if self.alloc_size is None:
            return self.padded_size(t)
        size = self.alloc_size(t)
        ops = self.expanding_ops
        if ops is not None and size > t.nbytes and not (t.op in EMPTY_OPS or t.type.quantized or t.op in ops):
            names = ", ".join(sorted(op.name for op in ops))
            raise GgmlAssert(
                "ggml_backend_buft_get_alloc_size",
                "size <= ggml_nbytes(tensor) || ggml_op_is_empty(tensor->op) || ggml_is_quantized(tensor->type) || "
                "ggml_op_alloc_size_may_expand(tensor->op)",
                f"in {self.name} {t.label} ({Op(t.op).name}) would take more than its {t.nbytes} bytes, which only "
                f"results of {names} may",
            )
        return size

    def buffer_size(self, size: int) -> int:
        """The size of a buffer for `size` bytes, as ggml_backend_buft_alloc_buffer makes it."""
        return size + self.slack if size else 0

    def padded_size(self, t: Tensor) -> int:
        """The bytes of `t` with its last row padded."""
        return t.nbytes + row_padding_of(t, self.row_padding)


def row_padding_of(t: Tensor, multiple: int) -> int:
    """Bytes by which the last row of a quantized tensor is padded to a multiple of so many elements (0: it is not)."""
    rest = t.ne[0] % multiple if multiple and t.type.quantized else 0
    return t.type.row_size(multiple - rest) if rest else 0


class Outgrown(NamedTuple):
    """Why a compute buffer was freed: in step number `step` of the run (from 1; 0: before the first), the one of type
    `buft` had `size` bytes, all chunks counted, and a graph needed `new_size`.
    """

    buft: str
    size: int
    new_size: int
    step: int


class AddressSpace:
    """Simulated addresses for buffers, the same in every run: page-aligned, never overlapping, never NULL.

    `step` is the number of the step that takes and frees memory now, `has_freed` whether any did free memory, `bounds`
    what may be taken to compute the tensors that lie here.
    """

    __slots__ = ("_next", "bounds", "has_freed", "step")

    PAGE = 4096

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._next = 0x10000000
        self.bounds = bounds
        self.step = 0
        self.has_freed = False

    def take(self, size: int, alignment: int) -> int:
        step = max(self.PAGE, alignment)
        base = (self._next + step - 1) // step * step
        self._next = base + size + self.PAGE
        return base


def bounds_of(t: Tensor) -> Bounds:
    """What may be taken to compute a tensor."""
    return BOUNDS if t.buffer is None else t.buffer.bounds


class Buffer:
    """A ggml_backend_buffer of `size` bytes.

    `base` is its simulated address (0, NULL, for an empty buffer), `chunk` its place among the buffers that were
    allocated together. `memory` holds its bytes and is made when somebody first touches it; `mapped` has the bytes of
    tensors that lie elsewhere (in a file), by their address. `freed` says why it was freed (None: it was not); tensors
    may still point into it.
    """

    __slots__ = ("_memory", "base", "bounds", "buft", "chunk", "freed", "mapped", "name", "size", "usage")

    def __init__(self, buft: BufferType, size: int, addresses: AddressSpace, usage: int = USAGE_ANY) -> None:
        self.buft = buft
        self.size = size
        self.usage = usage
        self.chunk = 0
        self.name = buft.name
        self.freed: Outgrown | None = None
        self.base = addresses.take(size, buft.alignment) if size else 0
        self.bounds = addresses.bounds
        self._memory: NDArray[uint8] | None = None
        self.mapped: dict[int, NDArray[uint8]] = {}

    def __repr__(self) -> str:
        return f"<Buffer {self.buft.name} {self.size} bytes>"

    @property
    def memory(self) -> NDArray[uint8]:
        """The bytes (uint8), an array of the GPU's where they lie in one's memory; fresh memory is zero."""
        if self._memory is not None:
            return self._memory
        gpu, pinned_by = self.buft.gpu, self.buft.pinned_by
        made: NDArray[uint8]
        if gpu is not None:
            made = gpu.alloc(self.size, self.name)
        elif pinned_by is not None:
            made = pinned_by.alloc_pinned(self.size, self.name)
        else:
            import numpy as np

            try:
                made = np.zeros(self.size, dtype=np.uint8)
            except (MemoryError, ValueError):
                raise GgmlFailed(
                    "ggml_backend_buft_alloc_buffer",
                    f"failed to allocate {self.buft.name} buffer of size {self.size}",
                    explanation="planning needs no memory, but computing does, for simulated devices too",
                ) from None
        self._memory = made
        return made


def leaves(buffer: Buffer, offset: int, size: int) -> bool:
    """Whether what begins at `offset` ends behind the buffer, for pointers, whose sum may begin anew at 0."""
    end = buffer.base + buffer.size
    return offset + size > buffer.size and (buffer.base + offset + size) & SIZE_MAX > end


def tensor_alloc(buffer: Buffer, tensor: Tensor, offset: int) -> None:
    """ggml_backend_tensor_alloc: place `tensor` at `offset` bytes into `buffer`.

    Raises GgmlAssert if the tensor has memory already, is a view, or would leave the buffer.
    """
    name = tensor.name or tensor.id
    if tensor.buffer is not None:
        raise GgmlAssert(
            "ggml_backend_tensor_alloc",
            "tensor->buffer == NULL",
            f"{name} was placed already, in a buffer of no bytes whose address is NULL: every tensor of that buffer "
            "has zero elements",
        )
    if tensor.data:
        raise GgmlAssert("ggml_backend_tensor_alloc", "tensor->data == NULL", f"{name} has memory already")
    if tensor.view_src is not None:
        raise GgmlAssert("ggml_backend_tensor_alloc", "tensor->view_src == NULL", f"{name} is a view")
    size = tensor.nbytes if buffer.buft.plain else buffer.buft.get_alloc_size(tensor)
    if leaves(buffer, offset, size):
        raise GgmlAssert(
            "ggml_backend_tensor_alloc",
            "ggml_backend_buffer_is_meta(buffer) || (char *) addr + ggml_backend_buffer_get_alloc_size(buffer, tensor)"
            " <= (char *) ggml_backend_buffer_get_base(buffer) + ggml_backend_buffer_get_size(buffer)",
            f"{name} needs {size} bytes at offset {offset}, the buffer has {buffer.size}",
        )
    tensor.buffer = buffer
    tensor.data = buffer.base + offset


def view_init(tensor: Tensor) -> None:
    """ggml_backend_view_init: give a view the memory of its root. Raises GgmlAssert if the root has none."""
    root = tensor.view_src
    name = tensor.name or tensor.id
    if tensor.buffer is not None:
        raise GgmlAssert("ggml_backend_view_init", "tensor->buffer == NULL", f"{name} has memory already")
    if root is None:
        raise GgmlAssert("ggml_backend_view_init", "tensor->view_src != NULL", f"{name} is not a view")
    if root.buffer is None:
        raise GgmlAssert(
            "ggml_backend_view_init",
            "tensor->view_src->buffer != NULL",
            f"{name} is a view of {root.name or root.id}, which has no memory; {advice('view_of_unallocated')}",
        )
    if not root.data:
        raise GgmlAssert(
            "ggml_backend_view_init",
            "tensor->view_src->data != NULL",
            f"{name} is a view of {root.name or root.id}, whose buffer has no bytes",
        )
    tensor.buffer = root.buffer
    tensor.data = root.data + tensor.view_offs
