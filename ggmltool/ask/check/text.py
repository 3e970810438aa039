"""Every limit of ggml with its gauge: how much of it is used, where, and what happens beyond it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby

from ggmltool.ask.answer import Answer
from ggmltool.ask.check.record import LimitsShown, Status, closest, status
from ggmltool.ggml.errors import Breach
from ggmltool.inspect.gauges import Gauge, limits_of
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, ggml_error, printable, size

_ROOMY = 100
"""Columns from which a bar has ten cells, else five."""
_INKS: dict[Status, str] = {"fine": "green", "near": "yellow", "over": "yellow", "breached": "bold red"}


def check_view(gauges: Sequence[Gauge], title: str, step: str, style: Style) -> str:
    """The gauges as a table, and below it what happens beyond each limit."""
    from rich.text import Text

    roomy = style.width >= _ROOMY
    table = _table(10 if roomy else 5)
    rows: list[Row] = []
    for group, some in groupby(gauges, lambda gauge: gauge.about.group):
        rows += [[Cell(group, "dim")], *table.rows(some)]
    facts = [step, count(len(gauges), "limit")]
    counted = [g for g in gauges if g.used is not None and g.about.kind != "fixed"]
    if counted:
        nearest = max(counted, key=lambda g: g.share)
        facts.append(f"closest: {_called(nearest)}, {_percent(nearest)}")
    # What happens beyond each limit, with the place where the table had to cut it.
    lines: list[str | Text] = ["", Text("beyond the limit", "dim")]
    width = min(max(style.width, 40), 120)
    for gauge in gauges:
        place = f" ({printable(_where(gauge))})" if not roomy and _where(gauge) else ""
        text = f"  {_called(gauge)}{place}: {gauge.about.beyond}"
        lines += textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)
    table_text = render_table(table.columns, rows, style)
    return "".join([heading(title, facts, style), "\n", table_text, render_lines(lines, style)])


def _called(gauge: Gauge) -> str:
    """`scheduler hash set: slots`: the gauge without its table."""
    of = gauge.about
    return of.text if of.group in ("tensors", "memory") else f"{of.group} {of.text}"


def _table(cells: int) -> Table[Gauge]:
    """A gauge each, with a bar of so many cells; one that was not reached is dim."""

    def dim(g: Gauge, text: str) -> str | Cell:
        return Cell(text, "dim") if g.used is None else text

    def amount(g: Gauge, n: int | None) -> str | Cell:
        return dim(g, "–" if n is None else size(n) if g.about.nbytes else str(n))

    def word(g: Gauge) -> str:
        verdict = status(g)
        return "" if verdict == "fine" else "full" if verdict == "near" and g.share == 1 else verdict

    def bar(g: Gauge) -> Cell:
        full = min(int(g.share * cells), cells)
        return told(g, "█" * full + "·" * (cells - full))

    def told(g: Gauge, text: str) -> Cell:
        return Cell("", "dim") if g.used is None else Cell(text, _INKS[status(g)])

    return Table(
        Column("limit", lambda g: f"  {g.about.text}"),
        Column("used", lambda g: amount(g, g.used), right=True),
        Column("of", lambda g: amount(g, g.limit), right=True),
        Column("", bar),
        Column("", lambda g: dim(g, "" if g.used is None else _percent(g)), right=True),
        Column("", lambda g: told(g, word(g)), drop=1),
        Column("where", lambda g: dim(g, "not reached" if g.used is None else _where(g)), cut=True),
    )


def _where(gauge: Gauge) -> str:
    """Where the gauge is so high, "" at zero. What is counted is explained by its parts, bytes by what they are of."""
    if not gauge.used:
        return ""
    if gauge.about.nbytes:
        return ": ".join(filter(None, (gauge.where, " + ".join(f"{size(n)} of {what}" for what, n in gauge.of))))
    return ", ".join(filter(None, (" + ".join(f"{n} {what}" for what, n in gauge.of), gauge.where)))


def _percent(gauge: Gauge) -> str:
    """Whole percents; 100 % only if nothing is left, above it where it is too much."""
    percent = 100 * gauge.share
    if percent >= 10_000:
        return f"{gauge.share:.0f} ×"
    if gauge.share < 1:
        return f"{'<1' if 0 < percent < 1 else min(int(percent), 99)}%"
    return f"{max(round(percent), 101) if gauge.share > 1 else 100}%"


def breach_text(breach: Breach | None, release: str) -> str:
    """The limit behind an error of this ggml, "" if none is."""
    if breach is None:
        return ""
    of = limits_of(release)[breach.limit]
    used = size(breach.used) if of.nbytes else str(breach.used)
    return f"  the limit: {printable(of.constant)}, the {of.group}'s {of.text}; {used} would be needed"


def limits(answer: Answer[LimitsShown], style: Style) -> str:
    """The gauges, and below them what ended a graph."""
    found, title, what = answer.facts.found, answer.title, answer.heading
    release = f"ggml {found[0].plan.ggml}"
    text = check_view(closest(found), title, what if f", {release}" in title else f"{what} · {release}", style)
    for one in found:
        if one.plan.error is not None:
            about = f"{one.graph}: " if len(found) > 1 else ""
            lines = [about + ggml_error(dict(one.plan.error)), breach_text(one.breach, one.plan.ggml)]
            text += "\n" + "".join(f"{line}\n" for line in lines if line)
    return text
