"""Batches in flight, against time tables drawn by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ggmltool
from ggmltool.estimate.forecast import nodes_of, splits_of
from ggmltool.estimate.records import Estimate, Link, PlacedSplit, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.estimate.timeline import StepCopy, TimelineStep, Way, duration
from ggmltool.ggml.events import Computed, Event, EventCall, Synchronized, TensorCopied
from ggmltool.scenario.run.compiled import Compiled
from tests.estimate.tensors import rates


def seconds(s: float) -> Estimate:
    return Estimate(s, s, s)


def step(backend: str, s: float, *copies: tuple[Way, str, float]) -> TimelineStep:
    made = tuple(StepCopy(way, source, seconds(c)) for way, source, c in copies)
    return TimelineStep(backend, backend == "CPU", seconds(s), made)


TWO = [step("CUDA0", 3.0, (Way.USER, "CPU", 0.0)), step("CUDA1", 2.0, (Way.QUEUED, "CUDA0", 0.0))]
"""A model on two GPUs."""


def test_one_batch_goes_through_one_device_after_the_other() -> None:
    assert duration(TWO, 1, 4).mid == 5.0


def test_with_pipeline_copies_the_slower_device_is_always_busy() -> None:
    assert duration(TWO, 10, 4).mid == 10 * 3.0 + 2.0


def test_without_pipeline_copies_the_host_waits_for_a_device_before_it_gives_it_more() -> None:
    """The first device is done with its next batch when the second one is waited for, but not with the one behind."""
    three = [*TWO, step("CUDA2", 4.0, (Way.QUEUED, "CUDA1", 0.0))]
    assert duration(TWO, 10, 1).mid == 10 * 3.0 + 2.0
    assert duration(three, 10, 4).mid == 3.0 + 2.0 + 10 * 4.0
    assert duration(three, 10, 1).mid > duration(three, 10, 4).mid


def test_a_copy_between_devices_keeps_the_first_one_busy() -> None:
    steps = [step("CUDA0", 3.0), step("CUDA1", 2.0, (Way.QUEUED, "CUDA0", 1.0))]
    assert duration(steps, 10, 4).mid == 10 * 4.0 + 2.0


def test_weights_that_are_copied_do_not_overlap_with_the_device_that_needs_them() -> None:
    """They go into the queue behind the experts of the batch before: that is why prompts wait for PCIe."""
    for way in (Way.EXPERTS, Way.EXPERTS_QUEUED):
        steps = [step("CUDA0", 1.0, (way, "CPU", 4.0)), step("CUDA0", 1.0, (way, "CPU", 4.0))]
        assert duration(steps, 3, 4).mid == 3 * 10.0


def test_copies_from_pages_hold_up_the_host_and_with_it_the_other_device() -> None:
    """Of two GPUs that each copy experts, only from pinned memory both copy at once."""

    def steps(way: Way) -> list[TimelineStep]:
        return [step("CUDA0", 1.0, (way, "CPU", 4.0)), step("CUDA1", 1.0, (way, "CPU", 4.0))]

    pages, pinned = duration(steps(Way.EXPERTS), 8, 4).mid, duration(steps(Way.EXPERTS_QUEUED), 8, 4).mid
    assert pages == pytest.approx(8 * 8.0 + 1.0)
    assert pinned < 0.7 * pages


def test_what_the_host_computes_stops_everything_else() -> None:
    steps = [step("CUDA0", 3.0), step("CPU", 2.0, (Way.WAITING, "CUDA0", 0.5))]
    assert duration(steps, 4, 4).mid == 4 * 5.5


times = st.floats(0.0, 10.0)
steps_of_some = st.lists(
    st.builds(
        step,
        st.sampled_from(["CUDA0", "CUDA1", "CPU"]),
        times,
        st.tuples(st.sampled_from([Way.USER, Way.WAITING, Way.EXPERTS]), st.just("CPU"), times),
    ),
    min_size=1,
    max_size=8,
)


@given(steps_of_some, st.integers(1, 6))
def test_pipeline_copies_never_make_it_slower_and_each_device_does_its_work(
    steps: list[TimelineStep], batches: int
) -> None:
    alone = duration(steps, 1, 1).mid
    together = duration(steps, batches, 4).mid
    busiest = max(sum(s.seconds.mid for s in steps if s.backend == b) for b in {s.backend for s in steps})
    assert together <= batches * alone * (1 + 1e-9)
    assert together >= batches * busiest * (1 - 1e-9)


LINK = Link(pinned=2e6, pageable=1e6, latency=1e-3)


def gpu(speed: float) -> Rates:
    return rates(family="CUDA", memory=speed, to_device=LINK, from_device=LINK, launch=1e-4)


RATES = {"CUDA0": gpu(1e6), "CUDA1": gpu(6e5), "CPU": rates(family="CPU", memory=3e5)}

WEIGHTS = {
    "first": {
        "buft": "CUDA0",
        "usage": "weights",
        "tensors": {"w0": {"type": "f32", "ne": [64, 64], "data": {"fill": 0}}},
    },
    "second": {
        "buft": "CUDA1",
        "usage": "weights",
        "tensors": {"w1": {"type": "f32", "ne": [64, 96], "data": {"fill": 0}}},
    },
}


def scenario(nodes: dict[str, Any], parallel: bool = True, **contexts: Any) -> dict[str, Any]:
    inputs = {"x": {"type": "f32", "ne": [64, 40], "flags": ["input"], "data": {"fill": 0}}}
    return {
        "ggmltool": 1,
        "backends": ["CUDA0", "CUDA1", "CPU"],
        "scheduler": {"parallel": parallel, "copy_callback": "used_experts"},
        "contexts": {**WEIGHTS, "inputs": {"tensors": inputs}, **contexts},
        "graphs": {"main": {"nodes": nodes}},
    }


TWO_GPUS = {"h": "mul_mat(w0, x)", "y": {"op": "mul_mat", "src": ["w1", "h"], "flags": ["output"]}}
BACK = {
    "h": "mul_mat(w0, x)", "act": {"op": "silu", "src": ["h"], "backend": "CPU"},
    "y": {"op": "mul_mat", "src": ["w1", "act"], "flags": ["output"]},
}  # fmt: skip
HOST = {"buft": "CPU", "usage": "weights", "tensors": {"v": {"type": "f32", "ne": [64, 64], "data": {"fill": 0}}}}
ON_HOST = {"h": "mul_mat(w0, x)", "k": "mul_mat(v, h)", "y": {"op": "mul_mat", "src": ["w1", "k"], "flags": ["output"]}}
VIEWED = {
    "part": {"op": "reshape", "src": ["x"], "ne": [64, 20, 2]}, "h": "mul_mat(w0, part)",
    "y": {"op": "mul_mat", "src": ["w1", "h"], "flags": ["output"]},
}  # fmt: skip
THERE = {"buft": "CUDA1", "tensors": {"x": {"type": "f32", "ne": [64, 40], "flags": ["input"], "data": {"fill": 0}}}}
SCENARIOS = {
    "two GPUs": scenario(TWO_GPUS),
    "two GPUs without pipeline copies": scenario(TWO_GPUS, parallel=False),
    "the host between them": scenario(BACK),
    "the host between them, without pipeline copies": scenario(BACK, parallel=False),
    "an input of another GPU, without pipeline copies": scenario(TWO_GPUS, parallel=False, inputs=THERE),
    "a view of an input of another GPU, without pipeline copies": scenario(VIEWED, parallel=False, inputs=THERE),
    "a weight of the host": scenario(ON_HOST, host=HOST),
    "a weight of the host, without pipeline copies": scenario(ON_HOST, parallel=False, host=HOST),
}


class TimeTable:
    """The engine's calls as they are announced, each taking its time."""

    def __init__(self, splits: Sequence[PlacedSplit], estimator: Estimator) -> None:
        self.splits = splits
        self.estimator = estimator
        self.host = 0.0
        self.device = dict.fromkeys(RATES, 0.0)
        self.events: dict[tuple[str, int], float] = {}

    def __call__(self, event: Event) -> None:
        device = self.device
        match event:
            case Synchronized(backend):
                self.host = max(self.host, device[backend])
            case EventCall("record", backend, copy):
                self.events[backend, copy] = device[backend]
            case EventCall("synchronize", backend, copy):
                self.host = max(self.host, self.events.get((backend, copy), 0.0))
            case TensorCopied(src, dst, _, how):
                self._copied(src, dst.partition("#")[0], how)
            case Computed(split, backend):
                end = max(self.host, device[backend]) + self.estimator.compute(self.splits[split]).mid
                device[backend] = end
                if RATES[backend].waits:
                    self.host = end

    def _copied(self, src: str, backend: str, how: str) -> None:
        split, copied = next((s, c) for s in self.splits for c in s.inputs if s.backend == backend and c.id == src)
        seconds = self.estimator.copy(copied, split).mid
        if how == "async":
            end = max(self.device[copied.source], self.host) + seconds
            self.device[copied.source] = end
            self.device[backend] = max(self.device[backend], end)
        else:
            self.host += seconds
            self.device[backend] = max(self.device[backend], self.host)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("batches", [1, 2, 6])
def test_a_device_is_busy_when_the_schedulers_calls_keep_it_busy(name: str, batches: int) -> None:
    loaded = ggmltool.load(SCENARIOS[name])
    nodes = nodes_of(Compiled(loaded.model), "main")
    estimator = Estimator(GraphWork(nodes), RATES)
    splits = splits_of(loaded.plan())
    heard: list[Event] = []
    run = loaded.start(events=heard.append, values=True)
    for _ in range(batches):
        run.start().reset()
        run.alloc("main")
        run.compute("main", wait=False)
    table = TimeTable(splits, estimator)
    for event in heard:
        table(event)
    copies = 4 if loaded.model.scheduler.parallel else 1
    expected = max([table.host, *table.device.values()])
    assert expected > 0
    assert duration(estimator.steps(splits), batches, copies).mid == pytest.approx(expected, rel=1e-9)
