"""The compute buffers: how large, how full at most, and what lies there then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import Lifetime, MemoryPlan, Peak
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, plan_step, printable, size

MAX_TENSORS = 10
"""Tensors shown per buffer before the small ones are counted together."""


class Buffer(NamedTuple):
    """The compute buffer of a backend. `shared` names the backend before it that has the same buffer type."""

    backend: str
    buft: str
    size: int
    shared: str | None
    chunks: list[int]
    peak: Peak | None


def buffers_of(plan: Plan, memory: MemoryPlan) -> list[Buffer]:
    """One per backend, in the order of the backends."""
    sizes = dict(plan.buffer_sizes)
    first: dict[str, str] = {}
    out = []
    for name, buft in plan.backends:
        owner = first.setdefault(buft, name)
        own = owner == name
        peak = memory.peak(buft) if own else None
        chunks = memory.chunk_sizes(buft) if own else []
        out.append(Buffer(name, buft, sizes.get(name, 0), None if own else owner, chunks, peak))
    return out


def buffers_view(
    plan: Plan, memory: MemoryPlan, tensors: Tensors, title: str, style: Style, limit: int | None = MAX_TENSORS
) -> str:
    """Sizes and peaks of all buffers, then what lies in each at its peak. `limit` None shows every tensor."""
    buffers = buffers_of(plan, memory)
    inks = term_colors(name for name, _ in plan.backends)
    facts = [plan_step(plan), f"{size(sum(b.size for b in buffers))} in compute buffers"]
    parts = [heading(title, facts, style), "\n", _table(inks).render(buffers, style)]
    for buffer in buffers:
        if buffer.peak is not None and buffer.peak.tensors:
            parts += list(_contents(buffer, buffer.peak, memory, plan, tensors, inks, style, limit))
    return "".join(parts)


def _table(inks: dict[str, str]) -> Table[Buffer]:
    def note(b: Buffer) -> str | None:
        if b.shared is not None:
            return f"shares the buffer of {b.shared}"
        return b.peak and (b.peak.node or "(before the first node)")

    return Table(
        Column("backend", lambda b: Cell(b.backend, inks[b.backend])),
        Column("buffer type", lambda b: b.buft, cut=True, drop=2),
        Column("size", lambda b: size(b.size), right=True),
        Column("chunks", lambda b: b.peak and len(b.chunks), right=True, drop=1),
        Column("peak", lambda b: b.peak and size(b.peak.nbytes), right=True),
        Column("tensors", lambda b: b.peak and len(b.peak.tensors), right=True),
        Column("while computing", note, cut=True),
    )


def _contents(
    buffer: Buffer,
    peak: Peak,
    memory: MemoryPlan,
    plan: Plan,
    tensors: Tensors,
    inks: dict[str, str],
    style: Style,
    limit: int | None,
) -> Iterator[str]:
    from rich.text import Text

    during = f"while {printable(peak.node)} is computed" if peak.node else "before the first node"
    yield "\n"
    yield render_lines(
        [Text.assemble((printable(buffer.backend), inks[buffer.backend]), f" at its peak, {during}")], style
    )
    shown = peak.tensors if limit is None else peak.tensors[:limit]
    yield _tensors(buffer, peak, memory, plan, tensors).render(shown, style)
    rest = peak.tensors[len(shown) :]
    if rest:
        yield render_lines(
            [f"  and {count(len(rest), 'tensor')} more, {size(sum(r.size for r in rest))}{_small(rest, peak)}"], style
        )
    if buffer.size > peak.nbytes and buffer.peak is not None:
        tail = _tail(buffer, peak)
        behind = f", {size(tail)} behind the last tensor" if tail else ""
        yield render_lines(
            [f"  {size(buffer.size - peak.nbytes)} of the buffer is unused at that point{behind}"], style
        )


def _small(rest: tuple[Lifetime, ...], peak: Peak) -> str:
    return ", each below 1%" if all(100 * life.size < peak.nbytes for life in rest) else ""


def _tail(buffer: Buffer, peak: Peak) -> int:
    """Bytes behind the last tensor alive at the peak, of all chunks."""
    ends = [0] * len(buffer.chunks)
    for life in peak.tensors:
        ends[life.chunk] = max(ends[life.chunk], life.offset + life.size)
    return sum(nbytes - end for nbytes, end in zip(buffer.chunks, ends, strict=True))


def _tensors(buffer: Buffer, peak: Peak, memory: MemoryPlan, plan: Plan, tensors: Tensors) -> Table[Lifetime]:
    """What lies in a buffer at its peak."""
    ops = {node.id: tensors[node.id].op if node.id in tensors else node.op for node in plan.nodes}
    origin = {copy.name: copy.of for copy in plan.copies}
    chunked = len(buffer.chunks) > 1

    def shape(life: Lifetime) -> str | None:
        info = tensors.get(origin.get(life.tensor, life.tensor))
        return info and f"{info.type}{dims(info.ne)}"

    def end(life: Lifetime) -> str:
        return ("end" if life.end is None else memory.nodes[life.end]) + (" (output)" if life.kept else "")

    return Table(
        Column("size", lambda x: size(x.size), right=True),
        Column("of peak", lambda x: _percent(x.size, peak.nbytes), right=True, drop=3),
        Column("offset", lambda x: f"{x.chunk}:{x.offset}" if chunked else x.offset, right=True, drop=2),
        Column("tensor", lambda x: x.tensor, cut=True),
        Column("op", lambda x: Cell("copy" if x.tensor in origin else ops.get(x.tensor, "leaf"), "dim"), drop=1),
        Column("shape", shape, drop=4),
        Column("from", lambda x: memory.nodes[x.start] if x.start >= 0 else "start", cut=True, drop=6),
        Column("to", end, cut=True, drop=5),
    )


def _percent(part: int, whole: int) -> str:
    percent = 100 * part / max(whole, 1)
    return "<1%" if 0 < percent < 0.5 else f"{percent:.0f}%"
