"""The backend registry of a ggml that has one: what can be made by name, and where its tensors go by default."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.inspect.devices import RegisteredInfo
from ggmltool.show.table import Cell, Column, Style, Table, render_lines

_TABLE = Table[RegisteredInfo](
    Column("registry", lambda e: e.number, right=True),
    Column("name", lambda e: e.name),
    Column("made by", lambda e: e.init or Cell("–", "dim"), cut=True, drop=1),
    Column("default buffer type", lambda e: e.buft),
    Column("alignment", lambda e: e.alignment, right=True),
    Column("a buffer of n bytes", lambda e: f"n + {e.slack} bytes" if e.slack else "n bytes", cut=True, drop=2),
)


def registry_view(entries: Sequence[RegisteredInfo], style: Style) -> str:
    """One row per entry, in the order they were registered."""
    note = "  made from NAME:params; no backend of that release reads its params"
    return "\n" + _TABLE.render(entries, style) + render_lines([note], style)
