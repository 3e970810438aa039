"""The chunks of the compute buffers, and what the copies of pipeline parallelism cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading
from ggmltool.show.text import count, ggml_error, plan_step, size
from ggmltool.views.memory.buffers import buffers_of

LAST_CHUNK = 15
"""The chunk that may be of any size: there is none after it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a compute buffer: `limit` is the largest buffer of its type, None for none; `opened_by` the tensor for
    which there was no room in the chunks before, `during` the node then, None before the first."""

    backend: str
    chunk: int
    size: int
    limit: int | None
    tensors: int
    opened_by: str
    opened_by_size: int
    during: str | None


def chunk_rows(plan: Plan, memory: MemoryPlan, limits: Mapping[str, int | None]) -> list[Chunk]:
    """A row per chunk; `limits` are the bytes of the largest buffer of each type."""
    out = []
    for buffer in buffers_of(plan, memory):
        for chunk, nbytes in enumerate(buffer.chunks):
            lives = [life for life in memory.of(buffer.buft) if life.chunk == chunk]
            first = lives[0]
            limit = None if chunk == LAST_CHUNK else limits.get(buffer.buft)
            during = memory.nodes[first.start] if first.start >= 0 else None
            out.append(Chunk(buffer.backend, chunk, nbytes, limit, len(lives), first.tensor, first.size, during))
    return out


def chunks_view(plan: Plan, memory: MemoryPlan, limits: Mapping[str, int | None], title: str, style: Style) -> str:
    """Every chunk with its limit, the room that is left below it, and the tensor that opened it."""
    rows = chunk_rows(plan, memory, limits)
    inks = term_colors(name for name, _ in plan.backends)
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
    return heading(title, [plan_step(plan), count(len(rows), "chunk")], style) + "\n" + table.render(rows, style)


def _below(nbytes: int, limit: int | None) -> str:
    if limit is None:
        return ""
    return size(limit - nbytes) if nbytes <= limit else "over it"


def copies_view(parallel: Plan, single: Plan, title: str, style: Style) -> str:
    """The buffers of one graph planned with and without the copies of pipeline parallelism."""
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
    facts = [plan_step(parallel), copies]
    parts = [heading(title, facts, style), "\n", table.render(rows, style)]
    for plan in (parallel, single):
        if plan.error is not None:
            parts += ["\n", ggml_error(dict(plan.error)), "\n"]
    return "".join(parts)


def _difference(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else '-' if nbytes < 0 else ''}{size(abs(nbytes))}"
