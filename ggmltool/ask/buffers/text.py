"""The compute buffers: how large, how full at most, and what lies there then."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase
from typing import NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.buffers.record import (
    Buffer,
    BuffersDocument,
    ChartShown,
    Chunk,
    ChunksDocument,
    CopiesDocument,
    buffers_of,
)
from ggmltool.inspect.memory import MemoryPlan, Peak, TensorLifetime
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, ggml_error, printable, size


def buffers(answer: Answer[BuffersDocument], style: Style) -> str:
    """Sizes and peaks of all buffers, then what lies in each at its peak."""
    shown, plan = answer.facts, answer.facts.plan
    buffers = buffers_of(plan, shown.memory)
    inks = term_colors(name for name, _ in plan.backends)
    facts = [answer.heading, f"{size(sum(b.size for b in buffers))} in compute buffers"]

    def note(b: Buffer) -> str | None:
        if b.shared is not None:
            return f"shares the buffer of {b.shared}"
        return b.peak and (b.peak.node or "(before the first node)")

    table = Table[Buffer](
        Column("backend", lambda b: Cell(b.backend, inks[b.backend])),
        Column("buffer type", lambda b: b.buft, cut=True, drop=2),
        Column("size", lambda b: size(b.size), right=True),
        Column("chunks", lambda b: b.peak and len(b.chunks), right=True, drop=1),
        Column("peak", lambda b: b.peak and size(b.peak.nbytes), right=True),
        Column("tensors", lambda b: b.peak and len(b.peak.tensors), right=True),
        Column("while computing", note, cut=True),
    )
    parts = [heading(answer.title, facts, style), "\n", table.render(buffers, style)]
    for buffer in buffers:
        if buffer.peak is not None and buffer.peak.tensors:
            parts += list(_contents(buffer, buffer.peak, shown, inks, style))
    return "".join(parts)


def _contents(buffer: Buffer, peak: Peak, about: BuffersDocument, inks: dict[str, str], style: Style) -> Iterator[str]:
    from rich.text import Text

    during = f"while {printable(peak.node)} is computed" if peak.node else "before the first node"
    name = Text.assemble((printable(buffer.backend), inks[buffer.backend]), f" at its peak, {during}")
    yield render_lines(["", name], style)
    shown = peak.tensors[: about.limit]
    yield _tensors(buffer, peak, about).render(shown, style)
    rest = peak.tensors[len(shown) :]
    if rest:
        small = ", each below 1%" if all(100 * life.size < peak.nbytes for life in rest) else ""
        text = f"  and {count(len(rest), 'tensor')} more, {size(sum(r.size for r in rest))}{small}"
        yield render_lines([text], style)
    if buffer.size > peak.nbytes:
        ends = [0] * len(buffer.chunks)
        for life in peak.tensors:
            ends[life.chunk] = max(ends[life.chunk], life.offset + life.size)
        tail = sum(nbytes - end for nbytes, end in zip(buffer.chunks, ends, strict=True))
        behind = f", {size(tail)} behind the last tensor" if tail else ""
        text = f"  {size(buffer.size - peak.nbytes)} of the buffer is unused at that point{behind}"
        yield render_lines([text], style)


def _tensors(buffer: Buffer, peak: Peak, about: BuffersDocument) -> Table[TensorLifetime]:
    """What lies in a buffer at its peak."""
    memory, plan, tensors = about.memory, about.plan, about.tensors
    ops = {node.id: tensors[node.id].op if node.id in tensors else node.op for node in plan.nodes}
    origin = {copy.name: copy.of for copy in plan.copies}
    chunked = len(buffer.chunks) > 1

    def percent(life: TensorLifetime) -> str:
        percent = 100 * life.size / max(peak.nbytes, 1)
        return "<1%" if 0 < percent < 0.5 else f"{percent:.0f}%"

    def shape(life: TensorLifetime) -> str | None:
        info = tensors.get(origin.get(life.tensor, life.tensor))
        return info and f"{info.type}{dims(info.ne)}"

    def end(life: TensorLifetime) -> str:
        return ("end" if life.end is None else memory.nodes[life.end]) + (" (output)" if life.kept else "")

    return Table(
        Column("size", lambda x: size(x.size), right=True),
        Column("of peak", percent, right=True, drop=3),
        Column("offset", lambda x: f"{x.chunk}:{x.offset}" if chunked else x.offset, right=True, drop=2),
        Column("tensor", lambda x: x.tensor, cut=True),
        Column("op", lambda x: Cell("copy" if x.tensor in origin else ops.get(x.tensor, "leaf"), "dim"), drop=1),
        Column("shape", shape, drop=4),
        Column("from", lambda x: memory.nodes[x.start] if x.start >= 0 else "start", cut=True, drop=6),
        Column("to", end, cut=True, drop=5),
    )


def chunks(answer: Answer[ChunksDocument], style: Style) -> str:
    """Every chunk with its limit, the room that is left below it, and the tensor that opened it."""
    rows, inks = answer.facts.chunks, term_colors(answer.facts.backends)

    def below(r: Chunk) -> str:
        if r.limit is None:
            return ""
        return size(r.limit - r.size) if r.size <= r.limit else "over it"

    table = Table[Chunk](
        Column("backend", lambda r: Cell(r.backend, inks[r.backend])),
        Column("chunk", lambda r: r.chunk, right=True),
        Column("size", lambda r: size(r.size), right=True),
        Column("limit", lambda r: "none" if r.limit is None else size(r.limit), right=True),
        Column("below it", below, right=True, drop=1),
        Column("tensors", lambda r: r.tensors, right=True, drop=2),
        Column("opened by", lambda r: r.opened_by, cut=True),
        Column("of size", lambda r: size(r.opened_by_size), right=True),
        Column("during", lambda r: r.during or "start", cut=True, drop=3),
    )
    return heading(answer.title, [answer.heading, count(len(rows), "chunk")], style) + "\n" + table.render(rows, style)


def copies(answer: Answer[CopiesDocument], style: Style) -> str:
    """The buffers of one graph planned with and without the copies of pipeline parallelism."""
    parallel, single = answer.facts.plans
    inks = term_colors(name for name, _ in parallel.backends)
    with_, without = dict(parallel.buffer_sizes), dict(single.buffer_sizes)
    rows = [(Cell(name, inks[name]), n, without.get(name, 0)) for name, n in with_.items()]
    rows.append((Cell("total", "dim"), sum(with_.values()), sum(without.values())))

    def cost(row: tuple[Cell, int, int]) -> str:
        more = row[1] - row[2]
        return f"{'+' if more > 0 else '-' if more < 0 else ''}{size(abs(more))}"

    table = Table[tuple[Cell, int, int]](
        Column("backend", lambda r: r[0]),
        Column("with", lambda r: size(r[1]), right=True),
        Column("without", lambda r: size(r[2]), right=True),
        Column("cost", cost, right=True),
    )
    copies = f"{count(len(parallel.copies), 'copy')} with pipeline parallelism, {len(single.copies)} without"
    facts = [answer.heading, copies]
    parts = [heading(answer.title, facts, style), "\n", table.render(rows, style)]
    for plan in (parallel, single):
        if plan.error is not None:
            parts += ["\n", ggml_error(dict(plan.error)), "\n"]
    return "".join(parts)


ROWS = 16
"""Lines of the drawing of a chunk."""

_MARGIN = 14
_WIDEST = 160
_STEP_WIDTH = 4


class Grid(NamedTuple):
    """A drawing of one chunk: `cells[row][column]` is what lies at byte `offsets[row]` during `steps[column]`."""

    steps: tuple[int, ...]
    offsets: tuple[int, ...]
    cells: tuple[tuple[TensorLifetime | None, ...], ...]


def grid(memory: MemoryPlan, buft: str, chunk: int, nbytes: int, columns: int) -> Grid:
    """Samples of a chunk of `nbytes`, the highest offset first; the first column begins before the first node.

    A column that stands for several steps shows the one with most bytes alive, so that no peak is missed.
    """
    lives, n_steps = memory.of(buft, chunk), len(memory.nodes)
    total = n_steps + 1
    if total <= columns:
        wide = min(max(columns // total, 1), _STEP_WIDTH)
        steps = tuple(step for step in range(-1, n_steps) for _ in range(wide))
    else:
        full = memory.alive(buft, chunk)
        bounds = [c * total // columns for c in range(columns + 1)]
        steps = tuple(max(range(a, b), key=lambda i: full[i]) - 1 for a, b in pairwise(bounds))
    offsets = tuple((2 * row + 1) * nbytes // (2 * ROWS) for row in reversed(range(ROWS)))
    cells = []
    for offset in offsets:
        across = [life for life in lives if life.offset <= offset < life.offset + life.size]
        cells.append(tuple(next((life for life in across if life.alive(step)), None) for step in steps))
    return Grid(steps, offsets, tuple(cells))


def chart(answer: Answer[ChartShown], style: Style) -> str:
    """A drawing per chunk, with letters for the largest tensors (each at least 1 % of its buffer) and a legend."""
    from rich.text import Text

    plan, memory, ascii = answer.facts.plan, answer.facts.memory, answer.facts.ascii
    inks = term_colors(name for name, _ in plan.backends)
    parts = [heading(answer.title, [answer.heading, f"{count(len(memory.nodes), 'step')} from left to right"], style)]
    for buffer in buffers_of(plan, memory):
        if buffer.shared is not None or buffer.peak is None:
            continue
        lives = memory.of(buffer.buft)
        large = sorted((x for x in lives if 100 * x.size >= sum(buffer.chunks)), key=lambda x: -x.size)
        letters = {id(life): letter for life, letter in zip(large, ascii_lowercase, strict=False)}
        for chunk, nbytes in enumerate(buffer.chunks):
            name = printable(buffer.backend) + (f", chunk {chunk}" if len(buffer.chunks) > 1 else "")
            head = Text.assemble((name, inks[buffer.backend]), f", {size(nbytes)}")
            columns = min(max(style.width - _MARGIN, 10), _WIDEST)
            drawn = grid(memory, buffer.buft, chunk, nbytes, columns)
            parts.append(render_lines(["", head, *_drawing(drawn, nbytes, memory, letters, ascii)], style))
        parts += ["\n", _legend(letters, memory).render((x for x in large if id(x) in letters), style)]
        rest = [life for life in lives if id(life) not in letters]
        if rest:
            parts.append(render_lines([f"  {_other(ascii)}  {count(len(rest), 'smaller tensor')}"], style))
    return "".join(parts)


def _other(ascii: bool) -> str:
    return "." if ascii else "░"


def _drawing(drawn: Grid, nbytes: int, memory: MemoryPlan, letters: dict[int, str], ascii: bool) -> Iterator[str]:
    side, corner, bottom = ("|", "+", "-") if ascii else ("│", "└", "─")
    for row, cells in enumerate(drawn.cells):
        top = nbytes * (ROWS - row) // ROWS
        label = size(top) if row % 4 == 0 else ""
        line = "".join(" " if life is None else letters.get(id(life), _other(ascii)) for life in cells)
        yield f"  {label:>9} {side}{line}".rstrip()
    yield f"  {'0 B':>9} {corner}{bottom * len(drawn.steps)}"
    last = printable(memory.nodes[-1]) if memory.nodes else ""
    if last and len(last) + 6 <= len(drawn.steps):
        yield f"  {'':>9}  {'start':<{len(drawn.steps) - len(last)}}{last}"


def _legend(letters: dict[int, str], memory: MemoryPlan) -> Table[TensorLifetime]:
    return Table(
        Column("", lambda x: letters[id(x)]),
        Column("size", lambda x: size(x.size), right=True),
        Column("tensor", lambda x: x.tensor, cut=True),
        Column("from", lambda x: memory.nodes[x.start] if x.start >= 0 else "start", cut=True, drop=2),
        Column("to", lambda x: "end" if x.end is None else memory.nodes[x.end], cut=True, drop=1),
    )
