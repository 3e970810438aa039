"""Pieces that the op rules of several devices are made of."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ggmltool.ggml.device import OpRule
from ggmltool.ggml.devices.conditions import RESULT, Conditions, Contiguity, SupportRule
from ggmltool.ggml.dtypes import F16, F32, TYPES, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_contiguous_rows

F32_OR_F16 = frozenset((F32, F16))
FLOATS = frozenset((F32, F16, TYPES["bf16"]))

NOT_CONTIGUOUS = tuple(f"source {i} is not contiguous" for i in range(4))
ROWS_NOT_CONTIGUOUS = tuple(f"rows of source {i} are not contiguous" for i in range(4))


_EXPRESSED: dict[OpRule, SupportRule] = {}
"""The rules that can also be written as a scenario writes them, as such a rule (for no op yet)."""


def expressed(
    *operands: int,
    types: Collection[DType] | None = None,
    contiguous: Contiguity | None = None,
    same_type: tuple[int, ...] = (),
    same_shape: tuple[int, ...] = (),
) -> Callable[[OpRule], OpRule]:
    """Say of a rule what it asks, so that `as_scenario` can write it out."""
    asked = Conditions(None if types is None else tuple(sorted(types, key=lambda t: t.id)), contiguous)

    def register(rule: OpRule) -> OpRule:
        _EXPRESSED[rule] = SupportRule(None, tuple((i, asked) for i in operands), same_type, same_shape)
        return rule

    return register


def as_scenario(rule: OpRule) -> SupportRule | None:
    """The rule as a scenario writes it (for no op yet); None for one that asks what a scenario's rules cannot."""
    return _EXPRESSED.get(rule)


def types(names: str) -> frozenset[DType]:
    """The types of these names."""
    return frozenset(TYPES[name] for name in names.split())


def source(op: Tensor, i: int) -> Tensor:
    """Source `i` of an op; the op itself where the slot is empty."""
    t = op.src[i] if i < len(op.src) else None
    return t if t is not None else op


def optional(op: Tensor, i: int) -> Tensor | None:
    """Source `i` of an op, None where the slot is empty."""
    return op.src[i] if i < len(op.src) else None


def word(op: Tensor, i: int) -> int:
    """Word `i` of an op's parameters."""
    return op.op_params[i] if i < len(op.op_params) else 0


@expressed()
def yes(_: Tensor) -> str | None:
    """The rule of an op that runs always."""
    return None


def f32_sources(*slots: int) -> OpRule:
    """These sources are f32."""
    reasons = tuple(f"source {i} is {{type{i}}}, not f32" for i in range(8))

    @expressed(*slots, types=(F32,))
    def rule(op: Tensor) -> str | None:
        for i in slots:
            if source(op, i).type is not F32:
                return reasons[i]
        return None

    return rule


@expressed(RESULT, types=(F32,))
def f32_result(op: Tensor) -> str | None:
    """The result is f32."""
    return None if op.type is F32 else "the result is {type}, not f32"


@expressed(0, types=F32_OR_F16)
def half_or_full(op: Tensor) -> str | None:
    """Source 0 is f32 or f16."""
    return None if source(op, 0).type in F32_OR_F16 else "source 0 is {type0}, neither f32 nor f16"


@expressed(same_type=(0, RESULT))
def same_type(op: Tensor) -> str | None:
    """The result has the type of source 0."""
    return None if op.type is source(op, 0).type else "the result is {type} and source 0 {type0}"


def contiguous(*slots: int) -> OpRule:
    """These sources are contiguous."""

    @expressed(*slots, contiguous="all")
    def rule(op: Tensor) -> str | None:
        for i in slots:
            if not is_contiguous(source(op, i)):
                return NOT_CONTIGUOUS[i]
        return None

    return rule


@expressed(RESULT, contiguous="all")
def contiguous_result(op: Tensor) -> str | None:
    """The result is contiguous."""
    return None if is_contiguous(op) else "the result is not contiguous"


def contiguous_rows(*slots: int) -> OpRule:
    """The rows of these sources are contiguous."""

    @expressed(*slots, contiguous="rows")
    def rule(op: Tensor) -> str | None:
        for i in slots:
            if not is_contiguous_rows(source(op, i)):
                return ROWS_NOT_CONTIGUOUS[i]
        return None

    return rule


def every(*rules: OpRule) -> OpRule:
    """All of these; the reason is that of the first that says no."""

    def rule(op: Tensor) -> str | None:
        for part in rules:
            refusal = part(op)
            if refusal is not None:
                return refusal
        return None

    together = _together([as_scenario(part) for part in rules])
    if together is not None:
        _EXPRESSED[rule] = together
    return rule


def _together(parts: list[SupportRule | None]) -> SupportRule | None:
    """One rule that asks all of these; None where one is unknown, or two ask the same of an operand."""
    out = SupportRule(None)
    for part in parts:
        if part is None or (part.same_type and out.same_type) or (part.same_shape and out.same_shape):
            return None
        operands = dict(out.operands)
        for i, asked in part.operands:
            had = operands.get(i, Conditions())
            if (asked.types and had.types) or (asked.contiguous and had.contiguous):
                return None
            operands[i] = Conditions(asked.types or had.types, asked.contiguous or had.contiguous)
        same_type, same_shape = part.same_type or out.same_type, part.same_shape or out.same_shape
        out = SupportRule(None, tuple(operands.items()), same_type, same_shape)
    return out


def ops(names: str) -> frozenset[int]:
    """The numbers of the ops of these names."""
    return frozenset(int(Op[name]) for name in names.split())
