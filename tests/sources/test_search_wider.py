"""A wider search never finds less than a narrower one: no option that is given improves on what is found without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from ggmltool.ask.fit.record import fit
from ggmltool.ask.fit.wishes import Ranges, Wishes
from ggmltool.ask.place.options import Placing
from ggmltool.sources.llama.search.anatomy import Request
from ggmltool.sources.llama.search.candidates import OBJECTIVES, Objective, SearchResult, costs_of
from tests.sources.library import needs_library
from tests.sources.models import cached
from tests.sources.real_models import real

pytestmark = needs_library

MACHINES = (
    ("CUDA0=RTX 3090:4MiB", "CPU=Ryzen 9 7950X:96GiB"),
    ("CUDA0=RTX 3090:4MiB", "CUDA1=RTX 3060 12GB:3MiB", "CPU=Ryzen 9 7950X:96GiB"),
    ("CUDA0=RTX 3060 12GB:6MiB", "CUDA1=RTX 3090:4MiB", "CPU=Ryzen 9 7950X:96GiB"),
)
WIDE = Ranges(contexts=(512,), ubatches=(64, 128))
DEPTH = 4096


def narrower(ranges: Ranges, n_layer: int, n_gpus: int, seed: str) -> Iterator[Ranges]:
    """The same with some options given, drawn at random."""
    draw = Random(seed)
    for _ in range(4):
        given = {
            "layers": (draw.randint(0, n_layer + 1),),
            "tensor_split": (float(draw.randint(1, 9)), float(draw.randint(1, 9))),
            "n_cpu_moe": draw.randint(0, n_layer),
            "n_cpu_ffn": draw.randint(0, n_layer),
            "ubatches": (draw.choice(ranges.ubatches),),
        }
        names = [name for name in given if draw.random() < 0.4 and (name != "tensor_split" or n_gpus > 1)]
        yield replace(ranges, **{name: given[name] for name in names or ["n_cpu_moe"]})


def costs(found: SearchResult, objective: Objective) -> tuple[float, ...]:
    """What the best comes to, as candidates are compared."""
    best = found.best
    if best is None:
        return (float("inf"),)
    return costs_of(objective, best, best.seconds.of(Request(cached=DEPTH)))


@pytest.mark.parametrize("machine", MACHINES, ids=["one", "large-first", "small-first"])
@pytest.mark.parametrize("name", ["llama", "llama-moe", "deepseek2"])
def test_no_option_that_is_given_improves_on_what_is_found_without_it(name: str, machine: tuple[str, ...]) -> None:
    path, n_gpus = str(cached(name)), len(machine) - 1
    objective = OBJECTIVES[(len(name) + n_gpus) % 2 * 2]
    common = Placing(margin=(0,), device=machine, n_depth=DEPTH)
    wide = fit(Wishes(path, WIDE, common, objective), processes=1).facts.found
    assert wide.proved
    for ranges in narrower(WIDE, 6, n_gpus, f"{name} {machine}"):
        narrow = fit(Wishes(path, ranges, common, objective), processes=1).facts.found
        assert costs(wide, objective) <= costs(narrow, objective), ranges


def test_dense_weights_of_a_model_with_experts_stay_on_a_gpu_while_experts_leave_it() -> None:
    """GLM-4.5-Air on two cards: the dense first layer was spilled before any experts, which cost 3 %."""
    device = ("RTX 3090", "RTX 3060 12GB", "CPU=Ryzen 9 7950X:96GiB")
    common, wide = Placing(device=device, n_depth=DEPTH), Ranges(contexts=(32768,), ubatches=(2048,))
    path = str(real("glm-4.5-air"))
    found = fit(Wishes(path, wide, common)).facts.found
    assert found.best is not None
    assert not any(not spill.experts for spill in found.best.choice.spilled)
    for ranges in (replace(wide, n_cpu_ffn=0), replace(wide, n_cpu_moe=32, layers=(47,), tensor_split=(41.0, 6.0))):
        assert costs(found, "fastest") <= costs(fit(Wishes(path, ranges, common)).facts.found, "fastest")
