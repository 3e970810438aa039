"""struct ggml_cgraph with its arrays, of the scenario's graphs, and struct ggml_context of all arenas."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from ggmltool.debugger.expressions.image.program import HEAP, OBJECT, Base, ImagePart, arena
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Fields, made_once, pack
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.version import MEM_ALIGN, hash_size, pad

_GRAPH_OBJECT = 1
"""GGML_OBJECT_TYPE_GRAPH."""
CONTEXT_STEP = 0x80


class Graphs(ImagePart):
    """The graphs of the program at a point: each lies behind the tensors of its own context."""

    def __init__(self, base: Base, tensors: Tensors) -> None:
        super().__init__(base)
        self._tensors = tensors
        program = self.program
        self._nbytes = pad(program.release.graph_nbytes(program.cgraph_size), MEM_ALIGN)
        for number, name in enumerate(program.graphs, len(program.contexts)):
            at = self.address(name) - OBJECT
            self.memory.add(at, OBJECT + self._nbytes, made_once(partial(self._object, name, number)))
        self.rows("contexts", "ggml_context", len(program.arena_sizes), self._context, CONTEXT_STEP)

    def address(self, name: str) -> int:
        """Where the struct of a graph lies."""
        number = len(self.program.contexts) + self.program.graphs.index(name)
        return arena(number) + self.program.arena_sizes[number] * self._tensors.step + OBJECT

    @staticmethod
    def context(number: int) -> int:
        """Where the struct of a context lies."""
        return HEAP["contexts"] + number * CONTEXT_STEP

    @cached_property
    def newest(self) -> str | None:
        """The graph that was built last; None before the first."""
        built = dict.fromkeys(str(key[1]) for key in self.cells if len(key) > 1 and key[0] == "cgraph")
        return next(iter(reversed(built)), None)

    def view(self, i_start: int, i_end: int) -> Fields:
        """ggml_graph_view of some nodes of the newest graph."""
        if self.newest is None:
            return {}
        at = self.address(self.newest)
        release, size = self.program.release, self.program.cgraph_size
        arrays = {name: at + offset for name, offset, _ in release.graph_layout(size)}
        fields: dict[str, Any] = {"n_nodes": i_end - i_start, "nodes": arrays["nodes"] + 8 * i_start}
        if "use_counts" in arrays and "use_counts" in (self.layout.structs["ggml_cgraph"].members or {}):
            keys = {short: arrays[f"visited_hash_set.{short}"] for short in ("keys", "used")}
            hashes = {"size": hash_size(2 * size), **keys}
            fields |= {"use_counts": arrays["use_counts"], "visited_hash_set": hashes}
        return fields

    def hash_set(self, name: str) -> tuple[HashSet, dict[int, int]]:
        """The hash set of a graph, and the use counts by slot: of the sources that the graph was built with."""
        visited, uses = (self.cells.get(("cgraph", name, part), ()) for part in ("visited", "uses"))
        made = HashSet(2 * self.program.cgraph_size, self.program.release.hash_shift)
        slots = [made.find_or_insert(self._tensors.address(t)) for t in visited]
        return made, dict(zip(slots, uses, strict=True))

    def _object(self, name: str, number: int) -> bytes:
        at = self.address(name)
        header = {"offs": at - arena(number), "size": self._nbytes, "type": _GRAPH_OBJECT}
        nodes, leafs = (self._tensors.addresses(self.cells.get(("cgraph", name, p), ())) for p in ("nodes", "leafs"))
        out = bytearray(self._nbytes)
        hashes, counts = self.hash_set(name)
        arrays: dict[str, bytes] = {
            "nodes": _numbers(nodes),
            "leafs": _numbers(leafs),
            "use_counts": _numbers([counts.get(slot, 0) for slot in range(hashes.size)], 4),
            "keys": _numbers([key or 0 for key in hashes.keys]),
            "used": bits(hashes),
        }
        struct, size = self.layout.structs["ggml_cgraph"], self.program.cgraph_size
        fields: dict[str, Any] = {"size": size, "n_nodes": len(nodes), "n_leafs": len(leafs)}
        keys: dict[str, Any] = {"size": hashes.size}
        for field, offset, n in self.program.release.graph_layout(size)[1:]:
            short = field.rpartition(".")[2]
            (keys if "." in field else fields)[short] = at + offset
            content = arrays.get(short, b"")[:n]
            out[offset : offset + len(content)] = content
        fields |= {"visited_hash_set": keys, "visited_hash_table": keys}
        out[: struct.size] = pack(struct, fields)
        return pack(self.layout.structs["ggml_object"], header) + bytes(out)

    def _context(self, number: int) -> Fields:
        program, step = self.program, self._tensors.step
        n = program.arena_sizes[number]
        size, last = n * step, (n - 1) * step
        if len(program.contexts) <= number < program.sched_arena:
            last, n = n * step, n + 1
            size += OBJECT + self._nbytes
        pool = arena(number)
        return {
            "mem_size": size,
            "mem_buffer": pool,
            "mem_buffer_owned": number != program.sched_arena,
            "no_alloc": 1,
            "n_objects": n,
            "objects_begin": pool if n else 0,
            "objects_end": pool + last if n else 0,
        }


def _numbers(numbers: list[int], size: int = 8) -> bytes:
    return b"".join(number.to_bytes(size, "little") for number in numbers)


def bits(hashes: HashSet) -> bytes:
    """The bitset of the slots that are taken, in words of 32."""
    words = [0] * -(-hashes.size // 32)
    for slot, key in enumerate(hashes.keys):
        if key is not None:
            words[slot >> 5] |= 1 << (slot & 31)
    return _numbers(words, 4)
