"""The words for assertions that are read from their condition."""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from msgspec import Struct

from ggmltool.data import load
from ggmltool.ggml.messages import Told

Kind = Literal["layout", "shape", "type"]


class Words(NamedTuple):
    """The words for a function of ggml's, with places for its arguments, and what it is about."""

    text: str
    kind: Kind


class Assertions(NamedTuple):
    """`told` is what to say by who asserts, `remedies` what to do about a kind of condition, `predicates` and `counts`
    are the functions of ggml's that conditions are made of, `relations` its comparisons."""

    told: dict[str, Told]
    remedies: dict[Kind, str]
    predicates: dict[str, Words]
    counts: dict[str, Words]
    relations: dict[str, str]


class _File(Struct, forbid_unknown_fields=True):
    told: dict[str, dict[str, str]]
    remedies: dict[Kind, str]
    predicates: dict[Kind, dict[str, str]]
    counts: dict[Kind, dict[str, str]]
    relations: dict[str, str]


@cache
def assertions() -> Assertions:
    """All of them."""
    file = load("assertions.toml", _File)
    told = {who: Told(**words) for who, words in file.told.items()}
    return Assertions(told, file.remedies, _by_function(file.predicates), _by_function(file.counts), file.relations)


def _by_function(kinds: dict[Kind, dict[str, str]]) -> dict[str, Words]:
    return {function: Words(text, kind) for kind, functions in kinds.items() for function, text in functions.items()}
