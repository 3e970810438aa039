"""What a search rules out by: no placement has less than its bounds say."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.place import Placer
from ggmltool.sources.llama.search.anatomy import Request, Speed, anatomies
from ggmltool.sources.llama.search.candidates import OBJECTIVES, CandidatePlanner, costs_of, exact_costs_of, least_steps
from ggmltool.sources.llama.search.costs import Costs, Pieces
from ggmltool.sources.llama.search.paths import Path
from ggmltool.sources.llama.search.space import Space
from ggmltool.sources.llama.search.tables import Tables
from tests.sources.library import needs_library
from tests.sources.searching import SETTING, devices, model

pytestmark = needs_library

REQUEST = Request()
MODELS = ("llama", "llama-moe", "qwen3", "gemma2", "gemma3", "mamba2", "granitehybrid", "deepseek2", "gpt-oss", "phi3")
GPUS = (
    ("CUDA0:1GiB",),
    ("CUDA0:1GiB", "CUDA1:1GiB"),
    ("Vulkan0:1GiB", "CUDA0:1GiB"),
    ("CUDA0:1GiB", "CUDA1:1GiB", "CUDA2:1GiB"),
    ("MTL0:1GiB",),
)


class Ready(NamedTuple):
    """A model on devices, with its bounds for each objective."""

    planner: CandidatePlanner
    tables: Tables
    pieces: dict[str, Pieces]


@cache
def ready(name: str, gpus: tuple[str, ...]) -> Ready:
    placer, space = Placer(model(name), devices(*gpus)), Space(contexts=(512,), margins=(0,), dense=True)
    measurer = Measurer(placer)
    speed = Speed(placer, anatomies(placer, REQUEST.cached), {}, REQUEST)
    tables = Tables(placer, space)
    costs = Costs(measurer, tables, speed)
    pieces = {objective: Pieces(placer, costs, space, objective) for objective in OBJECTIVES}
    return Ready(CandidatePlanner(measurer, space, speed, SETTING, 0), tables, pieces)


@st.composite
def paths(draw: st.DrawFn, tables: Tables) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Where layers begin and end on each GPU, and how many units spill."""
    cuts = sorted(draw(st.integers(0, tables.n)) for _ in range(len(tables.gpus)))
    first, ends = cuts[0], (*cuts[1:], tables.n)
    spilled = []
    for a, b in zip((first, *ends), ends, strict=False):
        units = tables.ways(a, b)[-1][-1]
        spilled.append(draw(st.sampled_from(sorted({0, units})) | st.integers(0, units)))
    return first, ends, tuple(spilled)


@pytest.mark.parametrize("gpus", GPUS, ids=",".join)
@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(MODELS), data=st.data())
def test_no_placement_has_less_than_its_bounds(gpus: tuple[str, ...], name: str, data: st.DataObject) -> None:
    r = ready(name, gpus)
    first, ends, spilled = data.draw(paths(r.tables))
    path = Path(first, ends, spilled, (), 0, 0.0)
    candidate = r.planner.plan(r.tables.choice(path.counts, spilled))
    assert not candidate.error
    starts = (first, *ends)
    for objective, pieces in r.pieces.items():
        each = [pieces.start(first)]
        each += [pieces.edge(g, starts[g], ends[g], spilled[g]) for g in range(len(ends))]
        least = [sum(column) for column in zip(*(costs for costs, _ in each), strict=True)]
        seconds = candidate.seconds.of(REQUEST)
        truth = exact_costs_of(objective, candidate, seconds)
        assert all(a <= b * (1 + 1e-5) for a, b in zip(least, truth, strict=True)), (objective, least, truth)
        assert least_steps(tuple(least)) <= costs_of(objective, candidate, seconds)
        load = sum(load for _, load in each)
        assert load <= candidate.needs["CPU"].total
        for g, gpu in enumerate(r.tables.gpus):
            room = pieces.room(g, starts[g], ends[g], spilled[g])
            assert candidate.left[gpu] <= room <= pieces.most_room(g, starts[g], ends[g])
            assert room <= pieces.weights_room(g, starts[g], ends[g], spilled[g])
