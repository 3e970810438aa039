"""Tensors of the real library as the engine's, for devices whose rules are the engine's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.tensor import Tensor
from ggmltool.oracle import structs


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
