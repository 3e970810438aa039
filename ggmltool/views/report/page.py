"""The page of a report: a template with one style and one script, which alone may run, and the document as data."""

from __future__ import annotations

import base64
import html
import re
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from ggmltool.views.report.embed import embed
from ggmltool.views.text import printable

if TYPE_CHECKING:
    from ggmltool.views.report.document import ReportComparisonDocument, ReportDocument

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
_FOLDER = files("ggmltool.views.report") / "page"
_PLACE = re.compile(r"\{\{(policy|title|style|script|document)\}\}")


def page(document: ReportDocument | ReportComparisonDocument) -> str:
    """The whole page: no part of it is asked for over a network, and nothing in the data can run.

    The template `page/page.html` has the places `{{policy}}`, `{{title}}`, `{{style}}`, `{{script}}` and
    `{{document}}`. The script is all of its `.js` files one behind the other, in the order of their names but for
    `page.js`, which begins and comes last; the style all of its `.css` files.
    """
    style, script = _all(".css"), '"use strict";\n' + _all(".js")
    parts = {
        "policy": _POLICY.format(script=_hash(script), style=_hash(style)),
        "title": html.escape(printable(document.title)),
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
