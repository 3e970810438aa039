"""How operands are asked: the functions inside rules. Planning calls some for every node, so they are flat.

Of a source that is not there nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.conditions import Number
from ggmltool.ggml.devices.operands import RESULT
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Tensor, nrows


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


def of_type_pairs(i: int, j: int, pairs: Mapping[DType, frozenset[DType]], reason: str) -> OpRule:
    """The type of operand `j` is one of those that `pairs` has for the type of source `i`."""

    def ask(op: Tensor) -> str | None:
        src = op.src
        n = len(src)
        a = src[i] if i < n else None
        b = op if j == RESULT else src[j] if j < n else None
        return None if a is None or b is None or b.type in pairs.get(a.type, ()) else reason

    return ask


def number_test(number: Number, test: Callable[[int], bool]) -> Callable[[Tensor], bool]:
    """Whether `test` holds for a number of a tensor."""
    if number == "rows":
        return lambda t: test(nrows(t))
    if number == "bytes":
        return lambda t: test(t.nbytes)
    d = int(number[2])
    return (lambda t: test(t.ne[d])) if number.startswith("ne") else (lambda t: test(t.nb[d]))
