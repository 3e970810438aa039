"""struct ggml_cgraph with its arrays: of the scenario's graphs, of the scheduler's own, and of its splits."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.keys import built
from ggmltool.debugger.expressions.image.packing import pack
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Memory, made_once
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.version import MEM_ALIGN, hash_size, pad
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout

_GRAPH_OBJECT = 1
"""GGML_OBJECT_TYPE_GRAPH."""


class Graphs:
    """The graphs of the program at a point: each lies behind the tensors of its own context."""

    def __init__(self, program: Program, cells: AnyCells, layout: Layout, tensors: Tensors, memory: Memory) -> None:
        self._program = program
        self._cells = cells
        self._layout = layout
        self._tensors = tensors
        self._nbytes = pad(program.release.graph_nbytes(program.cgraph_size), MEM_ALIGN)
        for name in program.graphs:
            at = self.address(name) - addresses.OBJECT
            memory.add(at, addresses.OBJECT + self._nbytes, made_once(partial(self._object, name)))

    def address(self, name: str) -> int:
        """Where the struct of a graph lies."""
        number = len(self._program.contexts) + self._program.graphs.index(name)
        step = addresses.OBJECT + pad(self._layout.structs["ggml_tensor"].size, MEM_ALIGN)
        return addresses.arena(number) + self._program.arena_sizes[number] * step + addresses.OBJECT

    @cached_property
    def newest(self) -> str | None:
        """The graph that was built last; None before the first."""
        return next(iter(reversed(built(self._cells))), None)

    @property
    def nbytes(self) -> int:
        """The bytes of the object that a graph is."""
        return self._nbytes

    def slots(self) -> int:
        """The slots of a graph's hash set."""
        return hash_size(2 * self._program.cgraph_size)

    def _object(self, name: str) -> bytes:
        at = self.address(name)
        number = len(self._program.contexts) + self._program.graphs.index(name)
        header = {"offs": at - addresses.arena(number), "size": self._nbytes, "type": _GRAPH_OBJECT}
        return pack(self._layout.structs["ggml_object"], header) + self._bytes(name, at)

    def _bytes(self, name: str, at: int) -> bytes:
        release, size = self._program.release, self._program.cgraph_size
        nodes = [self._tensors.address(t) for t in self._cells.get(("cgraph", name, "nodes"), ())]
        leafs = [self._tensors.address(t) for t in self._cells.get(("cgraph", name, "leafs"), ())]
        out = bytearray(self._nbytes)
        fields: dict[str, Any] = {"size": size, "n_nodes": len(nodes), "n_leafs": len(leafs)}
        hashes = self._hash_set(name)
        counts = self._use_counts(name, hashes)
        keys: dict[str, Any] = {"size": hashes.size}
        arrays: dict[str, bytes] = {
            "nodes": _pointers(nodes),
            "leafs": _pointers(leafs),
            "use_counts": b"".join(counts.get(slot, 0).to_bytes(4, "little") for slot in range(hashes.size)),
            "keys": _pointers([key or 0 for key in hashes.keys]),
            "used": bits(hashes),
        }
        table = next((m for m in ("visited_hash_set", "visited_hash_table") if self._has(m)), "")
        for field, offset, n in release.graph_layout(size)[1:]:
            short = field.rpartition(".")[2]
            if "." in field:
                keys[short] = at + offset
            else:
                fields[field] = at + offset
            content = arrays.get(short, b"")[:n]
            out[offset : offset + len(content)] = content
        fields[table] = keys
        struct = self._layout.structs["ggml_cgraph"]
        out[: struct.size] = pack(struct, fields)
        return bytes(out)

    def _has(self, field: str) -> bool:
        return field in (self._layout.structs["ggml_cgraph"].members or {})

    def _hash_set(self, name: str) -> HashSet:
        made = HashSet(2 * self._program.cgraph_size, self._program.release.hash_shift)
        for t in self._cells.get(("cgraph", name, "visited"), ()):
            made.find_or_insert(self._tensors.address(t))
        return made

    def _use_counts(self, name: str, hashes: HashSet) -> dict[int, int]:
        """The use counts by slot: those of the sources that the graph was built with."""
        counts = (self._cells.get(("cgraph", name, part), ()) for part in ("visited", "uses"))
        return {hashes.find(self._tensors.address(t)): n for t, n in zip(*counts, strict=True)}


def _pointers(addresses: list[int]) -> bytes:
    return b"".join(address.to_bytes(8, "little") for address in addresses)


def bits(hashes: HashSet) -> bytes:
    """The bitset of the slots that are taken, in words of 32."""
    words = [0] * -(-hashes.size // 32)
    for slot, key in enumerate(hashes.keys):
        if key is not None:
            words[slot >> 5] |= 1 << (slot & 31)
    return b"".join(word.to_bytes(4, "little") for word in words)
