"""A graph captured on the CPU and placed here is the graph that llama.cpp built on GPUs, with the same plan."""

from __future__ import annotations

import re

import pytest

from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.place.options import ALL, PlaceOptions
from ggmltool.sources.llama.place.place import Placer
from tests.conformance.captured import expected, names, read

OTHER_GRAPHS = ("nofa", "nokvo", "q8kv", "-s4", "pp64")
"""In these names: the graph itself is another one than the CPU's."""
WITHOUT_ITS_LEAF = "gemma-3-270m-pp512-ngl9"
"""A capture whose list of leafs lacks the second token_embd.weight."""


def of_august(name: str) -> ScenarioSpec:
    """A captured graph, by the ggml that it was captured with."""
    return load_spec(read(name), ggml="0.21")


def _base(name: str) -> str:
    return re.sub(r"(-pp512|-tg1-ub1).*", r"\1", name)


PLACED = [n for n in names() if _base(n) in set(names()) - {n} and not any(part in n for part in OTHER_GRAPHS)]


def _places(model: ScenarioSpec) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for context in model.contexts:
        for t in context.tensors:
            key = (t.name if context.buft is not None else t.id, context.buft or "")
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.skipif(not PLACED, reason="the captured graphs are not here")
def test_there_are_pairs_of_many_architectures() -> None:
    assert len(PLACED) > 70
    assert len({name.split("-pp")[0].split("-tg")[0] for name in PLACED}) >= 10


@pytest.mark.parametrize("name", PLACED)
def test_the_placed_graph_is_the_one_that_was_captured_on_gpus(name: str) -> None:
    real = of_august(name)
    told = re.search(r"ngl(\d+)", name)
    options = PlaceOptions(n_gpu_layers=int(told[1]) if told else ALL, extra_bufts=False)
    ours = Placer(of_august(_base(name)), real.backends).place(options).model
    assert _places(ours) == _places(real)
    assert ours.backends == real.backends
    assert ours.scheduler == real.scheduler
    graph, there = ours.graphs["main"], real.graphs["main"]
    assert [(n.id, n.backend) for n in graph.nodes] == [(n.id, n.backend) for n in there.nodes]
    plan, planned = (LoadedScenario(m).plan(step="reserve") for m in (ours, real))
    assert plan.splits == planned.splits
    assert plan.buffer_sizes == planned.buffer_sizes
    told_there = expected()[name]
    assert (len(plan.splits), dict(plan.buffer_sizes)) == (told_there["n_splits"], told_there["buffer_sizes"])
    if name != WITHOUT_ITS_LEAF:
        assert graph.expand == there.expand
        for step in ("reserve", "alloc"):
            assert LoadedScenario(ours).plan(step=step) == LoadedScenario(real).plan(step=step)


@pytest.mark.parametrize("name", PLACED[::7])
def test_a_placed_graph_can_be_placed_again(name: str) -> None:
    """From a placement on GPUs back to the CPU, and there again."""
    real = of_august(name)
    base = of_august(_base(name))
    cpu = Placer(real, base.backends).place(PlaceOptions(n_gpu_layers=0, extra_bufts=False)).model
    plan, planned = (LoadedScenario(m).plan() for m in (cpu, base))
    assert plan.nodes == planned.nodes
    assert plan.buffer_sizes == planned.buffer_sizes
    told = re.search(r"ngl(\d+)", name)
    options = PlaceOptions(n_gpu_layers=int(told[1]) if told else ALL, extra_bufts=False)
    again = Placer(real, real.backends).place(options).model
    assert LoadedScenario(again).plan().buffer_sizes == LoadedScenario(real).plan().buffer_sizes
