"""One captured setting, searched from its graphs to its best placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ggmltool.estimate.records import Rates
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.anatomy import anatomies
from ggmltool.sources.llama.search.costs import Costs
from ggmltool.sources.llama.search.found import Candidate, Tensor
from ggmltool.sources.llama.search.objective import Objective
from ggmltool.sources.llama.search.paths import Costs as Vector
from ggmltool.sources.llama.search.planning import Planner
from ggmltool.sources.llama.search.setting_search import Best, SettingSearch
from ggmltool.sources.llama.search.space import Setting, Space
from ggmltool.sources.llama.search.speed import Request, Speed
from ggmltool.sources.llama.search.tables import Tables

BIGGEST = 5
"""Tensors of each device that a result tells of."""


class SettingBest(NamedTuple):
    """What was found for a setting, with the largest tensors of each device in it."""

    setting: Setting
    best: Best
    biggest: Mapping[str, tuple[Tensor, ...]]


def best_of_setting(
    placer: Placer,
    setting: Setting,
    order: int,
    space: Space,
    objective: Objective,
    request: Request,
    rates: Mapping[str, Rates],
    most: int,
    limit: Vector | None = None,
    processes: int = 1,
) -> SettingBest:
    """The best placement of a model that was captured with a setting.

    `limit` and `processes` are those of SettingSearch. Raises PlaceError.
    """
    measurer = Measurer(placer)
    speed = Speed(placer, anatomies(placer, request.cached), rates, request)
    tables = Tables(placer, space)
    planner = Planner(measurer, space, speed, setting, order)
    costs = Costs(measurer, tables, speed)
    best = SettingSearch(planner, costs, objective, request, most, limit, processes).best()
    return SettingBest(setting, best, {} if best.candidate is None else _biggest(tables, space, best.candidate))


def _biggest(tables: Tables, space: Space, candidate: Candidate) -> Mapping[str, tuple[Tensor, ...]]:
    placer, owners = tables.placer, tables.owners
    placed = placer.place(candidate.choice.options(space.base, candidate.n_layer))
    by: dict[str, list[Tensor]] = {}
    for t in placed.tensors:
        device = owners.get(t.buft, placer.cpu.name)
        by.setdefault(device, []).append(Tensor(t.name, t.type, t.nbytes, device))
    return {device: tuple(sorted(ts, key=lambda t: -t.nbytes)[:BIGGEST]) for device, ts in by.items()}
