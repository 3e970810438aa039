"""JSON inside of a page: text that no browser takes for anything but data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggmltool.views.document import Document

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\x7f"}


def embed(document: Document) -> str:
    """A document as JSON for the inside of a script element.

    Every character beyond ASCII is an escape, and so are `<`, `>` and `&`: no name ends the element, opens a comment,
    turns the text of the page or breaks a line.
    """
    import msgspec

    text = json.dumps(msgspec.to_builtins(document), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
