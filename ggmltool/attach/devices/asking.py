"""What the devices of a stopped program say of the ops of a graph: each distinct question once.

The functions are those of the interface tables, which ggml's own call too; so they are found where a library exports
nothing, and no check of ggml's ends the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from ggmltool.attach.gdb.link import FunctionCall, Late, mappings_of
from ggmltool.attach.reading import ProcessReader, uncollected
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.ggml.devices.questions import trimmed
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.state.errors import LinkError
from ggmltool.state.memory.fields import StructFields
from ggmltool.state.memory.tensors import TensorStruct

T = TypeVar("T")

SECONDS = 8.0
"""How long the program is asked at most."""
_AT_ONCE = 200
_TOO_LARGE = 1 << 63
"""No tensor has so many bytes, nor has a scenario a number for it."""
COMPUTE_NOTHING = frozenset({"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Ops whose parameters no device looks at, and for whose sources a split takes no copies."""

Key = Hashable
"""What of a tensor a device can look at."""


class DeviceFunction(NamedTuple):
    """A function of a backend or its device; it gets `of` as its first argument."""

    address: int
    of: int


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """A call to make, and whom its answer is for."""

    call: FunctionCall
    take: Callable[[int], None]


@uncollected()
def ask(session: AttachSession, snapshot: Snapshot, seconds: float = SECONDS) -> Answers:
    """What each backend says of each tensor of the graph, and how many bytes they take in each buffer type.

    Before a call that is what the scheduler is going to hear. After one, only the sizes of the copies that it made are
    asked. `seconds` is how long the program is asked at most. Raises AttachError.
    """
    asking = _Asking(session, snapshot)
    if snapshot.when == "after":
        copies = [copy for _, _, _, copy in snapshot.sched.copies()]
        asking.sizes(list(dict.fromkeys(copies)))
    else:
        asking.ops()
        asking.usable()
        asking.sizes(asking.tensors)
        asking.own_sizes()
    asking.run(time.monotonic() + seconds)
    return asking.answers()


class _Asking:
    """The questions of one snapshot: those that are alike are one call."""

    def __init__(self, session: AttachSession, snapshot: Snapshot) -> None:
        self.session = session
        self.snapshot = snapshot
        self.reader = ProcessReader(session)
        self.mappings = mappings_of(session.link)
        # Nodes, leafs, and what they are made of.
        graph, known = snapshot.graph, snapshot.tensors
        sources = (s for address in graph.nodes for s in known[address].src if s in known)
        self.tensors = list(dict.fromkeys((*graph.nodes, *graph.leafs, *sources)))
        self.supports: dict[tuple[int, int], bool] = {}
        self.offloads: dict[tuple[int, int], bool] = {}
        self.known_sizes: dict[tuple[int, int], int] = {}
        self.bufts: dict[tuple[int, int], bool] = {}
        self._calls: list[DeviceCall] = []
        self._n_asked = 0
        self._n_left_out = 0

    def answers(self) -> Answers:
        """What was heard."""
        return Answers(self.supports, self.offloads, self.known_sizes, self.bufts, self._n_asked, self._n_left_out)

    def ops(self) -> None:
        """supports_op and offload_op of every backend, for every tensor that the scheduler may ask about."""
        groups = _grouped(self.tensors, lambda t: looked_at(self.snapshot, self.snapshot.tensors[t]))
        for b in range(len(self.snapshot.backends)):
            supports, offloads = self._function(b, "supports_op"), self._function(b, "offload_op")
            for alike in groups:
                self._add(supports, "unsigned char", alike[0], _told(self.supports, alike, b, bool))
            if offloads is None:
                self.offloads.update(((t, b), False) for t in self.tensors)
                continue
            for alike in groups:
                self._add(offloads, "unsigned char", alike[0], _told(self.offloads, alike, b, bool))

    def usable(self) -> None:
        """supports_buft of every backend, for every buffer type."""
        for b in range(len(self.snapshot.backends)):
            function = self._function(b, "supports_buft")
            for buft in self.snapshot.bufts:
                take = _told(self.bufts, [b], buft, bool)
                if function is not None:
                    self._add(function, "unsigned char", buft, take)
                    continue
                # Whom a ggml asks whose buffer types know the backends that can use them.
                (at,) = self._pointers("ggml_backend_buffer_type", buft, ("supports_backend",))
                if self.mappings.runs(at):
                    self._add(DeviceFunction(at, buft), "unsigned char", self.snapshot.backends[b].address, take)

    def sizes(self, tensors: Sequence[int]) -> None:
        """get_alloc_size of each of the scheduler's buffer types, for tensors that may be allocated there."""
        known = self.snapshot.tensors
        groups = _grouped(
            [t for t in tensors if t in known and not known[t].view_src], lambda t: _sized(self.snapshot, known[t])
        )
        for buft in dict.fromkeys(self.snapshot.sched.bufts):
            for alike in groups:
                self._size(buft, alike)

    def own_sizes(self) -> None:
        """The same of tensors with memory in the buffer type that they are in: those of the graph, and those beside
        them that no op computes."""
        snapshot = self.snapshot
        of_graph = set(self.tensors)
        beside = (t for context in snapshot.contexts for t in context)
        by_buft: dict[int, list[int]] = {}
        for address in dict.fromkeys((*self.tensors, *beside)):
            t = snapshot.tensors.get(address)
            if t is None or (t.op and address not in of_graph) or t.type not in snapshot.type_names:
                continue
            buffer = snapshot.buffers.get(t.buffer)
            if buffer is not None and not t.view_src and buffer.buft in snapshot.bufts:
                by_buft.setdefault(buffer.buft, []).append(address)
        for buft, tensors in by_buft.items():
            for alike in _grouped(tensors, lambda t: _sized(snapshot, snapshot.tensors[t])):
                self._size(buft, alike)

    def run(self, until: float) -> None:
        """Make the calls, some at once, as long as there is time."""
        calls, link = self._calls, self.session.link
        for i in range(0, len(calls), _AT_ONCE):
            some = calls[i : i + _AT_ONCE]
            if time.monotonic() > until:
                self._n_left_out += len(calls) - i
                break
            try:
                heard = link.call([asked.call for asked in some])
            except Late:
                # A function that does not come back once is not called again, and its device is not trusted.
                self._n_left_out += len(calls) - i
                break
            except LinkError:
                heard = []
                for asked in some:
                    try:
                        heard += link.call([asked.call])
                    except LinkError:
                        heard.append(None)
            self._n_asked += len(some)
            for asked, answer in zip(some, heard, strict=True):
                if answer is not None:
                    asked.take(answer)
        self._calls = []

    def _add(self, function: DeviceFunction | None, result: str, argument: int, take: Callable[[int], None]) -> None:
        if function is not None:
            self._calls.append(DeviceCall(FunctionCall(function.address, result, (function.of, argument)), take))

    def _size(self, buft: int, alike: Sequence[int]) -> None:
        missing = [t for t in alike if (t, buft) not in self.known_sizes]
        if not missing:
            return
        (at,) = self._pointers("ggml_backend_buffer_type", buft, ("get_alloc_size",))
        told = _told(self.known_sizes, missing, buft, int)

        def take(answer: int) -> None:
            if answer < _TOO_LARGE:
                told(answer)
            else:
                self._n_left_out += 1

        if self.mappings.runs(at):
            self._add(DeviceFunction(at, buft), "unsigned long", missing[0], take)
            return
        # A buffer type without a rule of its own says ggml_nbytes.
        t = self.snapshot.tensors[missing[0]]
        type = TYPES.get(self.snapshot.type_names.get(t.type, ""))
        if not at and type is not None:
            take(nbytes_of(type, t.ne, t.nb))

    def _function(self, b: int, name: str) -> DeviceFunction | None:
        """A function of a backend's device, or of the backend itself, where that ggml has it there."""
        backend = self.snapshot.backends[b]
        for tag, of in (("ggml_backend_device", backend.device), ("ggml_backend", backend.address)):
            if of and tag in self.reader.layout.structs:
                (at,) = self._pointers(tag, of, (name,))
                if self.mappings.runs(at):
                    return DeviceFunction(at, of)
        return None

    def _pointers(self, tag: str, address: int, names: Sequence[str]) -> tuple[int, ...]:
        record = StructFields(self.reader.layout, tag, [f"iface.{name}|" for name in names])
        return tuple(record.unpack(self.reader.memory.read(address, record.size)))


def _told(
    into: dict[tuple[int, int], T], alike: Sequence[int], second: int, convert: Callable[[int], T]
) -> Callable[[int], None]:
    def take(answer: int) -> None:
        for one in alike:
            into[one, second] = convert(answer)

    return take


def _grouped(tensors: Iterable[int], key: Callable[[int], Key]) -> list[list[int]]:
    """Tensors of which a device sees the same."""
    groups: dict[Key, list[int]] = {}
    for t in tensors:
        groups.setdefault(key(t), []).append(t)
    return list(groups.values())


def looked_at(snapshot: Snapshot, t: TensorStruct) -> Key:
    """The op, and of the tensor and its sources type, layout, whether it is a view, and where it lies."""
    known = snapshot.tensors
    return (t.op, _params(snapshot, t), _seen(snapshot, t), *(_seen(snapshot, known.get(s)) for s in trimmed(t.src)))


def _sized(snapshot: Snapshot, t: TensorStruct) -> Key:
    known = snapshot.tensors
    return (t.op, _params(snapshot, t), _laid_out(t), *(_laid_out(known.get(s)) for s in trimmed(t.src)))


def _params(snapshot: Snapshot, t: TensorStruct) -> Key:
    nothing = snapshot.op_names.get((t.op, t.op_params[0] if t.op_params else 0)) in COMPUTE_NOTHING
    return () if nothing else t.op_params


def _laid_out(t: TensorStruct | None) -> Key:
    return None if t is None else (t.type, t.ne, t.nb)


def _seen(snapshot: Snapshot, t: TensorStruct | None) -> Key:
    if t is None:
        return None
    root = snapshot.tensors.get(t.view_src) if t.view_src else None
    own, its = (snapshot.buffers.get(x.buffer) if x is not None else None for x in (t, root))
    return (t.type, t.ne, t.nb, bool(t.view_src), own and (own.buft, own.usage), its and (its.buft, its.usage))


_NAMES = "the names of devices: from the copies of tensors, which have them in theirs; the last is called CPU"
_TYPES = "what the devices are: the last of a scheduler is a CPU, others are held to be GPUs"
_OPS = "which ops the devices take: each is held to take the nodes that it was given, and no others"
_MEMORY = (
    "which memory the devices can use: each is held to use its own, and others' that its nodes read without a copy"
)


def with_devices(snapshot: Snapshot) -> Snapshot:
    """Devices whose name or type could not be read get one. A copy is called BACKEND#TENSOR#NUMBER, as
    ggml_backend_sched_split_graph does."""
    names = {len(snapshot.backends) - 1: "CPU"}
    for tensor, b, number, copy in snapshot.sched.copies():
        end = b"#%s#%d" % (snapshot.tensors[tensor].name, number) if tensor in snapshot.tensors else b"\0"
        name = snapshot.tensors[copy].name if copy in snapshot.tensors else b""
        if name.endswith(end):
            names[b] = name.removesuffix(end).decode("utf-8", "surrogateescape")
    backends = tuple(b if b.name else b._replace(name=names.get(i)) for i, b in enumerate(snapshot.backends))
    if backends != snapshot.backends:
        snapshot = replace(snapshot, backends=backends, unread=(*snapshot.unread, _NAMES))
    devices = dict(snapshot.devices)
    last = len(snapshot.backends) - 1
    for i, backend in enumerate(snapshot.backends):
        device = devices.get(backend.device)
        if device is not None and not device.type:
            devices[backend.device] = device._replace(type="cpu" if i == last else "gpu")
    if devices == dict(snapshot.devices):
        return snapshot
    return replace(snapshot, devices=devices, unread=(*snapshot.unread, _TYPES))


def with_answers(snapshot: Snapshot, answers: Answers) -> tuple[Snapshot, Answers]:
    """The answers of devices of which none was read."""
    supports, bufts, notes = dict(answers.supports), dict(answers.bufts), list[str]()
    heard, unheard = {b for _, b in supports}, set[int]()
    ids = snapshot.sched.tensor_backend_ids
    nodes = {t: looked_at(snapshot, snapshot.tensors[t]) for t in snapshot.graph.nodes if t in ids}
    for b, backend in enumerate(snapshot.backends):
        if b not in heard and ids:
            taken = {seen for t, seen in nodes.items() if ids[t] == b}
            supports |= {(t, b): seen in taken for t, seen in nodes.items()}
            notes.append(_OPS)
        if not any(k == b for k, _ in bufts):
            own = snapshot.sched.bufts[b]
            bufts |= {(b, a): a == own or t.device == backend.device != 0 for a, t in snapshot.bufts.items()}
            unheard.add(b)
            notes.append(_MEMORY)
    if not notes:
        return snapshot, answers
    bufts |= dict.fromkeys(_used(snapshot, bufts, unheard), True)
    snapshot = replace(snapshot, unread=(*snapshot.unread, *dict.fromkeys(notes)))
    return snapshot, replace(answers, supports=supports, bufts=bufts)


def _used(
    snapshot: Snapshot, bufts: Mapping[tuple[int, int], bool], devices: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Which further memory some devices can use: where sources lie that another device was given and that are not
    copied, and of memory that is none's where the tensors lie that they were given themselves."""
    tensors, ids = snapshot.tensors, snapshot.sched.tensor_backend_ids
    owned = {buft for (_, buft), yes in bufts.items() if yes}

    def lies(t: int) -> int:
        buffer = snapshot.buffers.get(tensors[t].buffer) if t in tensors else None
        return buffer.buft if buffer is not None and buffer.buft in snapshot.bufts else 0

    for t, b in ids.items():
        if b in devices and t in tensors:
            read = (lies(s) for s in tensors[t].src if ids.get(s, b) != b)
            yield from ((b, buft) for buft in read if buft)
            if lies(t) and lies(t) not in owned:
                yield b, lies(t)
