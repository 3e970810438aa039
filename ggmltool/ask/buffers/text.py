"""The compute buffers: how large, how full at most, and what lies there then."""

from __future__ import annotations

from collections.abc import Iterator

from ggmltool.ask.answer import Answer
from ggmltool.ask.buffers.record import Buffer, BuffersShown, Chunk, ChunksShown, CopiesShown, buffers_of
from ggmltool.inspect.memory import Lifetime, Peak
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, ggml_error, printable, size


def buffers(answer: Answer[BuffersShown], style: Style) -> str:
    """Sizes and peaks of all buffers, then what lies in each at its peak."""
    shown, plan = answer.facts, answer.facts.plan
    buffers = buffers_of(plan, shown.memory)
    inks = term_colors(name for name, _ in plan.backends)
    facts = [answer.heading, f"{size(sum(b.size for b in buffers))} in compute buffers"]
    parts = [heading(answer.title, facts, style), "\n", _table(inks).render(buffers, style)]
    for buffer in buffers:
        if buffer.peak is not None and buffer.peak.tensors:
            parts += list(_contents(buffer, buffer.peak, shown, inks, style))
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


def _contents(buffer: Buffer, peak: Peak, about: BuffersShown, inks: dict[str, str], style: Style) -> Iterator[str]:
    from rich.text import Text

    during = f"while {printable(peak.node)} is computed" if peak.node else "before the first node"
    yield "\n"
    yield render_lines(
        [Text.assemble((printable(buffer.backend), inks[buffer.backend]), f" at its peak, {during}")], style
    )
    shown = peak.tensors[: about.limit]
    yield _tensors(buffer, peak, about).render(shown, style)
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


def _tensors(buffer: Buffer, peak: Peak, about: BuffersShown) -> Table[Lifetime]:
    """What lies in a buffer at its peak."""
    memory, plan, tensors = about.memory, about.plan, about.tensors
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


def chunks(answer: Answer[ChunksShown], style: Style) -> str:
    """Every chunk with its limit, the room that is left below it, and the tensor that opened it."""
    rows, inks = answer.facts.chunks, term_colors(answer.facts.backends)
    table = Table[Chunk](
        Column("backend", lambda r: Cell(r.backend, inks[r.backend])),
        Column("chunk", lambda r: r.chunk, right=True),
        Column("size", lambda r: size(r.size), right=True),
        Column("limit", lambda r: "none" if r.limit is None else size(r.limit), right=True),
        Column("below it", lambda r: _below(r.size, r.limit), right=True, drop=1),
        Column("tensors", lambda r: r.tensors, right=True, drop=2),
        Column("opened by", lambda r: r.opened_by, cut=True),
        Column("of size", lambda r: size(r.opened_by_size), right=True),
        Column("during", lambda r: r.during or "start", cut=True, drop=3),
    )
    return heading(answer.title, [answer.heading, count(len(rows), "chunk")], style) + "\n" + table.render(rows, style)


def _below(nbytes: int, limit: int | None) -> str:
    if limit is None:
        return ""
    return size(limit - nbytes) if nbytes <= limit else "over it"


def copies(answer: Answer[CopiesShown], style: Style) -> str:
    """The buffers of one graph planned with and without the copies of pipeline parallelism."""
    parallel, single = answer.facts.plans
    inks = term_colors(name for name, _ in parallel.backends)
    with_, without = dict(parallel.buffer_sizes), dict(single.buffer_sizes)
    rows = [(Cell(name, inks[name]), n, without.get(name, 0)) for name, n in with_.items()]
    rows.append((Cell("total", "dim"), sum(with_.values()), sum(without.values())))
    table = Table[tuple[Cell, int, int]](
        Column("backend", lambda r: r[0]),
        Column("with", lambda r: size(r[1]), right=True),
        Column("without", lambda r: size(r[2]), right=True),
        Column("cost", lambda r: _difference(r[1] - r[2]), right=True),
    )
    copies = f"{count(len(parallel.copies), 'copy')} with pipeline parallelism, {len(single.copies)} without"
    facts = [answer.heading, copies]
    parts = [heading(answer.title, facts, style), "\n", table.render(rows, style)]
    for plan in (parallel, single):
        if plan.error is not None:
            parts += ["\n", ggml_error(dict(plan.error)), "\n"]
    return "".join(parts)


def _difference(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else '-' if nbytes < 0 else ''}{size(abs(nbytes))}"
