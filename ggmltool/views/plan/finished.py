"""What Graphviz draws, made readable on dark grounds with a name for those who do not see it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from ggmltool.views.palette import DARK, LIGHT, NO_BACKEND, PALETTE
from ggmltool.views.svg import FONT
from ggmltool.views.text import printable

_START = re.compile(r"<svg\b[^>]*>", re.DOTALL)
_OTHERS = {
    "white": DARK.paper,
    LIGHT.paper: DARK.paper,
    "#f5f5f5": "#161b22",
    "#bbbbbb": DARK.line,
    "black": DARK.soft,
    LIGHT.soft: DARK.soft,
    "#555555": DARK.soft,
    "#666666": DARK.soft,
    "#888888": DARK.soft,
    "#222222": DARK.ink,
}
"""Colors of the drawings that are no backend's, and what they are on dark."""


def finished(svg: str, title: str) -> str:
    """The drawing with a name, fonts that are everywhere, and its colors on a dark ground."""
    start = _START.search(svg)
    if start is None:
        return svg
    named = f'<title id="ggmltool-title">{escape(printable(title), quote=False)}</title>'
    read = ' role="img" aria-labelledby="ggmltool-title">'
    dark = f"@media screen and (prefers-color-scheme:dark){{{''.join(_dark_rules())}}}"
    style = f"<style>text{{font-family:{FONT}}}\n{dark}</style>"
    return f"{svg[: start.end() - 1]}{read}\n{named}\n{style}{svg[start.end() :]}"


def _dark_rules() -> Iterator[str]:
    """Rules by the colors that the drawing has as attributes; texts without one are black."""
    yield f"text{{fill:{DARK.ink}}}"
    for color in (*PALETTE, NO_BACKEND):
        yield f'[fill="{color.fill}"]{{fill:{color.dark_fill}}}'
        yield f'[stroke="{color.ink}"]{{stroke:{color.dark_ink}}}[fill="{color.ink}"]{{fill:{color.dark_ink}}}'
    for light, dark in _OTHERS.items():
        yield f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
