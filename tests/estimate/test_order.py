"""Batches in flight, against what the engine's scheduler does: its calls, one after the other, drawn as a time table.

The engine's calls are ggml's own, held against the real library elsewhere. Here each of them takes its time.
"""

from __future__ import annotations

from typing import Any

import pytest

import ggmltool
from ggmltool.estimate.forecast import PlannedSplit, nodes_of, splits_of
from ggmltool.estimate.records import Link, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.estimate.timeline import duration
from ggmltool.ggml.events import Computed, Event, EventCall, Synchronized, TensorCopied
from ggmltool.scenario.run.compiled import Compiled
from tests.estimate.tensors import rates

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


TWO = {"h": "mul_mat(w0, x)", "y": {"op": "mul_mat", "src": ["w1", "h"], "flags": ["output"]}}
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
THERE = {
    "buft": "CUDA1",
    "tensors": {"x": {"type": "f32", "ne": [64, 40], "flags": ["input"], "data": {"fill": 0}}},
}
SCENARIOS = {
    "two GPUs": scenario(TWO),
    "two GPUs without pipeline copies": scenario(TWO, parallel=False),
    "the host between them": scenario(BACK),
    "the host between them, without pipeline copies": scenario(BACK, parallel=False),
    "an input of another GPU, without pipeline copies": scenario(TWO, parallel=False, inputs=THERE),
    "a view of an input of another GPU, without pipeline copies": scenario(VIEWED, parallel=False, inputs=THERE),
    "a weight of the host": scenario(ON_HOST, host=HOST),
    "a weight of the host, without pipeline copies": scenario(ON_HOST, parallel=False, host=HOST),
}


class TimeTable:
    """The engine's calls as they are announced, each taking its time."""

    def __init__(self, splits: list[PlannedSplit], estimator: Estimator) -> None:
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
