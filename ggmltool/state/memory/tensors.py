"""Tensors, graphs and hash sets in a program's memory: those that are asked for, and all that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.devices.questions import trimmed
from ggmltool.ggml.op import GluOp, UnaryOp
from ggmltool.ggml.state import NO_SLOTS, GraphState, HashSetState, TensorState
from ggmltool.ggml.tensor import Dims
from ggmltool.ggml.version import hash_size
from ggmltool.state.errors import AttachError, NoBytes, NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.fields import StructFields, record
from ggmltool.state.memory.pages import Memory
from ggmltool.structs.layout import Layout

_FIELDS = (
    "type", "buffer", "ne", "nb", "op", "op_params", "flags|", "src", "view_src", "view_offs", "data", "name",
)  # fmt: skip
_OBJECT = ("offs", "size", "next", "type")
_NE = 1 << 48


class TensorStruct(NamedTuple):
    """ggml_tensor as it lies in memory: `type`, `op` and the words of `op_params` are the program's own numbers; `src`
    has all its slots."""

    address: int
    type: int
    buffer: int
    ne: Dims
    nb: Dims
    op: int
    op_params: tuple[int, ...]
    flags: int
    src: tuple[int, ...]
    view_src: int
    view_offs: int
    data: int
    name: bytes


_FAMILIES = {**{f.name: "UNARY" for f in UnaryOp}, **{f.name: "GLU" for f in GluOp}}


def tensor_states(
    tensors: Mapping[int, TensorStruct],
    types: Mapping[int, str],
    ops: Mapping[tuple[int, int], str],
    ids: Mapping[int, str] | None = None,
) -> dict[int, TensorState]:
    """Tensors by address as rows, whose types are called so by number, and whose ops by number and the first word of
    the parameters (of UNARY and GLU by their functions). `ids` are those of a scenario."""
    ids = ids or {}
    out = {}
    for address, t in tensors.items():
        desc = ops.get((t.op, t.op_params[0] if t.op_params else 0)) or f"op {t.op}"
        # Mostly there is no hole in front of a source.
        sources: tuple[int | None, ...] = t.src[: t.src.index(0)] if 0 in t.src else t.src
        if any(t.src[len(sources) :]):
            sources = tuple([s or None for s in trimmed(t.src)])
        out[address] = TensorState(
            t.name.decode("utf-8", "surrogateescape"), ids.get(address, ""), types.get(t.type) or f"type {t.type}",
            t.ne, t.nb, _FAMILIES.get(desc, desc), desc, t.op_params, t.flags, sources, t.view_src or None,
            t.view_offs, t.data, t.buffer or None, address,
        )  # fmt: skip
    return out


def tensor_record(layout: Layout) -> StructFields:
    """The fields of a TensorStruct but for the address."""
    return record(layout, "ggml_tensor", _FIELDS)


class MemoryTensors:
    """The tensors read so far, by address. Those that `must` be there raise; others are left out."""

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self.memory = memory
        self.record = tensor_record(layout)
        self.object = record(layout, "ggml_object", _OBJECT)
        self.is_tensor = layout.enums["ggml_object_type"].members["GGML_OBJECT_TYPE_TENSOR"]
        self.read: dict[int, TensorStruct] = {}
        self.left_out = 0

    def tensor(self, address: int) -> TensorStruct:
        """The tensor at an address. Raises NoBytes, NotAsLaidOut."""
        found = self.read.get(address)
        return self._one(address) if found is None else found

    def take(self, addresses: Iterable[int], must: bool) -> None:
        """Read these tensors, and all their sources."""
        wanted = [a for a in dict.fromkeys(addresses) if a and a not in self.read]
        for _ in range(limits.DEPTH):
            if not wanted:
                return
            found = self._some(wanted, must)
            sources = dict.fromkeys(s for t in found for s in (*t.src, t.view_src) if s)
            wanted = [s for s in sources if s not in self.read]
        if must:
            raise AttachError(f"tensors have sources that are more than {limits.DEPTH} deep; the graph is damaged")
        self.left_out += len(wanted)

    def _some(self, addresses: Sequence[int], must: bool) -> list[TensorStruct]:
        size = self.record.size
        if len(self.read) + len(addresses) > limits.TENSORS:
            raise AttachError(f"there are more than {limits.TENSORS} tensors; the graph is damaged")
        self.memory.prefetch([(address, size) for address in addresses])
        out = []
        for address in addresses:
            try:
                tensor = self._one(address)
            except (NoBytes, NotAsLaidOut):
                if must:
                    raise
                self.left_out += 1
                continue
            self.read[address] = tensor
            out.append(tensor)
        return out

    def _one(self, address: int) -> TensorStruct:
        f = self.record.unpack(self.memory.read(address, self.record.size))
        f[11] = f[11].split(b"\0", 1)[0]
        tensor = TensorStruct(address, *f)
        if wrong := _wrong(tensor):
            raise NotAsLaidOut(f"what lies at {address:#x} is no tensor: {wrong}")
        return tensor

    def arenas(self, addresses: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The contexts that these tensors lie in, each with its tensors in the order in which they were made."""
        size = self.object.size
        self.memory.prefetch([(address - size, size) for address in addresses])
        seen: set[int] = set()
        arenas = []
        left = limits.OBJECTS
        for address in addresses:
            if address in seen:
                continue
            found = self._arena(address, left)
            if address in found:
                left -= len(found)
                seen.update(found)
                arenas.append(tuple(found))
        return tuple(arenas)

    def _arena(self, tensor: int, most: int) -> list[int]:
        """The tensors of the context that a tensor lies in, by its objects; [] if it lies in none."""
        try:
            return self._objects(tensor, most)
        except NoBytes:
            return []

    def _objects(self, tensor: int, most: int) -> list[int]:
        size, memory = self.object.size, self.memory
        offs, _, _, type = self.object.unpack(memory.read(tensor - size, size))
        at = start = tensor - offs
        out = []
        while at and most:
            most -= 1
            offs, _, next, type = self.object.unpack(memory.read(at, size))
            if start + offs != at + size:
                return []
            if type == self.is_tensor:
                out.append(at + size)
            if next and next <= at:
                return []
            at = next
        return out


def _wrong(t: TensorStruct) -> str:
    """What cannot be in a tensor, "" if nothing is."""
    numbers = (*t.ne, *t.nb)
    if 0 <= t.type < limits.TYPES and 0 <= t.op < limits.TYPES and min(numbers) >= 0 and max(numbers) < _NE:
        return ""
    if not 0 <= t.type < limits.TYPES:
        return f"its type is {t.type}"
    if not 0 <= t.op < limits.TYPES:
        return f"its op is {t.op}"
    return f"its shape is {list(t.ne)}, its strides are {list(t.nb)}"


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
