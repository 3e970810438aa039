"""What ggml's messages mean: every text of the allocator and the scheduler, what llama.cpp says while it loads and
reserves, and what devices say of their memory.

The words are in `data/messages/`, the one place where it is said what can be done: `explain error` reads it, and so do
the engine's own refusals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ggmltool.data import load

FILES = ("sched", "alloc", "memory", "build", "old", "kernels", "devices", "llama", "fit")
"""The files of messages; of texts that are equally like a line, the first counts."""

Level = Literal["info", "warning", "error"]
"""What a message is worth among others: "info" if nothing is wrong."""


class MessageWords(NamedTuple):
    """The words of a message, with the values of a case."""

    means: str
    shapes: str
    remedy: str
    ask: str


_NO_WORDS = MessageWords("", "", "", "")


class MessageCase(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds instead `when` one of these places has a value like the expression; what is empty stays as it is.

    `same_as` is the key of a message whose words these are.
    """

    when: dict[str, str]
    means: str = ""
    shapes: str = ""
    remedy: str = ""
    ask: str = ""
    same_as: str = ""

    def fits(self, values: Mapping[str, str]) -> bool:
        """Whether it is the case where the places have these values."""
        return any(re.fullmatch(like, values.get(place, ""), re.DOTALL) for place, like in self.when.items())


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """Texts of ggml's that mean one thing.

    `texts` stand as in the source, with printf's places; of GGML_ASSERT it is the condition. `functions` print them.
    `files` are the source files that do, where others print the same words for another reason. `means` is what has
    happened, `shapes` which graphs and calls bring it about, `remedy` what to do, `ask` the command that shows more.
    `era` is when ggml had such texts, "" for today's.

    `places` names what printf fills in, in order, each with the words for it if its value is unknown; the words of the
    message have them in braces. `fills` names them for a text that fills in others than the first. The first of the
    `cases` that fits the values goes before the message's own.
    """

    texts: tuple[str, ...]
    functions: tuple[str, ...]
    means: str
    shapes: str
    remedy: str
    ask: str = ""
    era: str = ""
    places: dict[str, str] = {}
    fills: dict[str, tuple[str, ...]] = {}
    cases: tuple[MessageCase, ...] = ()
    files: tuple[str, ...] = ()
    level: Level = "error"
    program: str = "ggml"

    def values(self, text: str, filled: Sequence[str]) -> dict[str, str]:
        """The values of the places, where printf filled these into one of the texts."""
        return dict(zip(self.fills.get(text, self.places), filled, strict=False))

    def told(self, values: Mapping[str, str]) -> MessageWords:
        """What to say where the places have these values; those that are missing or empty are not known."""
        case = next((_words(case) for case in self.cases if case.fits(values)), _NO_WORDS)
        texts = [own or general for own, general in zip(case, _words(self), strict=True)]
        if not self.places:
            return MessageWords(*texts)
        known = {place: value for place, value in values.items() if value}
        words = self.places | known
        return MessageWords(*(_filled(text, words, known) for text in texts))


def _filled(text: str, words: Mapping[str, str], known: Mapping[str, str]) -> str:
    """The text with the words for its places; a capital where it begins with one whose value is not known."""
    first = re.match(r"\{(\w+)\}", text)
    filled = text.format_map(words)
    return filled[:1].upper() + filled[1:] if first is not None and first[1] not in known else filled


def _words(of: Message | MessageCase) -> MessageWords:
    return MessageWords(of.means, of.shapes, of.remedy, of.ask)


@cache
def messages() -> dict[str, Message]:
    """Every message by its key."""
    out: dict[str, Message] = {}
    for name in FILES:
        out |= load(f"messages/{name}.toml", dict[str, Message])
    for key, message in out.items():
        cases = [replace(c, **_words(out[c.same_as])._asdict()) if c.same_as else c for c in message.cases]
        out[key] = replace(message, cases=tuple(cases))
    return out


def remedy(key: str, **values: str) -> str:
    """What to do about a message, as the end of a sentence; `values` are those of its places."""
    return messages()[key].told(values).remedy
