"""What is wanted most of a placement: the order of candidates."""

from __future__ import annotations

from math import floor, log, log1p, log10
from typing import Literal

from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.paths import Costs as Vector

Objective = Literal["fastest", "longest", "smallest", "fewest-splits"]

OBJECTIVES: tuple[Objective, ...] = ("fastest", "longest", "smallest", "fewest-splits")
"""fastest: the fewest seconds of a request. longest: the longest context, then the fewest seconds. smallest: the most
weights on GPUs, then the fewest bytes there. fewest-splits: the fewest splits of all graphs. Ties: the fewest seconds,
the longest context, the most sequences, then the most memory left on the fullest device. Seconds that differ by less
than a step of 1 % are equal, and so is memory within a step of a 64th of the smallest device.
"""

_SECONDS_STEP = 0.01
_ROOM_STEPS = 64

_DIGITS = 6
"""Digits of seconds that count: sums in another order differ in the last."""


def rounded(seconds: float) -> float:
    """Seconds as they are compared.

    >>> rounded(0.0123456789), rounded(0.0)
    (0.0123457, 0.0)
    """
    return round(seconds, _DIGITS - 1 - floor(log10(seconds))) if seconds > 0 else 0.0


def step_of(seconds: float) -> float:
    """The number of the step of 1 % that seconds are in: estimates are not so exact that less would tell anything.

    >>> step_of(1.005), step_of(1.015), step_of(0.0)
    (0, 1, -inf)
    """
    return floor(log(seconds) / log1p(_SECONDS_STEP)) if seconds > 0 else float("-inf")


def least_steps(costs: Vector) -> Vector:
    """Costs as those of candidates are compared, the last being seconds: no more than those that they are a bound of.

    >>> least_steps((3, 1.015)), least_steps((3, 1.01))
    ((3, 1), (3, 0))
    """
    return (*costs[:-1], step_of(costs[-1] * (1 - _SLACK)))


_SLACK = 1e-5
"""By how much sums of seconds may differ in another order and as they are rounded."""


def exact_costs_of(objective: Objective, candidate: Candidate, seconds: float) -> Vector:
    """What a candidate costs, the most important first, among those of one setting."""
    gpus = [needs for device, needs in candidate.needs.items() if device in candidate.gpus]
    match objective:
        case "smallest":
            off = sum(n.weights for device, n in candidate.needs.items() if device not in candidate.gpus)
            return (off, sum(n.total for n in gpus), seconds)
        case "fewest-splits":
            return (candidate.splits, seconds)
    return (seconds,)


def costs_of(objective: Objective, candidate: Candidate, seconds: float) -> Vector:
    """The same as it is compared: seconds in steps of 1 %."""
    costs = exact_costs_of(objective, candidate, seconds)
    return (*costs[:-1], step_of(costs[-1]))


def room_step(candidate: Candidate) -> int:
    """Bytes of a step of room: a 64th of the smallest device; 0 if no memory is known."""
    memory = [left + candidate.needs[device].total for device, left in candidate.left.items()]
    return max(min(memory) // _ROOM_STEPS, 1) if memory else 0


def room_of(candidate: Candidate) -> int:
    """The steps of room that a candidate leaves on the fullest device."""
    step = room_step(candidate)
    return candidate.room // step if step else 0


def rank(objective: Objective, candidate: Candidate, seconds: float) -> tuple[object, ...]:
    """The place of a candidate among those of all settings; less is better."""
    wishes = (-candidate.n_ctx, -candidate.n_seq)
    costs = costs_of(objective, candidate, seconds)
    first = (wishes[0], *costs) if objective == "longest" else costs
    return (first, wishes, candidate.order, -room_of(candidate))
