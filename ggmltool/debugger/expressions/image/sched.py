"""struct ggml_backend_sched of a ggml that reserves, with its splits, its own graph and its hash table."""

from __future__ import annotations

from functools import partial
from typing import Any

from ggmltool.debugger.expressions.image import addresses
from ggmltool.debugger.expressions.image.graphs import bits
from ggmltool.debugger.expressions.image.packing import fleeting, pack, pack_array, records
from ggmltool.debugger.expressions.image.parts import Parts
from ggmltool.debugger.expressions.memory import Memory, made_once
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.sched.assign import NULL_KEY
from ggmltool.ggml.state import SplitState
from ggmltool.ggml.version import SCHED_INITIAL_SPLITS
from ggmltool.inspect.opened import environment_number
from ggmltool.structs.types import INT, VOID, Array, Pointer, bare

_POINTER = Pointer(VOID)


class Sched:
    """The scheduler at a point."""

    def __init__(self, parts: Parts) -> None:
        self._program, self._cells, self._layout, self._tensors, self._devices, self._graphs, memory = parts
        self._slots: HashSet | None = None
        self._add(memory)

    def _field(self, name: str, otherwise: int = 0) -> int:
        return int(self._cells.get(("sched", name), otherwise))

    @property
    def n_splits(self) -> int:
        """How many splits there are."""
        return self._field("n_splits")

    def split(self, i: int) -> int:
        """Where a split lies."""
        return addresses.HEAP["splits"] + i * self._layout.structs["ggml_backend_sched_split"].size

    def split_graph(self, i: int) -> int:
        """Where the graph of a split lies."""
        members = self._layout.structs["ggml_backend_sched_split"].members or {}
        return self.split(i) + members["graph"].offset

    def own_graph(self) -> int:
        """Where the scheduler's own graph lies."""
        members = self._layout.structs["ggml_backend_sched"].members or {}
        return addresses.HEAP["sched"] + members["graph"].offset

    def event(self, b: int, copy: int = 0) -> int:
        """Where an event of the pipeline lies; 0 where the backend has none."""
        if self._field("n_copies", 1) == 1 or not self._program.backends[b].device.events:
            return 0
        return addresses.HEAP["events"] + (b * 4 + copy) * 16

    def slot(self, address: int) -> int:
        """The slot of a tensor, by its address."""
        return max(self.slots().find(address), 0)

    def slots(self) -> HashSet:
        """The hash set: the tensors that were looked up, in that order."""
        if self._slots is None:
            self._slots = HashSet(self._field("hash_size"), self._program.release.hash_shift)
            for t in self._cells.get(("sched_graph", "keys"), ())[: self._slots.size]:
                if t == NULL_KEY or ("tensor", t) in self._cells:
                    self._slots.find_or_insert(0 if t == NULL_KEY else self._tensors.place(t))
        return self._slots

    def _add(self, memory: Memory) -> None:
        layout, heap = self._layout, addresses.HEAP
        struct = layout.structs["ggml_backend_sched"]
        memory.add(heap["sched"], struct.size, made_once(lambda: pack(struct, self.fields())))
        split = layout.structs["ggml_backend_sched_split"]
        n = max(self._capacity(), self.n_splits)
        memory.add(heap["splits"], n * split.size, records(split.size, lambda i: pack(split, self._split(i))))
        size = self._field("hash_size")
        wide = len(self._program.backends) * self._field("n_copies", 1)
        memory.add(heap["sched.hash_set.keys"], 8 * size, fleeting(8, self._key))
        words = -(-size // 32)
        memory.add(heap["sched.hash_set.used"], 4 * words, fleeting(4 * words, lambda _: bits(self.slots())))
        memory.add(heap["hv_tensor_backend_ids"], 4 * size, fleeting(4, self._id))
        self._pointers(memory, "hv_tensor_copies", size * wide, self._copies)
        for name, area in (
            ("node_backend_ids", "node_ids"),
            ("leaf_backend_ids", "leaf_ids"),
            ("prev_node_backend_ids", "prev_node_ids"),
            ("prev_leaf_backend_ids", "prev_leaf_ids"),
        ):
            memory.add(heap[name], 4 * max(size, 1), made_once(partial(self._row, area)))
        own = (len(self._cells.get(("sched_graph", part), ())) for part in ("nodes", "leafs"))
        room = max(self._field("graph.size"), *own, 1)
        for part in ("nodes", "leafs"):
            self._pointers(memory, f"sched.graph.{part}", room, partial(self._own, part))
        inputs = self._cells.get(("sched_graph", "inputs"), ())
        self._pointers(memory, "graph_inputs", max(30, len(inputs)), lambda: [self._tensors.address(t) for t in inputs])
        most = max((len(s.inputs) for s in self._splits()), default=0)
        self._input_room = max(most, 30)
        row = 8 * self._input_room
        memory.add(heap["split_inputs"], n * row, records(row, self._input_row))

    @staticmethod
    def _pointers(memory: Memory, thing: str, n: int, make: Any) -> None:
        memory.add(addresses.HEAP[thing], 8 * n, made_once(lambda: pack_array(_POINTER, make(), n)))

    def _own(self, part: str) -> list[int]:
        return [self._tensors.address(t) for t in self._cells.get(("sched_graph", part), ())]

    def _splits(self) -> list[SplitState]:
        return [self._cells[("split", i)] for i in range(self.n_splits)]

    def _capacity(self) -> int:
        n = SCHED_INITIAL_SPLITS
        while n < self.n_splits:
            n *= 2
        return self._field("splits_capacity", n)

    def _row(self, area: str) -> bytes:
        cells = self._cells
        size = max(self._field("hash_size"), 1)
        values = [0] * size
        for i in range(size):
            found = cells.get((area, i))
            if found is None:
                break
            values[i] = found
        return pack_array(INT, values, size)

    def _key(self, slot: int) -> bytes:
        keys = self.slots().keys
        return ((keys[slot] if slot < len(keys) else 0) or 0).to_bytes(8, "little")

    def _id(self, slot: int) -> bytes:
        keys = self.slots().keys
        key = keys[slot] if slot < len(keys) else None
        index = self._tensors.index(key) if key is not None else None
        backend: int = self._cells.get(("id", index), -1) if index is not None else -1
        return backend.to_bytes(4, "little", signed=True)

    def _copies(self) -> list[int]:
        slots = self.slots()
        n_backends, n_copies = len(self._program.backends), self._field("n_copies", 1)
        out = [0] * (slots.size * n_backends * n_copies)
        for slot, key in enumerate(slots.keys):
            index = self._tensors.index(key) if key is not None else None
            for b, of in enumerate(self._cells.get(("copies", -1 if index is None else index), ())):
                for c, t in enumerate(of or ()):
                    out[(slot * n_backends + b) * n_copies + c] = self._tensors.address(t)
        return out

    def _input_row(self, i: int) -> bytes:
        inputs = self._cells[("split", i)].inputs if i < self.n_splits else ()
        return pack_array(_POINTER, [self._tensors.address(t) for t in inputs], self._input_room)

    def _split(self, i: int) -> dict[str, Any]:
        split = self._cells.get(("split", i)) if i < self.n_splits else None
        if split is None:
            return {}
        inputs: Any = [self._tensors.address(t) for t in split.inputs]
        if not isinstance(bare((self._members("ggml_backend_sched_split"))["inputs"].type), Array):
            inputs = addresses.HEAP["split_inputs"] + 8 * self._input_room * i if split.inputs_capacity else 0
        return {
            "backend_id": split.backend_id,
            "i_start": split.i_start,
            "i_end": split.i_end,
            "inputs": inputs,
            "n_inputs": len(split.inputs),
            "inputs_capacity": split.inputs_capacity,
            "graph": self._view(split),
        }

    def _members(self, struct: str) -> dict[str, Any]:
        return self._layout.structs[struct].members or {}

    def _view(self, split: SplitState) -> dict[str, Any]:
        """ggml_graph_view of the nodes of a split."""
        newest = self._graphs.newest
        if newest is None:
            return {}
        at = self._graphs.address(newest)
        members = self._members("ggml_cgraph")
        arrays = {name: offset for name, offset, _ in self._program.release.graph_layout(self._program.cgraph_size)}
        fields: dict[str, Any] = {
            "n_nodes": split.i_end - split.i_start,
            "nodes": at + arrays["nodes"] + 8 * split.i_start,
        }
        if "use_counts" in members:
            keys = {short: at + arrays[f"visited_hash_set.{short}"] for short in ("keys", "used")}
            size = self._graphs.slots()
            fields |= {"use_counts": at + arrays["use_counts"], "visited_hash_set": {"size": size, **keys}}
        return fields

    def fields(self) -> dict[str, Any]:
        """What stands in its struct."""
        heap, program = addresses.HEAP, self._program
        nodes, leafs = (self._cells.get(("sched_graph", part), ()) for part in ("nodes", "leafs"))
        size = self._field("graph.size")
        inputs = self._cells.get(("sched_graph", "inputs"), ())
        in_struct = isinstance(bare(self._members("ggml_backend_sched")["graph_inputs"].type), Array)
        parallel = self._field("n_copies", 1) > 1
        events = [[self.event(b, c) for c in range(4)] if parallel else [] for b in range(len(program.backends))]
        return {
            "is_reset": self._field("is_reset"),
            "is_alloc": self._field("is_alloc"),
            "n_backends": len(program.backends),
            "backends": [self._devices.backend(b) for b in range(len(program.backends))],
            "bufts": [self._devices.buft(buft) for buft in program.buft_of],
            "galloc": heap["galloc"],
            "hash_set": {
                "size": self._field("hash_size"),
                "used": heap["sched.hash_set.used"],
                "keys": heap["sched.hash_set.keys"],
            },
            **{
                name: heap[name]
                for name in (
                    "hv_tensor_backend_ids", "hv_tensor_copies", "node_backend_ids", "leaf_backend_ids",
                    "prev_node_backend_ids", "prev_leaf_backend_ids", "splits", "context_buffer",
                )
            },
            "graph": {
                "size": size,
                "n_nodes": len(nodes),
                "n_leafs": len(leafs),
                "nodes": heap["sched.graph.nodes"] if nodes else 0,
                "leafs": heap["sched.graph.leafs"] if nodes else 0,
            },
            "n_splits": self.n_splits,
            "splits_capacity": self._capacity(),
            "n_copies": self._field("n_copies", 1),
            "cur_copy": self._field("cur_copy"),
            "next_copy": self._field("next_copy"),
            "events": events,
            "graph_inputs": [self._tensors.address(t) for t in inputs] if in_struct else heap["graph_inputs"],
            "n_graph_inputs": len(inputs) if parallel else 0,
            "graph_inputs_capacity": self._field("graph_inputs_capacity"),
            "ctx": heap["contexts"] + 0x80 * program.sched_arena,
            "context_buffer": addresses.arena(program.sched_arena),
            "context_buffer_size": self._field("context_buffer_size"),
            "op_offload": self._field("op_offload"),
            "debug": environment_number("GGML_SCHED_DEBUG"),
            "debug_realloc": environment_number("GGML_SCHED_DEBUG_REALLOC"),
        }  # fmt: skip
