"""How long a plan takes, split by split: an estimate with its range."""

from __future__ import annotations

from textwrap import wrap

from ggmltool.inspect.timed import SplitTime, Timed
from ggmltool.views.estimates import hardware, rate_text, seconds_text
from ggmltool.views.palette import term_colors
from ggmltool.views.plan.splits import plan_step
from ggmltool.views.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.views.text import count, printable, size


def seconds_view(timed: Timed, title: str, style: Style) -> str:
    """A line per split, then what all of it comes to, and what it could be otherwise."""
    facts = [plan_step(timed.plan), f"an estimate: {seconds_text(timed.all)}"]
    parts = [heading(title, facts, style)]
    if timed.splits:
        parts += ["\n", _table(timed).render(timed.splits, style)]
    return "".join([*parts, "\n", render_lines(_facts(timed, style), style)])


def _table(timed: Timed) -> Table[SplitTime]:
    inks = term_colors(name for name, _ in timed.plan.backends)
    return Table(
        Column("split", lambda s: f"#{s.split}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, ""))),
        Column("nodes", lambda s: s.nodes, right=True, drop=1),
        Column("copied", lambda s: size(round(s.nbytes)) if s.inputs else None, right=True, drop=2),
        Column("copies", lambda s: seconds_text(s.copies) if s.inputs else None, right=True),
        Column("computes", lambda s: seconds_text(s.computes), right=True),
    )


def _facts(timed: Timed, style: Style) -> list[str]:
    lines = [f"copies {seconds_text(timed.copies)}, computes {seconds_text(timed.computes)}"]
    if timed.n_tokens is not None:
        batch = f"{count(timed.n_tokens, 'token')} with {timed.cached} in the cache"
        lines.append(f"{batch}: {rate_text(timed.all.rate(timed.n_tokens))} tokens/s")
    if timed.pinned is not None:
        lines.append(f"weights in pinned memory (--no-mmap): {seconds_text(timed.pinned)}")
    if timed.other is not None:
        offload, seconds = timed.other
        lines.append(f"{'with' if offload else 'without'} op offload: {seconds_text(seconds)}")
    return [line for text in (*lines, hardware(timed.rates)) for line in wrap(printable(text), max(style.width, 20))]
