"""Text for people: names made safe to print, sizes in short binary units, words in the plural."""

from __future__ import annotations

import re
import textwrap

from ggmltool.ggml.printable import printable as printable
from ggmltool.ggml.tensor import dims as dims
from ggmltool.inspect.words import count as count
from ggmltool.inspect.words import shortened as shortened
from ggmltool.inspect.words import size as size
from ggmltool.inspect.words import size_between as size_between

# The colors and faces that rich writes for our own styles; nothing that hides text or lets it blink.
_COLOR = re.compile("(\x1b\\[(?:(?:[012347]|[349][0-79]|10[0-7]|[34]8;5;[0-9]{1,3})(?:;(?=[0-9])|(?=m)))+m)")

_BLANKS = re.compile("([\n\t])")


def harmless(text: str, colored: bool = False) -> str:
    """Whole lines made printable, but for their ends and tabs; with `colored`, the colors of our own stay."""
    if colored and "\x1b" in text:
        return "".join(part if i % 2 else harmless(part) for i, part in enumerate(_COLOR.split(text)))
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(part if part in ("\n", "\t") else printable(part) for part in _BLANKS.split(text))


_WIDTH = 110


def wrapped(text: str, width: int) -> list[str]:
    """A paragraph in lines of the terminal's width."""
    room = max(min(width, _WIDTH), 20)
    return textwrap.wrap(printable(text), room, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
