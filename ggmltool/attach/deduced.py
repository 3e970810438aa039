"""What the devices of a dead program are held to be and to answer, where their functions cannot be followed.

ggml wants a CPU as a scheduler's last device; what a device was given it takes; what a scheduler allocated in a
device's memory that device can use. Devices that are made while a program runs, as bindings make them, leave no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from ggmltool.attach.asking import looked_at
from ggmltool.attach.state import Answers, Snapshot

_NAMES = "the names of devices: from the copies of tensors, which have them in theirs; the last is called CPU"
_TYPES = "what the devices are: the last of a scheduler is a CPU, others are held to be GPUs"
_OPS = "which ops the devices take: each is held to take the nodes that it was given, and no others"
_MEMORY = (
    "which memory the devices can use: each is held to use its own, and others' that its nodes read without a copy"
)


def with_devices(snapshot: Snapshot) -> Snapshot:
    """The devices whose name or type nobody could read have one."""
    snapshot = _with_names(snapshot)
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
    ids = snapshot.sched.backend_ids
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
    tensors, ids = snapshot.tensors, snapshot.sched.backend_ids
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


def _with_names(snapshot: Snapshot) -> Snapshot:
    """A copy is called BACKEND#TENSOR#NUMBER, as ggml_backend_sched_split_graph does."""
    names = {len(snapshot.backends) - 1: "CPU"}
    for tensor, copies in snapshot.sched.copies.items():
        for (b, number), copy in copies.items():
            end = b"#%s#%d" % (snapshot.tensors[tensor].name, number) if tensor in snapshot.tensors else b"\0"
            name = snapshot.tensors[copy].name if copy in snapshot.tensors else b""
            if name.endswith(end):
                names[b] = name.removesuffix(end).decode("utf-8", "surrogateescape")
    backends = tuple(
        backend if backend.name else backend._replace(name=names.get(b)) for b, backend in enumerate(snapshot.backends)
    )
    if backends == snapshot.backends:
        return snapshot
    return replace(snapshot, backends=backends, unread=(*snapshot.unread, _NAMES))
