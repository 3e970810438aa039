"""`meta`: facts about where a scenario comes from, kept as they are and read by nobody who plans."""

from __future__ import annotations

import math

from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.tensors import MAX_NAME_LENGTH, check_printable
from ggmltool.scenario.values import INT64_MAX, as_map, at, kind_of

Fact = str | int | float | bool

MAX_FACTS = 1000


def read_meta(value: object) -> dict[str, Fact]:
    """A map of names to text, numbers and truth values. Raises Mistake."""
    given = as_map({} if value is None else value, "meta")
    if len(given) > MAX_FACTS:
        raise Mistake(f"meta has {len(given)} entries", f"at most {MAX_FACTS}")
    return {key: at(key, _fact, key, fact) for key, fact in given.items()}


def _fact(key: str, value: object) -> Fact:
    _check_text(key)
    match value:
        case str():
            _check_text(value)
            return value
        case bool():
            return value
        case int() if -INT64_MAX <= value <= INT64_MAX:
            return value
        case float() if math.isfinite(value):
            return value
    raise Mistake(f"a fact must be text, a number or a truth value, not {kind_of(value)}")


def _check_text(text: str) -> None:
    if len(text) > MAX_NAME_LENGTH:
        raise Mistake(f"{quoted(text)} has {len(text)} characters", f"at most {MAX_NAME_LENGTH}")
    check_printable(text, "the text")
