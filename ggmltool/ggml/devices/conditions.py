"""Rules of a device of one's own, as data: conditions on the type, shape and strides of an op's result and sources.

A device supports an op that has rules where the conditions of one of them hold; the reason of a no is that of the rule
that came furthest. `rule_of` makes of them what `ggmltool.ggml.device` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.cases import SupportCases
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import (
    MAX_SRC,
    Tensor,
    are_same_shape,
    is_contiguous,
    is_contiguous_1,
    is_contiguous_2,
    is_contiguous_rows,
    nrows,
)

T = TypeVar("T")

RESULT = -1
EVERY_SOURCE = -2
"""The operands of a rule that are no single source."""

Contiguity = Literal["all", "from 1", "from 2", "rows"]
Number = Literal["ne0", "ne1", "ne2", "ne3", "nb0", "nb1", "nb2", "nb3", "rows", "bytes"]
"""Numbers of a tensor: elements and strides by dimension, ggml_nrows, ggml_nbytes."""


class Bounds(NamedTuple):
    """What a number has to be; None where that does not matter."""

    low: int | None = None
    high: int | None = None
    multiple: int | None = None
    among: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is asked of one operand. All but `present` hold for a source that is not there."""

    types: tuple[DType, ...] | None = None
    contiguous: Contiguity | None = None
    present: bool | None = None
    numbers: tuple[tuple[Number, Bounds], ...] = ()


@dataclass(frozen=True, slots=True)
class SupportRule:
    """A rule for the ops of these keys (None: for every op, besides their own rules).

    `operands` are source numbers, RESULT or EVERY_SOURCE with their conditions; `same_type` and `same_shape` list
    operands that have to be alike.
    """

    keys: frozenset[int] | None
    operands: tuple[tuple[int, Conditions], ...] = ()
    same_type: tuple[int, ...] = ()
    same_shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Supports:
    """What ops a device of one's own has: all but `keys` (`exclude`), or only `keys`, op keys of `ggmltool.ggml.op`.

    `rules` are conditions on some of them. `profile`: ops without rules are as the profile has them, and `keys` say
    nothing. `cases` are the answers of a real device, which decide where no rule does.
    """

    keys: frozenset[int]
    exclude: bool
    rules: tuple[SupportRule, ...] = ()
    profile: bool = False
    cases: SupportCases | None = None


_Check = Callable[[Tensor], str | None]

_CONTIGUOUS: dict[Contiguity, tuple[Callable[[Tensor], bool], str]] = {
    "all": (is_contiguous, "{what} is not contiguous"),
    "from 1": (is_contiguous_1, "{what} is not contiguous from dimension 1 on"),
    "from 2": (is_contiguous_2, "{what} is not contiguous from dimension 2 on"),
    "rows": (is_contiguous_rows, "rows of {what} are not contiguous"),
}


def support_rules(rules: Sequence[SupportRule]) -> tuple[dict[int, OpRule], OpRule | None]:
    """What a device asks of each op that has rules, by op key, and what it asks of every op (None: nothing)."""
    by_key: dict[int, list[list[_Check]]] = {}
    always: list[_Check] = []
    for rule in rules:
        checks = list(_checks(rule))
        if rule.keys is None:
            always += checks
        for key in rule.keys or ():
            by_key.setdefault(key, []).append(checks)
    table = {key: _any_of(alternatives) for key, alternatives in by_key.items()}
    return table, _any_of([always]) if always else None


def by_op(table: Mapping[int, OpRule], otherwise: Mapping[int, OpRule]) -> dict[int, OpRule]:
    """Rules by op key, and `otherwise` those by ggml's op, as rules by ggml's op; UNARY and GLU have many keys."""
    rules = {**otherwise, **{key: rule for key, rule in table.items() if key < len(Op)}}
    for family in (int(Op.UNARY), int(Op.GLU)):
        rules[family] = _of_family(table, rules.get(family, _yes))
    return rules


def _of_family(table: Mapping[int, OpRule], otherwise: OpRule) -> OpRule:
    return lambda op: table.get(op.key, otherwise)(op)


def _yes(_: Tensor) -> str | None:
    return None


def both(first: OpRule | None, second: OpRule | None) -> OpRule | None:
    """A rule that asks two, of which either may be missing."""
    if first is None or second is None:
        return first or second
    one, other = first, second

    def rule(op: Tensor) -> str | None:
        refusal = one(op)
        return other(op) if refusal is None else refusal

    return rule


def _any_of(alternatives: Sequence[Sequence[_Check]]) -> OpRule:
    def rule(op: Tensor) -> str | None:
        furthest, reason = -1, ""
        for checks in alternatives:
            for passed, check in enumerate(checks):
                refusal = check(op)
                if refusal is not None:
                    if passed > furthest:
                        furthest, reason = passed, refusal
                    break
            else:
                return None
        return reason

    return rule


def _checks(rule: SupportRule) -> Iterator[_Check]:
    for operand, conditions in rule.operands:
        for i in range(MAX_SRC) if operand == EVERY_SOURCE else (operand,):
            yield from _of_operand(i, conditions)
    for of, alike, what in ((rule.same_type, _same_type, "type"), (rule.same_shape, are_same_shape, "shape")):
        for i in of[1:]:
            yield _alike(of[0], i, alike, f"{name_of(of[0])} and {name_of(i)} differ in {what}")


def name_of(operand: int) -> str:
    """An operand in words."""
    return "the result" if operand == RESULT else f"source {operand}"


def _of_operand(i: int, conditions: Conditions) -> Iterator[_Check]:
    what = name_of(i)
    mark = "" if i == RESULT else str(i)
    if conditions.present is not None:
        yield _presence(i, conditions.present, f"{what} is {'missing' if conditions.present else 'there'}")
    if conditions.types is not None:
        names = _or([t.name for t in conditions.types])
        yield _on(i, frozenset(conditions.types).__contains__, f"{what} is {{type{mark}}}, not {names}", _type)
    if conditions.contiguous is not None:
        test, reason = _CONTIGUOUS[conditions.contiguous]
        yield _on(i, test, reason.format(what=what), _itself)
    for number, bounds in conditions.numbers:
        yield from _bounded(i, number, bounds, what, mark)


def _itself(t: Tensor) -> Tensor:
    return t


def _type(t: Tensor) -> DType:
    return t.type


def _same_type(a: Tensor, b: Tensor) -> bool:
    return a.type is b.type


def _bounded(i: int, number: Number, bounds: Bounds, what: str, mark: str) -> Iterator[_Check]:
    said, get = _number(number, what, mark)
    low, high, multiple, among = bounds
    if low is not None:
        yield _on(i, lambda n: n >= low, f"{said}, less than {low}", get)
    if high is not None:
        yield _on(i, lambda n: n <= high, f"{said}, more than {high}", get)
    if multiple is not None:
        yield _on(i, lambda n: n % multiple == 0, f"{said}, no multiple of {multiple}", get)
    if among is not None:
        yield _on(i, among.__contains__, f"{said}, not {_or(map(str, among))}", get)


def _number(number: Number, what: str, mark: str) -> tuple[str, Callable[[Tensor], int]]:
    """What is said of a number, and how it is had."""
    if number == "rows":
        return f"the number of rows of {what} is {{rows{mark}}}", nrows
    if number == "bytes":
        return f"the size of {what} is {{bytes{mark}}} bytes", lambda t: t.nbytes
    kind, d = number[:2], int(number[2])
    said = f"{kind}[{d}] of {what} is {{{kind}{mark}[{d}]}}"
    return said, (lambda t: t.ne[d]) if kind == "ne" else (lambda t: t.nb[d])


def _or(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _operand(op: Tensor, i: int) -> Tensor | None:
    return op if i == RESULT else op.src[i] if i < len(op.src) else None


def _presence(i: int, wanted: bool, reason: str) -> _Check:
    return lambda op: None if (_operand(op, i) is not None) is wanted else reason


def _on(i: int, test: Callable[[T], bool], reason: str, get: Callable[[Tensor], T]) -> _Check:
    def check(op: Tensor) -> str | None:
        t = _operand(op, i)
        return None if t is None or test(get(t)) else reason

    return check


def _alike(i: int, j: int, alike: Callable[[Tensor, Tensor], bool], reason: str) -> _Check:
    def check(op: Tensor) -> str | None:
        a, b = _operand(op, i), _operand(op, j)
        return None if a is None or b is None or alike(a, b) else reason

    return check
