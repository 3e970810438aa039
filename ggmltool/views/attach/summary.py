"""A call in a program on one screen: its ggml, its devices, its splits and its buffers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, size
from ggmltool.views.attach.documents import AttachedBackend, AttachedCall, AttachedSplit, Process

MOST_INPUTS = 4
"""Inputs of a split that are named."""

MOST_SPLITS = 40
"""Splits that have a line."""


_OTHERS = {"compute": "compute, of another graph"}
"""What a usage says of a buffer that is not this scheduler's."""


class _Buffer(NamedTuple):
    """A line of buffers: `number` of them, as chunks of the graph allocator or made by the program."""

    name: str | None
    usage: str
    size: int
    number: int
    tensors: int | None = None
    largest: str = ""


_BUFFERS: Table[_Buffer] = Table(
    Column("buffer", cut=True, get=lambda b: b.name),
    Column("usage", get=lambda b: b.usage),
    Column("size", right=True, get=lambda b: size(b.size)),
    Column("buffers", right=True, drop=2, get=lambda b: b.number),
    Column("tensors", right=True, drop=1, get=lambda b: b.tensors),
    Column("largest tensor", cut=True, drop=3, get=lambda b: b.largest),
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
    if before is None or _known(before.backends) != _known(call.backends):
        out += _backends(call.backends).section("Backends", call.backends, style)
    if before is not None and before.splits == call.splits:
        out.append(render_lines(["", f"Splits: the same as in call {before.number}"], style))
    else:
        out += _splits(call, style)
    out += _BUFFERS.section("Buffers", _buffers(call), style)
    return "".join(out)


def _known(backends: list[AttachedBackend]) -> list[tuple[str | None, ...]]:
    """Backends without what changes as they run."""
    return [(b.name, b.device, b.description, b.type) for b in backends]


def _backends(backends: list[AttachedBackend]) -> Table[AttachedBackend]:
    """Without columns that would say a name once more."""
    columns: list[Column[AttachedBackend]] = [
        Column("#", right=True, get=lambda b: b.index),
        Column("backend", cut=True, get=lambda b: b.name),
    ]
    if any(b.device != b.name for b in backends):
        columns.append(Column("device", drop=2, cut=True, get=lambda b: b.device))
    columns += [
        Column("type", drop=1, get=lambda b: b.type),
        Column("memory", right=True, drop=3, get=lambda b: _memory(b)),
    ]
    if any(b.description not in (b.name, b.device) for b in backends):
        columns.append(Column("description", cut=True, drop=5, get=lambda b: b.description))
    return Table(*columns)


def _splits(call: AttachedCall, style: Style) -> list[str]:
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
        names = dict.fromkeys(s.backend for s in call.splits)
        out.append(render_lines([f"  {_share(call.splits, name)}" for name in names], style))
    return out


def _share(splits: list[AttachedSplit], backend: str) -> str:
    own = [s for s in splits if s.backend == backend]
    nodes = count(sum(s.end - s.first for s in own), "node")
    return f"{backend}: {nodes} in {count(len(own), 'split')}, {size(sum(s.bytes for s in own))} copied to it"


def _buffers(call: AttachedCall) -> list[_Buffer]:
    """Those of the graph allocator, then those of the program."""
    made = [_Buffer(b.name, _shared(b.backends), sum(b.sizes), len(b.sizes)) for b in call.buffers]
    own = [
        _Buffer(
            m.name, _OTHERS.get(m.usage, m.usage), m.size, m.buffers, m.tensors, f"{m.largest}, {size(m.largest_bytes)}"
        )
        for m in call.memory
    ]
    return [*made, *own]


def _shared(backends: list[str]) -> str:
    return "compute" if len(backends) == 1 else f"compute, shared by {', '.join(backends)}"


def _memory(backend: AttachedBackend) -> str | None:
    if backend.memory_total is None or backend.memory_free is None:
        return None
    return f"{size(backend.memory_free)} of {size(backend.memory_total)} free"


def _inputs(split: AttachedSplit) -> str:
    more = len(split.inputs) - MOST_INPUTS
    return ", ".join(split.inputs[:MOST_INPUTS]) + (f" and {more} more" if more > 0 else "")
