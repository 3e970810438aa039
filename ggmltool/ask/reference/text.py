"""Samples, pages of the manual and schemas as tables, and a page laid out for a terminal."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.reference.record import Page, SampleInfo, Samples, Schemas, Topics
from ggmltool.show.table import Column, Head, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count

_SAMPLES = Table[SampleInfo](Column("sample", lambda i: i.name), Column("shows", lambda i: i.shows, cut=True))
_TOPICS = (Head("topic"), Head("about", cut=True))
_SCHEMAS = (Head("schema"), Head("of", cut=True))
_WIDEST = 110
"""Columns that running text takes, at most."""


def samples(answer: Answer[Samples], style: Style) -> str:
    """One row per sample, and how to get at one."""
    from rich.text import Text

    infos = answer.facts.samples
    hint = Text("ggmltool sample NAME prints one; -o FILE writes it", "dim")
    title = heading("samples", [count(len(infos), "scenario")], style) + render_lines([""], style)
    return title + _SAMPLES.render(infos, style) + render_lines(["", hint], style)


def topics(answer: Answer[Topics], style: Style) -> str:
    """A row for each page."""
    rows = [(t.topic, t.title) for t in answer.facts.topics]
    top = heading("manual", [count(len(rows), "topic")], style) + render_lines([""], style)
    hints = ["", "ggmltool help TOPIC shows one; ggmltool help COMMAND is ggmltool COMMAND --help"]
    return top + render_table(_TOPICS, rows, style) + render_lines(hints, style)


def schemas(answer: Answer[Schemas], style: Style) -> str:
    """A row for each schema, and how to get at one."""
    rows = [(s.name, s.about) for s in answer.facts.schemas]
    top = heading("schemas", [count(len(rows), "schema")], style) + render_lines([""], style)
    hints = ["", "ggmltool schema NAME prints one; -o FILE writes it"]
    return top + render_table(_SCHEMAS, rows, style) + render_lines(hints, style)


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
