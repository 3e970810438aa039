"""ggml_context: the arena that tensors and graphs are made in, with its objects, offsets and addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import GgmlAssert, advice
from ggmltool.ggml.op import SHARED, OpRules
from ggmltool.ggml.tensor import MAX_DIMS, Dims, Tensor, cut_name
from ggmltool.ggml.version import INT64_MAX, MEM_ALIGN, OBJECT_SIZE, SIZE_MAX, TENSOR_SIZE, pad

_PADDED_TENSOR = pad(TENSOR_SIZE, MEM_ALIGN)


@dataclass(frozen=True, slots=True)
class Object:
    """ggml_object: one allocation in a context. `offset` is that of the payload, after the 32 bytes of the header."""

    type: Literal["tensor", "graph", "work_buffer"]
    offset: int
    size: int
    tensor: Tensor | None = None


class IndexSpace:
    """Hands out the small integers that scheduler and allocator index their lists with; given back ones come again."""

    __slots__ = ("_free", "top")

    def __init__(self) -> None:
        self._free: list[int] = []
        self.top = 0

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        self.top += 1
        return self.top - 1

    def take_many(self, n: int) -> list[int]:
        """What `n` calls of `take` give."""
        again = [self._free.pop() for _ in range(min(n, len(self._free)))]
        first = self.top
        self.top += n - len(again)
        return [*again, *range(first, self.top)]

    def give_back(self, indices: list[int]) -> None:
        """Make the indices of tensors that nothing refers to any more available again."""
        self._free.extend(reversed(indices))


class Context:
    """A ggml_context.

    `mem_size` bounds the arena in bytes (None: as large as needed), `base` is the simulated address of its pool,
    `no_alloc` says that tensors get no data in the pool. `rules` are those of the ggml whose constructors make tensors
    here. `tensors` holds the tensors in the order of the arena.
    """

    __slots__ = ("_sizes", "base", "indices", "mem_size", "name", "no_alloc", "rules", "tensors", "used_mem")

    def __init__(
        self,
        mem_size: int | None = None,
        base: int = 0,
        no_alloc: bool = True,
        indices: IndexSpace | None = None,
        name: str = "",
        rules: OpRules = SHARED,
    ) -> None:
        self.mem_size = mem_size
        self.base = base
        self.no_alloc = no_alloc
        self.indices = indices if indices is not None else IndexSpace()
        self.name = name
        self.rules = rules
        self.tensors: list[Tensor] = []
        self._sizes: list[tuple[Literal["tensor", "graph", "work_buffer"], int, Tensor | None]] = []
        self.used_mem = 0

    def objects(self) -> list[Object]:
        """Every object of the arena, in order."""
        out = []
        end = 0
        for type_, size, tensor in self._sizes:
            out.append(Object(type_, end + OBJECT_SIZE, size, tensor))
            end += OBJECT_SIZE + size
        return out

    def new_object(
        self, type: Literal["tensor", "graph", "work_buffer"], size: int, tensor: Tensor | None = None
    ) -> int | None:
        """ggml_new_object: reserve `size` bytes; the payload's offset, or None when the arena is full."""
        end = self.used_mem
        needed = pad(size, MEM_ALIGN)
        if self.mem_size is not None and end + needed + OBJECT_SIZE > self.mem_size:
            return None
        self._sizes.append((type, needed, tensor))
        self.used_mem = end + OBJECT_SIZE + needed
        return end + OBJECT_SIZE

    def add(self, tensor: Tensor) -> Tensor:
        """Place a tensor that is complete but for its memory; gives it its index."""
        offset = self.new_object("tensor", TENSOR_SIZE, tensor)
        if offset is None:
            raise self._full(TENSOR_SIZE, tensor)
        tensor.index = self.indices.take()
        self.tensors.append(tensor)
        return tensor

    def add_all(self, tensors: Sequence[Tensor]) -> None:
        """What `add` does, of one after the other."""
        if self.mem_size is not None:
            for t in tensors:
                self.add(t)
            return
        self.used_mem += (OBJECT_SIZE + _PADDED_TENSOR) * len(tensors)
        self._sizes += [("tensor", _PADDED_TENSOR, t) for t in tensors]
        self.tensors += tensors
        for t, index in zip(tensors, self.indices.take_many(len(tensors)), strict=True):
            t.index = index

    def new_tensor(
        self,
        type: DType,
        ne: Sequence[int],
        view_src: Tensor | None = None,
        view_offs: int = 0,
        name: str = "",
    ) -> Tensor:
        """ggml_new_tensor_impl: a contiguous tensor, or a view at `view_offs` bytes into `view_src`.

        A view of a view becomes a view of the root. Raises GgmlAssert if the view would leave its root, and, by the
        context's rules, for more elements than can be counted.
        """
        if view_src is not None and view_src.view_src is not None:
            view_offs += view_src.view_offs
            view_src = view_src.view_src
        n = len(ne)
        if not 1 <= n <= MAX_DIMS:
            raise GgmlAssert("ggml_new_tensor_impl", "n_dims >= 1 && n_dims <= GGML_MAX_DIMS")
        dims: Dims = (ne[0], ne[1] if n > 1 else 1, ne[2] if n > 2 else 1, ne[3] if n > 3 else 1)
        if self.rules.counts_elements:
            _count(dims)
        data_size = (type.row_size(dims[0]) * dims[1] * dims[2] * dims[3]) & SIZE_MAX
        if view_src is not None and data_size != 0 and data_size + view_offs > view_src.nbytes:
            raise GgmlAssert(
                "ggml_new_tensor_impl",
                "view_src == NULL || data_size == 0 || data_size + view_offs <= ggml_nbytes(view_src)",
                f"a view of {data_size} bytes at offset {view_offs} does not fit into the {view_src.nbytes} bytes "
                f"of {view_src.name or view_src.id or 'its source'}",
            )
        tensor = Tensor(type, dims, view_src=view_src, view_offs=view_offs, name=cut_name(name))
        tensor.index = self.indices.take()
        obj_size = TENSOR_SIZE if self.no_alloc or view_src is not None else TENSOR_SIZE + data_size
        offset = self.new_object("tensor", obj_size, tensor)
        if offset is None:
            raise self._full(obj_size, tensor)
        if view_src is not None:
            if view_src.data:
                tensor.data = view_src.data + view_offs
        elif not self.no_alloc and data_size:
            tensor.data = self.base + offset + TENSOR_SIZE
        self.tensors.append(tensor)
        return tensor

    def _full(self, size: int, tensor: Tensor) -> GgmlAssert:
        left = (self.mem_size or 0) - self.used_mem
        return GgmlAssert(
            "ggml_new_tensor_impl",
            "obj_new",
            f"the context's memory pool of {self.mem_size} bytes is too small for one more tensor: "
            f"{tensor.label or 'it'} needs {OBJECT_SIZE + pad(size, MEM_ALIGN)}, {left} are left; "
            f"{advice('pool_full')}",
        )

    def dup_tensor(self, src: Tensor) -> Tensor:
        """ggml_dup_tensor: a new contiguous tensor of the same type and extents."""
        return self.new_tensor(src.type, src.ne)

    def view_tensor(self, src: Tensor) -> Tensor:
        """ggml_view_tensor: a view of all of `src`, with its strides, named "<src> (view)"."""
        result = self.new_tensor(src.type, src.ne, src, 0)
        result.name = cut_name(f"{src.name} (view)")
        result.set_layout(src.ne, src.nb)
        return result


def _count(ne: Dims) -> None:
    """Raise GgmlAssert where the elements are too many for an int64, counted as ggml_new_tensor_impl does."""
    count = ne[0]
    for n in ne[1:]:
        if n > 1:
            if INT64_MAX // n <= count:
                raise GgmlAssert(
                    "ggml_new_tensor_impl",
                    "INT64_MAX / ne[i] > current_nelements",
                    f"a tensor of {list(ne)} would have more elements than a 64-bit number can count",
                )
            count *= n
