"""Tensors in the real library's memory: made of a scenario's, read, and as the engine's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import MEM_ALIGN
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import KNOWN, MAX_NAME, MAX_PARAMS, MAX_SRC, TypeTraits
from ggmltool.scenario.spec import GraphSpec, TensorSpec
from ggmltool.state.memory.tensors import tensor_record

if TYPE_CHECKING:
    import numpy as np


def tensor_bytes(
    t: Tensor | TensorSpec, op: int, src: Sequence[int], view_src: int, view_offs: int, buffer: int = 0, data: int = 0
) -> bytes:
    """A ggml_tensor, given the addresses that it has of others."""
    params, sources = [*t.op_params], [*src]
    params += [0] * (MAX_PARAMS - len(params))
    sources += [0] * (MAX_SRC - len(sources))
    name = t.name.encode("utf-8", "surrogateescape")[: MAX_NAME - 1]
    return tensor_record(KNOWN.types).pack(
        t.type.id, buffer, *t.ne, *t.nb, op, *params, t.flags, *sources, view_src, view_offs, data, name
    )


F32 = 0


class Builder:
    """Makes tensors and graphs. `ids` gets every tensor ever made, so that state can be named by address."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.ids: dict[int, str] = {}
        self._contexts: list[int] = []
        self._overhead: int = lib.ggml_tensor_overhead()

    def close(self) -> None:
        """Frees all contexts."""
        for ctx in self._contexts:
            self.lib.ggml_free(ctx)
        self._contexts.clear()

    def context(self, n_tensors: int, graph_size: int = 0) -> int:
        """A no_alloc context with room for so many tensors and a graph."""
        size = n_tensors * self._overhead
        if graph_size:
            size += self.lib.ggml_graph_overhead_custom(graph_size, False)
        ctx = self.lib.init(size + MEM_ALIGN)
        self._contexts.append(ctx)
        return ctx

    def tensors(self, ctx: int, specs: Iterable[TensorSpec], known: MutableMapping[str, int]) -> None:
        """Makes `specs` in order in `ctx`; `known` maps ids to addresses and gets the new ones."""
        new = self.lib.ggml_new_tensor
        one = (ctypes.c_int64 * 1)(1)
        made = []
        for spec in specs:
            address = int(new(ctx, F32, 1, one))
            known[spec.id] = address
            self.ids[address] = spec.id
            made.append((address, spec))
        for address, spec in made:
            src = [0 if s is None else known[s] for s in spec.src]
            root = 0 if spec.view_src is None else known[spec.view_src]
            data = tensor_bytes(spec, spec.op, src, root, spec.view_offs)
            ctypes.memmove(address, data, len(data))

    def graph(self, ctx: int, spec: GraphSpec, known: Mapping[str, int], size: int) -> int:
        """A graph of at most `size` nodes and leafs, expanded as the scenario says."""
        graph = int(self.lib.ggml_new_graph_custom(ctx, size, False))
        for name in spec.expand:
            if name in spec.uncomputed:
                self.lib.ggml_build_forward_order(graph, known[name])
            else:
                self.lib.ggml_build_forward_expand(graph, known[name])
        return graph


_PLAIN = {"f32": "f4", "f16": "f2", "f64": "f8", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8"}

_TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def read_values(lib: Lib, address: int) -> np.ndarray[Any, Any]:
    """The tensor's values: 4-d, shape is ne reversed; float32 for floating and quantized types, else the integers.

    Views are read through their strides.
    """
    import numpy as np

    t = structs.Tensor.from_address(address)
    dtype = TYPES_BY_ID[t.type]
    ne, nb = tuple(t.ne), tuple(t.nb)
    if 0 in ne:
        lib.ggml_backend_tensor_get(address, None, 0, 0)
        return np.zeros(ne[::-1], dtype=np.float32)
    raw = lib.get(address)
    if dtype.name in _PLAIN:
        view = np.ndarray(ne[::-1], dtype="<" + _PLAIN[dtype.name], buffer=raw, strides=nb[::-1])
        return view.astype(np.float32) if view.dtype.kind == "f" else view.copy()
    if dtype.name == "bf16":
        halves = np.ndarray(ne[::-1], dtype="<u2", buffer=raw, strides=nb[::-1])
        return (halves.astype("<u4") << 16).view(np.float32)
    row_size = dtype.row_size(ne[0])
    rows = np.ndarray((*ne[:0:-1], row_size), dtype=np.uint8, buffer=raw, strides=(*nb[:0:-1], 1))
    packed = np.ascontiguousarray(rows)
    out = np.empty(ne[::-1], dtype=np.float32)
    traits = TypeTraits.from_address(lib.ggml_get_type_traits(t.type))
    if not traits.to_float:
        raise ValueError(f"ggml cannot turn {dtype.name} into floats")
    _TO_FLOAT(traits.to_float)(packed.ctypes.data, out.ctypes.data, out.size)
    return out


class Mirror:
    """Makes engine tensors of addresses: the op, its sources and the roots of views, with their buffer types.

    `bufts` maps addresses of the library's buffer types to the engine's.
    """

    def __init__(self, bufts: Mapping[int, BufferType]) -> None:
        self._bufts = bufts
        self._addresses = AddressSpace()
        self._buffers: dict[tuple[int, int], Buffer] = {}

    def tensor(self, address: int) -> Tensor:
        """The tensor at an address, with its sources (but not theirs)."""
        return self._with_sources(address, {})

    def tensors(self, addresses: Sequence[int]) -> tuple[list[Tensor], dict[int, int]]:
        """The tensors at these addresses with their sources; what is one tensor there is one here.

        And the addresses of all of them, by id().
        """
        made: dict[int, Tensor] = {}
        tensors = [self._with_sources(address, made) for address in addresses]
        return tensors, {id(t): address for address, t in made.items()}

    def _with_sources(self, address: int, made: dict[int, Tensor]) -> Tensor:
        t = self._one(address, made)
        src = structs.Tensor.from_address(address).src
        t.src = [self._one(s, made) if s else None for s in src]
        while t.src and t.src[-1] is None:
            t.src.pop()
        return t

    def _buffer(self, address: int) -> Buffer | None:
        """The buffer at an address. Its type is part of the key: an address may be taken again by another."""
        buft = structs.Buffer.from_address(address).buft
        if buft not in self._bufts:
            return None
        key = (address, buft)
        if key not in self._buffers:
            self._buffers[key] = Buffer(self._bufts[buft], 0, self._addresses)
        self._buffers[key].usage = structs.Buffer.from_address(address).usage
        return self._buffers[key]

    def _one(self, address: int, made: dict[int, Tensor]) -> Tensor:
        if address in made:
            return made[address]
        raw = structs.Tensor.from_address(address)
        ne, nb = raw.ne, raw.nb
        t = Tensor(
            TYPES_BY_ID[raw.type],
            (ne[0], ne[1], ne[2], ne[3]),
            (nb[0], nb[1], nb[2], nb[3]),
            raw.op,
            tuple(raw.op_params),
            raw.flags,
            view_offs=raw.view_offs,
            name=raw.name.decode("utf-8", "surrogateescape"),
        )
        made[address] = t
        if raw.view_src:
            t.view_src = self._one(raw.view_src, made)
        if raw.buffer:
            t.buffer = self._buffer(raw.buffer)
            t.data = raw.data or 0
        return t
