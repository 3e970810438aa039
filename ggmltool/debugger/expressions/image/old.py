"""Scheduler and allocators of January 2024: an allocator for each backend, and one that walks graphs."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from msgspec.structs import asdict

from ggmltool.debugger.expressions.image.devices import Devices
from ggmltool.debugger.expressions.image.graphs import Graphs
from ggmltool.debugger.expressions.image.program import HEAP, Base, ImagePart, buffer
from ggmltool.debugger.expressions.image.tensors import Tensors
from ggmltool.debugger.expressions.memory import Fields, made_once, pack
from ggmltool.ggml.graph import HashSet
from ggmltool.ggml.version import SIZE_MAX


class OldGalloc(ImagePart):
    """The graph allocator of January 2024, and the allocators of the backends. Its hash set is the scheduler's, too."""

    def __init__(self, base: Base, tensors: Tensors) -> None:
        super().__init__(base)
        self._tensors = tensors
        self.hash_size = self.field("hash_size")
        """The slots of its hash set."""
        self.one("galloc", "ggml_gallocr", self._fields)
        values = made_once(self._hash_values)
        self.memory.add(HEAP["hash_values"], self.size("hash_node") * self.hash_size, values)
        n = len(self.program.backends)
        self.rows("tallocrs", "ggml_tallocr", n, self._tallocr, self.size("ggml_tallocr", 16))

    @cached_property
    def slots(self) -> HashSet:
        """The tensors that were looked up, in that order."""
        return self._tensors.hash_set(self.hash_size, self.own("keys"))

    def slot(self, address: int) -> int:
        """The slot of a tensor, by its address."""
        return max(self.slots.find(address), 0)

    def taken(self) -> list[tuple[int, int]]:
        """The slots that are taken, each with its tensor."""
        found = ((slot, self._tensors.index(key)) for slot, key in enumerate(self.slots.keys))
        return [(slot, index) for slot, index in found if index is not None]

    def hash_node(self, address: int) -> int:
        """Where the hash node of a tensor lies."""
        return HEAP["hash_values"] + (self.slot(address) if self.hash_size else 0) * self.size("hash_node")

    def tallocr(self, b: int) -> int:
        """Where the allocator of a backend lies."""
        return HEAP["tallocrs"] + b * self.size("ggml_tallocr", 16) if b >= 0 else 0

    def _fields(self) -> Fields:
        return {
            "hash_set": {"size": self.hash_size, "keys": HEAP["sched.hash_set.keys"]},
            "hash_values": HEAP["hash_values"],
            "hash_values_size": self.hash_size,
            "hash_allocs": HEAP["hv_tensor_backend_ids"],
        }

    def _hash_values(self) -> bytes:
        struct = self.layout.structs["hash_node"]
        out = bytearray(struct.size * self.hash_size)
        for slot, index in self.taken():
            node = self.cells.get(("hash_node", index))
            if node is not None:
                out[slot * struct.size : (slot + 1) * struct.size] = pack(struct, asdict(node))
        return bytes(out)

    def _tallocr(self, b: int) -> Fields:
        base, size = next(iter(self.cells.get(("buffer", b)) or ()), (0, 0))
        free = self.cells.get(("free", b, 0), ())
        return {
            "buffer": buffer(len(self.program.buffers) + b) if base else 0,
            "buffer_owned": bool(base),
            "base": base,
            "alignment": self.program.bufts[self.program.buft_of[b]].alignment,
            "n_free_blocks": len(free),
            "free_blocks": [{"addr": base + offset, "size": n} for offset, n in free],
            "max_size": self.cells.get(("max_size", b, 0), 0),
            "measure": size >= SIZE_MAX // 2,
        }


class OldSched(ImagePart):
    """The scheduler of January 2024."""

    def __init__(self, base: Base, tensors: Tensors, devices: Devices, graphs: Graphs, galloc: OldGalloc) -> None:
        super().__init__(base)
        self._tensors = tensors
        self._devices = devices
        self._graphs = graphs
        self._galloc = galloc
        self.n_splits = self.field("n_splits")
        self.slot = galloc.slot
        self.one("sched", "ggml_backend_sched", self._fields)
        size = galloc.hash_size
        self.pointers("sched.hash_set.keys", size, lambda: [key or 0 for key in galloc.slots.keys])
        self.pointers("hv_tensor_backend_ids", size, self._tallocs)
        self.pointers("hv_tensor_copies", size * self.program.release.max_backends, self._copies)
        for part in ("nodes", "leafs"):
            own = tensors.addresses(self.own(part))
            self.pointers(f"sched.graph.{part}", max(len(own), 1), partial(list, own))
        self.one("sched.graph", "ggml_cgraph", self._own_graph)

    def split(self, i: int) -> int:
        """Where a split lies: in the scheduler itself."""
        splits = HEAP["sched"] + self.offset("ggml_backend_sched", "splits")
        return splits + i * self.size("ggml_backend_sched_split")

    def split_graph(self, i: int) -> int:
        """Where the graph of a split lies."""
        return self.split(i) + self.offset("ggml_backend_sched_split", "graph")

    def own_graph(self) -> int:
        """Where the scheduler's own graph lies."""
        return HEAP["sched.graph"]

    def event(self, b: int) -> int:
        """There are no events."""
        return 0

    def _tallocs(self) -> list[int]:
        out = [0] * self._galloc.hash_size
        for slot, index in self._galloc.taken():
            out[slot] = self._galloc.tallocr(self.cells.get(("id", index), -1))
        return out

    def _copies(self) -> list[int]:
        wide = self.program.release.max_backends
        out = [0] * (self._galloc.hash_size * wide)
        for slot, index in self._galloc.taken():
            for b, of in enumerate(self.cells.get(("copies", index), ())):
                for t in of or ():
                    out[slot * wide + b] = self._tensors.address(t)
        return out

    def _own_graph(self) -> Fields:
        nodes = self.own("nodes")
        return {
            "size": len(nodes),
            "n_nodes": len(nodes),
            "nodes": HEAP["sched.graph.nodes"] if nodes else 0,
            "leafs": HEAP["sched.graph.leafs"] if nodes else 0,
        }

    def _split(self, i: int) -> dict[str, Any]:
        split = self.cells["split", i]
        return {
            "tallocr": self._galloc.tallocr(split.backend_id),
            "i_start": split.i_start,
            "i_end": split.i_end,
            "inputs": self._tensors.addresses(split.inputs),
            "n_inputs": len(split.inputs),
            "graph": self._graphs.view(split.i_start, split.i_end),
        }

    def _fields(self) -> Fields:
        n = len(self.program.backends)
        return {
            "is_reset": self.field("is_reset"),
            "n_backends": n,
            "backends": [self._devices.backend(b) for b in range(n)],
            "bufts": [self._devices.buft(buft) for buft in self.program.buft_of],
            "tallocs": [self._galloc.tallocr(b) for b in range(n)],
            "galloc": HEAP["galloc"],
            "hash_set": {"size": self._galloc.hash_size, "keys": HEAP["sched.hash_set.keys"]},
            "node_talloc": HEAP["hv_tensor_backend_ids"],
            "node_copies": HEAP["hv_tensor_copies"],
            "graph": HEAP["sched.graph"] if self.own("nodes") else 0,
            "splits": [self._split(i) for i in range(self.n_splits)],
            "n_splits": self.n_splits,
            "ctx": self._graphs.context(self.program.sched_arena),
        }
