"""Why a tensor is on its backend: every rule that was asked, every backend's answer, what would move it."""

from __future__ import annotations

from collections import Counter

from ggmltool.ggml.events import Assigned
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.node import BackendAnswer, NodeFacts, SourceFacts
from ggmltool.inspect.reasons import Said
from ggmltool.inspect.what_if import Outcome
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import size, wrapped
from ggmltool.views.explain.reasons import reason_sentence
from ggmltool.views.explain.words import words


def explain_node_view(facts: NodeFacts, plan: Plan, title: str, when: str, style: Style) -> str:
    """The verdict in a sentence, then tables."""
    inks = term_colors(name for name, _ in plan.backends)
    parts = [heading(f"{title}: {facts.id}", [when], style), "\n", render_lines(_verdict(facts, style.width), style)]
    rules = Table[tuple[Said, int]](
        Column("pass", lambda r: r[0].rule, right=True),
        Column("rule", lambda r: r[0].cause),
        Column("backend", lambda r: Cell(r[0].backend or "–", inks.get(r[0].backend, "dim"))),
        Column("", lambda r: Cell("yes", "bold") if isinstance(r[0], Assigned) else Cell("no", "dim"), drop=2),
        Column("why", lambda r: words(r[0]) + (f" (asked {r[1]} times)" if r[1] > 1 else ""), cut=True),
    )
    parts += rules.section("Rules, in the order they were asked", Counter(facts.asked).items(), style)
    parts += _sources(inks).section("Sources", facts.sources, style)
    parts += _answers(inks).section("What each backend answers", facts.answers, style)
    reasons = [(a.backend, why) for a in facts.answers for why in (a.op, a.memory) if why is not None]
    if reasons:
        lines = [line for backend, why in reasons for line in wrapped(f"{backend}: {why}", style.width)]
        parts.append(render_lines(["", *lines], style))
    if facts.moves:
        name = "Changes that would move it (each one verified by planning)"
        parts += moves("to", inks).section(name, (facts.now, *facts.moves), style)
    return "".join(parts)


def _verdict(facts: NodeFacts, width: int) -> list[str]:
    what = ", ".join(filter(None, (f"{facts.op} {facts.shape}".strip(), facts.place)))
    if facts.split is not None:
        what += f", split #{facts.split}"
    sentences = [reason_sentence(reason) for reason in (facts.reason, *facts.chain)]
    return [line for text in (*sentences, what) for line in wrapped(text, width)]


def _sources(inks: dict[str, str]) -> Table[SourceFacts]:
    def memory(s: SourceFacts) -> str | Cell:
        return (f"{s.buffer}, weights" if s.weights else s.buffer) or Cell("–", "dim")

    return Table(
        Column("slot", lambda s: s.slot, right=True, drop=2),
        Column("source", lambda s: s.id, cut=True),
        Column("shape", lambda s: s.shape, drop=1),
        Column("memory", memory),
        Column("backend", lambda s: Cell(s.backend or "–", inks.get(s.backend or "", "dim"))),
        Column("", lambda s: Cell("copied", "yellow") if s.copied else None),
    )


def _answers(inks: dict[str, str]) -> Table[BackendAnswer]:
    def offloads(a: BackendAnswer) -> str | Cell:
        if a.least is None or a.batch <= 0:
            return Cell("never", "dim")
        return f"yes, batch {a.batch} ≥ {a.least}" if a.batch >= a.least else f"no, batch {a.batch} < {a.least}"

    return Table(
        Column("backend", lambda a: Cell(a.backend, inks.get(a.backend, ""))),
        Column("supports it", lambda a: "yes" if a.op is None and a.memory is None else Cell("no", "bold red")),
        Column("offloads it", offloads, drop=1),
        Column("after copying", lambda a: ", ".join(name for name, _ in a.copies), cut=True),
    )


def moves(first: str, inks: dict[str, str]) -> Table[Outcome]:
    """Changes and what comes of them; `first` is what stands above the backend."""

    def is_told(m: Outcome) -> bool:
        return m.backend is not None or bool(m.splits)

    return Table(
        Column(first, lambda m: Cell(m.backend or "–", inks.get(m.backend or "", "") if is_told(m) else "dim")),
        Column("splits", lambda m: m.splits if is_told(m) else None, right=True),
        Column("copied", lambda m: size(m.copied) if is_told(m) else None, right=True),
        Column("change", lambda m: m.text, cut=True),
    )
