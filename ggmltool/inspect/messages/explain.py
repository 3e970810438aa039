"""What to say of a message that was found: its text as it was printed, and what is so in this case."""

from __future__ import annotations

import re
from typing import NamedTuple

from ggmltool.ggml.messages import Told, messages
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.inspect.messages.assertions import assertions
from ggmltool.inspect.messages.conditions import Required, required
from ggmltool.inspect.messages.match import ASSERTION, FILE, FILLED, Match, is_of_meta

_KERNEL = re.compile(r"\bsrc[0-9]\b|\bdst\b|\b(?:ne|nb)[01]?[0-3]\b|\bnth\b|\bith\b")
_BYTES = re.compile(r"\boffset|\bsize\b|\bchunk_|\brow_|\bblck_")
_CPU_FILES = re.compile(r"ops|binary-ops|unary-ops|vec|ggml-cpu|ggml-quants|quants|repack|mmq|sgemm")


class Explained(NamedTuple):
    """A message as it is to be told. `where` is who prints it, `title` its text with the values that were pasted,
    which `values` has by place."""

    key: str
    title: str
    where: str
    texts: tuple[str, ...]
    functions: tuple[str, ...]
    era: str
    told: Told
    values: dict[str, str]


def explained(found: Match) -> Explained:
    """What to say of it."""
    if found.key == ASSERTION:
        return _assertion(found)
    message = messages()[found.key]
    where = message.program if message.program != "ggml" else f"the ggml of {message.era}" if message.era else ""
    values = message.values(found.text, found.filled)
    return Explained(
        found.key,
        _title(found),
        where or f"ggml {DEFAULT.name}",
        message.texts,
        message.functions,
        message.era,
        message.told(values),
        values,
    )


def _title(found: Match) -> str:
    """The message's text with the values in it; `…` where the pasted text has none."""
    values = iter(found.filled)
    return FILLED.sub(lambda _: next(values, "") or "…", found.text.removeprefix("%s: "))


def _assertion(found: Match) -> Explained:
    asked = required(found.text) or Required(found.text, frozenset())
    told = assertions().told[_asserter(found, asked.kinds)]
    remedies = [remedy for kind, remedy in assertions().remedies.items() if kind in asked.kinds]
    remedy = "; ".join(remedies) or "look at the op's parameters and sources"
    words = Told(*(text.format(words=asked.words, remedy=remedy) for text in told))
    where = "an assertion of ggml's, read from its condition"
    title = found.text if f": {found.text}" in found.said else f"GGML_ASSERT({found.text})"
    return Explained(found.key, title, where, (found.text,), (), "", words, {})


def _asserter(found: Match, kinds: frozenset[str]) -> str:
    """Who asserts: whoever builds the graph, the CPU that computes, a device, a program of its own."""
    if is_of_meta(found.said):
        return "meta_bytes" if _BYTES.search(found.text) else "meta"
    file = FILE.search(found.said)
    if file is None:
        if _KERNEL.search(found.text):
            return "computed"
        return "built" if kinds & assertions().remedies.keys() else "stopped"
    name, _, suffix = file[1].rpartition(".")
    if suffix in ("cu", "cuh", "m", "mm") or re.match(r"ggml-(?!cpu|quants|backend|alloc)", name):
        return "device"
    if _CPU_FILES.match(name):
        return "computed"
    return "built" if name == "ggml" else "stopped"
