"""The chunks of the compute buffers, and what the copies of pipeline parallelism cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.views.errors import ggml_error
from ggmltool.views.memory.buffers import buffers_of
from ggmltool.views.palette import colors
from ggmltool.views.plan.splits import plan_step
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_table
from ggmltool.views.text import count, size

LAST_CHUNK = 15
"""The chunk that may be of any size: there is none after it."""

_CHUNKS = (
    Head("backend"),
    Head("chunk", right=True),
    Head("size", right=True),
    Head("limit", right=True),
    Head("below it", right=True, drop=1),
    Head("tensors", right=True, drop=2),
    Head("opened by", cut=True),
    Head("of size", right=True),
    Head("during", cut=True, drop=3),
)
_COPIES = (
    Head("backend"),
    Head("with", right=True),
    Head("without", right=True),
    Head("cost", right=True),
)


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
    inks = {name: color.term for name, color in colors(name for name, _ in plan.backends).items()}
    parts = [heading(title, [plan_step(plan), count(len(rows), "chunk")], style), "\n"]
    table: list[Row] = [
        [
            Cell(row.backend, inks[row.backend]),
            str(row.chunk),
            size(row.size),
            "none" if row.limit is None else size(row.limit),
            _below(row.size, row.limit),
            str(row.tensors),
            row.opened_by,
            size(row.opened_by_size),
            row.during or "start",
        ]
        for row in rows
    ]
    parts.append(render_table(_CHUNKS, table, style))
    return "".join(parts)


def _below(nbytes: int, limit: int | None) -> str:
    if limit is None:
        return ""
    return size(limit - nbytes) if nbytes <= limit else "over it"


def copies_view(parallel: Plan, single: Plan, title: str, style: Style) -> str:
    """The buffers of one graph planned with and without the copies of pipeline parallelism."""
    inks = {name: color.term for name, color in colors(name for name, _ in parallel.backends).items()}
    with_, without = dict(parallel.buffer_sizes), dict(single.buffer_sizes)
    rows: list[Row] = [
        [Cell(name, inks[name]), size(n), size(without.get(name, 0)), _difference(n - without.get(name, 0))]
        for name, n in with_.items()
    ]
    total, least = sum(with_.values()), sum(without.values())
    rows.append([Cell("total", "dim"), size(total), size(least), _difference(total - least)])
    copies = f"{count(len(parallel.copies), 'copy')} with pipeline parallelism, {len(single.copies)} without"
    facts = [plan_step(parallel), copies]
    parts = [heading(title, facts, style), "\n", render_table(_COPIES, rows, style)]
    for plan in (parallel, single):
        if plan.error is not None:
            parts += ["\n", ggml_error(dict(plan.error)), "\n"]
    return "".join(parts)


def _difference(nbytes: int) -> str:
    return f"{'+' if nbytes > 0 else '-' if nbytes < 0 else ''}{size(abs(nbytes))}"
