"""What a search finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log, log1p, log10
from typing import Literal, NamedTuple, get_args

from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import Measurement
from ggmltool.sources.llama.place.parts import number_of
from ggmltool.sources.llama.search.anatomy import LayerSeconds, Speed
from ggmltool.sources.llama.search.space import Choice, Setting, Space, Vector


@dataclass(frozen=True, kw_only=True)
class Candidate(Measurement):
    """A placement that was planned, and what it came to.

    `setting` and `choice` are what was asked for; `n_ctx` and `n_seq` what the context has, `n_layer` the layers of the
    model; `order` is the setting's place among all, the most wanted first. `gpus` name the GPUs, those without layers
    too. `seconds` are rough where `rated` is False: the rates of some device are not known.
    """

    setting: Setting
    choice: Choice
    order: int
    n_ctx: int
    n_seq: int
    n_layer: int
    gpus: tuple[str, ...]
    seconds: LayerSeconds
    rated: bool

    @property
    def words(self) -> Mapping[str, str]:
        """The options of the placement, by name."""
        return self.choice.words(self.n_layer)


class Ranked(NamedTuple):
    """The best candidate of a setting, and what it has less of than the most wanted setting."""

    candidate: Candidate
    given_up: tuple[str, ...]


class Counts(NamedTuple):
    """How many placements there are, and how many of them were planned, in settings that were captured; how many
    settings were wanted, and how many of them were ruled out by others.
    """

    placements: int = 0
    planned: int = 0
    captured: int = 0
    settings: int = 0
    ruled_out: int = 0


class SearchProgress(NamedTuple):
    """How far a search is, for somebody who waits: settings that are done, counts, and the best so far."""

    done: int
    counts: Counts
    best: Candidate | None


class SearchResult(NamedTuple):
    """The result of a search.

    `ranked` has the best candidate of every setting that fits, the best of all first. `pareto` are those of them than
    which none has both a longer context and fewer seconds, the fastest first. `nearest` is what lacks the least, where
    nothing fits. `proved`: nothing that was left out can be better but for room; else the search ended at its limit of
    plans.
    """

    ranked: tuple[Ranked, ...]
    pareto: tuple[Candidate, ...]
    nearest: Candidate | None
    counts: Counts
    proved: bool

    @property
    def best(self) -> Candidate | None:
        return self.ranked[0].candidate if self.ranked else None


Objective = Literal["fastest", "longest", "smallest", "fewest-splits"]

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
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


def rounded_costs(costs: Vector) -> Vector:
    """Costs as they are compared: the last are seconds."""
    return (*costs[:-1], rounded(costs[-1]))


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


class CandidatePlanner:
    """One captured model, planned in one choice after the other."""

    def __init__(self, measurer: Measurer, space: Space, speed: Speed, setting: Setting, order: int) -> None:
        self.measurer = measurer
        self.space = space
        self.speed = speed
        self.setting = setting
        self.order = order
        model = measurer.placer.model
        self.n_ctx = number_of(model, "n_ctx", setting.n_ctx)
        self.n_seq = number_of(model, "n_seq_max", max(setting.n_parallel, 1))

    def plan(self, choice: Choice) -> Candidate:
        """What comes of a choice. Raises PlaceError."""
        placer = self.measurer.placer
        n_layer = placer.parts.n_layer
        needs = self.measurer.needs(choice.options(self.space.base, n_layer), self.space.margins)
        return Candidate(
            **needs.measurement(),
            setting=self.setting,
            choice=choice,
            order=self.order,
            n_ctx=self.n_ctx,
            n_seq=self.n_seq,
            n_layer=n_layer,
            gpus=tuple(gpu.name for gpu in placer.gpus),
            seconds=self.speed.seconds(needs.splits),
            rated=self.speed.rated,
        )
