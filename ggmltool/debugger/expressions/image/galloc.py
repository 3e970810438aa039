"""struct ggml_gallocr with its planners, its hash table and its plan; that of January 2024 with allocators instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec.structs import asdict

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.program import HEAP, Base, ImagePart
from ggmltool.debugger.expressions.image.tensors import Tensors, bits
from ggmltool.debugger.expressions.memory import Fields, made_once
from ggmltool.ggml.alloc.common import TensorAlloc, hash_keys
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.op import Op
from ggmltool.ggml.version import SIZE_MAX

_NO_PLACE = TensorAlloc(-1, -1, SIZE_MAX, 0)


@dataclass(eq=False, slots=True)
class _Seen:
    """A tensor as the allocator looks at it."""

    index: int
    op: int
    flags: int
    src: list[_Seen | None]
    view_src: _Seen | None


class Galloc(ImagePart):
    """The graph allocator at a point. `planned` gives the tensors as they were when it walked a graph last. In January
    2024 each backend has an allocator, and the hash set is the scheduler's."""

    def __init__(self, base: Base, tensors: Tensors, devices: Devices, planned: Callable[[], Tensors]) -> None:
        super().__init__(base)
        self._tensors = tensors
        self._planned = planned
        self._devices = devices
        self._most = self.program.release.rules.max_chunks
        self._n = n = len(self.program.backends)
        self._allocator = "ggml_dyn_tallocr" if self.reserves else "ggml_tallocr"
        own = int(self.cells.get(("galloc", "hash_set.size"), 0))
        self.hash_size = size = own if self.reserves else self.field("hash_size")
        """The slots of its hash set."""
        self.one("galloc", "ggml_gallocr", self._fields)
        self.pointers("galloc.bufts", n, lambda: map(devices.buft, self.program.buft_of))
        self.pointers("galloc.buffers", n, lambda: map(self.buffer, range(n)))
        self.pointers("galloc.buf_tallocs", n, lambda: map(self.tallocr, range(n)))
        self.rows("tallocrs", self._allocator, n, self._tallocr, 16, anew=True)
        self.rows("chunks", "tallocr_chunk", n * self._most, self._chunk_at, 16, anew=True)
        self.rows("vbuffers", "vbuffer", n, self._vbuffer)
        self.pointers("galloc.hash_set.keys", size, lambda: [key or 0 for key in self.slots.keys])
        self.memory.add(HEAP["galloc.hash_set.used"], -(-size // 32) * 4, made_once(lambda: bits(self.slots)))
        self.rows("hash_values", "hash_node", size, self._hash_value, anew=True)
        self.rows("node_allocs", "node_alloc", self.cells.get(("galloc", "n_nodes"), 0), self._node_alloc)
        self.rows("leaf_allocs", "leaf_alloc", self.cells.get(("galloc", "n_leafs"), 0), self._leaf_alloc)

    @cached_property
    def slots(self) -> HashSet:
        """The hash set with the tensors of the graph that was planned last, in the order they were looked up."""
        if not self.reserves:
            return self._tensors.hash_set(self.hash_size, self.own("keys"))
        made = HashSet(self.hash_size, self.program.release.hash_shift)
        for address in list(self._keys)[: made.size]:
            made.find_or_insert(address)
        return made

    @cached_property
    def _keys(self) -> dict[int, int]:
        tensors = self._planned()
        seen: dict[int, _Seen] = {}

        def see(t: int) -> _Seen:
            if t not in seen:
                cell = tensors.cell(t)
                seen[t] = made = _Seen(t, Op[cell.op] if cell else Op.NONE, cell.flags if cell else 0, [], None)
                if cell is not None:
                    made.src = [None if s is None else see(s) for s in cell.src]
                    made.view_src = None if cell.view_src is None else see(cell.view_src)
            return seen[t]

        nodes, leafs = ([see(t) for t in tensors.own(part)] for part in ("nodes", "leafs"))
        return {tensors.place(t.index): t.index for t in hash_keys(nodes, leafs)}  # type: ignore[arg-type]

    def hash_node(self, address: int) -> int:
        """Where the hash node of a tensor lies, by the tensor's address; the first before there is a table."""
        slot = max(self.slots.find(address), 0) if self.hash_size else 0
        return HEAP["hash_values"] + slot * self.size("hash_node")

    def tallocr(self, b: int) -> int:
        """Where the planner of a buffer lies: that of the first with the same buffer type; 0 for none."""
        first = self.program.buft_of.index(self.program.buft_of[b]) if self.reserves else b
        return HEAP["tallocrs"] + first * self.size(self._allocator, 16) if b >= 0 else 0

    def buffer(self, b: int) -> int:
        """What galloc->buffers[b] points to: a buffer, or a row of them in a ggml with chunks."""
        if self.cells.get(("buffer", b)) is None:
            return 0
        if "vbuffer" in self.layout.structs:
            return HEAP["vbuffers"] + b * self.size("vbuffer")
        return self._devices.chunk(b, 0)

    def _fields(self) -> Fields:
        there = bool(self.hash_size)
        hash_set = {"size": self.hash_size}
        for name in ("used", "keys") if there else ():
            hash_set[name] = HEAP[f"{'galloc' if self.reserves else 'sched'}.hash_set.{name}"]
        n_nodes, n_leafs = (self.cells.get(("galloc", name), 0) for name in ("n_nodes", "n_leafs"))
        return {
            "bufts": HEAP["galloc.bufts"],
            "buffers": HEAP["galloc.buffers"],
            "buf_tallocs": HEAP["galloc.buf_tallocs"],
            "n_buffers": self._n,
            "hash_set": hash_set,
            "hash_values": HEAP["hash_values"] if there else 0,
            "hash_values_size": self.hash_size,
            "hash_allocs": HEAP["hv_tensor_backend_ids"],
            "node_allocs": HEAP["node_allocs"] if n_nodes else 0,
            "leaf_allocs": HEAP["leaf_allocs"] if n_leafs else 0,
            "n_nodes": n_nodes,
            "n_leafs": n_leafs,
        }

    def _vbuffer(self, b: int) -> Fields:
        return {"chunks": [self._devices.chunk(b, c) for c in range(self._most)]}

    def _chunk_at(self, number: int) -> Fields:
        return self._chunk(*divmod(number, self._most))

    def _chunk(self, b: int, c: int) -> Fields:
        free = self.cells.get(("free", b, c), ())
        base = self._base(b)[0]
        return {
            "free_blocks": [{"offset": offset, "addr": base + offset, "size": size} for offset, size in free],
            "n_free_blocks": len(free),
            "max_size": self.cells.get(("max_size", b, c), 0),
        }

    def _tallocr(self, b: int) -> Fields:
        buft = self.program.bufts[self.program.buft_of[b]]
        step = self.size("tallocr_chunk", 16) if "tallocr_chunk" in self.layout.structs else 0
        n = 0
        while ("free", b, n) in self.cells:
            n += 1
        base, size = self._base(b)
        return {
            **self._chunk(b, 0),
            "buffer": self._devices.chunk(b, 0) if base else 0,
            "buffer_owned": bool(base),
            "base": base,
            "measure": size >= SIZE_MAX // 2,
            "alignment": buft.alignment,
            "max_chunk_size": min(buft.max_size, SIZE_MAX // 2),
            "chunks": [HEAP["chunks"] + (b * self._most + c) * step for c in range(n)],
            "n_chunks": n,
        }

    def _base(self, b: int) -> tuple[int, int]:
        """Where the first buffer of a backend begins, and its size; in January 2024 it is the only one."""
        found: tuple[int, int] = next(iter(self.cells.get(("buffer", b)) or ()), (0, 0))
        return found

    def _hash_value(self, slot: int) -> Fields:
        keys = self.slots.keys
        key = keys[slot] if slot < len(keys) else None
        index = self._keys.get(key or 0) if self.reserves else self._tensors.index(key)
        node = self.cells.get(("hash_node", -1 if index is None else index))
        return {} if node is None else {**asdict(node), "addr": {"chunk": node.chunk, "offset": node.offset}}

    def _node_alloc(self, i: int) -> Fields:
        dst, sources = self.cells["node_alloc", i]
        return {"dst": _place(dst), "src": [_place(s) for s in [*sources, *[_NO_PLACE] * (10 - len(sources))]]}

    def _leaf_alloc(self, i: int) -> Fields:
        return {"leaf": _place(self.cells["leaf_alloc", i])}


def _place(place: TensorAlloc) -> dict[str, Any]:
    return {
        "buffer_id": place.buffer_id,
        "addr": {"chunk": place.chunk, "offset": place.offset},
        "offset": place.offset,
        "size_max": place.size_max,
    }
