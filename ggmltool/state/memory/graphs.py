"""Graphs and hash sets in a program's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggmltool.ggml.state import NO_SLOTS, GraphState, HashSetState
from ggmltool.ggml.version import hash_size
from ggmltool.state.errors import NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.fields import record
from ggmltool.state.memory.pages import Memory
from ggmltool.structs.layout import Layout

_GRAPH = ("size", "n_nodes", "n_leafs", "nodes", "leafs", "use_counts|", "visited_hash_set")


class MemoryGraphs:
    """Reads them; two graphs that share a hash set, as a graph and its views do, share what is read of it."""

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self.memory = memory
        self.record = record(layout, "ggml_cgraph", _GRAPH)
        self.hashes = record(layout, "ggml_hash_set", ("size", "used", "keys"))
        self._sets: dict[tuple[int, int, int], HashSetState] = {}
        self._counts: dict[tuple[int, int], Mapping[int, int]] = {}

    def graph(self, address: int, what: str = "the graph") -> GraphState:
        """A ggml_cgraph. Raises NoBytes, NotAsLaidOut."""
        data = self.memory.read(address, self.record.size)
        size, n_nodes, n_leafs, nodes, leafs, use_counts, hashes = self.record.unpack(data)
        # A view of a graph has no size of its own.
        most = size or limits.NODES
        for n, of in ((n_nodes, "nodes"), (n_leafs, "leafs")):
            if not 0 <= n <= min(most, limits.NODES):
                raise NotAsLaidOut(f"{what} at {address:#x} has {n} {of}, and place for {size}")
        if size:
            self.memory.prefetch([(nodes, 8 * n_nodes), (leafs, 8 * n_leafs)])
        hash_set = self.hash_set(data, hashes, f"the hash set of {what}")
        return GraphState(
            size, self.memory.numbers(nodes, "Q", n_nodes), self.memory.numbers(leafs, "Q", n_leafs),
            self._use_counts(use_counts, hash_set), hash_set, address,
        )  # fmt: skip

    def hash_set(self, data: bytes, at: int, what: str, slots: bool = True) -> HashSetState:
        """The hash set that lies in these bytes, with what stands in its `slots`. Raises NoBytes, NotAsLaidOut."""
        size, used, keys = key = tuple(self.hashes.unpack(data, at))
        if not size or not keys:
            return NO_SLOTS
        found = self._sets.get(key)
        if found is None:
            if size > limits.SLOTS or hash_size(size) != size:
                raise NotAsLaidOut(f"{what} has {size} slots, and that is none of ggml's sizes")
            if not slots:
                return HashSetState(size, frozenset(), {})
            words = (size + 31) // 32
            self.memory.prefetch([(used, 4 * words)])
            taken_slots = [slot for slot in _bits(self.memory.read(used, 4 * words)) if slot < size]
            held = self.memory.cells(keys, "Q", taken_slots)
            taken = {slot: key for slot, (key,) in zip(taken_slots, held, strict=True)}
            found = HashSetState(size, frozenset(taken.values()), taken)
            self._sets[key] = found
        return found

    def _use_counts(self, address: int, hash_set: HashSetState) -> Mapping[int, int]:
        if not address or not hash_set.slots:
            return {}
        key = address, id(hash_set)
        if key not in self._counts:
            counts = self.memory.numbers(address, "i", hash_set.size)
            self._counts[key] = {tensor: counts[slot] for slot, tensor in hash_set.slots.items()}
        return self._counts[key]


def _bits(data: bytes) -> Iterator[int]:
    """The places of the bits that are set."""
    for i, byte in enumerate(data):
        while byte:
            low = byte & -byte
            yield 8 * i + low.bit_length() - 1
            byte ^= low
