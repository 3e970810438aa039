"""What to say of a message that was found: its text as it was printed, and what is so in this case."""

from __future__ import annotations

import re
from typing import NamedTuple

from ggmltool.ggml.messages import messages
from ggmltool.ggml.messages.conditions import Required, required
from ggmltool.ggml.messages.match import ASSERTION, FILLED, Match
from ggmltool.ggml.messages.message import Told

_FILE = re.compile(r"([\w.+-]+)\.(c|cpp|cc|h|cu|cuh|m|mm):\d+")
_KERNEL = re.compile(r"\bsrc[0-9]\b|\bdst\b|\b(?:ne|nb)[01]?[0-3]\b|\bnth\b|\bith\b")
_CPU_FILES = re.compile(r"ops|binary-ops|unary-ops|vec|ggml-cpu|ggml-quants|quants|repack|mmq|sgemm")

_BUILT = Told(
    "A node cannot be built from these sources: {words}.",
    "Code that builds a graph and gives an op tensors of shapes, types or strides that it does not take: weights that "
    "do not fit the architecture, an adapter of another model, a transposed source without `cont`. Nothing has been "
    "computed yet.",
    "{remedy}; `ggmltool plan` of the graph as a scenario names the node and its sources",
    "plan",
)
_COMPUTED = Told(
    "The CPU came to compute a node that it has no kernel for: {words}.",
    "Types or strides that the CPU's kernel of this op does not take. The CPU is not asked about all of them while a "
    "graph is planned, so it shows only here.",
    "{remedy}, or leave the op to a device that supports it",
    "supports",
)
_DEVICE = Told(
    "A kernel of the device was given a node that it does not take: {words}.",
    "Types, shapes or strides that the device's supports_op let pass.",
    "{remedy}, or keep the op on the CPU (-ot, -nkvo); report it to ggml",
    "supports",
)
_STOPPED = Told(
    "The program stopped itself: {words}.",
    "A model file, an option or a state that it does not expect there.",
    "look at the lines before it, and at the source at the line that it names",
    "",
)
_REMEDIES = {
    "layout": "put `cont` before the op, so that the source is contiguous",
    "type": "`cast` the source to the type that is asked for",
    "shape": "compare the shapes of the sources (ggml lists ne[0], the number of columns, first)",
}


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
    values = dict(zip(message.places, found.filled, strict=False))
    return Explained(
        found.key,
        _title(found),
        where or "ggml 0.20.2",
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
    told = _place(found, asked.kinds)
    remedies = [_REMEDIES[kind] for kind in ("layout", "type", "shape") if kind in asked.kinds]
    remedy = "; ".join(remedies) or "look at the op's parameters and sources"
    words = Told(*(text.format(words=asked.words, remedy=remedy) for text in told))
    where = "an assertion of ggml's, read from its condition"
    return Explained(found.key, f"GGML_ASSERT({found.text})", where, (found.text,), (), "", words, {})


def _place(found: Match, kinds: frozenset[str]) -> Told:
    """Who asserts: whoever builds the graph, the CPU that computes, a device, a program of its own."""
    file = _FILE.search(found.said)
    if file is None:
        return _COMPUTED if _KERNEL.search(found.text) else _BUILT if kinds & _REMEDIES.keys() else _STOPPED
    name, suffix = file[1], file[2]
    if suffix in ("cu", "cuh", "m", "mm") or re.match(r"ggml-(?!cpu|quants|backend|alloc)", name):
        return _DEVICE
    if _CPU_FILES.match(name):
        return _COMPUTED
    return _BUILT if name == "ggml" else _STOPPED
