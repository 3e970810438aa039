"""Writes the graph of a program that was stopped: its tensors as the program gave them to the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ggmltool.attach.devices.answered import given_order
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.ggml.buffer import USAGE_COMPUTE
from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
from ggmltool.ggml.errors import Error
from ggmltool.ggml.releases.table import BY_NAME, NEWEST
from ggmltool.ggml.sched.unchecked import REMEDY
from ggmltool.ggml.state import BufferState, BuftState
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.scenario.versions import days, lacks
from ggmltool.sources.graph_writer import GraphWriter, text
from ggmltool.state.errors import AttachError
from ggmltool.state.memory.tensors import TensorStruct

_LISTED = 5
MAX_NAME = 200
"""Characters of a name that a program gives, at most."""


@dataclass(frozen=True, slots=True)
class ScenarioNames:
    """Names by address: of backends in the scheduler's order, and of buffer types. `own` are the buffer types that are
    called as their backend is: the scenario's backend has them without saying so."""

    backends: tuple[str, ...]
    bufts: dict[int, str]
    own: frozenset[int]

    def backend(self, index: int) -> str | None:
        """The name of a backend by its number; None for none."""
        return self.backends[index] if 0 <= index < len(self.backends) else None


def names_of(snapshot: Snapshot) -> ScenarioNames:
    """The names of all backends and buffer types that a snapshot has."""
    taken: set[str] = set()
    backends = tuple(unique(b.name, f"backend {i}", taken) for i, b in enumerate(snapshot.backends))
    bufts: dict[int, str] = {}
    # A backend's default buffer type of the same name is its own.
    for name, backend, address in zip(backends, snapshot.backends, snapshot.sched.bufts, strict=True):
        buft = snapshot.bufts.get(address)
        if buft is not None and address not in bufts and backend.name is not None and buft.name == backend.name:
            bufts[address] = name
    taken = {*bufts.values()}
    for address in (*snapshot.sched.bufts, *sorted(snapshot.bufts)):
        if address not in bufts:
            buft = snapshot.bufts.get(address)
            bufts[address] = unique(buft.name if buft else None, "memory", taken)
    own = (
        a for name, a in zip(backends, snapshot.sched.bufts, strict=True) if bufts[a] == name and a in snapshot.bufts
    )
    return ScenarioNames(backends, bufts, frozenset(own))


def unique(name: str | None, otherwise: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is from now on."""
    given = clean(name or "") or otherwise
    free, n = given, 0
    while free in taken:
        n += 1
        free = f"{given}~{n}"
    taken.add(free)
    return free


def clean(text: str) -> str:
    """A program's text as a scenario can have it."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_NAME])


def listed(names: Sequence[str]) -> str:
    """The first of some names."""
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


NO_LIMIT = SIZE_MAX >> 1
"""The largest chunk that ggml plans, for a device without the limit of those that it is like."""
_TYPES = ("cpu", "gpu", "igpu", "accel")


def backends_of(snapshot: Snapshot, names: ScenarioNames, answers: Answers | None) -> list[dict[str, Any]]:
    """The scenario's backends, in the scheduler's order, without what they answered of ops and sizes."""
    out = []
    for i, (backend, buft) in enumerate(zip(snapshot.backends, snapshot.sched.bufts, strict=True)):
        device = snapshot.devices.get(backend.device)
        entry: dict[str, Any] = {"name": names.backends[i], "profile": "recorded"}
        like = profile_of_name(backend.name or "")
        if like != "custom":
            entry["like"] = like
        if device is not None:
            if device.type in _TYPES:
                entry["type"] = device.type
            entry["events"] = device.events
            if device.memory_free:
                entry["memory"] = device.memory_free
        if "graph_optimize" not in backend.functions:
            entry["graph_optimize"] = False
        own = buft in names.own and names.bufts[buft] == names.backends[i]
        if own:
            state = snapshot.bufts[buft]
            if state.max_size is not None and like in PROFILES and PROFILES[like].max_size != SIZE_MAX:
                entry["max_size"] = NO_LIMIT
            entry |= _of_buft(state)
        if not own or PROFILES[like].buft is not None:
            entry["buft"] = names.bufts[buft]
        if answers is not None:
            entry["supports_bufts"] = [names.bufts[b] for (k, b), yes in answers.bufts.items() if k == i and yes]
        out.append(entry)
    return out


def _of_buft(buft: BuftState) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if buft.alignment:
        out["alignment"] = buft.alignment
    if buft.max_size is not None and 0 < buft.max_size < SIZE_MAX:
        out["max_size"] = buft.max_size
    if buft.host is not None:
        out["host"] = buft.host
    return out


def buffer_types_of(
    snapshot: Snapshot, names: ScenarioNames, used: set[str], answers: Answers | None
) -> dict[str, dict[str, Any]]:
    """The buffer types that are no backend's own, of those that are `used` by their names. The backend of each is that
    of its device, else the first that can use it, else the last."""
    pairs = zip(reversed(snapshot.backends), reversed(names.backends), strict=True)
    by_device = {backend.device: name for backend, name in pairs}
    out: dict[str, dict[str, Any]] = {}
    for address, name in names.bufts.items():
        buft = snapshot.bufts.get(address)
        if buft is not None and address not in names.own and name in used:
            can = answers.bufts.items() if answers is not None else ()
            user = min((i for (i, b), yes in can if b == address and yes), default=len(names.backends) - 1)
            out[name] = {"device": by_device.get(buft.device, names.backends[user]), **_of_buft(buft)}
    return out


VIEWS = "views"
"""The context of views that have no memory yet, of tensors that have."""


class SnapshotMemory:
    """The tensors of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        there = [tuple(a for a in context if a in snapshot.tensors) for context in snapshot.contexts]
        self._arenas = {address: context for context in there for address in context}

    def tensor(self, address: int) -> TensorStruct:
        """The ggml_tensor at an address. Raises AttachError where none was read."""
        found = self.snapshot.tensors.get(address)
        if found is None:
            raise AttachError(f"the graph has a tensor at {address:#x}, where nothing can be read")
        return found

    def arena(self, address: int) -> Iterable[int]:
        """The tensors of its ggml_context."""
        return self._arenas.get(address, (address,))

    def type_name(self, number: int) -> str:
        """ggml_type_name."""
        return self.snapshot.type_names.get(number, f"number {number}")

    def op_name(self, number: int, first_word: int) -> str:
        """ggml_op_name, or the name of the function of UNARY and GLU."""
        return self.snapshot.op_names.get((number, first_word), f"number {number}")


class ProcessWriter(GraphWriter):
    """Writes the graph of a snapshot: a context for each buffer that the program filled, with the places in it. Where
    the graph is allocated already, sources are those before copies took their place, `nodes` are in an order that the
    devices may have been given, and memory that the scheduler gave is taken back."""

    def __init__(self, snapshot: Snapshot, names: ScenarioNames) -> None:
        super().__init__(SnapshotMemory(snapshot))
        self.snapshot = snapshot
        self.called = names
        sched = snapshot.sched
        self.is_allocated = bool(sched.is_alloc and snapshot.function and "compute" in snapshot.function)
        made = (buffer for buffers in sched.galloc.buffers for buffer in buffers)
        self.given = set(made) if self.is_allocated else set()
        self.flags_computed = not lacks(BY_NAME[snapshot.release], days().keys["graphs.*.uncomputed"])
        self.originals = {copy: of for of, _, _, copy in sched.copies() if copy != of}
        # The backends that the user has chosen are all that are set before a graph is split.
        forgets = snapshot.function is not None and "compute" in snapshot.function and sched.address
        self.assigned = {} if sched.is_reset or forgets else dict(sched.tensor_backend_ids)
        self.nodes = given_order(snapshot, self.sources) if self.is_allocated else snapshot.graph.nodes
        self._contexts_of: dict[int, str] = {}

    def graph(self, name: str) -> dict[int, str]:
        """Write the graph; the ids of its tensors by address. Raises AttachError for what no scenario can say, as
        sources with an op that are no part of the graph."""
        graph, memory = self.snapshot.graph, self.memory
        known = {*graph.nodes, *graph.leafs}
        for node in graph.nodes:
            for source in self.sources(memory.tensor(node)):
                if source and source not in known and memory.tensor(source).op:
                    what = f"{_shown(memory.tensor(node))} reads {_shown(memory.tensor(source))}"
                    raise AttachError(f"{what}, a result that the graph does not have; no scenario can say that")
        return self.write(name, self.nodes, graph.leafs)

    def sources(self, tensor: TensorStruct) -> tuple[int, ...]:
        """The sources that the program gave a node, not the scheduler's copies of them."""
        if not self.is_allocated:
            return tensor.src
        return tuple(self.originals.get(s, s) for s in tensor.src)

    def is_computed(self, tensor: TensorStruct) -> bool:
        """Whether a node is computed; a ggml that knows no flag for it computes all."""
        return not self.flags_computed or super().is_computed(tensor)

    def context_of(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a leaf; a view that has no memory yet is with the inputs, or behind them."""
        if self.has_memory(tensor):
            return self.place(tensor)
        root = self.memory.tensor(tensor.view_src) if tensor.view_src else tensor
        return (VIEWS if self.has_memory(root) else self.inputs), {}

    def has_memory(self, tensor: TensorStruct) -> bool:
        """Whether the program gave a tensor memory."""
        return bool(tensor.buffer) and tensor.buffer not in self.given

    def place(self, tensor: TensorStruct) -> tuple[str, dict[str, Any]]:
        """The context of a buffer: its tensors lie where they lie in the program."""
        buffer = self._buffer(tensor)
        name = self._contexts_of.get(buffer.address)
        usage = buffer.usage_name or "any"
        buft = self.called.bufts[buffer.buft]
        if name is None:
            wanted, n = f"{usage} in {buft}" if usage != "any" else buft, 0
            name = wanted
            while name in self._contexts_of.values() or name in (self.inputs, VIEWS):
                n += 1
                name = f"{wanted}~{n}"
            self._contexts_of[buffer.address] = name
        return name, {"buft": buft, "usage": usage, "size": buffer.size}

    def _buffer(self, tensor: TensorStruct) -> BufferState:
        buffer = self.snapshot.buffers.get(tensor.buffer)
        if buffer is None or buffer.buft not in self.called.bufts:
            raise AttachError(f"{_shown(tensor)} lies in a buffer at {tensor.buffer:#x}, where nothing can be read")
        return buffer

    def leaf(self, address: int) -> dict[str, Any]:
        """A tensor of a context, with its place."""
        out = self._with_assignment(address, self.tensor(address, is_node=False))
        tensor = self.memory.tensor(address)
        if self.has_memory(tensor) and not tensor.view_src:
            out["at"] = self._offset(tensor)
        return out

    def node(self, address: int) -> dict[str, Any]:
        """A node, with its place if the program gave it memory."""
        tensor = self.memory.tensor(address)
        for source in self.sources(tensor):
            if source and source not in self.ids:
                self.add_leaf(source)
        out = self._with_assignment(address, self.tensor(address))
        if self.has_memory(tensor) and not tensor.view_src:
            name, head = self.place(tensor)
            self.contexts.setdefault(name, {**head, "tensors": {}})
            out["in"], out["at"] = name, self._offset(tensor)
        return out

    def _with_assignment(self, address: int, out: dict[str, Any]) -> dict[str, Any]:
        backend = self.called.backend(self.assigned.get(address, -1))
        return out if backend is None else {**out, "backend": backend}

    def _offset(self, tensor: TensorStruct) -> int:
        """Bytes from the start of its buffer; the first where a core dump does not say where that is."""
        buffer = self._buffer(tensor)
        if buffer.base is None or not tensor.data:
            return 0
        offset = tensor.data - buffer.base
        if not 0 <= offset <= buffer.size:
            raise AttachError(_outside(tensor, buffer, offset))
        return offset

    def unknown_type(self, name: str) -> Error:
        """No such type here."""
        return AttachError(f"the graph has tensors of the type {clean(name)}, which ggml {NEWEST.name} does not have")

    def unknown_op(self, name: str) -> Error:
        """No such op here."""
        version = self.snapshot.version
        return AttachError(
            f"the graph has the op {clean(name)} (ggml {clean(version)}), which ggml {NEWEST.name} does not have; "
            "ggmltool cannot plan it"
        )


def _shown(tensor: TensorStruct) -> str:
    return clean(text(tensor.name)) or f"the tensor at {tensor.address:#x}"


def _outside(tensor: TensorStruct, buffer: BufferState, offset: int) -> str:
    """Why the place of a tensor cannot be written down: of memory that ggml freed, that and how to avoid it."""
    if buffer.usage != USAGE_COMPUTE:
        return f"{_shown(tensor)} lies outside of its buffer of {buffer.size} bytes, at byte {offset}"
    return (
        f"use after free: {_shown(tensor)} points outside the compute buffer that its `buffer` names, which has "
        f"{buffer.size} bytes ({tensor.data:#x}; the buffer begins at {buffer.base or 0:#x}). ggml freed the buffer "
        f"that the tensor was allocated in, as it does when a compute buffer grows. To avoid it, {REMEDY}"
    )
