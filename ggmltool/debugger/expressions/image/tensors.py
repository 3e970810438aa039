"""The arenas of contexts, graphs and the scheduler: objects, tensors, struct ggml_cgraph and struct ggml_context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any

from ggmltool.debugger.expressions.image.program import HEAP, OBJECT, REBUILT, Base, Home, ImagePart, arena
from ggmltool.debugger.expressions.memory import Fields, made_once, pack, records
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.assign import NULL_KEY
from ggmltool.ggml.state import TensorState
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM
from ggmltool.ggml.version import MEM_ALIGN, hash_size, pad
from ggmltool.scenario.tensor_info import EXTRAS, EXTRAS_STEP

_GPU = 10
"""GGML_BACKEND_GPU."""


class Tensors(ImagePart):
    """The tensors of a point: their addresses by index, and their structs as bytes in `memory`. `buffer_of` is where
    the struct of a buffer lies, by the address of its bytes; `gpus` are the bytes of buffers that make a tensor one of
    GGML_BACKEND_GPU."""

    def __init__(self, base: Base) -> None:
        super().__init__(base)
        self.step = OBJECT + self.size("ggml_tensor", MEM_ALIGN)
        self._address: dict[int, int] = {}
        self._index: dict[int, int] = {}
        self._all_known = False
        self.buffer_of: Mapping[int, int] = {}
        self.gpus: frozenset[int] = frozenset()
        program = self.program
        for number, n in enumerate(program.arena_sizes):
            size = n * self.step if number < program.sched_arena else REBUILT
            for build in range(len(program.graphs)) if number in program.fresh else range(1):
                if size:
                    at = arena(number, build)
                    self.memory.add(at, size, records(self.step, cache(partial(self._object, at, n))))

    def cell(self, index: int | None) -> TensorState | None:
        """A tensor as it is, None if there is none of this index."""
        found: TensorState | None = self.cells.get(("tensor", -1 if index is None else index))
        return found

    @cached_property
    def all(self) -> list[tuple[int, TensorState]]:
        """All tensors, by index."""
        return sorted((key[1], cell) for key, cell in self.cells.items() if key[0] == "tensor")  # type: ignore[misc]

    @cached_property
    def named(self) -> dict[str, int]:
        """The first tensor of each name."""
        return {cell.name: index for index, cell in reversed(self.all)}

    def address(self, index: int | None) -> int:
        """Where the struct of a tensor lies; 0 for None."""
        if index is None:
            return 0
        if index not in self._address:
            self._address[index] = at = self.place(index)
            # Another graph's build may have a tensor in the same place: the newer one lies there.
            self._index[at] = max(index, self._index.get(at, index))
        return self._address[index]

    def addresses(self, indices: Sequence[int | None]) -> list[int]:
        """Where several lie."""
        return [self.address(index) for index in indices]

    def index(self, address: int | None) -> int | None:
        """The tensor whose struct begins at an address."""
        if address is None:
            return None
        if address not in self._index and not self._all_known:
            self._all_known = True
            for index, _ in self.all:
                self.address(index)
        return self._index.get(address)

    def place(self, index: int) -> int:
        """The same of a tensor that may be gone, with another one in its place."""
        cell, program = self.cell(index), self.program
        build = self._builds.get(index, 0)
        home = program.homes[program.graphs[build]].get(cell.id) if cell is not None and cell.id else None
        if home is None:
            home, build = Home(program.sched_arena, index), 0
        return arena(home.arena, build if home.arena in program.fresh else 0) + OBJECT + home.place * self.step

    @cached_property
    def _builds(self) -> dict[int, int]:
        """The number of the graph whose newest build a tensor is of, of several the first."""
        out: dict[int, int] = {}
        graphs = self.program.graphs
        for g, graph in enumerate(graphs) if len(graphs) > 1 else ():
            for part in ("nodes", "leafs"):
                for t in self.cells.get(("cgraph", graph, part), ()):
                    out.setdefault(t, g)
        return out

    def hash_set(self, size: int, keys: Sequence[int]) -> HashSet:
        """A hash set of the tensors that were looked up in this order; what is gone since is left out."""
        made = HashSet(size, self.program.release.hash_shift)
        for t in keys[: made.size]:
            if t == NULL_KEY:
                made.find_or_insert(0)
            elif ("tensor", t) in self.cells:
                made.find_or_insert(self.place(t))
        return made

    def _object(self, base: int, n: int, place: int) -> bytes:
        """Object `place` of an arena with room for `n` (0: as many as are made): its header, and the tensor."""
        offset = place * self.step + OBJECT
        cell = self.cell(index := self.index(base + offset))
        if index is None and not n:
            return b""
        following = base + (place + 1) * self.step if place + 1 < n else 0
        header = {"offs": offset, "size": self.step - OBJECT, "next": following}
        fields = self._fields(index, cell) if index is not None and cell is not None else {}
        structs = self.layout.structs
        return pack(structs["ggml_object"], header) + pack(structs["ggml_tensor"], fields)

    def _fields(self, index: int, cell: TensorState) -> dict[str, Any]:
        release = self.program.release
        constants = self.layout.constants
        is_gpu = cell.buffer in self.gpus
        return {
            "type": constants[f"GGML_TYPE_{cell.type.upper()}"][1],
            "backend": _GPU if is_gpu else 0,
            "buffer": 0 if cell.buffer is None else self.buffer_of.get(cell.buffer, 0),
            "n_dims": next((d for d in (4, 3, 2) if cell.ne[d - 1] > 1), 1),
            "ne": cell.ne,
            "nb": cell.nb,
            "op": constants.get(f"GGML_OP_{cell.op}", (None, Op[cell.op]))[1],
            "op_params": cell.op_params,
            "flags": cell.flags if release.compute_flag else cell.flags & ~FLAG_COMPUTE,
            "is_param": bool(cell.flags & FLAG_PARAM),
            "src": self.addresses(cell.src),
            "view_src": self.address(cell.view_src),
            "view_offs": cell.view_offs,
            "data": cell.data,
            "name": cell.name.encode("utf-8", "surrogateescape")[:63],
            "extra": EXTRAS + index * EXTRAS_STEP if is_gpu else 0,
        }


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
