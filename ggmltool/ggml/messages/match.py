"""Which of ggml's messages a text is: a line of a log or a terminal, with its names, numbers and prefixes, or a part.

Quotes, case, spaces, what printf filled in, and whatever stands before or behind do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import NamedTuple

from ggmltool.ggml.messages import MESSAGES

LIKE = 0.72
"""How much alike (0 to 1) a text must be that has no message's words in full."""
NEAREST = 3
_LINES = 2000
_LONGEST = 1000
_SHORT = 12
_FILLED = re.compile(r"%[-0-9.]*(?:zu|zx|lu|[sdfxpu])")
_QUOTES = re.compile("[\"'`\\\\“”‘’]")
_ASSERTED = re.compile(r"ggml_assert\s*\((.*)\)")
_BEFORE = re.compile(r"^.*?[\w.+-]+\.(?:c|cpp|cc|h|cu|m|mm):\d+: ?")


class Match(NamedTuple):
    """A message, its text that is nearest, and how near (1: every word of it is there)."""

    key: str
    text: str
    score: float


class _Template(NamedTuple):
    """`words` is the text without what printf fills in, `said` what it says to people, where a condition does."""

    key: str
    text: str
    words: str
    said: str
    pattern: re.Pattern[str]
    weight: int


def find(text: str) -> Match | None:
    """The message that a text is, None where none is near enough. Of several lines the one that says most counts."""
    lines = list(_lines(text))
    exact = [m for line in lines for m in _exact(line)]
    if exact:
        return max(exact, key=lambda found: found[0])[1]
    near = nearest(text)
    return near[0] if near and near[0].score >= LIKE else None


def nearest(text: str) -> list[Match]:
    """The messages that are most like a text, the nearest first, each once."""
    best: dict[str, Match] = {}
    for line in list(_lines(text))[:20]:
        for template in _templates():
            if template.weight < 4:
                continue
            score = max(_alike(part, words) for part in _parts(line) for words in {template.words, template.said})
            if template.key not in best or score > best[template.key].score:
                best[template.key] = Match(template.key, template.text, score)
    return sorted(best.values(), key=lambda m: -m.score)[:NEAREST]


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines()[:_LINES]:
        plain = _plain(line[:_LONGEST]).strip()
        if plain:
            yield plain


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", _QUOTES.sub("", text)).lower()


@cache
def _templates() -> tuple[_Template, ...]:
    return tuple(_template(key, text) for key, message in MESSAGES.items() for text in message.texts)


def _template(key: str, text: str) -> _Template:
    """A text as a pattern: what printf fills in may be anything, the function's name in front may be missing."""
    pieces = [_plain(piece) for piece in _FILLED.split(text.removeprefix("%s: ").strip())]
    pattern = ".{0,300}?".join(re.escape(piece) for piece in pieces)
    words = " ".join(piece.strip() for piece in pieces).strip()
    said = re.search(r'"(.+)"', text)
    said_words = _plain(said[1]) if said is not None else words
    return _Template(
        key, text, words, said_words, re.compile(pattern), len(words) if any(c.isalnum() for c in words) else 0
    )


def _exact(line: str) -> Iterator[tuple[tuple[bool, int, bool], Match]]:
    """Messages all of whose words are there, and what makes one more fitting than another."""
    asserted = _ASSERTED.search(line)
    condition = asserted[1].strip() if asserted is not None else None
    behind = _BEFORE.sub("", line)
    for t in _templates():
        if not t.weight:
            continue
        whole = t.words in (condition, line, behind)
        part = t.weight >= _SHORT and t.pattern.search(line) is not None
        if whole or part:
            named = any(f.lower() in line for f in MESSAGES[t.key].functions)
            yield (whole, t.weight, named), Match(t.key, t.text, 1.0)


def _parts(line: str) -> Iterator[str]:
    """What may be the message in a line: all of it, what is behind file and line, what is asserted."""
    yield line
    yield _BEFORE.sub("", line)
    asserted = _ASSERTED.search(line)
    if asserted is not None:
        yield asserted[1]


def _alike(a: str, b: str) -> float:
    """How much two texts are alike, from 0 to 1; a part of several words of a message is like it."""
    if len(a) >= _SHORT and " " in a and a in b:
        return 0.9 + 0.1 * len(a) / len(b)
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return matcher.ratio() if matcher.real_quick_ratio() > 0.4 and matcher.quick_ratio() > 0.4 else 0.0
