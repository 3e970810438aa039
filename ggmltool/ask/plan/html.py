"""A plan as a notebook shows it: what each backend has to do and to hold, and the splits."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ggmltool.show.text import count, printable

if TYPE_CHECKING:
    from ggmltool.ggml.plan import Plan

_SPLITS = 30
"""Splits that are shown; of more, how many there are."""


def plan_html(plan: Plan) -> str:
    """Two tables below a title; of a plan on which ggml fails, its words."""
    title = _text(f"{plan.step} {plan.graph or ''} · ggml {plan.ggml} · {count(len(plan.nodes), 'node')}")
    parts = [f"<p><b>{title}</b></p>"]
    if plan.error is not None:
        error = dict(plan.error)
        parts += [f"<pre>{_text(error.get(key) or '')}</pre>" for key in ("message", "explanation")]
    nodes = Counter(plan.splits[n.split].backend for n in plan.nodes)
    splits = Counter(split.backend for split in plan.splits)
    sizes = dict(plan.buffer_sizes)
    rows = [(name, nodes[name], splits[name], sizes.get(name, "")) for name, _ in plan.backends]
    parts.append(_table(("backend", "nodes", "splits", "compute buffer, bytes"), rows))
    shown = plan.splits[:_SPLITS]
    parts.append(
        _table(
            ("split", "backend", "nodes", "copied inputs"),
            [(f"#{s.id}", s.backend, s.i_end - s.i_start, ", ".join(s.inputs)) for s in shown],
        )
    )
    if len(plan.splits) > _SPLITS:
        parts.append(f"<p>{count(len(plan.splits) - _SPLITS, 'more split')}</p>")
    return "\n".join(parts)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table>", _row("th", heads), *(_row("td", row) for row in rows), "</table>"]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(str(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return html.escape("\n".join(map(printable, text.split("\n"))))
