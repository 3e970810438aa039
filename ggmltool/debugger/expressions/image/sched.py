"""struct ggml_backend_sched with its splits, its own graph and its hash table."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.galloc import Galloc
from ggmltool.debugger.expressions.image.program import HEAP, Base, ImagePart, arena
from ggmltool.debugger.expressions.image.tensors import Graphs, Tensors, bits
from ggmltool.debugger.expressions.memory import Fields, made_once, pack_array, records
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.version import SCHED_INITIAL_SPLITS
from ggmltool.inspect.opened import environment_number
from ggmltool.structs.types import INT, VOID, Array, Pointer, bare

_LEAST_INPUTS = 30
_AREAS = {
    "node_backend_ids": "node_ids",
    "leaf_backend_ids": "leaf_ids",
    "prev_node_backend_ids": "prev_node_ids",
    "prev_leaf_backend_ids": "prev_leaf_ids",
}
"""The cells of arrays of the scheduler."""


class Sched(ImagePart):
    """The scheduler at a point."""

    def __init__(self, base: Base, tensors: Tensors, devices: Devices, graphs: Graphs, galloc: Galloc) -> None:
        super().__init__(base)
        self._tensors = tensors
        self._devices = devices
        self._graphs = graphs
        self._galloc = galloc
        self.n_splits = self.field("n_splits")
        self._size = size = self.field("hash_size")
        self._capacity = SCHED_INITIAL_SPLITS
        while self._capacity < self.n_splits:
            self._capacity *= 2
        self._capacity = self.field("splits_capacity", self._capacity)
        self._n_copies = self.field("n_copies", 1)
        self._wide = len(self.program.backends) if self.reserves else self.program.release.max_backends
        self.one("sched", "ggml_backend_sched", self._fields)
        n = max(self._capacity, self.n_splits)
        self.rows("splits", "ggml_backend_sched_split", n, self._split)
        self.memory.add(HEAP["sched.hash_set.keys"], 8 * size, records(8, self._key))
        words = 4 * -(-size // 32)
        self.memory.add(HEAP["sched.hash_set.used"], words, records(words, lambda _: bits(self.slots)))
        wide = 4 if self.reserves else 8
        self.memory.add(HEAP["hv_tensor_backend_ids"], wide * size, records(wide, self._id))
        self.pointers("hv_tensor_copies", size * self._wide * self._n_copies, self._copies)
        for name in _AREAS:
            self.memory.add(HEAP[name], 4 * max(size, 1), made_once(partial(self._ids, name)))
        room = max(self.field("graph.size"), len(self.own("nodes")), len(self.own("leafs")), 1)
        for part in ("nodes", "leafs"):
            self.pointers(f"sched.graph.{part}", room, partial(self._addresses, part))
        self.one("sched.graph", "ggml_cgraph", self._own_graph)
        inputs = max(_LEAST_INPUTS, len(self.own("inputs")))
        self.pointers("graph_inputs", inputs, partial(self._addresses, "inputs"))
        most = (len(self.cells["split", i].inputs) for i in range(self.n_splits))
        self._input_room = max([_LEAST_INPUTS, *most])
        row = 8 * self._input_room
        self.memory.add(HEAP["split_inputs"], n * row, records(row, self._input_row))

    def split(self, i: int) -> int:
        """Where a split lies."""
        inside = HEAP["sched"] + self.offset("ggml_backend_sched", "splits")
        first = inside if self._is(Array, "splits") else HEAP["splits"]
        return first + i * self.size("ggml_backend_sched_split")

    def split_graph(self, i: int) -> int:
        """Where the graph of a split lies."""
        return self.split(i) + self.offset("ggml_backend_sched_split", "graph")

    def own_graph(self) -> int:
        """Where the scheduler's own graph lies."""
        inside = HEAP["sched"] + self.offset("ggml_backend_sched", "graph")
        return HEAP["sched.graph"] if self._is(Pointer, "graph") else inside

    def event(self, b: int, copy: int = 0) -> int:
        """Where an event of the pipeline lies; 0 where the backend has none."""
        if self._n_copies == 1 or not self.program.backends[b].device.events:
            return 0
        return HEAP["events"] + (b * 4 + copy) * 16

    def slot(self, address: int) -> int:
        """The slot of a tensor, by its address."""
        return max(self.slots.find(address), 0)

    @cached_property
    def slots(self) -> HashSet:
        """The hash set: the tensors that were looked up, in that order."""
        return self._tensors.hash_set(self._size, self.own("keys"))

    def _addresses(self, part: str) -> list[int]:
        return self._tensors.addresses(self.own(part))

    def _ids(self, name: str) -> bytes:
        """An array of backends; behind the last that is known zeros."""
        values: list[int] = []
        while len(values) < self._size and (_AREAS[name], len(values)) in self.cells:
            values.append(self.cells[_AREAS[name], len(values)])
        return pack_array(INT, values, max(self._size, 1))

    def _at(self, slot: int) -> int | None:
        return self.slots.keys[slot] if slot < len(self.slots.keys) else None

    def _key(self, slot: int) -> bytes:
        return (self._at(slot) or 0).to_bytes(8, "little")

    def _id(self, slot: int) -> bytes:
        """The backend of the tensor in a slot; in January 2024 its allocator."""
        index = self._tensors.index(self._at(slot))
        backend: int = -1 if index is None else self.cells.get(("id", index), -1)
        if not self.reserves:
            return self._galloc.tallocr(backend).to_bytes(8, "little")
        return backend.to_bytes(4, "little", signed=True)

    def _copies(self) -> list[int]:
        wide, n_copies = self._wide, self._n_copies
        out = [0] * (self.slots.size * wide * n_copies)
        for slot, key in enumerate(self.slots.keys):
            index = self._tensors.index(key)
            for b, of in enumerate(self.cells.get(("copies", -1 if index is None else index), ())):
                for c, t in enumerate(of or ()):
                    out[(slot * wide + b) * n_copies + c] = self._tensors.address(t)
        return out

    def _input_row(self, i: int) -> bytes:
        inputs = self.cells["split", i].inputs if i < self.n_splits else ()
        return pack_array(Pointer(VOID), self._tensors.addresses(inputs), self._input_room)

    def _is(self, kind: type[Array | Pointer], field: str, struct: str = "ggml_backend_sched") -> bool:
        """Whether a field is an array, or a pointer, where it is something else in other ggmls."""
        member = (self.layout.structs[struct].members or {}).get(field)
        return member is not None and isinstance(bare(member.type), kind)

    def _split(self, i: int) -> Fields:
        split = self.cells.get(("split", i)) if i < self.n_splits else None
        if split is None:
            return {}
        inputs: Any = self._tensors.addresses(split.inputs)
        if not self._is(Array, "inputs", "ggml_backend_sched_split"):
            inputs = HEAP["split_inputs"] + 8 * self._input_room * i if split.inputs_capacity else 0
        return {
            "tallocr": self._galloc.tallocr(split.backend_id),
            "backend_id": split.backend_id,
            "i_start": split.i_start,
            "i_end": split.i_end,
            "inputs": inputs,
            "n_inputs": len(split.inputs),
            "inputs_capacity": split.inputs_capacity,
            "graph": self._graphs.view(split.i_start, split.i_end),
        }

    def _own_graph(self) -> Fields:
        nodes = self.own("nodes")
        return {
            "size": self.field("graph.size") if self.reserves else len(nodes),
            "n_nodes": len(nodes),
            "n_leafs": len(self.own("leafs")),
            "nodes": HEAP["sched.graph.nodes"] if nodes else 0,
            "leafs": HEAP["sched.graph.leafs"] if nodes else 0,
        }

    def _fields(self) -> Fields:
        program, field = self.program, self.field
        in_struct = self._is(Array, "graph_inputs")
        parallel = self._n_copies > 1
        n = len(program.backends)
        arrays = (*_AREAS, "hv_tensor_backend_ids", "hv_tensor_copies", "splits", "galloc")
        splits = {"splits": [*map(self._split, range(self.n_splits))]}
        own_graph = HEAP["sched.graph"] if self.own("nodes") else 0
        return {
            **{name: HEAP[name] for name in arrays},
            **{
                name: field(name)
                for name in (
                    "is_reset", "is_alloc", "n_splits", "cur_copy", "next_copy", "graph_inputs_capacity",
                    "context_buffer_size", "op_offload",
                )
            },
            **(splits if self._is(Array, "splits") else {}),
            "n_backends": n,
            "backends": [self._devices.backend(b) for b in range(n)],
            "bufts": [self._devices.buft(buft) for buft in program.buft_of],
            "tallocs": [self._galloc.tallocr(b) for b in range(n)],
            "node_talloc": HEAP["hv_tensor_backend_ids"],
            "node_copies": HEAP["hv_tensor_copies"],
            "hash_set": {
                "size": self._size, "used": HEAP["sched.hash_set.used"], "keys": HEAP["sched.hash_set.keys"],
            },
            "graph": own_graph if self._is(Pointer, "graph") else self._own_graph(),
            "splits_capacity": self._capacity,
            "n_copies": self._n_copies,
            "events": [[self.event(b, c) for c in range(4)] if parallel else [] for b in range(n)],
            "graph_inputs": self._addresses("inputs") if in_struct else HEAP["graph_inputs"],
            "n_graph_inputs": len(self.own("inputs")) if parallel else 0,
            "ctx": self._graphs.context(program.sched_arena),
            "context_buffer": arena(program.sched_arena),
            "debug": environment_number("GGML_SCHED_DEBUG"),
            "debug_realloc": environment_number("GGML_SCHED_DEBUG_REALLOC"),
        }  # fmt: skip
