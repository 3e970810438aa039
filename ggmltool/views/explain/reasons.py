"""Why a tensor is on its backend, as the sentence that a person looks for: the reason first, ggml's label behind."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.why import Why
from ggmltool.inspect.decisions import Reason, TurnedDown
from ggmltool.views.explain.words import words

_NOT_BY_CHOICE = frozenset((Why.NEIGHBOR, Why.MOST_SOURCES, Why.ONLY_ONE, Why.FIRST_ABLE))
"""What settles a tensor that could be anywhere: then the reason is who was turned down, if anybody was."""

_WORTH_SAYING = frozenset((Why.SMALL_BATCH, Why.OFFLOAD_OFF))
"""Why a backend of higher priority that supports an op was passed over, where that is what people look for."""


def reason_sentence(reason: Reason) -> str:
    """`t is on CPU (3.best): ROCm0 does not support ARGSORT; CPU is the next that does.`"""
    settled = reason.settled
    if settled is None:
        why = "; ".join([*map(refusal_text, reason.turned_down), *_cannot_use(reason)])
        return f"{reason.tensor} has no backend" + (f": {why}." if why else ".")
    return f"{reason.tensor} is on {settled.backend} ({settled.cause}): {reason_text(reason)}."


def reason_text(reason: Reason) -> str:
    """Why a tensor is on its backend, without naming either; "" if it has none."""
    settled = reason.settled
    if settled is None:
        return ""
    refusals = [refusal_text(t) for t in reason.turned_down]
    if not refusals or settled.why not in _NOT_BY_CHOICE:
        more = refusals if settled.why in (Why.WEIGHT, Why.MEMORY) else []
        return "; ".join(dict.fromkeys([words(settled), *more, *_passed_over(reason)]))
    if reason.is_next:
        return "; ".join([*refusals, f"{settled.backend} is the next that does"])
    return "; ".join([words(settled), *refusals])


def refusal_text(refused: TurnedDown) -> str:
    """`GPU0 does not support SILU`, with the condition if there is one."""
    if refused.lacks or not refused.why:
        return f"{refused.backend} does not support {refused.op}"
    return f"{refused.backend} does not support this {refused.op} ({refused.why})"


def _passed_over(reason: Reason) -> Iterable[str]:
    return (words(passed) for passed in reason.passed_over if passed.why in _WORTH_SAYING)


def _cannot_use(reason: Reason) -> Iterable[str]:
    return (words(passed) for passed in reason.passed_over if passed.why is Why.BUFT)
