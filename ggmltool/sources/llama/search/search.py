"""The search of `fit`: every setting's best placement, and the best of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ggmltool.estimate.records import Rates
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.anatomy import anatomies
from ggmltool.sources.llama.search.captures import Captures
from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.costs import Costs
from ggmltool.sources.llama.search.found import Candidate, Counts, Found, Progress, Ranked, Tensor
from ggmltool.sources.llama.search.objective import Objective, rank
from ggmltool.sources.llama.search.planning import Planner
from ggmltool.sources.llama.search.setting_search import Best, SettingSearch
from ggmltool.sources.llama.search.space import Setting, Space, given_up
from ggmltool.sources.llama.search.speed import Request, Speed
from ggmltool.sources.llama.search.tables import Tables

BIGGEST = 5
"""Tensors of each device that a result tells of."""

MOST_PLANS = 2000
"""Plans of one setting, at most."""

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted: an objective, the request that is to be fast, the rates of devices by name, where known."""

    objective: Objective = "fastest"
    request: Request = field(default_factory=Request)
    rates: Mapping[str, Rates] = field(default_factory=dict)


def search(
    captures: Captures,
    space: Space,
    wish: Wish | None = None,
    *,
    processes: int = 1,
    progress: OnProgress = lambda progress: None,
    most: int = MOST_PLANS,
) -> Found:
    """The best placement of every setting of the space, the best of all first.

    Raises PlaceError for options that are wrong, CaptureError if no setting can be captured.
    """
    return _Search(captures, space, wish or Wish(), processes, progress, most).found()


class _Search:
    """One search, setting by setting."""

    def __init__(
        self, captures: Captures, space: Space, wish: Wish, processes: int, progress: OnProgress, most: int
    ) -> None:
        self.captures = captures
        self.space = space
        self.wish = wish
        self.processes = processes
        self.progress = progress
        self.most = most
        self.settings = space.settings()
        self.counts = Counts(settings=len(self.settings))
        self.bests: list[Best] = []
        self.errors: list[CaptureError] = []
        self.tables: Tables | None = None

    def found(self) -> Found:
        for order, placer in enumerate(self.captures.placers(self.settings)):
            if isinstance(placer, CaptureError):
                self.errors.append(placer)
                continue
            self.counts = self.counts._replace(captured=self.counts.captured + 1)
            self._setting(self.settings[order], order, placer)
            self._tell()
        if not self.bests:
            raise self.errors[0]
        ranked = self.ranked()
        return Found(
            tuple(Ranked(c, given_up(c.setting, self.settings)) for c in ranked),
            tuple(_pareto(ranked, self.wish.request)),
            max((b.nearest for b in self.bests if b.nearest), key=lambda c: c.room, default=None),
            self._biggest(ranked[0]) if ranked else {},
            self.counts,
            all(best.proved for best in self.bests),
        )

    def ranked(self) -> list[Candidate]:
        """What fits, the best first."""
        fitting = [best.candidate for best in self.bests if best.candidate is not None]
        return sorted(fitting, key=lambda c: rank(self.wish.objective, c, c.seconds.of(self.wish.request)))

    def _setting(self, setting: Setting, order: int, placer: Placer) -> None:
        measurer = Measurer(placer)
        graphs = anatomies(placer, self.wish.request.cached)
        speed = Speed(placer, graphs, self.wish.rates, self.wish.request)
        tables = Tables(placer, self.space)
        costs = Costs(measurer, tables, speed)
        planner = Planner(measurer, self.space, speed, setting, order)
        width = max(1, self.processes)
        request = self.wish.request
        search = SettingSearch(
            measurer, costs, self.space, self.wish.objective, request, self._planned(planner), self.most, width
        )
        best = search.best()
        self.bests.append(best)
        self.counts = self.counts._replace(placements=self.counts.placements + best.placements)
        if best.candidate is not None and self.ranked()[0] is best.candidate:
            self.tables = tables

    def _planned(self, planner: Planner) -> Callable[[Sequence[Choice]], Sequence[Candidate]]:
        def plan(choices: Sequence[Choice]) -> Sequence[Candidate]:
            out = [planner.plan(choice) for choice in choices]
            self.counts = self.counts._replace(planned=self.counts.planned + len(out))
            self._tell()
            return out

        return plan

    def _tell(self) -> None:
        self.progress(Progress(len(self.bests), self.counts, next(iter(self.ranked()), None)))

    def _biggest(self, best: Candidate) -> Mapping[str, tuple[Tensor, ...]]:
        """The largest tensors of each device in a placement of the setting that was the best when it was searched."""
        if self.tables is None:
            return {}
        placer, owners = self.tables.placer, self.tables.owners
        placed = placer.place(best.choice.options(self.space.base, best.n_layer))
        by: dict[str, list[Tensor]] = {}
        for t in placed.tensors:
            device = owners.get(t.buft, placer.cpu.name)
            by.setdefault(device, []).append(Tensor(t.name, t.type, t.nbytes, device))
        return {device: tuple(sorted(ts, key=lambda t: -t.nbytes)[:BIGGEST]) for device, ts in by.items()}


def _pareto(ranked: Sequence[Candidate], request: Request) -> list[Candidate]:
    """Those than which none has a longer context in no more seconds, the fastest first."""
    out: list[Candidate] = []
    for c in sorted(ranked, key=lambda c: (c.seconds.of(request), -c.n_ctx)):
        if not out or c.n_ctx > out[-1].n_ctx:
            out.append(c)
    return out
