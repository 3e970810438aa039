"""Why a tensor is on its backend: every rule that was asked, every backend's answer, what would move it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ggmltool.ggml.events import Assigned
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.node import BackendAnswer, NodeFacts, Outcome, SourceFacts
from ggmltool.views.explain.reasons import reason_json, reason_sentence
from ggmltool.views.explain.words import words
from ggmltool.views.palette import colors
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, section
from ggmltool.views.text import size, wrapped

_RULES = (Head("pass", right=True), Head("rule"), Head("backend"), Head("", drop=2), Head("why", cut=True))
_SOURCES = (
    Head("slot", right=True, drop=2),
    Head("source", cut=True),
    Head("shape", drop=1),
    Head("memory"),
    Head("backend"),
    Head(""),
)
_ANSWERS = (
    Head("backend"),
    Head("supports it"),
    Head("offloads it", drop=1),
    Head("after copying", cut=True),
)
MOVES = (Head("to"), Head("splits", right=True), Head("copied", right=True), Head("change", cut=True))


def explain_node_view(facts: NodeFacts, plan: Plan, title: str, when: str, style: Style) -> str:
    """The verdict in a sentence, then tables."""
    inks = {name: color.term for name, color in colors(name for name, _ in plan.backends).items()}
    parts = [heading(f"{title}: {facts.id}", [when], style), "\n", render_lines(_verdict(facts, style.width), style)]
    asked: list[Row] = [
        [
            str(a.rule),
            a.cause,
            Cell(a.backend or "–", inks.get(a.backend, "dim")),
            Cell("yes", "bold") if isinstance(a, Assigned) else Cell("no", "dim"),
            words(a) + (f" (asked {n} times)" if n > 1 else ""),
        ]
        for a, n in Counter(facts.asked).items()
    ]
    parts += section("Rules, in the order they were asked", _RULES, asked, style)
    parts += section("Sources", _SOURCES, [_source(s, inks) for s in facts.sources], style)
    parts += section("What each backend answers", _ANSWERS, [_answer(a, inks) for a in facts.answers], style)
    reasons = [(a.backend, why) for a in facts.answers for why in (a.op, a.memory) if why is not None]
    if reasons:
        lines = [line for backend, why in reasons for line in wrapped(f"{backend}: {why}", style.width)]
        parts.append(render_lines(["", *lines], style))
    rows = [move_row(m, inks) for m in (facts.now, *facts.moves)]
    if facts.moves:
        parts += section("Changes that would move it (each one verified by planning)", MOVES, rows, style)
    return "".join(parts)


def _verdict(facts: NodeFacts, width: int) -> list[str]:
    what = ", ".join(filter(None, (f"{facts.op} {facts.shape}".strip(), facts.place)))
    if facts.split is not None:
        what += f", split #{facts.split}"
    sentences = [reason_sentence(reason) for reason in (facts.reason, *facts.chain)]
    return [line for text in (*sentences, what) for line in wrapped(text, width)]


def _source(s: SourceFacts, inks: dict[str, str]) -> Row:
    memory = "" if not s.buffer else f"{s.buffer}, weights" if s.weights else s.buffer
    backend = Cell(s.backend or "–", inks.get(s.backend or "", "dim"))
    return [
        str(s.slot),
        s.id,
        s.shape,
        memory or Cell("–", "dim"),
        backend,
        Cell("copied", "yellow") if s.copied else "",
    ]


def _answer(a: BackendAnswer, inks: dict[str, str]) -> Row:
    runs = a.op is None and a.memory is None
    asks = "" if a.least is None or a.batch <= 0 else "yes" if a.batch >= a.least else "no"
    asks += f", batch {a.batch} of {a.least}" if asks else ""
    return [
        Cell(a.backend, inks.get(a.backend, "")),
        "yes" if runs else Cell("no", "bold red"),
        asks or Cell("never", "dim"),
        ", ".join(name for name, _ in a.copies),
    ]


def move_row(m: Outcome, inks: dict[str, str]) -> Row:
    """A row of `MOVES`."""
    if m.backend is None and not m.splits:
        return [Cell("–", "dim"), "", "", m.text]
    return [Cell(m.backend or "–", inks.get(m.backend or "", "")), str(m.splits), size(m.copied), m.text]


def explain_node_json(facts: NodeFacts, plan: Plan) -> dict[str, Any]:
    """The same, exact."""
    verdict = facts.verdict
    return {
        "ggmltool": 1,
        "kind": "explain_node",
        "ggml": plan.ggml,
        "graph": plan.graph,
        "step": plan.step,
        "ok": plan.ok,
        "tensor": facts.id,
        "op": facts.op or None,
        "shape": facts.shape,
        "place": facts.place,
        "split": facts.split,
        "backend": verdict.backend if verdict is not None else None,
        "cause": verdict.cause if verdict is not None else None,
        "decided_by": verdict.by or None if verdict is not None else None,
        "rules": [
            {
                "pass": a.rule,
                "cause": a.cause,
                "backend": a.backend or None,
                "settled": isinstance(a, Assigned),
                "why": words(a),
            }
            for a in facts.asked
        ],
        "reason": reason_json(facts.reason),
        "chain": [reason_json(step) for step in facts.chain],
        "sources": [s._asdict() for s in facts.sources],
        "answers": [
            {
                "backend": a.backend,
                "supports_op": a.op is None,
                "why_not_op": a.op,
                "supports_buft": a.memory is None,
                "why_not_buft": a.memory,
                "copies": [{"id": name, "why": why} for name, why in a.copies],
                "batch": a.batch,
                "offload_min_batch": a.least,
            }
            for a in facts.answers
        ],
        "now": facts.now._asdict(),
        "moves": [m._asdict() for m in facts.moves],
    }
