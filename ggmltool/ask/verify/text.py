"""Where two plans differ: what ggmltool decided and what the real library did, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.inspect.use_after_free import uses_view
from ggmltool.show.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count

if TYPE_CHECKING:
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.verify.record import Difference, Verification

MAX_SHOWN = 20


def differences_view(found: Sequence[Difference], style: Style) -> str:
    """The first differences as a table, the others counted."""
    columns = (Head("where", cut=True), Head("ggmltool", cut=True), Head("ggml", cut=True))
    rows: list[Row] = [[d.where, Cell(d.ours, "red"), Cell(d.ggml, "green")] for d in found[:MAX_SHOWN]]
    text = render_table(columns, rows, style)
    if len(found) > MAX_SHOWN:
        text += render_lines([f"  and {count(len(found) - MAX_SHOWN, 'difference')} more"], style)
    return text


def verification(answer: Answer[Verification], style: Style) -> str:
    """What differs, or that nothing does; and what the steps use of freed memory."""
    found, title = answer.facts, answer.title
    uses = uses_view(found.use_after_free or (), style)
    if found.differences:
        head = heading(title, [f"{count(len(found.differences), 'difference')} from the real {found.library}"], style)
        return f"{head}\n{differences_view(found.differences, style)}" + (f"\n{uses}" if uses else "")
    compared = found.compared
    facts = [f"{count(compared['plans'], 'plan')} with {count(compared['nodes'], 'node')}"]
    facts += [f"the values of {count(compared['outputs'], 'output')}"] if compared["outputs"] else []
    return heading(title, [f"the real {found.library} does the same", *facts], style) + (f"\n{uses}" if uses else "")
