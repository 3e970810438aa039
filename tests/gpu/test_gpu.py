"""The same on a GPU of this machine, where there is one: every op, whole graphs, and copies beside computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ggmltool
from ggmltool.ggml.devices.gpu import Gpu, Queue
from ggmltool.ggml.errors import GgmlFailed
from ggmltool.scenario.run.run import Run
from tests.gpu.on_gpu import differing
from tests.gpu.test_sched_on_double import CASES, WITH_GPUS, nmse, sample


@pytest.mark.parametrize("fn", CASES)
def test_the_gpu_gives_what_the_host_gives(fn: str, gpu: Gpu) -> None:
    assert differing(CASES[fn], gpu) == []


@pytest.mark.parametrize("name", WITH_GPUS)
def test_samples_give_the_values_that_numpy_gives(name: str, gpu: Gpu) -> None:
    on_gpu = ggmltool.load(sample(name, "cupy")).compute()
    for id, values in ggmltool.load(sample(name, "numpy")).compute().items():
        assert nmse(on_gpu[id], values) <= 5e-4


def test_memory_is_taken_and_given_back(gpu: Gpu) -> None:
    free, total = gpu.get_memory()
    assert 0 < free <= total
    memory = gpu.alloc(256 << 20, "b")
    assert gpu.get_memory()[0] <= free - (256 << 20)
    out = np.ones(1 << 20, np.uint8)
    gpu.read(memory, (256 << 20) - out.size, out)
    assert not out.any()
    del memory
    assert gpu.get_memory()[0] >= free - (64 << 20)


def test_more_memory_than_there_is_is_ggmls_failure(gpu: Gpu) -> None:
    with pytest.raises(GgmlFailed, match="cudaMalloc failed: out of memory"):
        gpu.alloc(1 << 50, "b")


def test_pinned_memory_is_the_hosts_and_zero(gpu: Gpu) -> None:
    pinned = gpu.alloc_pinned(1 << 20, "b")
    assert not pinned.any()
    pinned[:] = 7
    memory, out = gpu.alloc(1 << 20, "b"), np.zeros(1 << 20, np.uint8)
    gpu.write(memory, 0, pinned)
    gpu.read(memory, 0, out)
    assert (out == 7).all()


def test_a_product_of_halves_is_one_of_halves(gpu: Gpu) -> None:
    rng = np.random.default_rng(1)
    w, x = (rng.standard_normal((256, 512)).astype(np.float16) for _ in range(2))
    source: dict[str, Any] = {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "engine": "cupy"}, "CPU"],
        "contexts": {
            "c": {
                "buft": "CUDA0",
                "tensors": {name: {"type": "f16", "ne": [512, 256], "data": v.reshape(-1).tolist()} for name, v in
                            (("w", w), ("x", x))},
            }
        },
        "graphs": {"g": {"nodes": {"y": {"op": "mul_mat", "src": ["w", "x"], "flags": ["output"]}}}},
    }  # fmt: skip
    got = ggmltool.load(source).compute()["y"][0, 0]
    assert nmse(got, x.astype(np.float64) @ w.astype(np.float64).T) <= 1e-6


@dataclass(frozen=True, slots=True)
class Span:
    """When a stream did something, in milliseconds since the first thing that was begun."""

    what: str
    stream: int
    start: float
    end: float

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


class Clock:
    """Times what streams do, by events around it."""

    def __init__(self, xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.xp = xp
        self._timed: list[tuple[str, int, Any, Any]] = []
        self._open: list[Any] = []
        self._wrap(monkeypatch, Gpu, "write_on", "copy", lambda gpu, stream, *_: stream)
        self._wrap(monkeypatch, Gpu, "copy_on", "copy", lambda gpu, stream, *_: stream)
        enter, leave = Queue.__enter__, Queue.__exit__

        def entering(queue: Queue) -> Queue:
            enter(queue)
            self._open.append(self._event(queue.stream))
            return queue

        def leaving(queue: Queue, *error: Any) -> bool | None:
            self._timed.append(("compute", queue.stream.ptr, self._open.pop(), self._event(queue.stream)))
            return leave(queue, *error)

        monkeypatch.setattr(Queue, "__enter__", entering)
        monkeypatch.setattr(Queue, "__exit__", leaving)

    def _event(self, stream: Any) -> Any:
        event = self.xp.cuda.Event()
        event.record(stream)
        return event

    def _wrap(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, what: str, stream_of: Callable[..., Any]
    ) -> None:
        real = getattr(owner, name)

        def timed(*args: Any) -> None:
            stream = stream_of(*args)
            start = self._event(stream)
            real(*args)
            self._timed.append((what, stream.ptr, start, self._event(stream)))

        monkeypatch.setattr(owner, name, timed)

    def spans(self) -> list[Span]:
        """What was done since the last time this was asked; everything has to be done."""
        timed, self._timed = self._timed, []
        first = timed[0][2]
        since = self.xp.cuda.get_elapsed_time
        return [Span(what, stream, since(first, a), since(first, b)) for what, stream, a, b in timed]


def pipeline(width: int, tokens: int) -> dict[str, Any]:
    """The pipeline sample with matrices of `width` and batches of `tokens`, so that a stage takes a while."""
    source = sample("pipeline", "cupy")
    for context, name in (("first", "w0"), ("second", "w1")):
        source["contexts"][context]["tensors"][name] |= {"ne": [width, width], "data": {"uniform": {"seed": 1}}}
    source["contexts"]["inputs"]["tensors"]["x"] |= {"ne": [width, tokens], "data": {"uniform": {"seed": 2}}}
    return source


def begin(run: Run, batches: int) -> None:
    """So many batches, one after the other, without waiting."""
    sched = run.start()
    for _ in range(batches):
        sched.reset()
        assert run.alloc("main").ok
        run.compute("main", wait=False)
    sched.synchronize()


def test_copies_overlap_with_computing_in_the_pipeline(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ggmltool.load(pipeline(4096, 4096)).start(values=True)
    assert run.reserve("main") is not None
    begin(run, 2)
    clock = Clock(gpu.xp, monkeypatch)
    begin(run, 4)
    spans = clock.spans()
    copies = [s for s in spans if s.what == "copy"]
    computing = [s for s in spans if s.what == "compute"]
    both = [(c, k) for c in copies for k in computing if c.stream != k.stream and c.overlaps(k)]
    assert both, f"{copies}\n{computing}"
