"""A device that answers as a real one did: the cases of `test-backend-ops support`, and what follows from them.

A node is compared with the cases of its op, types and layout (all sources contiguous, or not). One of just its shapes
decides; else all of them, where they agree; else those whose rows (ne[0] of each source) are nearest. More yes than no
is a yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import NamedTuple

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.conditions import RESULT, SupportRule, operand
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, Tensor, is_contiguous


class Basis(StrEnum):
    """What an answer rests on."""

    EXACT = "exact"
    TYPES = "types"
    NEAREST = "nearest"
    NO_CASE = "no_case"


class CaseOperand(NamedTuple):
    """What a case says of source `slot` (-1: the result); None if it says nothing."""

    slot: int
    type: DType | None
    ne: Dims | None


class Case(NamedTuple):
    """One answer; `plain`: all sources are contiguous."""

    operands: tuple[CaseOperand, ...]
    plain: bool
    supported: bool


class CaseAnswer(NamedTuple):
    """What the cases say of an op: `yes` of `of` cases say that it is supported."""

    basis: Basis
    yes: int
    of: int

    @property
    def supported(self) -> bool:
        return 2 * self.yes > self.of


@dataclass(frozen=True, slots=True)
class SupportCases:
    """The cases of a device, by op key; `file` is where they come from, `backend` whose they are."""

    file: str
    backend: str
    cases: tuple[tuple[int, tuple[Case, ...]], ...]

    def rules(self) -> dict[int, OpRule]:
        """The rule of each op key that has cases."""
        return {key: _rule(cases) for key, cases in self.cases}

    def answer(self, op: Tensor) -> CaseAnswer:
        """What an answer rests on."""
        return _answer(next((cases for key, cases in self.cases if key == op.key), ()), op)


def _rule(cases: Sequence[Case]) -> OpRule:
    known: dict[object, str | None] = {}

    def rule(op: Tensor) -> str | None:
        seen = (op.type, op.ne, *((s.type, s.ne, is_contiguous(s)) for s in op.src if s is not None))
        if seen not in known:
            answer = _answer(cases, op)
            known[seen] = None if answer.supported else _reason(answer)
        return known[seen]

    return rule


def _reason(answer: CaseAnswer) -> str:
    match answer.basis:
        case Basis.NO_CASE:
            return "test-backend-ops has no case with these types"
        case Basis.EXACT:
            return "not supported in the same case of test-backend-ops"
        case Basis.TYPES:
            return f"not supported in test-backend-ops with these types, {answer.yes} of {answer.of} cases"
    return f"supported in {answer.yes} of {answer.of} cases of test-backend-ops with these types and the nearest rows"


def _answer(cases: Sequence[Case], op: Tensor) -> CaseAnswer:
    alike = [case for case in cases if _has_types(case, op)]
    if not alike:
        return CaseAnswer(Basis.NO_CASE, 0, 0)
    plain = all(is_contiguous(s) for s in op.src if s is not None)
    alike = [case for case in alike if case.plain is plain] or alike
    exact = [case for case in alike if _has_shapes(case, op)]
    if exact:
        return _counted(Basis.EXACT, exact)
    answer = _counted(Basis.TYPES, alike)
    if answer.yes in (0, answer.of):
        return answer
    least = min(_distance(case, op) for case in alike)
    return _counted(Basis.NEAREST, [case for case in alike if _distance(case, op) <= least])


def _counted(basis: Basis, cases: Sequence[Case]) -> CaseAnswer:
    return CaseAnswer(basis, sum(case.supported for case in cases), len(cases))


def _has_types(case: Case, op: Tensor) -> bool:
    for slot, type, _ in case.operands:
        t = operand(op, slot)
        if type is not None and (t is None or t.type is not type):
            return False
    return True


def _has_shapes(case: Case, op: Tensor) -> bool:
    """Whether the case says the shapes of all sources that it names, and they are those of the op."""
    for slot, _, ne in case.operands:
        t = operand(op, slot)
        if slot != RESULT and (ne is None or t is None or t.ne != ne):
            return False
    return bool(case.operands)


def _distance(case: Case, op: Tensor) -> float:
    """How far the rows of the sources are from those of the case, as factors; a shape it does not say is far."""
    far = 0.0
    for slot, _, ne in case.operands:
        t = operand(op, slot)
        if slot != RESULT:
            far += abs(log(max(t.ne[0], 1) / max(ne[0], 1))) if t is not None and ne is not None else log(2.0)
    return far


@dataclass(frozen=True, slots=True)
class OwnSupports:
    """What ops a device of one's own has: all but `keys` (`exclude`), or only `keys`, op keys of `ggmltool.ggml.op`.

    `rules` are conditions on some of them. `profile`: ops without rules are as the profile has them, and `keys` say
    nothing. `cases` are the answers of a real device, which decide where no rule does.
    """

    keys: frozenset[int]
    exclude: bool
    rules: tuple[SupportRule, ...] = ()
    profile: bool = False
    cases: SupportCases | None = None
