"""Samples, pages of the manual and schemas as tables, and a page laid out for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer
from ggmltool.ask.reference.record import Page, Samples, Schemas, Topics
from ggmltool.show.table import Head, Row, Style, heading, render_lines, render_table
from ggmltool.show.text import count

if TYPE_CHECKING:
    from rich.text import Text

_WIDEST = 110
"""Columns that running text takes, at most."""


def samples(answer: Answer[Samples], style: Style) -> str:
    """One row per sample, and how to get at one."""
    from rich.text import Text

    rows = [(i.name, i.shows) for i in answer.facts.samples]
    hint = Text("ggmltool sample NAME prints one; -o FILE writes it", "dim")
    return _listed("samples", "scenario", (Head("sample"), Head("shows", cut=True)), rows, hint, style)


def _listed(title: str, what: str, columns: Sequence[Head], rows: Sequence[Row], hint: str | Text, style: Style) -> str:
    top = heading(title, [count(len(rows), what)], style) + render_lines([""], style)
    return top + render_table(columns, rows, style) + render_lines(["", hint], style)


def topics(answer: Answer[Topics], style: Style) -> str:
    """A row for each page."""
    rows = [(t.topic, t.title) for t in answer.facts.topics]
    hint = "ggmltool help TOPIC shows one; ggmltool help COMMAND is ggmltool COMMAND --help"
    return _listed("manual", "topic", (Head("topic"), Head("about", cut=True)), rows, hint, style)


def schemas(answer: Answer[Schemas], style: Style) -> str:
    """A row for each schema, and how to get at one."""
    rows = [(s.name, s.about) for s in answer.facts.schemas]
    hint = "ggmltool schema NAME prints one; -o FILE writes it"
    return _listed("schemas", "schema", (Head("schema"), Head("of", cut=True)), rows, hint, style)


def page(answer: Answer[Page], style: Style) -> str:
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
    console.print(Markdown(answer.facts.text, code_theme="ansi_dark", hyperlinks=False))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
