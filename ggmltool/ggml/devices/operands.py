"""The operands of an op as rules name them: sources by number, and the result."""

from __future__ import annotations

from ggmltool.ggml.tensor import Tensor

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
