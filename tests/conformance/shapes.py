"""The shape rules of constructors, evaluated: whether what one asks holds, and what it gives."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import cache
from math import ceil, prod
from types import CodeType, SimpleNamespace
from typing import Any

from ggmltool.ggml.dtypes import TYPES


class Source(SimpleNamespace):
    """A tensor as a rule sees it."""

    type: str
    ne: tuple[int, ...]


def holds(text: str, names: dict[str, Any]) -> bool:
    """Whether one line of a rule holds; a source that is not there meets everything."""
    words, check = _line(text)
    return any(names.get(word, word) is None for word in words) or check(names)


@cache
def _line(text: str) -> tuple[frozenset[str], Callable[[dict[str, Any]], bool]]:
    """The words of a line, and whether it holds."""
    words = frozenset(re.findall(r"\b[A-Za-z_]\w*\b", text))
    if re.fullmatch(r"\w+ is (contiguous.*|not transposed)", text):
        return words, lambda names: True
    if match := re.fullmatch(r"(\w+) is a (matrix|vector)", text):
        x, keep = match[1], 2 if match[2] == "matrix" else 1
        return words, lambda names: set(names[x].ne[keep:]) == {1}
    if match := re.fullmatch(r"(\w+) repeats into (\w+)", text):
        x, y = match.groups()
        return words, lambda names: all(n and m % n == 0 for n, m in zip(shape(names[x]), shape(names[y]), strict=True))
    if match := re.fullmatch(r"(\w+) and (\w+) have one shape(?: but for ne\[(\w+)\])?", text):
        x, y, but = match.groups()
        return words, lambda names: all(
            names[x].ne[d] == names[y].ne[d] for d in range(4) if but is None or d != int(names.get(but, but))
        )
    if match := re.fullmatch(r"(\w+) has one element", text):
        x = match[1]
        return words, lambda names: prod(names[x].ne) == 1
    if match := re.fullmatch(r"(\w+) has (as many|no more) elements (?:as|than) (\w+)", text):
        x, how, y = match.groups()
        compare = operator.eq if how == "as many" else operator.le
        return words, lambda names: bool(compare(prod(shape(names[x])), prod(shape(names[y]))))
    asked, _, where = text.partition(" where ")
    asked = asked.replace(" = ", " == ")
    return words, lambda names: bool(where and not evaluate(where, names)) or bool(evaluate(asked, names))


def shape(x: Any) -> tuple[int, ...]:
    """Four extents, of a source or of a list."""
    ne = tuple(x.ne if isinstance(x, Source) else x)
    return (*ne, 1, 1, 1, 1)[:4]


def evaluate(text: str, names: dict[str, Any]) -> Any:
    """The value of an expression of a rule."""
    return eval(_compiled(text), _KNOWN, names | {"as_": names["as"]} if "as" in names else names)


@cache
def _compiled(text: str) -> CodeType:
    return compile(re.sub(r"\bas\b", "as_", text), "rule", "eval")


def out(n: int, k: int, s: int, p: int, d: int) -> int:
    return (n + 2 * p - d * (k - 1) - 1) // s + 1


def pool(n: int, k: int, s: int, p: int) -> int:
    return (n + 2 * p - k) // s + 1


_KNOWN: dict[str, Any] = {name: name for name in TYPES} | {
    "__builtins__": {"abs": abs, "max": max},
    "out": out,
    "pool": pool,
    "ceil": ceil,
    "elements": lambda t: prod(t.ne),
}


def given(text: str, names: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    """Type and extents that a rule states."""
    if match := re.fullmatch(r"(.*), with a\.ne\[dim\] \+ b\.ne\[dim\]", text):
        type, ne = given(match[1], names)
        d = names["dim"]
        return type, (*ne[:d], ne[d] + names["b"].ne[d], *ne[d + 1 :])
    if match := re.fullmatch(r"(.*) with b, else (.*)", text):
        return given(match[1] if names["b"] is not None else match[2], names)
    if match := re.fullmatch(r"(.*), in 1D (.*)", text):
        return given(match[1] if names["is_2D"] else match[2], names)
    if match := re.fullmatch(r"f32, i32 of i32(\[.*)", text):
        return given(("i32" if names["a"].type == "i32" else "f32") + match[1], names)
    type, _, extents = text.partition("[")
    made = evaluate(f"[{extents}".replace(" / 2", " // 2"), names)
    ne = made[0] if isinstance(made[0], list | tuple) else made
    kind = evaluate(type, names)
    return getattr(kind, "name", kind), shape(ne)
