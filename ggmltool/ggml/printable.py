"""Text from outside as it can be shown anywhere: what is not seen as it is, written as an escape."""

from __future__ import annotations

import re

# What Python calls printable and yet nobody sees, or it changes how its neighbors look: a letter's joiner, fillers of
# Hangul, vowels of Khmer without a form, variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def printable(text: str) -> str:
    """One name or line with everything escaped that is not seen as it is: control characters (a line's end, too), marks
    that turn the direction of text, what has no width, spaces but the plain one, lone surrogates.

    >>> printable("a\\x1b[2Jb\\u202ec\\u200b")
    'a\\\\x1b[2Jb\\\\u202ec\\\\u200b'
    """
    if text.isprintable() and (text.isascii() or not _UNSEEN.search(text)):
        return text
    return "".join(c if c.isprintable() and not _UNSEEN.match(c) else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
