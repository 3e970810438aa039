"""Rules on ops as data, such as a scenario has: conditions on the type, shape and strides of the result and sources.

A device supports an op that has rules where the conditions of one of them hold; the reason of a no is that of the rule
that came furthest. How operands are asked, the functions inside rules, is here too: planning calls some for every node,
so they are flat. Of a source that is not there nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Tensor, nrows

RESULT = -1
EVERY_SOURCE = -2
"""The operands that are no single source."""


def operand(op: Tensor, i: int) -> Tensor | None:
    """The result or a source; None for a source that is not there."""
    return op if i == RESULT else op.src[i] if i < len(op.src) else None


def source(op: Tensor, i: int) -> Tensor:
    """Source `i`; the op itself where the slot is empty."""
    t = op.src[i] if i < len(op.src) else None
    return t if t is not None else op


def optional(op: Tensor, i: int) -> Tensor | None:
    """Source `i`; None where the slot is empty."""
    return op.src[i] if i < len(op.src) else None


def word(op: Tensor, i: int) -> int:
    """Word `i` of an op's parameters."""
    return op.op_params[i] if i < len(op.op_params) else 0


def name_of(i: int) -> str:
    """An operand in words."""
    return "the result" if i == RESULT else f"source {i}"


def field_of(i: int, kind: str, index: str = "") -> str:
    """What stands in a reason for something of an operand, until `Device.refusal` fills it in."""
    return f"{{{kind}{'' if i == RESULT else i}{index}}}"


Contiguity = Literal["all", "from 1", "from 2", "rows"]
Number = Literal["ne0", "ne1", "ne2", "ne3", "nb0", "nb1", "nb2", "nb3", "rows", "bytes"]
"""Numbers of a tensor: elements and strides by dimension, ggml_nrows, ggml_nbytes."""


class NumberBounds(NamedTuple):
    """What a number has to be; None if that does not matter."""

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
    numbers: tuple[tuple[Number, NumberBounds], ...] = ()


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


def in_turn(asks: Sequence[OpRule]) -> OpRule:
    """One after the other, to the first that says no."""
    match asks:
        case [one]:
            return one
        case [one, two]:
            return lambda op: one(op) or two(op)
        case [one, two, three]:
            return lambda op: one(op) or two(op) or three(op)
        case [one, two, three, four]:
            return lambda op: one(op) or two(op) or three(op) or four(op)

    def ask(op: Tensor) -> str | None:
        for part in asks:
            refusal = part(op)
            if refusal is not None:
                return refusal
        return None

    return ask


def in_any_way(ways: Sequence[Sequence[OpRule]]) -> OpRule:
    """One way suffices; else the reason is that of the way that came furthest, of equals that of the first."""
    whole = [in_turn(asks) for asks in ways]

    def ask(op: Tensor) -> str | None:
        for way in whole:
            if way(op) is None:
                return None
        return _furthest(ways, op)

    return ask


def _furthest(ways: Iterable[Sequence[OpRule]], op: Tensor) -> str | None:
    most, reason = -1, None
    for asks in ways:
        for passed, ask in enumerate(asks):
            refusal = ask(op)
            if refusal is not None:
                if passed > most:
                    most, reason = passed, refusal
                break
    return reason


def of_types(i: int, types: frozenset[DType], reason: str) -> OpRule:
    """The type of an operand is one of these."""

    def of_source(op: Tensor) -> str | None:
        src = op.src
        t = src[i] if i < len(src) else None
        return None if t is None or t.type in types else reason

    def of_result(op: Tensor) -> str | None:
        return None if op.type in types else reason

    return of_result if i == RESULT else of_source


def of_one(i: int, test: Callable[[Tensor], bool], reason: str) -> OpRule:
    """Something holds for an operand."""

    def of_source(op: Tensor) -> str | None:
        src = op.src
        t = src[i] if i < len(src) else None
        return None if t is None or test(t) else reason

    def of_result(op: Tensor) -> str | None:
        return None if test(op) else reason

    return of_result if i == RESULT else of_source


def of_two(i: int, j: int, test: Callable[[Tensor, Tensor], bool], reason: str) -> OpRule:
    """Something holds for two operands."""

    def ask(op: Tensor) -> str | None:
        src = op.src
        n = len(src)
        a = op if i == RESULT else src[i] if i < n else None
        b = op if j == RESULT else src[j] if j < n else None
        return None if a is None or b is None or test(a, b) else reason

    return ask


def number_test(number: Number, test: Callable[[int], bool]) -> Callable[[Tensor], bool]:
    """Whether `test` holds for a number of a tensor."""
    if number == "rows":
        return lambda t: test(nrows(t))
    if number == "bytes":
        return lambda t: test(t.nbytes)
    d = int(number[2])
    return (lambda t: test(t.ne[d])) if number.startswith("ne") else (lambda t: test(t.nb[d]))
