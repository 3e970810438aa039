"""The record of the allocator's work: at every moment, free and taken blocks fill the chunks without overlap."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.ggml.dyn_tallocr import DynTallocr
from ggmltool.inspect.allocations import AllocMoment, AllocRecorder
from ggmltool.inspect.record import Keep, Record
from ggmltool.scenario.samples import samples
from tests.conformance.fuzz import scenario


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
