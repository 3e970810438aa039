"""What `attach --json` prints of a call in a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from ggmltool.views.document import ReleaseDocument, Row

if TYPE_CHECKING:
    from ggmltool.sources.process.session import Session
    from ggmltool.sources.process.state import BackendState, ChunkState, Snapshot, SplitState


class Process(Row):
    """The program: its number (null of a core dump) and the files that its ggml lies in. `version` is what that ggml
    says of itself ("" if it says none), `note` where it may decide otherwise than the release that it is planned as."""

    pid: int | None
    name: str
    version: str
    files: list[str]
    note: str


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
    """A split that was decided: the nodes from `first` to before `end` of the scheduler's graph, and its inputs."""

    number: int
    backend: str
    first: int
    end: int
    inputs: list[str]


class AttachedBuffer(Row):
    """A buffer type of the graph allocator, and the bytes of its chunks."""

    name: str | None
    sizes: list[int]


class AttachedCall(Row):
    """A call: `number` is which of those that were waited for it is. `splits` and `buffers` are what was decided in
    it, `unread` what could not be read, in words."""

    function: str
    number: int
    nodes: int
    leafs: int
    backends: list[AttachedBackend]
    splits: list[AttachedSplit]
    buffers: list[AttachedBuffer]
    unread: list[str]

    @classmethod
    def of(cls, number: int, before: Snapshot, after: Snapshot) -> Self:
        """What a program had before and after a call, the one of that number."""
        names = [b.name or f"backend {n}" for n, b in enumerate(after.backends)]
        return cls(
            function=before.function or "",
            number=number,
            nodes=len(before.graph.nodes),
            leafs=len(before.graph.leafs),
            backends=[_backend(n, b, after) for n, b in enumerate(after.backends)],
            splits=[_split(n, s, names, after) for n, s in enumerate(after.sched.splits)],
            buffers=[
                AttachedBuffer(after.bufts[buft].name if buft in after.bufts else None, _sizes(chunks))
                for buft, chunks in zip(after.sched.galloc.bufts, after.sched.galloc.chunks, strict=False)
            ],
            unread=list(after.unread),
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
        instance = session.instance
        files = list(instance.files)
        return cls(
            ggml=instance.release.name,
            process=Process(session.pid or None, session.name, instance.version, files, instance.note),
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


def _split(number: int, split: SplitState, names: list[str], after: Snapshot) -> AttachedSplit:
    tensors = after.tensors
    inputs = [tensors[t].name.decode("utf-8", "replace") if t in tensors else f"{t:#x}" for t in split.inputs]
    name = names[split.backend_id] if 0 <= split.backend_id < len(names) else str(split.backend_id)
    return AttachedSplit(number, name, split.i_start, split.i_end, inputs)


def _sizes(chunks: tuple[ChunkState, ...]) -> list[int]:
    return [chunk.max_size for chunk in chunks]
