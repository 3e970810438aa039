"""What a message of ggml's or llama.cpp's is to us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

Level = Literal["info", "warning", "error"]
"""What a message is worth among others: "info" where nothing is wrong."""


class Case(NamedTuple):
    """What holds instead where the value of `place` is `like` this expression; what is empty stays as it is."""

    place: str
    like: str
    means: str = ""
    shapes: str = ""
    remedy: str = ""
    ask: str = ""


class Message(NamedTuple):
    """Texts of ggml's that mean one thing.

    `texts` stand as in the source, with printf's places; of GGML_ASSERT it is the condition. `functions` print them.
    `means` is what has happened, `shapes` which graphs and calls bring it about, `remedy` what to do, `ask` the
    command that shows more. `era` is when ggml had such texts, "" for 0.20.2.

    `places` names what printf fills in, in order, each with the words for it where nobody knows the value; the words
    of the message have them in braces. The first of the `cases` that fits the values goes before the message's own.
    """

    texts: tuple[str, ...]
    functions: tuple[str, ...]
    means: str
    shapes: str = ""
    remedy: str = ""
    ask: str = ""
    era: str = ""
    places: tuple[tuple[str, str], ...] = ()
    cases: tuple[Case, ...] = ()
    level: Level = "error"
    program: str = "ggml"

    def told(self, values: Mapping[str, str]) -> Told:
        """What to say where the places have these values; those that are missing or empty are not known."""
        case = next((c for c in self.cases if re.fullmatch(c.like, values.get(c.place, ""), re.DOTALL)), Case("", ""))
        known = {place: value for place, value in values.items() if value}
        texts = [own or general for own, general in zip(case[2:], self[2:6], strict=True)]
        if not self.places:
            return Told(*texts)
        words = dict(self.places) | known
        return Told(*(_filled(text, words, known) for text in texts))


def _filled(text: str, words: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The text with the words for its places; a capital where it begins with one whose value is not known."""
    first = re.match(r"\{(\w+)\}", text)
    filled = text.format_map(words)
    return filled[:1].upper() + filled[1:] if first is not None and first[1] not in known else filled


class Told(NamedTuple):
    """The words of a message, with the values of a case."""

    means: str
    shapes: str
    remedy: str
    ask: str
