"""The search of `fit` finds what trying everything finds."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import product

import pytest

from ggmltool.scenario.model import BackendSpec
from ggmltool.sources.llama.measurer import Measurer
from ggmltool.sources.llama.place import Placer
from ggmltool.sources.llama.search.anatomy import anatomies
from ggmltool.sources.llama.search.captures import OneModel
from ggmltool.sources.llama.search.choice import Choice
from ggmltool.sources.llama.search.found import Candidate
from ggmltool.sources.llama.search.objective import OBJECTIVES, Objective, rank
from ggmltool.sources.llama.search.planning import Planner
from ggmltool.sources.llama.search.search import Wish, search
from ggmltool.sources.llama.search.space import Space
from ggmltool.sources.llama.search.speed import Request, Speed
from ggmltool.sources.llama.search.tables import Tables
from tests.sources.searching import SETTING, devices, model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs llama.cpp (the package xllamacpp, extra llama)"
)


def choices(tables: Tables) -> Iterator[Choice]:
    """All choices of the space, as one would write loops."""
    n, k = tables.n, len(tables.gpus)
    for counts in product(range(n + 1), repeat=k):
        if sum(counts) > n:
            continue
        starts = [n - sum(counts) + sum(counts[:i]) for i in range(k)]
        units = [range(tables.starts[s + c] - tables.starts[s] + 1) for s, c in zip(starts, counts, strict=True)]
        for spilled in product(*units):
            yield tables.choice(counts, spilled)


def exhaustive(name: str, on: list[BackendSpec], space: Space, objective: Objective) -> list[Candidate]:
    """Everything that fits, the best first."""
    placer = Placer(model(name), on)
    request = Request()
    speed = Speed(placer, anatomies(placer, request.cached), {}, request)
    planner = Planner(Measurer(placer), space, speed, SETTING, 0)
    planned = [planner.plan(choice) for choice in choices(Tables(placer, space))]
    return sorted((c for c in planned if c.fits), key=lambda c: rank(objective, c, c.seconds.of(request)))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("llama", ("CUDA0:6MiB",)),
        ("llama", ("CUDA0:5MiB", "CUDA1:5MiB")),
        ("qwen3", ("CUDA0:8MiB", "Vulkan0:6MiB")),
    ],
)
def test_the_best_is_no_worse_than_that_of_all_placements(
    name: str, memory: tuple[str, ...], objective: Objective
) -> None:
    on, space = devices(*memory), Space(contexts=(512,), margins=(0,))
    found = search(OneModel(model(name), lambda _: on), space, Wish(objective))
    everything = exhaustive(name, on, space, objective)
    assert found.proved
    assert found.best is not None
    request = Request()
    assert rank(objective, found.best, found.best.seconds.of(request)) == rank(
        objective, everything[0], everything[0].seconds.of(request)
    )
