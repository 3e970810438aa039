"""Graphs on GPUs, whose cupy is a double: values, what goes through which stream, and who waits for whom."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ggmltool
from ggmltool.ggml.devices.gpu import Queue, find
from ggmltool.ggml.devices.gpu_arrays import can_decode, can_encode
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.events import Event, EventCall, Synchronized, TensorCopied
from ggmltool.scenario.run.devices import computing, make_backends, make_bufts
from ggmltool.scenario.run.run import Run
from tests.conformance.checked import compared
from tests.conformance.fuzz import scenario
from tests.conformance.ops_case import Call
from tests.gpu.conftest import Doubles
from tests.gpu.double import Cupy
from tests.gpu.on_gpu import differing
from tests.gpu.timeline import Race, Work

SAMPLES = Path(__file__).parents[2] / "sample_graphs"
WITH_GPUS = ["moe", "offload", "packed-weights", "pipeline", "priority", "transformer", "two-orders"]


def renamed(value: Any) -> Any:
    """A scenario with CUDA0 and CUDA1 in place of the devices GPU0 and GPU1."""
    if isinstance(value, dict):
        return {renamed(k): renamed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(v) for v in value]
    return value.replace("GPU", "CUDA") if isinstance(value, str) and value.startswith("GPU") else value


def sample(name: str, engine: str = "auto") -> dict[str, Any]:
    """A sample whose GPUs are CUDA devices, computed by `engine`."""
    source: dict[str, Any] = renamed(yaml.safe_load((SAMPLES / f"{name}.yaml").read_text("utf-8")))
    backends = [{"name": b} if isinstance(b, str) else b for b in source["backends"]]
    source["backends"] = [b if b["name"] == "CPU" else {**b, "engine": engine} for b in backends]
    return source


def nmse(got: Any, expected: Any) -> float:
    """The normalised mean squared error."""
    return float(np.square(got - expected).sum() / np.square(expected).sum())


def batches(source: dict[str, Any], n: int) -> Run:
    """`n` batches of a pipeline, each with other inputs, begun without waiting for the ones before."""
    scenario = ggmltool.load(source)
    run = scenario.start(values=True)
    sched = run.start()
    assert run.reserve("main").ok
    for i in range(n):
        sched.reset()
        assert run.alloc("main").ok
        (step,) = scenario.steps([{"set": {"x": {"fill": (i + 1) / 8}}}])
        run.step(step)
        run.compute("main", wait=False)
    sched.synchronize()
    return run


def overlapping(cupy: Cupy) -> list[tuple[Work, Work]]:
    """Copies and kernels of which neither waits for the other."""
    works = cupy.state.timeline.works
    copies = [w for w in works if " to " in w.what]
    kernels = [w for w in works if " to " not in w.what and w.what != "memset"]
    return [(c, k) for c in copies for k in kernels if not c.waits_for(k) and not k.waits_for(c)]


@pytest.mark.parametrize("name", WITH_GPUS)
def test_samples_give_the_values_that_numpy_gives(name: str, double: Doubles) -> None:
    cupy = double(2)
    on_gpu = ggmltool.load(sample(name, "cupy")).compute()
    assert any(w.what == "matmul" or w.stream for w in cupy.state.timeline.works)
    on_host = ggmltool.load(sample(name, "numpy")).compute()
    assert on_gpu.keys() == on_host.keys()
    for id, values in on_host.items():
        assert nmse(on_gpu[id], values) <= 5e-4


def test_everything_that_is_announced_is_the_same_on_both(double: Doubles) -> None:
    double(2)
    stories: list[list[Event]] = []
    for engine in ("cupy", "numpy"):
        events: list[Event] = []
        ggmltool.load(sample("pipeline", engine)).start(events.append, values=True).run(
            ggmltool.load(sample("pipeline", engine)).steps(
                ["reserve main", "alloc main", "compute main", {"get": ["y"]}]
            )
        )
        stories.append(events)
    assert stories[0] == stories[1]


@pytest.mark.parametrize("devices", [1, 2])
def test_copies_overlap_with_computing_in_the_pipeline(devices: int, double: Doubles) -> None:
    cupy = double(devices)
    batches(sample("pipeline"), 4)
    assert cupy.state.timeline.calls.count("synchronize event") == 4
    both = overlapping(cupy)
    # The next batch's input goes to the first GPU while a GPU computes, and what crosses between them beside that.
    assert any(c.what == "host to device" for c, _ in both)
    assert any(c.what in ("device to device", "device to peer") for c, _ in both)


def test_the_last_batch_of_the_pipeline_has_its_values(double: Doubles) -> None:
    double(1)
    got = batches(sample("pipeline"), 4).get("y")
    expected = batches(sample("pipeline", "numpy"), 4).get("y")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


def test_a_batch_more_than_there_are_copies_may_overwrite_what_is_still_read_as_in_ggml(double: Doubles) -> None:
    # ggml has the reader's stream wait for the reader, and copies on the other stream, which waits for nobody.
    double(1)
    with pytest.raises(Race, match="device to device on stream 2 does not wait for"):
        batches(sample("pipeline"), 5)


def test_without_copies_of_the_pipeline_a_batch_waits_for_the_last(double: Doubles) -> None:
    cupy = double(1)
    source = sample("pipeline")
    source["scheduler"] = {"parallel": False}
    batches(source, 3)
    inputs = [w for w in cupy.state.timeline.works if w.what == "host to device"][2:]
    kernels = [w for w in cupy.state.timeline.works if w.what == "matmul"]
    for i, copied in enumerate(inputs[1:], 1):
        assert all(copied.waits_for(k) for k in kernels[: 2 * i - 1])


def alone(source: dict[str, Any]) -> dict[str, Any]:
    """The pipeline with both halves on its first GPU."""
    source["contexts"]["second"]["buft"] = "CUDA0"
    return source


def test_a_gpu_alone_can_have_any_number_of_batches(double: Doubles) -> None:
    double(1)
    got = batches(alone(sample("pipeline")), 9).get("y")
    np.testing.assert_allclose(got, batches(alone(sample("pipeline", "numpy")), 9).get("y"), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("call", ["record", "synchronize"])
def test_what_ggml_does_with_events_is_needed(call: str, double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    double(1)
    real = Queue.event

    def without(self: Queue, what: str, copy: int) -> None:
        if what != call:
            real(self, what, copy)

    monkeypatch.setattr(Queue, "event", without)
    # One GPU alone: a stage of the pipeline that lies in one backend.
    with pytest.raises(Race, match="host to device"):
        batches(alone(sample("pipeline")), 5)


def test_a_copy_that_is_not_waited_for_is_noticed(double: Doubles, monkeypatch: pytest.MonkeyPatch) -> None:
    double(1)

    def copy_to(self: Queue, other: Queue, *place: Any) -> None:
        memory, start, to, to_start, size = place
        self.gpu.copy_on(self.stream, memory, start, other.gpu, to, to_start, size)

    monkeypatch.setattr(Queue, "copy_to", copy_to)
    with pytest.raises(Race, match="does not wait for device to device"):
        batches(sample("pipeline"), 1)


def test_no_stream_is_waited_for_that_ggml_does_not_wait_for(double: Doubles) -> None:
    cupy = double(1)
    events: list[Event] = []
    scenario = ggmltool.load(sample("transformer", "cupy"))
    run = scenario.start(events.append, values=True)
    name = scenario.graph_name()
    assert run.reserve(name).ok
    assert run.alloc(name).ok
    # Memory is allocated when it is first used, and that waits.
    run.compute(name)
    events.clear()
    calls = cupy.state.timeline.calls
    calls.clear()
    run.compute(name)
    waited = [e for e in events if isinstance(e, Synchronized) and e.backend != "CPU"]
    waited += [e for e in events if isinstance(e, EventCall) and e.call == "synchronize"]  # type: ignore[misc]
    blocking = [
        e for e in events if isinstance(e, TensorCopied) and e.how != "async" and "CUDA" in e.src_buft + e.dst_buft
    ]
    found = [c for c in calls if c.startswith("synchronize")]
    assert len(found) == len(waited) + len(blocking)


def test_all_work_goes_to_streams_that_wait_for_no_other_by_themselves(double: Doubles) -> None:
    cupy = double(1)
    ggmltool.load(sample("transformer", "cupy")).compute()
    trial = [w for w in cupy.state.timeline.works if w.stream == 0]
    # Only the trial when the GPUs are looked for goes to the null stream.
    assert [w.what for w in trial] == ["arange", "ndarray.reshape", "matmul", "ndarray.sum"]


BLOCK = 20


def with_engine(source: dict[str, Any], engine: str) -> dict[str, Any]:
    """The scenario, computed by `engine` on all backends that it can stand for, and by numpy on the others."""
    backends = [{"name": b} if isinstance(b, str) else dict(b) for b in source["backends"]]
    asked = {**source, "backends": [b | {"engine": engine} for b in backends]}
    model = ggmltool.load(asked).model
    bufts = make_bufts(model)
    for backend, found in zip(
        asked["backends"], computing(model, make_backends(model, bufts), bufts.values()), strict=True
    ):
        if found.refusal:
            backend["engine"] = "numpy"
    return asked


def first_values(source: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """The run up to the values that are read first, or up to a refusal."""
    loaded = ggmltool.load(source)
    run = loaded.start(values=True)
    for step in loaded.steps():
        got = run.step(step)
        if isinstance(got, dict):
            return run, got
        if run.plans and not run.plans[-1].ok:
            break
    return run, {}


def refusals(run: Run) -> list[dict[str, Any]]:
    """What ggml refuses, in its own words: an explanation may name a value, whose last digit is the processor's."""
    return [{key: value for key, value in p.error or () if key != "explanation"} for p in run.plans]


def apart(got: Any, expected: Any) -> float:
    """The NMSE of what is finite; infinite where other elements are not."""
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    got, expected = got[finite].astype(np.float64), expected[finite].astype(np.float64)
    error, power = np.square(got - expected).sum(), np.square(expected).sum()
    return float(error / power) if power else float(error)


@pytest.mark.parametrize("first", range(0, 100, BLOCK))
def test_random_graphs_give_the_values_of_numpy(first: int, double: Doubles) -> None:
    on_gpu = 0
    wrong: dict[int, Any] = {}
    for seed in range(first, first + BLOCK):
        cupy = double(2, 1 << 40)
        source = scenario(seed, values=True)
        run, got = first_values(with_engine(source, "cupy"))
        on_gpu += any(b.engine == "cupy" for b in run.backends)
        host, expected = first_values(with_engine(source, "numpy"))
        if refusals(run) != refusals(host) or got.keys() != expected.keys():
            wrong[seed] = [p.error for p in run.plans if not p.ok]
        # What the CPU rounds to 8 bits or a half before it multiplies grows from node to node.
        allowed = 1e-2 if any(t in str(source["contexts"]) for t in ("f16", "_0", "_1", "_K", "_nl", "fp4")) else 1e-5
        far = {id: apart(got[id], values) for id, values in expected.items() if apart(got[id], values) > allowed}
        if far:
            wrong[seed] = far
        assert all(
            w.stream or w.what in ("arange", "ndarray.reshape", "matmul", "ndarray.sum")
            for w in cupy.state.timeline.works
        )
    assert wrong == {}
    assert on_gpu > BLOCK // 4


FEWER = {"lightning_indexer": 8, "flash_attn_ext": 4}
"""Of these ops only one case in so many, since they are large."""

WAITS = frozenset(("asnumpy", "bool", "float", "index", "int", "item", "nonzero", "tolist", "unique"))
"""Calls for which the host waits."""

WAITING = frozenset(("mul_mat_id", "win_part", "win_unpart", "get_rel_pos", "im2col_back", "pool_2d_back"))
"""Ops that wait: mul_mat_id for the choice of experts, as in ggml, and some that ggml has on no GPU."""

READ_BY_HOST = frozenset(t.name for t in TYPES.values() if t.quantized and not can_decode(t))
WRITTEN_BY_HOST = frozenset(t.name for t in TYPES.values() if t.quantized and not can_encode(t))
"""Types that the host converts."""

CASES: dict[str, list[Call]] = defaultdict(list)
for _case in compared():
    CASES[_case.fn].append(_case)


@pytest.mark.parametrize("fn", CASES)
def test_a_gpu_gives_what_the_host_gives(fn: str, double: Doubles) -> None:
    cupy = double()
    cupy.state.timeline.races = False
    found, calls = find(), cupy.state.timeline.calls
    assert found.gpus, found.why
    calls.clear()
    waited = set()

    def computed(case: Call) -> None:
        by_host = WRITTEN_BY_HOST if fn in ("cpy", "set_rows", "add_cast", "add") else READ_BY_HOST
        if not any(s is not None and s.type in by_host for s in case.sources):
            waited.update(WAITS.intersection(calls))
        calls.clear()

    assert differing(CASES[fn][:: FEWER.get(fn, 1)], found.gpus[0], computed) == []
    assert fn in WAITING or not waited
