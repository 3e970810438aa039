"""struct ggml_gallocr of a ggml that reserves, with its planners, its hash table and its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import asdict

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.graphs import bits
from ggmltool.debugger.expressions.image.packing import fleeting, pack, pack_array, records
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Memory, made_once
from ggmltool.ggml.alloc.common import TensorAlloc, hash_keys
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.op import Op
from ggmltool.ggml.version import SIZE_MAX, pad
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import VOID, Pointer, Struct

_NO_PLACE = TensorAlloc(-1, -1, SIZE_MAX, 0)
_POINTER = Pointer(VOID)


@dataclass(eq=False, slots=True)
class _Seen:
    """A tensor as the allocator looks at it."""

    index: int
    op: int
    flags: int
    src: list[_Seen | None]
    view_src: _Seen | None


class Galloc:
    """The graph allocator at a point."""

    def __init__(
        self, program: Program, cells: AnyCells, layout: Layout, tensors: Tensors, devices: Devices, memory: Memory
    ) -> None:
        self._program = program
        self._cells = cells
        self._layout = layout
        self._tensors = tensors
        self._devices = devices
        self._slots: HashSet | None = None
        self.n_buffers = len(program.backends)
        self._add(memory)

    @property
    def hash_size(self) -> int:
        """The slots of its hash set."""
        return int(self._cells.get(("galloc", "hash_set.size"), 0))

    def slot(self, address: int) -> int:
        """The slot of a tensor's hash node, by the tensor's address; 0 before there is a table."""
        return max(self.slots().find(address), 0) if self.hash_size else 0

    def hash_node(self, address: int) -> int:
        """Where the hash node of a tensor lies."""
        return addresses.HEAP["hash_values"] + self.slot(address) * self._layout.structs["hash_node"].size

    def tallocr(self, b: int) -> int:
        """Where the planner of a buffer lies: that of the first with the same buffer type."""
        first = self._program.buft_of.index(self._program.buft_of[b])
        return addresses.HEAP["tallocrs"] + first * self._tallocr_step()

    def slots(self) -> HashSet:
        """The hash set with the tensors of the graph that was planned last, in the order they were looked up."""
        if self._slots is None:
            self._slots = HashSet(self.hash_size, self._program.release.hash_shift)
            for t in self._keys()[: self.hash_size]:
                self._slots.find_or_insert(self._tensors.address(t))
        return self._slots

    def _keys(self) -> list[int]:
        seen: dict[int, _Seen] = {}

        def see(t: int) -> _Seen:
            if t not in seen:
                cell = self._tensors.cell(t)
                seen[t] = made = _Seen(t, Op[cell.op] if cell else Op.NONE, cell.flags if cell else 0, [], None)
                if cell is not None:
                    made.src = [None if s is None else see(s) for s in cell.src]
                    made.view_src = None if cell.view_src is None else see(cell.view_src)
            return seen[t]

        nodes = [see(t) for t in self._cells.get(("sched_graph", "nodes"), ())]
        leafs = [see(t) for t in self._cells.get(("sched_graph", "leafs"), ())]
        return [t.index for t in hash_keys(nodes, leafs)]  # type: ignore[arg-type]

    def fields(self) -> dict[str, Any]:
        """What stands in its struct."""
        heap = addresses.HEAP
        there = bool(self.hash_size)
        plan = {name: self._cells.get(("galloc", name), 0) for name in ("n_nodes", "n_leafs")}
        return {
            "bufts": heap["galloc.bufts"],
            "buffers": heap["galloc.buffers"],
            "buf_tallocs": heap["galloc.buf_tallocs"],
            "n_buffers": self.n_buffers,
            "hash_set": {
                "size": self.hash_size,
                "used": heap["galloc.hash_set.used"] if there else 0,
                "keys": heap["galloc.hash_set.keys"] if there else 0,
            },
            "hash_values": heap["hash_values"] if there else 0,
            "node_allocs": heap["node_allocs"] if plan["n_nodes"] else 0,
            "leaf_allocs": heap["leaf_allocs"] if plan["n_leafs"] else 0,
            **plan,
        }

    def _add(self, memory: Memory) -> None:
        layout, heap, n = self._layout, addresses.HEAP, self.n_buffers
        struct = layout.structs["ggml_gallocr"]
        memory.add(heap["galloc"], struct.size, made_once(lambda: pack(struct, self.fields())))
        self._pointers(memory, "galloc.bufts", n, lambda: [self._devices.buft(b) for b in self._program.buft_of])
        self._pointers(memory, "galloc.buffers", n, lambda: [self.buffer(b) for b in range(n)])
        self._pointers(memory, "galloc.buf_tallocs", n, lambda: [self.tallocr(b) for b in range(n)])
        tallocr = layout.structs["ggml_dyn_tallocr"]
        step = self._tallocr_step()
        memory.add(heap["tallocrs"], n * step, fleeting(step, lambda b: pack(tallocr, self._tallocr(b))))
        if "tallocr_chunk" in layout.structs:
            self._add_chunks(memory)
        size = self.hash_size
        self._pointers(memory, "galloc.hash_set.keys", size, lambda: [key or 0 for key in self.slots().keys])
        memory.add(heap["galloc.hash_set.used"], -(-size // 32) * 4, made_once(lambda: bits(self.slots())))
        hn = layout.structs["hash_node"]
        memory.add(heap["hash_values"], size * hn.size, fleeting(hn.size, self._hash_value))
        for thing, count in (("node_alloc", "n_nodes"), ("leaf_alloc", "n_leafs")):
            of = layout.structs[thing]
            number = self._cells.get(("galloc", count), 0)
            make = self._node_alloc if thing == "node_alloc" else self._leaf_alloc
            memory.add(heap[f"{thing}s"], number * of.size, records(of.size, partial(self._packed, of, make)))

    @staticmethod
    def _pointers(memory: Memory, thing: str, n: int, make: Any) -> None:
        memory.add(addresses.HEAP[thing], 8 * n, made_once(lambda: pack_array(_POINTER, make(), n)))

    def _add_chunks(self, memory: Memory) -> None:
        chunk = self._layout.structs["tallocr_chunk"]
        step, most = pad(chunk.size, 16), self._program.release.max_chunks
        memory.add(
            addresses.HEAP["chunks"],
            self.n_buffers * most * step,
            fleeting(step, lambda i: pack(chunk, self._chunk(*divmod(i, most)))),
        )
        vbuffer = self._layout.structs["vbuffer"]
        memory.add(
            addresses.HEAP["vbuffers"],
            self.n_buffers * vbuffer.size,
            records(
                vbuffer.size, lambda b: pack(vbuffer, {"chunks": [self._devices.chunk(b, c) for c in range(most)]})
            ),
        )

    def buffer(self, b: int) -> int:
        """What galloc->buffers[b] points to: a buffer, or a row of them in a ggml with chunks."""
        if self._cells.get(("buffer", b)) is None:
            return 0
        if "vbuffer" in self._layout.structs:
            return addresses.HEAP["vbuffers"] + b * self._layout.structs["vbuffer"].size
        return self._devices.chunk(b, 0)

    def _tallocr_step(self) -> int:
        return pad(self._layout.structs["ggml_dyn_tallocr"].size, 16)

    def _n_chunks(self, b: int) -> int:
        n = 0
        while ("free", b, n) in self._cells:
            n += 1
        return n

    def _chunk(self, b: int, c: int) -> dict[str, Any]:
        free = self._cells.get(("free", b, c), ())
        return {
            "free_blocks": [{"offset": offset, "size": size} for offset, size in free],
            "n_free_blocks": len(free),
            "max_size": self._cells.get(("max_size", b, c), 0),
        }

    def _tallocr(self, b: int) -> dict[str, Any]:
        buft = self._program.bufts[self._program.buft_of[b]]
        step = pad(self._layout.structs["tallocr_chunk"].size, 16) if "tallocr_chunk" in self._layout.structs else 0
        most = self._program.release.max_chunks
        n = self._n_chunks(b)
        return {
            **self._chunk(b, 0),
            "alignment": buft.alignment,
            "max_chunk_size": min(buft.max_size, SIZE_MAX // 2),
            "chunks": [addresses.HEAP["chunks"] + (b * most + c) * step for c in range(n)],
            "n_chunks": n,
        }

    def _hash_value(self, slot: int) -> bytes:
        keys = self.slots().keys
        key = keys[slot] if slot < len(keys) else None
        index = self._tensors.index(key) if key is not None else None
        node = self._cells.get(("hash_node", index)) if index is not None else None
        if node is None:
            return b""
        fields = {**asdict(node), "addr": {"chunk": node.chunk, "offset": node.offset}}
        return pack(self._layout.structs["hash_node"], fields)

    @staticmethod
    def _packed(of: Struct, make: Callable[[int], dict[str, Any]], i: int) -> bytes:
        return pack(of, make(i))

    def _node_alloc(self, i: int) -> dict[str, Any]:
        dst, sources = self._cells[("node_alloc", i)]
        return {"dst": _place(dst), "src": [_place(s) for s in [*sources, *[_NO_PLACE] * (10 - len(sources))]]}

    def _leaf_alloc(self, i: int) -> dict[str, Any]:
        return {"leaf": _place(self._cells[("leaf_alloc", i)])}


def _place(place: TensorAlloc) -> dict[str, Any]:
    return {
        "buffer_id": place.buffer_id,
        "addr": {"chunk": place.chunk, "offset": place.offset},
        "offset": place.offset,
        "size_max": place.size_max,
    }
