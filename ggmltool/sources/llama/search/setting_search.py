"""The best placement of one captured model: guesses first, then all that a bound does not rule out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.costs import Costs
from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.objective import Objective, costs_of, rounded
from ggmltool.sources.llama.search.paths import Bound, Path, Paths
from ggmltool.sources.llama.search.paths import Costs as Vector
from ggmltool.sources.llama.search.pieces import Pieces
from ggmltool.sources.llama.search.space import Space
from ggmltool.sources.llama.search.speed import Request
from ggmltool.sources.llama.search.tables import Tables

_GUESSES = 12

Plan = Callable[[Sequence[Choice]], Sequence[Candidate]]
"""Plans choices, several at a time."""


class Best(NamedTuple):
    """The best candidate of a setting that fits, else what lacks the least; how many placements there are; whether
    nothing that was left out can be better.
    """

    candidate: Candidate | None
    nearest: Candidate | None
    placements: int
    proved: bool


class SettingSearch:
    """The search of one setting. `most` is how many plans it may take, `width` how many are made at a time."""

    def __init__(
        self,
        measurer: Measurer,
        costs: Costs,
        space: Space,
        objective: Objective,
        request: Request,
        plan: Plan,
        most: int,
        width: int,
    ) -> None:
        self.placer = measurer.placer
        self.tables: Tables = costs.tables
        self.costs = costs
        self.space = space
        self.objective = objective
        self.request = request
        self.plan = plan
        self.most = most
        self.width = width
        self.tried: dict[Choice, Candidate] = {}
        n = self.tables.n
        layers = range(n + 1) if space.layers is None else sorted({n if m < 0 else min(m, n) for m in space.layers})
        self.firsts = [n - m for m in layers if m == 0 or self.tables.gpus]

    def best(self) -> Best:
        """Search. Raises PlaceError for options that are wrong."""
        bound = Pieces(self.placer, self.costs, self.space, self.objective)
        paths = Paths(bound, self.firsts, rounded_costs)
        self._guess(bound)
        proved = self._rule_out(paths)
        if not self.tried:
            self._planned([self.tables.choice([0] * len(self.tables.gpus), [0] * len(self.tables.gpus))])
        fitting = [c for c in self.tried.values() if c.fits]
        nearest = max(self.tried.values(), key=lambda c: c.room, default=None)
        return Best(min(fitting, key=self.key, default=None), nearest, paths.number(), proved)

    def key(self, candidate: Candidate) -> Bound:
        """What a candidate came to, to be compared with bounds."""
        return Bound(costs_of(self.objective, candidate, candidate.seconds.of(self.request)), -candidate.room)

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
            (candidate,) = self._planned([choice])
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
        promising = self._promising(paths)
        while len(self.tried) < self.most:
            batch = list(islice(promising, self.width))
            batch = [(bound, choice) for bound, choice in batch if best is None or bound < best]
            if not batch:
                return True
            for candidate in self._planned([choice for _, choice in batch]):
                if candidate.fits and (best is None or self.key(candidate) < best):
                    best = self.key(candidate)
        return False

    def _promising(self, paths: Paths) -> Iterator[tuple[Bound, Choice]]:
        for bound, path in paths:
            choice = self.choice(path)
            if choice not in self.tried:
                yield bound, choice

    def choice(self, path: Path) -> Choice:
        return self.tables.choice(path.counts, path.spilled)

    def _planned(self, choices: Sequence[Choice]) -> Sequence[Candidate]:
        found = self.plan(choices)
        self.tried.update(zip(choices, found, strict=True))
        return found


def rounded_costs(costs: Vector) -> Vector:
    """Costs as they are compared: the last are seconds."""
    return (*costs[:-1], rounded(costs[-1]))
