"""Scheduler and allocators of January 2024: an allocator for each backend, and one that walks graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec.structs import asdict

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.keys import built
from ggmltool.debugger.expressions.image.packing import pack, pack_array, records
from ggmltool.debugger.expressions.image.parts import Parts
from ggmltool.debugger.expressions.image.program import Program
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Memory, made_once
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.version import SIZE_MAX, pad
from ggmltool.state.story.cells import AnyCells
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import VOID, Pointer

_POINTER = Pointer(VOID)


class _Keys:
    """The hash set of tensors by address that scheduler and allocator share."""

    def __init__(self, program: Program, cells: AnyCells, tensors: Tensors) -> None:
        self._program = program
        self._cells = cells
        self._tensors = tensors
        self._made: HashSet | None = None

    @property
    def size(self) -> int:
        """Its slots."""
        return int(self._cells.get(("sched", "hash_size"), 0))

    def slots(self) -> HashSet:
        """The tensors that were looked up, in that order."""
        if self._made is None:
            self._made = HashSet(self.size, self._program.release.hash_shift)
            for t in self._cells.get(("sched_graph", "keys"), ()):
                if ("tensor", t) in self._cells and len(self._made) < self._made.size:
                    self._made.find_or_insert(self._tensors.address(t))
        return self._made

    def indices(self) -> list[tuple[int, int]]:
        """The taken slots, each with its tensor."""
        found = ((slot, self._tensors.index(key)) for slot, key in enumerate(self.slots().keys) if key is not None)
        return [(slot, index) for slot, index in found if index is not None]


class OldGalloc:
    """The graph allocator of January 2024, and the allocators of the backends."""

    def __init__(self, program: Program, cells: AnyCells, layout: Layout, tensors: Tensors, memory: Memory) -> None:
        self._program = program
        self._cells = cells
        self._layout = layout
        self._keys = _Keys(program, cells, tensors)
        galloc, node = layout.structs["ggml_gallocr"], layout.structs["hash_node"]
        heap = addresses.HEAP
        memory.add(heap["galloc"], galloc.size, made_once(lambda: pack(galloc, self.fields())))
        memory.add(heap["hash_values"], node.size * self._keys.size, made_once(self._hash_values))
        tallocr = layout.structs["ggml_tallocr"]
        step = pad(tallocr.size, 16)
        n = len(program.backends)
        memory.add(heap["tallocrs"], n * step, records(step, lambda b: pack(tallocr, self._tallocr(b))))

    @property
    def hash_size(self) -> int:
        """The slots of its hash values."""
        return self._keys.size

    def slot(self, address: int) -> int:
        """The slot of a tensor, by its address."""
        return max(self._keys.slots().find(address), 0) if self.hash_size else 0

    def hash_node(self, address: int) -> int:
        """Where the hash node of a tensor lies."""
        return addresses.HEAP["hash_values"] + self.slot(address) * self._layout.structs["hash_node"].size

    def tallocr(self, b: int) -> int:
        """Where the allocator of a backend lies."""
        return addresses.HEAP["tallocrs"] + b * pad(self._layout.structs["ggml_tallocr"].size, 16) if b >= 0 else 0

    def fields(self) -> dict[str, Any]:
        """What stands in its struct."""
        heap = addresses.HEAP
        return {
            "hash_set": {"size": self.hash_size, "keys": heap["sched.hash_set.keys"]},
            "hash_values": heap["hash_values"],
            "hash_values_size": self.hash_size,
            "hash_allocs": heap["hv_tensor_backend_ids"],
        }

    def _hash_values(self) -> bytes:
        struct = self._layout.structs["hash_node"]
        out = bytearray(struct.size * self.hash_size)
        for slot, index in self._keys.indices():
            node = self._cells.get(("hash_node", index))
            if node is not None:
                out[slot * struct.size : (slot + 1) * struct.size] = pack(struct, asdict(node))
        return bytes(out)

    def _tallocr(self, b: int) -> dict[str, Any]:
        base, size = next(iter(self._cells.get(("buffer", b)) or ()), (0, 0))
        free = self._cells.get(("free", b, 0), ())
        return {
            "buffer": addresses.buffer(len(self._program.buffers) + b) if base else 0,
            "buffer_owned": bool(base),
            "base": base,
            "alignment": self._program.bufts[self._program.buft_of[b]].alignment,
            "n_free_blocks": len(free),
            "free_blocks": [{"addr": base + offset, "size": n} for offset, n in free],
            "max_size": self._cells.get(("max_size", b, 0), 0),
            "measure": size >= SIZE_MAX // 2,
        }


class OldSched:
    """The scheduler of January 2024."""

    def __init__(self, parts: Parts) -> None:
        self._program, self._cells, self._layout, self._tensors, self._devices, self._graphs, memory = parts
        self._keys = _Keys(parts.program, parts.cells, parts.tensors)
        sched, heap = parts.layout.structs["ggml_backend_sched"], addresses.HEAP
        memory.add(heap["sched"], sched.size, made_once(lambda: pack(sched, self.fields())))
        size, wide = self._keys.size, self._max_backends()
        self._pointers(memory, "sched.hash_set.keys", size, lambda: [key or 0 for key in self._keys.slots().keys])
        self._pointers(memory, "hv_tensor_backend_ids", size, self._tallocs)
        self._pointers(memory, "hv_tensor_copies", size * wide, self._copies)
        for part in ("nodes", "leafs"):
            own = [parts.tensors.address(t) for t in parts.cells.get(("sched_graph", part), ())]
            self._pointers(memory, f"sched.graph.{part}", max(len(own), 1), partial(list, own))
        graph = parts.layout.structs["ggml_cgraph"]
        memory.add(heap["sched.graph"], graph.size, made_once(lambda: pack(graph, self._own_graph())))

    @staticmethod
    def _pointers(memory: Memory, thing: str, n: int, make: Any) -> None:
        memory.add(addresses.HEAP[thing], 8 * n, made_once(lambda: pack_array(_POINTER, make(), n)))

    def _max_backends(self) -> int:
        return self._program.release.max_backends

    @property
    def n_splits(self) -> int:
        """How many splits there are."""
        return int(self._cells.get(("sched", "n_splits"), 0))

    def _offset(self, field: str) -> int:
        return (self._layout.structs["ggml_backend_sched"].members or {})[field].offset

    def split(self, i: int) -> int:
        """Where a split lies: in the scheduler itself."""
        size = self._layout.structs["ggml_backend_sched_split"].size
        return addresses.HEAP["sched"] + self._offset("splits") + i * size

    def split_graph(self, i: int) -> int:
        """Where the graph of a split lies."""
        return self.split(i) + (self._layout.structs["ggml_backend_sched_split"].members or {})["graph"].offset

    def own_graph(self) -> int:
        """Where the scheduler's own graph lies."""
        return addresses.HEAP["sched.graph"]

    def event(self, b: int, copy: int = 0) -> int:
        """There are no events."""
        return 0

    def slot(self, address: int) -> int:
        """The slot of a tensor, by its address."""
        return max(self._keys.slots().find(address), 0)

    def _tallocr(self, b: int) -> int:
        return addresses.HEAP["tallocrs"] + b * pad(self._layout.structs["ggml_tallocr"].size, 16) if b >= 0 else 0

    def _tallocs(self) -> list[int]:
        out = [0] * self._keys.size
        for slot, index in self._keys.indices():
            out[slot] = self._tallocr(self._cells.get(("id", index), -1))
        return out

    def _copies(self) -> list[int]:
        wide = self._max_backends()
        out = [0] * (self._keys.size * wide)
        for slot, index in self._keys.indices():
            for b, of in enumerate(self._cells.get(("copies", index), ())):
                for t in of or ():
                    out[slot * wide + b] = self._tensors.address(t)
        return out

    def _own_graph(self) -> dict[str, Any]:
        nodes = self._cells.get(("sched_graph", "nodes"), ())
        return {
            "size": len(nodes),
            "n_nodes": len(nodes),
            "nodes": addresses.HEAP["sched.graph.nodes"] if nodes else 0,
            "leafs": addresses.HEAP["sched.graph.leafs"] if nodes else 0,
        }

    def _split(self, i: int) -> dict[str, Any]:
        split = self._cells[("split", i)]
        graphs = built(self._cells)
        view: dict[str, Any] = {}
        if graphs:
            arrays = {n: offset for n, offset, _ in self._program.release.graph_layout(self._program.cgraph_size)}
            nodes = self._graphs.address(graphs[-1]) + arrays["nodes"] + 8 * split.i_start
            view = {"n_nodes": split.i_end - split.i_start, "nodes": nodes}
        return {
            "tallocr": self._tallocr(split.backend_id),
            "i_start": split.i_start,
            "i_end": split.i_end,
            "inputs": [self._tensors.address(t) for t in split.inputs],
            "n_inputs": len(split.inputs),
            "graph": view,
        }

    def fields(self) -> dict[str, Any]:
        """What stands in its struct."""
        heap, program = addresses.HEAP, self._program
        return {
            "is_reset": self._cells.get(("sched", "is_reset"), 0),
            "n_backends": len(program.backends),
            "backends": [self._devices.backend(b) for b in range(len(program.backends))],
            "bufts": [self._devices.buft(buft) for buft in program.buft_of],
            "tallocs": [self._tallocr(b) for b in range(len(program.backends))],
            "galloc": heap["galloc"],
            "hash_set": {"size": self._keys.size, "keys": heap["sched.hash_set.keys"]},
            "node_talloc": heap["hv_tensor_backend_ids"],
            "node_copies": heap["hv_tensor_copies"],
            "graph": heap["sched.graph"] if self._cells.get(("sched_graph", "nodes")) else 0,
            "splits": [self._split(i) for i in range(self.n_splits)],
            "n_splits": self.n_splits,
            "ctx": heap["contexts"] + 0x80 * program.sched_arena,
        }
