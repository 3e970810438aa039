"""What is wanted most of a placement: the order of candidates."""

from __future__ import annotations

from math import floor, log10
from typing import Literal

from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.paths import Costs as Vector

Objective = Literal["fastest", "longest", "smallest", "fewest-splits"]

OBJECTIVES: tuple[Objective, ...] = ("fastest", "longest", "smallest", "fewest-splits")
"""fastest: the fewest seconds of a request. longest: the longest context, then the fewest seconds. smallest: the most
weights on GPUs, then the fewest bytes there. fewest-splits: the fewest splits of all graphs. Ties: the fewest seconds,
the longest context, the most sequences, then the most memory left on the fullest device.
"""

_DIGITS = 6
"""Digits of seconds that count: sums in another order differ in the last."""


def rounded(seconds: float) -> float:
    """Seconds as they are compared.

    >>> rounded(0.0123456789), rounded(0.0)
    (0.0123457, 0.0)
    """
    return round(seconds, _DIGITS - 1 - floor(log10(seconds))) if seconds > 0 else 0.0


def costs_of(objective: Objective, candidate: Candidate, seconds: float) -> Vector:
    """What a candidate costs, the most important first, among those of one setting."""
    gpus = [needs for device, needs in candidate.needs.items() if device in candidate.gpus]
    match objective:
        case "smallest":
            off = sum(n.weights for device, n in candidate.needs.items() if device not in candidate.gpus)
            return (off, sum(n.total for n in gpus), rounded(seconds))
        case "fewest-splits":
            return (candidate.splits, rounded(seconds))
    return (rounded(seconds),)


def rank(objective: Objective, candidate: Candidate, seconds: float) -> tuple[object, ...]:
    """The place of a candidate among those of all settings; less is better."""
    wishes = (-candidate.n_ctx, -candidate.n_seq)
    costs = costs_of(objective, candidate, seconds)
    first = (wishes[0], *costs) if objective == "longest" else costs
    return (first, wishes, candidate.order, -candidate.room)
