"""What a condition of GGML_ASSERT asks for, read from its text: shapes, types, layouts, numbers.

ggml's ops have hundreds of such assertions, made of few predicates; so the text itself says what must hold.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from msgspec import Struct

from ggmltool.data import load
from ggmltool.ggml.messages import MessageWords

Kind = Literal["layout", "shape", "type"]


class Words(NamedTuple):
    """The words for a function of ggml's, with places for its arguments, and what it is about."""

    text: str
    kind: Kind


class Assertions(NamedTuple):
    """`told` is what to say by who asserts, `remedies` what to do about a kind of condition, `predicates` and `counts`
    are the functions of ggml's that conditions are made of, `relations` its comparisons."""

    told: dict[str, MessageWords]
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
    told = {who: MessageWords(**words) for who, words in file.told.items()}
    return Assertions(told, file.remedies, _by_function(file.predicates), _by_function(file.counts), file.relations)


def _by_function(kinds: dict[Kind, dict[str, str]]) -> dict[str, Words]:
    return {function: Words(text, kind) for kind, functions in kinds.items() for function, text in functions.items()}


_ROWS = "ggml_is_contiguous_rows"
"""What it says that the first stride is the size of an element."""
_CALL = re.compile(r"(\w+)\s*\(([^()]*)\)")
_MEMBER = re.compile(r"(\w+(?:->src\[\d\])?)->(ne|nb)\[(\w+)\]")
_TYPE = re.compile(r"(\w+)->type")
_LOCAL = re.compile(r"(ne|nb)([01]?)([0-3])")
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:->|\.)\w+|\[\w+\])*")
_TEXT = re.compile(r'"[^"]*"|“[^”]*”')
_SOURCE = {"": "the result", "0": "source 0", "1": "source 1"}


class Required(NamedTuple):
    """What must hold, as a sentence without its end, and which kinds of things it is of."""

    words: str
    kinds: frozenset[str]


def required(condition: str) -> Required | None:
    """What a condition asks for; None if it is nothing that can be read."""
    text = _TEXT.sub("", condition).strip().removesuffix("&&").strip()
    kinds: set[str] = set()
    clauses = []
    for both in _parts(_unwrapped(text), "&&"):
        words = [_clause(_unwrapped(part), kinds) for part in _parts(_unwrapped(both), "||")]
        if None in words:
            return None
        clauses.append(", or ".join(map(str, words)))
    return Required("; ".join(clauses), frozenset(kinds)) if clauses and all(clauses) else None


def _parts(text: str, operator: str) -> list[str]:
    """The text cut at an operator, where that stands in no parentheses."""
    out, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if depth == 0 and text.startswith(operator, i):
            out.append(text[start:i].strip())
            start = i + len(operator)
    return [*out, text[start:].strip()]


def _unwrapped(text: str) -> str:
    """The text without parentheses around all of it."""
    while text.startswith("(") and text.endswith(")") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    depth = 0
    for i, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return i
    return -1


def _clause(text: str, kinds: set[str]) -> str | None:
    negated = text.startswith("!") and not text.startswith("!=")
    if negated:
        text = _unwrapped(text[1:].strip())
    call = _CALL.fullmatch(text)
    if call is not None and call[1] in assertions().predicates:
        words = _predicate(call[1], [_operand(part, kinds) for part in _parts(call[2], ",")], kinds)
        return words.replace(" must ", " must not ", 1) if negated and words else words
    if _NAME.fullmatch(text):
        kinds.add("pointer")
        return f"{text} must not be set" if negated else f"{text} must be given"
    bits = _parts(text, "&")
    if len(bits) == 2 and all(map(_NAME.fullmatch, bits)):
        return f"{bits[0]} must {'not ' if negated else ''}have the bit {bits[1]}"
    return None if negated else _relation(text, kinds)


def _predicate(name: str, operands: list[str], kinds: set[str]) -> str | None:
    words = assertions().predicates[name]
    if ("{1}" in words.text) != (len(operands) == 2):
        return None
    kinds.add(words.kind)
    return words.text.format(*operands)


def _relation(text: str, kinds: set[str]) -> str | None:
    found = _operator(text)
    if found is None:
        return None
    at, operator = found
    left, right = text[:at].strip(), text[at + len(operator) :].strip()
    if not left or not right:
        return None
    local = _LOCAL.fullmatch(left)
    if operator == "==" and local is not None and local[1] == "nb" and local[3] == "0":
        kinds.add("layout")
        return assertions().predicates[_ROWS].text.format(_SOURCE[local[2]])
    modulo = _parts(left, "%")
    if operator == "==" and right == "0" and len(modulo) == 2:
        return f"{_operand(modulo[0], kinds)} must be a multiple of {_operand(modulo[1], kinds)}"
    one, other = _operand(left, kinds), _operand(right, kinds)
    if operator == "==" and other.startswith("the type "):
        return f"{one} must be {other.removeprefix('the type ')}"
    return assertions().relations[operator].format(one, other)


def _operator(text: str) -> tuple[int, str] | None:
    """Where the comparison stands that is in no parentheses; None if there is none, or more than one."""
    found = []
    relations = assertions().relations
    depth = i = 0
    while i < len(text):
        depth += (text[i] in "([") - (text[i] in ")]")
        two = text[i : i + 2]
        if two in ("->", "<<", ">>"):
            i += 2
            continue
        operator = two if two in relations else text[i] if text[i] in "<>" else ""
        if depth == 0 and operator:
            found.append((i, operator))
        i += max(len(operator), 1)
    return found[0] if len(found) == 1 else None


def _operand(text: str, kinds: set[str]) -> str:
    """One side of a comparison in words."""
    text = _unwrapped(text.strip())
    member = _MEMBER.fullmatch(text)
    if member is not None:
        kinds.add("shape" if member[2] == "ne" else "layout")
        return f"{member[2]}[{member[3]}] of {member[1]}"
    local = _LOCAL.fullmatch(text)
    if local is not None:
        kinds.add("shape" if local[1] == "ne" else "layout")
        return f"{local[1]}[{local[3]}] of {_SOURCE[local[2]]}"
    if text.startswith("GGML_TYPE_"):
        kinds.add("type")
        return f"the type {text.removeprefix('GGML_TYPE_').lower()}"
    typed = _TYPE.fullmatch(text)
    if typed is not None:
        kinds.add("type")
        return f"{typed[1]}'s type"
    call = _CALL.fullmatch(text)
    count = assertions().counts.get(call[1]) if call is not None else None
    if call is not None and count is not None:
        kinds.add(count.kind)
        return count.text.format(_operand(call[2], kinds))
    return text
