"""The backend registry of a ggml that has one: what can be made by name, and where its tensors go by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ggmltool.inspect.devices import RegisteredInfo
from ggmltool.views.table import Cell, Head, Row, Style, render_lines, render_table

_COLUMNS = (
    Head("registry", right=True),
    Head("name"),
    Head("made by", cut=True, drop=1),
    Head("default buffer type"),
    Head("alignment", right=True),
    Head("a buffer of n bytes", cut=True, drop=2),
)


def registry_view(entries: Sequence[RegisteredInfo], style: Style) -> str:
    """One row per entry, in the order they were registered."""
    rows: list[Row] = []
    for e in entries:
        takes = f"n + {e.slack} bytes" if e.slack else "n bytes"
        rows.append([str(e.number), e.name, e.init or Cell("–", "dim"), e.buft, str(e.alignment), takes])
    note = "  made from NAME:params; no backend of then reads its params"
    return "\n" + render_table(_COLUMNS, rows, style) + render_lines([note], style)


def registry_json(entries: Sequence[RegisteredInfo]) -> list[dict[str, Any]]:
    """The entries as objects."""
    return [e._asdict() for e in entries]
