"""The schemas that there are, as a table."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.views.table import Head, Style, heading, render_lines, render_table
from ggmltool.views.text import count

_COLUMNS = (Head("schema"), Head("of", cut=True))


def schemas_view(schemas: Mapping[str, str], style: Style) -> str:
    """A row for each schema, and how to get at one."""
    top = heading("schemas", [count(len(schemas), "schema")], style) + render_lines([""], style)
    hints = ["", "ggmltool schema NAME prints one; -o FILE writes it"]
    return top + render_table(_COLUMNS, [list(row) for row in schemas.items()], style) + render_lines(hints, style)
