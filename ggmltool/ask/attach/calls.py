"""Calls in a program: its devices, its graphs, and what was decided of them, as JSON and on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from msgspec import structs

from ggmltool.ask.attach.records import NamedSnapshot, Process, usage_of
from ggmltool.attach.calls import Called
from ggmltool.attach.state import DeviceState, Snapshot
from ggmltool.ggml.state import SplitState
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, size


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
        seen = NamedSnapshot(after)
        return cls(
            function=before.function or "",
            number=called.number,
            nodes=len(before.graph.nodes),
            leafs=len(before.graph.leafs),
            backends=[
                AttachedBackend(n, b.name, d.name, d.description, d.type, d.memory_free, d.memory_total)
                for n, b in enumerate(after.backends)
                for d in [after.devices.get(b.device, _NO_DEVICE)]
            ],
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


_NO_DEVICE = DeviceState(0, None, None, None, None, None, False, 0)


def _buffers(after: Snapshot, names: list[str]) -> list[AttachedBuffer]:
    """The buffer types of the allocator, each once."""
    out: dict[int, AttachedBuffer] = {}
    galloc = after.sched.galloc
    for buft, chunks, name in zip(galloc.bufts, galloc.buf_tallocs, names, strict=False):
        called = after.bufts[buft].name if buft in after.bufts else None
        out.setdefault(buft, AttachedBuffer(called, [c.max_size for c in chunks], [])).backends.append(name)
    return list(out.values())


def _split(number: int, split: SplitState, names: list[str], seen: NamedSnapshot) -> AttachedSplit:
    tensors = seen.snapshot.tensors
    inputs = [tensors[t].name.decode("utf-8", "replace") if t in tensors else f"{t:#x}" for t in split.inputs]
    name = names[split.backend_id] if 0 <= split.backend_id < len(names) else str(split.backend_id)
    copied = sum(seen.nbytes(tensors[t]) or 0 for t in split.inputs if t in tensors)
    return AttachedSplit(number, name, split.i_start, split.i_end, inputs, copied)


def _memory(seen: NamedSnapshot) -> list[AttachedMemory]:
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


MOST_INPUTS = 4
"""Inputs of a split that are named."""

MOST_SPLITS = 40
"""Splits that have a line."""

_OTHERS = {"compute": "compute, of another graph"}
"""What a usage says of a buffer that is not this scheduler's."""

_BUFFERS: Table[AttachedMemory] = Table(
    Column("buffer", cut=True, get=lambda b: b.name),
    Column("usage", get=lambda b: b.usage),
    Column("size", right=True, get=lambda b: size(b.size)),
    Column("buffers", right=True, drop=2, get=lambda b: b.buffers),
    Column("tensors", right=True, drop=1, get=lambda b: b.tensors or None),
    Column(
        "largest tensor", cut=True, drop=3, get=lambda b: f"{b.largest}, {size(b.largest_bytes)}" if b.tensors else ""
    ),
)


def process_view(process: Process, style: Style) -> str:
    """The program whose calls are looked at."""
    version = f"ggml {process.version}" if process.version else "a ggml that does not say its version"
    facts = [f"{version} in {Path(process.files[0]).name}"]
    if process.note:
        facts.append(process.note)
    return heading(process.name, facts, style)


def call_view(call: AttachedCall, before: AttachedCall | None, style: Style) -> str:
    """A call; what it has in common with the one before is not said again."""
    scheduled = call.function.startswith("ggml_backend_sched_")
    scheduler = f", scheduler {call.scheduler:#x}" if scheduled else ""
    facts = [
        *([] if scheduled else [f"no scheduler, on {call.backends[0].name}"]),
        count(call.nodes, "node"),
        f"{call.leafs} leafs",
        count(len(call.splits), "split"),
        f"thread {call.thread}{scheduler}",
        *call.unread,
    ]
    out = [render_lines([""], style), heading(f"call {call.number}: {call.function}", facts, style)]
    # Backends without what changes as they run.
    known = [[(b.name, b.device, b.description, b.type) for b in c.backends] for c in (before, call) if c]
    if before is None or known[0] != known[1]:
        out += _backend_table(call.backends).section("Backends", call.backends, style)
    if before is not None and before.splits == call.splits:
        out.append(render_lines(["", f"Splits: the same as in call {before.number}"], style))
    else:
        out += _split_lines(call, style)
    rows = [
        AttachedMemory(b.name or "", f"compute{shared}", len(b.sizes), sum(b.sizes), 0, "", 0)
        for b in call.buffers
        for shared in [f", shared by {', '.join(b.backends)}" if len(b.backends) > 1 else ""]
    ]
    rows += [structs.replace(m, usage=_OTHERS.get(m.usage, m.usage)) for m in call.memory]
    out += _BUFFERS.section("Buffers", rows, style)
    return "".join(out)


def _backend_table(backends: list[AttachedBackend]) -> Table[AttachedBackend]:
    """Without columns that would say a name once more."""
    columns: list[Column[AttachedBackend]] = [
        Column("#", right=True, get=lambda b: b.index),
        Column("backend", cut=True, get=lambda b: b.name),
    ]
    if any(b.device != b.name for b in backends):
        columns.append(Column("device", drop=2, cut=True, get=lambda b: b.device))
    columns += [Column("type", drop=1, get=lambda b: b.type), Column("memory", right=True, drop=3, get=_free)]
    if any(b.description not in (b.name, b.device) for b in backends):
        columns.append(Column("description", cut=True, drop=5, get=lambda b: b.description))
    return Table(*columns)


def _split_lines(call: AttachedCall, style: Style) -> list[str]:
    """The splits, and behind several how much each backend has to do."""
    columns: list[Column[AttachedSplit]] = [
        Column("split", right=True, get=lambda s: s.number),
        Column("backend", cut=True, get=lambda s: s.backend),
        Column("nodes", right=True, get=lambda s: s.end - s.first),
    ]
    if any(s.inputs for s in call.splits):
        columns.append(Column("copied", right=True, drop=1, get=lambda s: size(s.bytes) if s.inputs else ""))
        columns.append(Column("inputs", cut=True, get=_inputs))
    out = Table(*columns).section("Splits", call.splits[:MOST_SPLITS], style)
    more = len(call.splits) - MOST_SPLITS
    if more > 0:
        out.append(render_lines([f"  {more} more; saved with -o, `ggmltool splits` shows them all"], style))
    if len(call.splits) > 1:
        for name in dict.fromkeys(s.backend for s in call.splits):
            own = [s for s in call.splits if s.backend == name]
            nodes = count(sum(s.end - s.first for s in own), "node")
            copied = f"{size(sum(s.bytes for s in own))} copied to it"
            out.append(render_lines([f"  {name}: {nodes} in {count(len(own), 'split')}, {copied}"], style))
    return out


def _free(backend: AttachedBackend) -> str | None:
    if backend.memory_total is None or backend.memory_free is None:
        return None
    return f"{size(backend.memory_free)} of {size(backend.memory_total)} free"


def _inputs(split: AttachedSplit) -> str:
    more = len(split.inputs) - MOST_INPUTS
    return ", ".join(split.inputs[:MOST_INPUTS]) + (f" and {more} more" if more > 0 else "")
