"""Text, pictures and documents as HTML: in a notebook, and as pages of their own for a browser."""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from html import escape
from importlib.resources import files
from io import StringIO
from typing import TYPE_CHECKING

from ggmltool.show.colors import DARK, LIGHT
from ggmltool.show.text import harmless, printable

if TYPE_CHECKING:
    from ggmltool.show.document import Document

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


_PROLOG = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def picture_page(svg: str, title: str) -> str:
    """The page: the drawing as it is, nothing that runs, nothing from elsewhere."""
    rules = (
        f":root{{color-scheme:light dark}}body{{margin:16px;background:{LIGHT.paper}}}svg{{max-width:100%;height:auto}}"
        f"@media screen and (prefers-color-scheme:dark){{body{{background:{DARK.paper}}}}}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_PICTURE_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(printable(title))}</title>\n<style>{rules}</style>\n</head>\n<body>\n<main>\n"
        f"{_PROLOG.sub('', svg, count=1).rstrip()}\n</main>\n</body>\n</html>\n"
    )


_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\x7f"}


def embed(document: Document) -> str:
    """A document as JSON for the inside of a script element.

    Every character beyond ASCII is an escape, and so are `<`, `>` and `&`: no name ends the element, opens a comment,
    turns the text of the page or breaks a line.
    """
    import msgspec

    text = json.dumps(msgspec.to_builtins(document), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)


_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
_FOLDER = files("ggmltool.show") / "page"
_PLACE = re.compile(r"\{\{(policy|title|style|script|document)\}\}")


def page(document: Document, title: str) -> str:
    """The page of a report: no part of it is asked for over a network, and nothing in the data can run.

    The template `page/page.html` has the places `{{policy}}`, `{{title}}`, `{{style}}`, `{{script}}` and
    `{{document}}`. The script is all of its `.js` files one behind the other, in the order of their names but for
    `page.js`, which begins and comes last; the style all of its `.css` files.
    """
    style, script = _all(".css"), '"use strict";\n' + _all(".js")
    parts = {
        "policy": _POLICY.format(script=_hash(script), style=_hash(style)),
        "title": escape(printable(title)),
        "style": style,
        "script": script,
        "document": embed(document),
    }
    return _PLACE.sub(lambda place: parts[place[1]], _part("page.html"))


def _part(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _all(ending: str) -> str:
    names = sorted(file.name for file in _FOLDER.iterdir() if file.name.endswith(ending))
    return "\n".join(map(_part, sorted(names, key=lambda name: name == "page.js")))


def _hash(text: str) -> str:
    """How a content policy names an inline style or script."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
