"""A view as a notebook shows it: the same text as in a terminal, with its colors, and escaped."""

from __future__ import annotations

from io import StringIO

from ggmltool.views.text import harmless

_PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:normal;font-family:monospace">{code}</pre>'


def view_html(text: str) -> str:
    """The text of a view, with the colors that rich wrote into it, as HTML."""
    from rich.console import Console
    from rich.text import Text

    lines = Text.from_ansi(harmless(text, colored=True).rstrip("\n"))
    console = Console(
        record=True, file=StringIO(), width=max(lines.cell_len, 1), color_system="256", force_terminal=True, _environ={}
    )
    console.print(lines, soft_wrap=True, end="")
    return console.export_html(inline_styles=True, code_format=_PRE)
