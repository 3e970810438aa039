"""The pages of the manual: a list of them, and one laid out for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.show.table import Head, Style, heading, render_lines, render_table
from ggmltool.show.text import count

_COLUMNS = (Head("topic"), Head("about", cut=True))
_WIDEST = 110
"""Columns that running text takes, at most."""


def topics_view(titles: Mapping[str, str], style: Style) -> str:
    """A row for each page."""
    top = heading("manual", [count(len(titles), "topic")], style) + render_lines([""], style)
    hints = ["", "ggmltool help TOPIC shows one; ggmltool help COMMAND is ggmltool COMMAND --help"]
    return top + render_table(_COLUMNS, [list(row) for row in titles.items()], style) + render_lines(hints, style)


def page_view(markdown: str, style: Style) -> str:
    """A page of our own as a terminal shows it."""
    from io import StringIO

    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    out = StringIO()
    console = Console(
        file=out,
        width=min(style.width, _WIDEST),
        _environ={},
        color_system=style.colors or None,
        force_terminal=bool(style.colors),
        no_color=not style.colors,
        legacy_windows=False,
        theme=Theme({"markdown.code": "bold", "markdown.table.border": "dim", "markdown.table.header": "dim"}),
    )
    console.print(Markdown(markdown, code_theme="ansi_dark", hyperlinks=False))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
