"""Why a split begins: the node that could not go on, the inputs that are copied and for whom, what would save it."""

from __future__ import annotations

from ggmltool.ggml.plan import Plan
from ggmltool.ggml.why import Why
from ggmltool.inspect.split import InputFacts, SplitFacts
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, shortened, size, wrapped
from ggmltool.views.explain.node import moves
from ggmltool.views.explain.reasons import reason_sentence
from ggmltool.views.explain.words import words

_USERS = 3


def explain_split_view(facts: SplitFacts, plan: Plan, title: str, when: str, style: Style) -> str:
    """Sentences, then a table of inputs and one of changes."""
    inks = term_colors(name for name, _ in plan.backends)
    top = [when, f"{facts.of} splits" if facts.of != 1 else "1 split"]
    lines = [line for text in _sentences(facts) for line in wrapped(text, style.width)]
    parts = [heading(f"{title}: split #{facts.number}", top, style), "\n", render_lines(lines, style)]
    parts += _inputs(facts.number, inks).section("Copied before it", facts.inputs, style)
    if not facts.inputs:
        parts.append(render_lines(["", "Nothing is copied before it."], style))
    if facts.read_again:
        again = [f"{of} (by {node})" for of, node in facts.read_again]
        text = f"Copied for an earlier split and read again: {shortened(again, 6)}"
        parts.append(render_lines(["", *wrapped(text, style.width)], style))
    if facts.merges:
        name = "Changes that make fewer splits (each one verified by planning)"
        parts += moves("first node on", inks).section(name, (facts.now, *facts.merges), style)
    elif facts.number:
        parts.append(render_lines(["", "No change of one tensor's place, usage or backend makes fewer splits."], style))
    return "".join(parts)


def _sentences(f: SplitFacts) -> list[str]:
    start, end = f.nodes
    here = (
        f"{count(end - start, 'node')} on {f.backend}, {start}–{end - 1}"
        if end - start > 1
        else f"node {start} on {f.backend}"
    )
    why = list(map(reason_sentence, f.why_first))
    if f.before is None:
        return [f"It is the first: {here}.", *why]
    behind = f"It begins with {f.start.node}, after {f.last_before} on {f.before}: {here}."
    if f.start.why is Why.OTHER_BACKEND and why:
        return [*why, behind]
    return [f"{f.start.node} begins it: {words(f.start)}.", *why, behind]


def _inputs(number: int, inks: dict[str, str]) -> Table[InputFacts]:
    def users(i: InputFacts) -> str:
        return shortened([node if at == number else f"{node} (split #{at})" for node, at in i.users], _USERS)

    return Table(
        Column("input", lambda i: i.id, cut=True),
        Column("what", lambda i: Cell(i.what, "dim"), drop=1),
        Column("shape", lambda i: i.shape, drop=2),
        Column("bytes", lambda i: size(i.nbytes), right=True),
        Column("from", lambda i: Cell(i.src, inks.get(i.src, ""))),
        Column("for", users, cut=True),
    )
