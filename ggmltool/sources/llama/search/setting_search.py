"""The best placement of one captured model: guesses first, then all that a bound does not rule out, then more room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ggmltool.estimate.records import Rates
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.processes import in_processes
from ggmltool.sources.llama.search.anatomy import Request, Speed, anatomies
from ggmltool.sources.llama.search.candidates import (
    Candidate,
    CandidatePlanner,
    Objective,
    costs_of,
    exact_costs_of,
    least_steps,
    room_of,
    room_step,
)
from ggmltool.sources.llama.search.costs import Costs, Pieces
from ggmltool.sources.llama.search.paths import Bound, Path, Paths
from ggmltool.sources.llama.search.space import Choice, Setting, Space, Vector
from ggmltool.sources.llama.search.tables import Tables

_GUESSES = 12
_RUNNER_UP = 4
"""Plans of what can no more be the best of all."""
_ROOM_PLANS = 24
"""Plans of placements that cost as little as the best and may leave more room."""

_ALONE = 16
"""Paths that are looked at before other processes are started."""
_BATCH = 16
"""Paths of each process that are planned at a time."""


class Best(NamedTuple):
    """Of a setting: the best candidate that fits, else what lacks the least; how many placements there are, how many
    were planned; whether nothing that was left out can cost less than the best of all settings, or fits where nothing
    does.
    """

    setting: Setting
    candidate: Candidate | None
    nearest: Candidate | None
    placements: int
    planned: int
    proved: bool


class Key(NamedTuple):
    """What a candidate came to, less being better: costs and room in the steps in which they are compared, then both
    to the last digit, which tells one from another of those that were planned."""

    costs: Vector
    less_room: int
    exactly: Vector
    less_bytes: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted: an objective, the request that is to be fast, the rates of devices by name, where known."""

    objective: Objective = "fastest"
    request: Request = field(default_factory=Request)
    rates: Mapping[str, Rates] = field(default_factory=dict)


class SettingSearch:
    """The search of one setting, of a model that was captured with it, in at most so many plans. `order` is the place
    of the setting among all.

    `limit` are the costs that another setting comes to: what costs more is of interest as a runner-up only, for which a
    few plans have to do. Plans that are many are made side by side in so many processes, ahead of their turn; what is
    found is the same in any number of them.
    """

    def __init__(
        self,
        placer: Placer,
        setting: Setting,
        order: int,
        space: Space,
        wish: Wish,
        most: int,
        limit: Vector | None = None,
        processes: int = 1,
    ) -> None:
        self.placer, self.space = placer, space
        self.objective, self.request = wish.objective, wish.request
        self.most, self.limit, self.processes = most, limit, processes
        measurer = Measurer(placer)
        speed = Speed(placer, anatomies(placer, wish.request.cached), wish.rates, wish.request)
        self.tables = Tables(placer, space)
        self.planner = CandidatePlanner(measurer, space, speed, setting, order)
        self.costs = Costs(measurer, self.tables, speed)
        self.tried: dict[Choice, Candidate] = {}
        self.paths: dict[Choice, Path] = {}
        self.ahead: dict[Choice, Candidate] = {}
        n = self.tables.n
        given = self.space.layers
        layers = range(n + 1) if given is None else sorted({n if m < 0 else min(m, n) for m in given})
        self.firsts = [n - m for m in layers if m == 0 or self.tables.gpus]

    def best(self) -> Best:
        """Search. Raises PlaceError for options that are wrong."""
        bound = self._pieces()
        paths = Paths(bound, self.firsts)
        self._guess(bound)
        proved = self._rule_out(paths)
        if not self.tried:
            self._planned(self._least(bound))
        best = min((c for c in self.tried.values() if c.fits), key=self.key, default=None)
        if best is not None and proved:
            best = self._roomiest(bound, best)
        nearest = max(self.tried.values(), key=lambda c: c.room, default=None)
        return Best(self.planner.setting, best, nearest, paths.number(), len(self.tried), proved)

    def key(self, candidate: Candidate) -> Key:
        seconds = candidate.seconds.of(self.request)
        exactly = exact_costs_of(self.objective, candidate, seconds)
        return Key(costs_of(self.objective, candidate, seconds), -room_of(candidate), exactly, -candidate.room)

    def _pieces(self, extra: Mapping[int, int] | None = None, spare: int = 0) -> Pieces:
        return Pieces(self.placer, self.costs, self.space, self.objective, extra, spare)

    def _least(self, pieces: Pieces) -> Path:
        """As little on GPUs as is allowed, shared equally: what to tell of where a bound rules out everything."""
        first, n, k = max(self.firsts), self.tables.n, len(self.tables.gpus)
        ends = pieces.ends(first) or [first + (n - first) * (i + 1) // k for i in range(k)]
        starts = [first, *ends]
        spilled = [pieces.ways(a, b)[-1][-1] for a, b in zip(starts, ends, strict=False)]
        return Path(first, tuple(ends), tuple(spilled), (), 0, 0.0)

    def _guess(self, bound: Pieces) -> None:
        """Plan what is best if compute buffers are as much larger than the bound as in the plans so far.

        After a few plans the guess comes back to what was planned: then that is likely the best.
        """
        extra: dict[int, int] = {}
        for _ in range(_GUESSES):
            _, path = next(iter(Paths(self._pieces(extra), self.firsts)), (None, None))
            if path is None:
                break
            choice = self.choice(path)
            if choice in self.tried:
                break
            extra = self._more(bound, path, self._planned(path))

    def _more(self, bound: Pieces, path: Path, candidate: Candidate) -> dict[int, int]:
        """What each GPU of a plan needs beyond its bound."""
        out = {}
        starts = (path.first, *path.ends)
        for i, gpu in enumerate(self.tables.gpus):
            if gpu in candidate.left:
                room = candidate.left[gpu] - candidate.margins.get(gpu, 0)
                out[i] = max(0, int(bound.room(i, starts[i], path.ends[i], path.spilled[i])) - room)
        return out

    def _rule_out(self, paths: Paths) -> bool:
        """Plan all that may cost less than the best so far; whether that came to an end."""
        best = self._fewest()
        beyond = 0
        for bound, path in self._planned_ahead(iter(paths)):
            least = least_steps(bound.costs)
            if best is not None and least >= best:
                return True
            choice = self.choice(path)
            if choice in self.tried:
                continue
            if self.limit is not None and least > self.limit:
                beyond += 1
                if best is not None and beyond > _RUNNER_UP:
                    return True
            if len(self.tried) >= self.most:
                return False
            candidate = self._planned(path)
            if candidate.fits and (best is None or self.key(candidate).costs < best):
                best = self.key(candidate).costs
        return True

    def _fewest(self) -> Vector | None:
        """The costs of the best so far."""
        return min((self.key(c).costs for c in self.tried.values() if c.fits), default=None)

    def _planned_ahead(self, paths: Iterator[tuple[Bound, Path]]) -> Iterator[tuple[Bound, Path]]:
        """The same paths; where they are many, several processes have planned the next ones before they are given."""
        yield from islice(paths, _ALONE)
        while self.processes > 1 and (batch := list(islice(paths, _BATCH * self.processes))):
            best = self._fewest()
            choices = [self.choice(path) for bound, path in batch if best is None or least_steps(bound.costs) < best]
            new = [choice for choice in dict.fromkeys(choices) if choice not in self.tried]
            if len(new) > 1:
                self.ahead = dict(zip(new, in_processes(self.planner.plan, new, self.processes), strict=True))
            yield from batch
        yield from paths

    def _roomiest(self, bound: Pieces, best: Candidate) -> Candidate:
        """The candidate that costs as little as the best and leaves most room, as far as a few plans find it.

        Guesses ask for ever more; what is left is ruled out a step of room at a time.
        """
        if not room_step(best) or (self.limit is not None and self.key(best).costs > self.limit):
            return best
        steps, growing = 1, True
        while steps:
            roomier = self._roomier(best, steps, self._more(bound, self.paths[best.choice], best), 1)
            growing = growing and roomier is not None
            best = roomier or best
            steps = 2 * steps if growing else steps // 2
        while (roomier := self._roomier(best, 1, {}, _ROOM_PLANS)) is not None:
            best = roomier
        return best

    def _roomier(self, best: Candidate, steps: int, extra: Mapping[int, int], most: int) -> Candidate | None:
        """The first, in so many plans, that costs as little and leaves so many steps of room more; None if none does.

        GPUs need so much `extra` beyond the bound.
        """
        costs, room = self.key(best).costs, room_of(best) + steps
        paths = Paths(self._pieces(extra, room * room_step(best)), self.firsts)
        for bound, path in paths:
            if least_steps(bound.costs) > costs or not most:
                return None
            candidate = self.tried.get(self.choice(path))
            if candidate is None:
                most -= 1
                candidate = self._planned(path)
            if candidate.fits and self.key(candidate).costs <= costs and room_of(candidate) >= room:
                return candidate
        return None

    def choice(self, path: Path) -> Choice:
        return self.tables.choice(path.counts, path.spilled)

    def _planned(self, path: Path) -> Candidate:
        choice = self.choice(path)
        self.paths[choice] = path
        known = self.ahead.get(choice)
        found = self.tried[choice] = self.planner.plan(choice) if known is None else known
        return found
