"""What `attach --json` prints of a call in a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from ggmltool.inspect.attached.seen import Seen, usage_of
from ggmltool.show.document import ReleaseDocument, Row

if TYPE_CHECKING:
    from ggmltool.attach.calls import Called
    from ggmltool.attach.session import Session
    from ggmltool.attach.state import BackendState, ChunkState, Snapshot, SplitState


class Process(Row):
    """The program: its number (null of a core dump) and the files that its ggml lies in. `version` is what that ggml
    says of itself ("" if it says none), `note` where it may decide otherwise than the release that it is planned as."""

    pid: int | None
    name: str
    version: str
    files: list[str]
    note: str

    @classmethod
    def of(cls, session: Session) -> Self:
        """The program of a session."""
        instance = session.instance
        return cls(session.pid or None, session.name, instance.version, list(instance.files), instance.note)


class AttachedBackend(Row):
    """A backend of the scheduler, in its order, and its device; what could not be asked is null."""

    index: int
    name: str | None
    device: str | None
    description: str | None
    type: str | None
    memory_free: int | None
    memory_total: int | None


class AttachedSplit(Row):
    """A split that was decided: the nodes from `first` to before `end` of the scheduler's graph, its inputs, and the
    bytes of these that are copied for it."""

    number: int
    backend: str
    first: int
    end: int
    inputs: list[str]
    bytes: int


class AttachedBuffer(Row):
    """A buffer type of the graph allocator, the bytes of its chunks, and the backends that have it."""

    name: str | None
    sizes: list[int]
    backends: list[str]


class AttachedMemory(Row):
    """Buffers of one type and usage that the program itself made and the graph's tensors lie in: how many there are,
    their bytes, the tensors of the graph in them (no views), and the largest of these, by type and shape if it is
    unnamed."""

    name: str
    usage: str
    buffers: int
    size: int
    tensors: int
    largest: str
    largest_bytes: int


class AttachedCall(Row):
    """A call: `number` is which of those that were waited for it is, `thread` the system's number of the thread that
    made it (0: not known), `scheduler` the address of its scheduler, without one of what the function got first.
    `splits` and `buffers` are what was decided in it, `memory` the buffers of the program, `unread` what could not be
    read, in words."""

    function: str
    number: int
    nodes: int
    leafs: int
    backends: list[AttachedBackend]
    splits: list[AttachedSplit]
    buffers: list[AttachedBuffer]
    memory: list[AttachedMemory]
    unread: list[str]
    thread: int
    scheduler: int

    @classmethod
    def of(cls, called: Called, before: Snapshot, after: Snapshot) -> Self:
        """What a program had before and after a call."""
        names = [b.name or f"backend {n}" for n, b in enumerate(after.backends)]
        seen = Seen(after)
        return cls(
            function=before.function or "",
            number=called.number,
            nodes=len(before.graph.nodes),
            leafs=len(before.graph.leafs),
            backends=[_backend(n, b, after) for n, b in enumerate(after.backends)],
            splits=[_split(n, s, names, seen) for n, s in enumerate(after.sched.splits)],
            buffers=_buffers(after, names),
            memory=_memory(seen),
            unread=list(after.unread),
            thread=called.thread,
            scheduler=called.sched,
        )


class AttachedDocument(ReleaseDocument, kw_only=True):
    """Calls of the scheduler in a running program: its devices, its graphs, and what was decided of them.
    `stood_still` is for how many seconds the program did."""

    main_table = "calls"
    kind: Literal["attach"] = "attach"
    process: Process
    calls: list[AttachedCall]
    stood_still: float

    @classmethod
    def of(cls, session: Session, calls: list[AttachedCall]) -> Self:
        """The document of a session."""
        return cls(
            ggml=session.instance.release.name,
            process=Process.of(session),
            calls=calls,
            stood_still=round(session.stood_still, 3),
        )


def _backend(index: int, backend: BackendState, after: Snapshot) -> AttachedBackend:
    device = after.devices.get(backend.device)
    if device is None:
        return AttachedBackend(index, backend.name, None, None, None, None, None)
    return AttachedBackend(
        index, backend.name, device.name, device.description, device.type, device.memory_free, device.memory_total
    )


def _buffers(after: Snapshot, names: list[str]) -> list[AttachedBuffer]:
    """The buffer types of the allocator, each once."""
    out: dict[int, AttachedBuffer] = {}
    galloc = after.sched.galloc
    for buft, chunks, name in zip(galloc.bufts, galloc.chunks, names, strict=False):
        called = after.bufts[buft].name if buft in after.bufts else None
        out.setdefault(buft, AttachedBuffer(called, _sizes(chunks), [])).backends.append(name)
    return list(out.values())


def _split(number: int, split: SplitState, names: list[str], seen: Seen) -> AttachedSplit:
    tensors = seen.snapshot.tensors
    inputs = [tensors[t].name.decode("utf-8", "replace") if t in tensors else f"{t:#x}" for t in split.inputs]
    name = names[split.backend_id] if 0 <= split.backend_id < len(names) else str(split.backend_id)
    copied = sum(seen.nbytes(tensors[t]) or 0 for t in split.inputs if t in tensors)
    return AttachedSplit(number, name, split.i_start, split.i_end, inputs, copied)


def _memory(seen: Seen) -> list[AttachedMemory]:
    """The program's own buffers, the largest kind first."""
    buffers = {b.address: (seen.buft(b.buft), usage_of(b), b.size)
               for b in seen.snapshot.buffers.values() if b.address not in seen.chunk_names}  # fmt: skip
    tensors: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for address, t in seen.snapshot.tensors.items():
        if t.buffer in buffers and not t.view_src:
            name, usage, _ = buffers[t.buffer]
            called = seen.name(address) if t.name else f"{seen.type(t)} {list(t.ne)}"
            tensors.setdefault((name, usage), []).append((seen.nbytes(t) or 0, called))
    out = []
    for (name, usage), inside in tensors.items():
        sizes = [size for a, b, size in buffers.values() if (a, b) == (name, usage)]
        most, largest = max(inside)
        out.append(AttachedMemory(name, usage, len(sizes), sum(sizes), len(inside), largest, most))
    return sorted(out, key=lambda m: (-m.size, m.name, m.usage))


def _sizes(chunks: tuple[ChunkState, ...]) -> list[int]:
    return [chunk.max_size for chunk in chunks]
