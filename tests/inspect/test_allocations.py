"""The record of the allocator's work: at every moment, free and taken blocks fill the chunks without overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import cast

import pytest

import ggmltool
from ggmltool.ask.verify.record import verify
from ggmltool.ggml.alloc.dyn_tallocr import DynTallocr
from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.sched.past import past_of
from ggmltool.inspect.memory import AllocMoment, AllocRecorder
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.samples import samples
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec, Step
from ggmltool.state.errors import WrongUse
from tests.conformance.fuzz import scenario
from tests.state.story.randomly import check as check_history


def record(source: object, at: str | None = None) -> AllocRecorder:
    loaded = ggmltool.load(source)  # type: ignore[arg-type]
    kept = Record(Keep.ALLOCATIONS, at)
    run = loaded.start(kept)
    kept.attach(run.start())
    run.alloc(loaded.graph_name())
    return kept.allocations


def check(moment: AllocMoment, tallocrs: list[DynTallocr]) -> None:
    first = {id(tallocr): b for b, tallocr in reversed(list(enumerate(tallocrs)))}
    for b in first.values():
        for state, taken in zip(moment.chunks[b], moment.taken[b], strict=True):
            end = 0
            for block in sorted([*state.free_blocks, *taken]):
                assert block.offset == end
                end += block.size
            assert state.max_size <= end


@pytest.mark.parametrize("sample", [p.name for p in samples() if p.suffix == ".yaml"])
def test_blocks_fill_the_chunks_when_each_node_of_a_sample_is_allocated(sample: str) -> None:
    path = next(p for p in samples() if p.name == sample)
    for node in ggmltool.load(path).plan().nodes:
        recorder = record(path, node.id)
        assert recorder.moment is not None
        assert recorder.gallocr is not None
        check(recorder.moment, recorder.gallocr.buf_tallocs)


@pytest.mark.parametrize("seed", range(30))
def test_blocks_fill_the_chunks_in_the_middle_of_random_graphs(seed: int) -> None:
    try:
        plan = ggmltool.load(scenario(seed)).plan()
    except (ggmltool.GgmlError, ggmltool.ScenarioError):
        pytest.skip("the scenario is one on which ggml fails")
    if not plan.ok or not plan.nodes:
        pytest.skip("there is no plan")
    recorder = record(scenario(seed), plan.nodes[len(plan.nodes) // 2].id)
    assert recorder.moment is not None
    assert recorder.gallocr is not None
    check(recorder.moment, recorder.gallocr.buf_tallocs)


def test_a_node_in_place_takes_the_block_of_its_source() -> None:
    document = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"tensors": {"x": "f32[8]"}}},
        "graphs": {"g": {"nodes": {"a": "scale(x, s=2)", "b": "sqr(a)"}}},
    }
    moment = record(document, "b").moment
    assert moment is not None
    assert moment.taken == (((moment.taken[0][0][0],),),)
    assert moment.taken[0][0][0] == (0, 32, "b")


def test_there_is_no_moment_of_a_tensor_that_is_not_planned() -> None:
    path = next(p for p in samples() if p.name == "transformer.yaml")
    assert record(path, "wq").moment is None
    assert record(path).moment is None


def behind_a_reserve(seeds: range, release: str = "0.26") -> Iterator[ScenarioSpec]:
    """Scenarios whose graph was reserved in the past, and is allocated now."""
    for seed in seeds:
        try:
            model = ggmltool.load(scenario(seed), ggml=release).model
        except ScenarioError:
            # The release does not have one of the ops.
            continue
        name = next(iter(model.graphs))
        run = cast("ReservingRun", LoadedScenario(model).start())
        plan = run.step(Step("reserve", name))
        if plan is run.plans[-1] and run.plans[-1].ok:
            scheduler = replace(model.scheduler, past=past_of(run.start()))
            yield replace(model, scheduler=scheduler, steps=[Step("alloc", name)])


def test_who_looks_at_memory_finds_what_lies_there() -> None:
    n = 0
    for model in behind_a_reserve(range(30)):
        opened = Opened(LoadedScenario(model), "random")
        plain = watch(opened, Moment())
        heard = watch(opened, Moment(), Record(Keep.MEMORY))
        assert heard.plan == plain.plan
        places = {(life.tensor, life.chunk, life.offset) for life in heard.record.memory.lifetimes}
        inputs = {node.id for node in plain.plan.nodes if node.usage == "compute" and node.alloc_size}
        for node in plain.plan.nodes:
            if node.id in inputs and plain.plan.ok:
                assert (node.id, node.chunk, node.offset) in places
                n += 1
    assert n > 100


def test_a_past_of_a_graph_that_no_backend_can_compute_ends_as_ggml_does() -> None:
    model = ggmltool.load("outgrown").model
    run = cast("ReservingRun", LoadedScenario(model).start())
    run.step(Step("reserve", "large"))
    scheduler = replace(model.scheduler, past=past_of(run.start()))
    backends = [replace(b, supports=OwnSupports(frozenset(), exclude=False)) for b in model.backends]
    nobody = replace(model, scheduler=scheduler, backends=backends, steps=[Step("alloc", "large")])
    at = watch(Opened(LoadedScenario(nobody), "outgrown"), Moment(), Record(Keep.MEMORY))
    assert not at.plan.ok


def test_tensors_lie_where_the_past_has_them() -> None:
    model = ggmltool.load("outgrown").model
    run = cast("ReservingRun", LoadedScenario(model).start())
    run.step(Step("reserve", "large"))
    behind = replace(model, scheduler=replace(model.scheduler, past=past_of(run.start())))
    at = watch(Opened(LoadedScenario(behind), "outgrown"), Moment(graph="small"), Record(Keep.MEMORY))
    found = {life.tensor: life.offset for life in at.record.memory.lifetimes}
    assert found["h1"] == next(node.offset for node in at.plan.nodes if node.id == "h1") == 4096


@pytest.mark.parametrize("release", ["0.26", "2025-03"])
def test_the_history_of_a_run_with_a_past_is_that_of_a_fresh_one(release: str) -> None:
    for number, model in enumerate(behind_a_reserve(range(12), release)):
        history = check_history(LoadedScenario(model), Random(number))
        assert history.cells(1)


def test_a_real_library_cannot_be_given_a_past() -> None:
    model, *_ = behind_a_reserve(range(8))
    with pytest.raises(WrongUse, match="attach --verify"):
        verify(LoadedScenario(model), False)
