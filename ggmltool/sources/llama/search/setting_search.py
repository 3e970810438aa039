"""The best placement of one captured model: guesses first, then all that a bound does not rule out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.costs import Costs
from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.objective import Objective, costs_of, rounded
from ggmltool.sources.llama.search.paths import Bound, Path, Paths
from ggmltool.sources.llama.search.paths import Costs as Vector
from ggmltool.sources.llama.search.pieces import Pieces
from ggmltool.sources.llama.search.planning import Planner
from ggmltool.sources.llama.search.speed import Request
from ggmltool.sources.llama.search.tables import Tables

_GUESSES = 12
_RUNNER_UP = 4
"""Plans of what can no more be the best of all."""


class Best(NamedTuple):
    """The best candidate of a setting that fits, else what lacks the least; how many placements there are, and how many
    of them were planned; whether nothing that was left out can be the best of all settings, or fits where nothing does.
    """

    candidate: Candidate | None
    nearest: Candidate | None
    placements: int
    planned: int
    proved: bool


class SettingSearch:
    """The search of one setting, in at most so many plans.

    `limit` are the costs that another setting comes to: what costs more is of interest as a runner-up only, for which a
    few plans have to do.
    """

    def __init__(
        self,
        planner: Planner,
        costs: Costs,
        objective: Objective,
        request: Request,
        most: int,
        limit: Vector | None = None,
    ) -> None:
        self.planner = planner
        self.placer = planner.measurer.placer
        self.tables: Tables = costs.tables
        self.costs = costs
        self.space = planner.space
        self.objective = objective
        self.request = request
        self.most = most
        self.limit = limit
        self.tried: dict[Choice, Candidate] = {}
        n = self.tables.n
        given = self.space.layers
        layers = range(n + 1) if given is None else sorted({n if m < 0 else min(m, n) for m in given})
        self.firsts = [n - m for m in layers if m == 0 or self.tables.gpus]

    def best(self) -> Best:
        """Search. Raises PlaceError for options that are wrong."""
        bound = Pieces(self.placer, self.costs, self.space, self.objective)
        paths = Paths(bound, self.firsts, rounded_costs)
        self._guess(bound)
        proved = self._rule_out(paths)
        if not self.tried:
            self._planned(self._least(bound))
        fitting = [c for c in self.tried.values() if c.fits]
        nearest = max(self.tried.values(), key=lambda c: c.room, default=None)
        return Best(min(fitting, key=self.key, default=None), nearest, paths.number(), len(self.tried), proved)

    def key(self, candidate: Candidate) -> Bound:
        """What a candidate came to, to be compared with bounds."""
        return Bound(costs_of(self.objective, candidate, candidate.seconds.of(self.request)), -candidate.room)

    def _least(self, pieces: Pieces) -> Choice:
        """As little on GPUs as is allowed, shared equally: what to tell of where a bound rules out everything."""
        first, n, k = max(self.firsts), self.tables.n, len(self.tables.gpus)
        ends = pieces.ends(first) or [first + (n - first) * (i + 1) // k for i in range(k)]
        starts = [first, *ends]
        counts = [end - start for start, end in zip(starts, ends, strict=False)]
        return self.tables.choice(counts, [pieces.units(a, b) for a, b in zip(starts, ends, strict=False)])

    def _guess(self, bound: Pieces) -> None:
        """Plan what is best if compute buffers are as much larger than the bound as in the plans so far.

        After a few plans the guess comes back to what was planned: then that is likely the best.
        """
        extra: dict[int, int] = {}
        for _ in range(_GUESSES):
            guess = Pieces(self.placer, self.costs, self.space, self.objective, extra)
            _, path = next(iter(Paths(guess, self.firsts, rounded_costs)), (None, None))
            if path is None:
                break
            choice = self.choice(path)
            if choice in self.tried:
                break
            candidate = self._planned(choice)
            extra = {gpu: max(0, n) for gpu, n in self._more(bound, path, candidate).items()}

    def _more(self, bound: Pieces, path: Path, candidate: Candidate) -> Mapping[int, int]:
        """What each GPU of a plan needs beyond its bound."""
        out = {}
        starts = (path.first, *path.ends)
        for i, gpu in enumerate(self.tables.gpus):
            if gpu in candidate.left:
                room = candidate.left[gpu] - candidate.margins.get(gpu, 0)
                out[i] = int(bound.room(i, starts[i], path.ends[i], path.spilled[i])) - room
        return out

    def _rule_out(self, paths: Paths) -> bool:
        """Plan all that may be better than the best so far; whether that came to an end."""
        best = min((self.key(c) for c in self.tried.values() if c.fits), default=None)
        beyond = 0
        for bound, path in paths:
            if best is not None and bound >= best:
                return True
            choice = self.choice(path)
            if choice in self.tried:
                continue
            if self.limit is not None and bound.costs > self.limit:
                beyond += 1
                if best is not None and beyond > _RUNNER_UP:
                    return True
            if len(self.tried) >= self.most:
                return False
            candidate = self._planned(choice)
            if candidate.fits and (best is None or self.key(candidate) < best):
                best = self.key(candidate)
        return True

    def choice(self, path: Path) -> Choice:
        return self.tables.choice(path.counts, path.spilled)

    def _planned(self, choice: Choice) -> Candidate:
        found = self.tried[choice] = self.planner.plan(choice)
        return found


def rounded_costs(costs: Vector) -> Vector:
    """Costs as they are compared: the last are seconds."""
    return (*costs[:-1], rounded(costs[-1]))
