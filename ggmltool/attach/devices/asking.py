"""What the devices of a stopped program say of the ops of a graph: each distinct question once.

The functions are those of the interface tables, which ggml's own call too; so they are found where a library exports
nothing, and no check of ggml's ends the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ggmltool.attach.devices.backends import Questions
from ggmltool.attach.gdb.link import mappings_of
from ggmltool.attach.reading import ProcessReader, uncollected
from ggmltool.attach.session import AttachSession
from ggmltool.attach.state import Answers, Snapshot
from ggmltool.ggml.devices.questions import trimmed
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.state.memory.tensors import TensorStruct

SECONDS = 8.0
"""How long the program is asked at most."""
_TOO_LARGE = 1 << 63
"""No tensor has so many bytes, nor has a scenario a number for it."""
COMPUTE_NOTHING = frozenset({"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
"""Ops whose parameters no device looks at, and for whose sources a split takes no copies."""

Key = Hashable
"""What of a tensor a device can look at."""


@uncollected()
def ask(session: AttachSession, snapshot: Snapshot, seconds: float = SECONDS) -> Answers:
    """What each backend says of each tensor of the graph, and how many bytes they take in each buffer type. Before a
    call that is what the scheduler is going to hear. After one, only the sizes of the copies that it made are asked.
    `seconds` is how long the program is asked at most. Raises AttachError."""
    asking = _Asking(session, snapshot)
    if snapshot.when == "after":
        copies = [copy for _, _, _, copy in snapshot.sched.copies()]
        asking.sizes(list(dict.fromkeys(copies)))
    else:
        asking.ops()
        asking.usable()
        asking.sizes(asking.tensors)
        asking.own_sizes()
    return asking.answers(time.monotonic() + seconds)


class _Asking:
    """The questions of one snapshot: those that are alike are one call."""

    def __init__(self, session: AttachSession, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.reader = ProcessReader(session)
        self.questions = Questions(session.link, mappings_of(session.link))
        # Nodes, leafs, and what they are made of.
        graph, known = snapshot.graph, snapshot.tensors
        sources = (s for address in graph.nodes for s in known[address].src if s in known)
        self.tensors = list(dict.fromkeys((*graph.nodes, *graph.leafs, *sources)))
        self.supports: dict[tuple[int, int], bool] = {}
        self.offloads: dict[tuple[int, int], bool] = {}
        self.known_sizes: dict[tuple[int, int], int] = {}
        self.bufts: dict[tuple[int, int], bool] = {}
        self._for: list[tuple[dict[tuple[int, int], Any], Sequence[int], int]] = []
        self._too_large = 0

    def answers(self, until: float) -> Answers:
        """What is heard as long as there is time."""
        for number, answer in self.questions.answers(until).items():
            if answer is not None:
                self._take(answer, *self._for[number])
        heard = self.supports, self.offloads, self.known_sizes, self.bufts
        return Answers(*heard, self.questions.asked, self.questions.left_out + self._too_large)

    def ops(self) -> None:
        """supports_op and offload_op of every backend, for every tensor that the scheduler may ask about."""
        groups = _grouped(self.tensors, lambda t: looked_at(self.snapshot, self.snapshot.tensors[t]))
        for b in range(len(self.snapshot.backends)):
            for name, into in (("supports_op", self.supports), ("offload_op", self.offloads)):
                function = self._function(b, name)
                if function is None:
                    self.offloads.update(((t, b), False) for t in self.tensors if into is self.offloads)
                    continue
                for alike in groups:
                    self._add(function, alike[0], into, alike, b)

    def usable(self) -> None:
        """supports_buft of every backend, for every buffer type."""
        for b in range(len(self.snapshot.backends)):
            function = self._function(b, "supports_buft")
            for buft in self.snapshot.bufts:
                if function is not None:
                    self._add(function, buft, self.bufts, [b], buft)
                    continue
                # Whom a ggml asks whose buffer types know the backends that can use them.
                at = self._pointer("ggml_backend_buffer_type", buft, "supports_backend")
                self._add((at, buft), self.snapshot.backends[b].address, self.bufts, [b], buft)

    def sizes(self, tensors: Sequence[int]) -> None:
        """get_alloc_size of each of the scheduler's buffer types, for tensors that may be allocated there."""
        known = self.snapshot.tensors
        there = [t for t in tensors if t in known and not known[t].view_src]
        groups = _grouped(there, lambda t: _sized(self.snapshot, known[t]))
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

    def _add(
        self, function: tuple[int, int], argument: int, into: dict[tuple[int, int], Any], alike: Sequence[int], of: int
    ) -> bool:
        """Ask a function, with its own first argument; the answer is for all that are alike. Whether it can be."""
        address, first = function
        result = "unsigned long" if into is self.known_sizes else "unsigned char"
        can = self.questions.add(len(self._for), address, result, first, argument)
        self._for.append((into, alike, of))
        return can

    def _take(self, answer: int, into: dict[tuple[int, int], Any], alike: Sequence[int], of: int) -> None:
        if into is self.known_sizes and answer >= _TOO_LARGE:
            self._too_large += 1
            return
        for one in alike:
            into[one, of] = answer if into is self.known_sizes else bool(answer)

    def _size(self, buft: int, alike: Sequence[int]) -> None:
        missing = [t for t in alike if (t, buft) not in self.known_sizes]
        if not missing:
            return
        at = self._pointer("ggml_backend_buffer_type", buft, "get_alloc_size")
        if self._add((at, buft), missing[0], self.known_sizes, missing, buft):
            return
        # A buffer type without a rule of its own says ggml_nbytes.
        t = self.snapshot.tensors[missing[0]]
        type = TYPES.get(self.snapshot.type_names.get(t.type, ""))
        if not at and type is not None:
            self._take(nbytes_of(type, t.ne, t.nb), self.known_sizes, missing, buft)

    def _function(self, b: int, name: str) -> tuple[int, int] | None:
        """A function of a backend's device, or of the backend itself, where that ggml has it there, and what it gets
        first."""
        backend = self.snapshot.backends[b]
        for tag, of in (("ggml_backend_device", backend.device), ("ggml_backend", backend.address)):
            if of and tag in self.reader.layout.structs:
                at = self._pointer(tag, of, name)
                if self.questions.can_ask(at):
                    return at, of
        return None

    def _pointer(self, tag: str, address: int, name: str) -> int:
        return int(self.reader.fields(tag, address, f"iface.{name}|")[0])


def _grouped(tensors: Iterable[int], key: Callable[[int], Key]) -> list[list[int]]:
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
