"""The compute buffers: how large, how full at most, and what lies there then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import Lifetime, MemoryPlan, Peak
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.views.palette import colors
from ggmltool.views.plan.splits import plan_step
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, dims, printable, size

MAX_TENSORS = 10
"""Tensors shown per buffer before the small ones are counted together."""

_BUFFERS = (
    Head("backend"),
    Head("buffer type", cut=True, drop=2),
    Head("size", right=True),
    Head("chunks", right=True, drop=1),
    Head("peak", right=True),
    Head("tensors then", right=True),
    Head("while computing", cut=True),
)
_TENSORS = (
    Head("size", right=True),
    Head("of peak", right=True, drop=3),
    Head("offset", right=True, drop=2),
    Head("tensor", cut=True),
    Head("op", drop=1),
    Head("shape", drop=4),
    Head("from", cut=True, drop=6),
    Head("to", cut=True, drop=5),
)


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
    inks = {name: color.term for name, color in colors(name for name, _ in plan.backends).items()}
    facts = [plan_step(plan), f"{size(sum(b.size for b in buffers))} in compute buffers"]
    parts = [heading(title, facts, style), "\n", render_table(_BUFFERS, [_row(b, inks) for b in buffers], style)]
    for buffer in buffers:
        if buffer.peak is not None and buffer.peak.tensors:
            parts += list(_contents(buffer, buffer.peak, memory, plan, tensors, inks, style, limit))
    return "".join(parts)


def _row(buffer: Buffer, inks: dict[str, str]) -> Row:
    name = Cell(buffer.backend, inks[buffer.backend])
    if buffer.shared is not None:
        return [name, buffer.buft, size(buffer.size), "", "", "", f"shares the buffer of {buffer.shared}"]
    if buffer.peak is None:
        return [name, buffer.buft, size(buffer.size), "", "", "", ""]
    peak = buffer.peak
    return [
        name,
        buffer.buft,
        size(buffer.size),
        str(len(buffer.chunks)),
        size(peak.nbytes),
        str(len(peak.tensors)),
        peak.node or "(before the first node)",
    ]


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
    ops = {node.id: tensors[node.id].op if node.id in tensors else node.op for node in plan.nodes}
    origin = {copy.name: copy.of for copy in plan.copies}
    shown = peak.tensors if limit is None else peak.tensors[:limit]
    rows = [_tensor_row(life, peak, memory, ops, origin, tensors, len(buffer.chunks) > 1) for life in shown]
    yield render_table(_TENSORS, rows, style)
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


def _tensor_row(
    life: Lifetime,
    peak: Peak,
    memory: MemoryPlan,
    ops: dict[str, str],
    origin: dict[str, str],
    tensors: Tensors,
    chunked: bool,
) -> Row:
    info = tensors.get(origin.get(life.tensor, life.tensor))
    what = "copy" if life.tensor in origin else ops.get(life.tensor, "leaf")
    offset = f"{life.chunk}:{life.offset}" if chunked else str(life.offset)
    return [
        size(life.size),
        _percent(life.size, peak.nbytes),
        offset,
        Cell(life.tensor),
        Cell(what, "dim"),
        f"{info.type}{dims(info.ne)}" if info is not None else "",
        memory.nodes[life.start] if life.start >= 0 else "start",
        ("end" if life.end is None else memory.nodes[life.end]) + (" (output)" if life.kept else ""),
    ]


def _percent(part: int, whole: int) -> str:
    percent = 100 * part / max(whole, 1)
    return "<1%" if 0 < percent < 0.5 else f"{percent:.0f}%"
