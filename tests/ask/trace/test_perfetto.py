"""What Perfetto gets, read by a checker of its own that knows the format and nothing of who wrote it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.api.loading import load
from ggmltool.ask.trace.perfetto import measured_trace, planned_trace
from ggmltool.ask.trace.record import TraceLine, calls_of, trace_steps
from ggmltool.ask.trace.tracks import PlanTimes
from ggmltool.estimate.timeline import duration
from ggmltool.ggml.events import Computed, Grown, Synchronized, TensorCopied, TensorWritten
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from ggmltool.scenario.errors import ScenarioError
from ggmltool.show.perfetto import COMPUTE, COPIES, HOST, Clock, PerfettoTrace, perfetto_text
from ggmltool.state.story.history import record_history
from tests.conformance.fuzz import scenario
from tests.conformance.fuzz_wide import wide_scenario

SAMPLES = Path(__file__).resolve().parents[3] / "sample_graphs"
FIELDS = {
    "M": {"args"}, "X": {"ts", "dur", "cat", "args"}, "i": {"ts", "s", "cat", "args"}, "C": {"ts", "args"},
    "s": {"ts", "id", "cat"}, "t": {"ts", "id", "cat", "bp"}, "f": {"ts", "id", "cat", "bp"},
}  # fmt: skip
"""What an event of each phase has besides name, process and thread, by the description of the format."""


def opened(spec: Any, ggml: str | None = None) -> Opened:
    return Opened(load(spec, ggml), str(spec) if isinstance(spec, Path) else "random")


def ns(microseconds: float) -> int:
    whole = round(microseconds * 1000)
    assert abs(microseconds * 1000 - whole) < 1e-3
    return whole


def checked(trace: PerfettoTrace) -> list[dict[str, Any]]:
    """The events of a trace, every rule of the format checked."""
    document = json.loads(perfetto_text(trace))
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    events: list[dict[str, Any]] = document["traceEvents"]
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    assert len({tid for _, tid in threads}) == len(threads), "a number of a thread is one thread's"
    for e in events:
        own = {"ph", "name", "pid"} | FIELDS[e["ph"]]
        assert set(e) | {"tid", "ts"} == own | {"tid", "ts"}, e
        assert e["pid"] in processes
        assert e["ph"] in "MC" or (e["pid"], e["tid"]) in threads
        assert isinstance(e["name"], str)
    timed = [e for e in events if e["ph"] != "M"]
    assert [e["ts"] for e in timed] == sorted(e["ts"] for e in timed)
    check_nesting(timed)
    for e in timed:
        assert e["ph"] != "C" or all(isinstance(v, int) and v >= 0 for v in e["args"].values())
    return events


def check_nesting(timed: list[dict[str, Any]]) -> None:
    """Slices within slices, and arrows at the innermost slice that stands open, from one that is made to one read."""
    stacks: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)
    arrows: dict[int, str] = defaultdict(str)
    for e in timed:
        stack = stacks[e["pid"], e.get("tid", 0)]
        at = ns(e["ts"])
        if e["ph"] == "X":
            while stack and stack[-1][1] <= at:
                stack.pop()
            end = at + ns(e["dur"])
            assert end >= at
            assert not stack or end <= stack[-1][1], (e, stack)
            stack.append((e["name"], end))
        elif e["ph"] in "stf":
            assert stack
            assert stack[-1][1] > at, "an arrow is of a slice that stands open"
            arrows[e["id"]] += e["ph"]
    assert set(arrows.values()) <= {"sf", "stf"}


def peaks(trace: PerfettoTrace) -> dict[tuple[str, str], int]:
    out: dict[tuple[str, str], int] = {}
    for level in trace.counters:
        key = level.process, level.name
        out[key] = max(out.get(key, 0), level.values["live"])
    return out


def seeds_of(ggml: str, n: int) -> range:
    """`n` seeds for a release, which no other has."""
    first = n * list(RELEASES).index(ggml)
    return range(first, first + n)


@pytest.mark.parametrize("ggml", RELEASES)
def test_random_scenarios_are_drawn_by_the_rules(ggml: str) -> None:
    drawn = 0
    for seed in seeds_of(ggml, 72):
        try:
            found = opened(scenario(seed), ggml)
        except ScenarioError:
            continue
        trace = planned_trace(found)
        events = checked(trace)
        assert trace.clock is Clock.ORDER
        drawn += sum(e["ph"] == "X" and e["cat"] == "node" for e in events)
    assert drawn > 10


@pytest.mark.parametrize("ggml", RELEASES)
def test_wide_random_scenarios_are_drawn_by_the_rules(ggml: str) -> None:
    for seed in seeds_of(ggml, 16):
        try:
            found = opened(wide_scenario(seed), ggml)
        except ScenarioError:
            continue
        checked(planned_trace(found))


@pytest.mark.parametrize("ggml", RELEASES)
def test_random_scenarios_that_are_computed_are_drawn_by_the_rules(ggml: str) -> None:
    nodes = 0
    for seed in seeds_of(ggml, 48):
        try:
            found = opened(scenario(seed, values=True), ggml)
        except ScenarioError:
            continue
        trace = measured_trace(found)
        checked(trace)
        assert trace.clock is Clock.MEASURED
        nodes += sum(s.category == "node" for s in trace.slices)
    assert nodes > 5 or not RELEASES[ggml].reserves, "that release has few of the ops"


def test_a_run_of_the_first_scheduler_is_drawn_by_the_rules() -> None:
    trace = measured_trace(opened(SAMPLES / "four-passes.yaml"))
    checked(trace)
    assert len([s for s in trace.slices if s.category == "node"]) > 10
    assert "sched_compute_splits()" in [s.name for s in trace.slices]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sample_is_drawn_with_all_nodes_and_copies_of_its_plan(path: Path) -> None:
    found = opened(path)
    for graph in found.model.graphs:
        alone = (
            replace(found.model, steps=list(found.scenario.steps([f"alloc {graph}"])))
            if found.model.release.reserves
            else None
        )
        if alone is None:
            continue
        one = Opened(type(found.scenario)(alone), path.stem)
        watched = watch(one, Moment(graph), Record(Keep.MEMORY))
        trace = planned_trace(one)
        checked(trace)
        plan = watched.plan
        if not plan.ok:
            assert trace.error is not None
            continue
        assert [s.name for s in trace.slices if s.category == "node"] == [n.id for n in plan.nodes]
        copies = [(s.args["split"], s.name) for s in trace.slices if s.category == "copy"]
        assert sorted(copies) == sorted((s.id, i) for s in plan.splits for i in s.inputs)
        assert len(trace.flows) == len(copies)
        memory = watched.record.memory
        bufts = {buft: name for name, buft in reversed(plan.backends)}
        wanted = {(bufts[b], f"{b} compute buffer"): memory.peak(b) for b in {life.buft for life in memory.lifetimes}}
        assert peaks(trace) == {key: peak.nbytes for key, peak in wanted.items() if peak is not None}


def test_an_arrow_goes_from_who_makes_a_tensor_by_the_copy_to_who_reads_it() -> None:
    trace = planned_trace(opened(SAMPLES / "pipeline.yaml"))
    stops = {a.name: [(s.track.process, s.track.thread, s.name) for s in a.stops] for a in trace.flows}
    assert stops == {
        "x": [("GPU0", COPIES, "x"), ("GPU0", COMPUTE, "h")],
        "act": [("GPU0", COMPUTE, "act"), ("GPU1", COPIES, "act"), ("GPU1", COMPUTE, "y")],
    }
    calls = [s.name for s in trace.of(trace.slices[0].track) if s.track.process == HOST]
    assert next(name for name in calls if "synchronize" in name) == "ggml_backend_event_synchronize(GPU0)"
    assert "ggml_backend_sched_compute_splits" in calls


RATED = """
ggmltool: 1
backends:
- {name: CUDA0, profile: CUDA, rates: RTX 3090}
- {name: CUDA1, profile: CUDA, rates: RTX 3060 12GB}
- {name: CPU, rates: Ryzen 9 7950X}
scheduler: {parallel: true}
contexts:
  w: {buft: CUDA0, usage: weights, tensors: {a: "q8_0[4096, 4096]", b: "q8_0[4096, 4096]"}}
  v: {buft: CUDA1, usage: weights, tensors: {c: "q8_0[4096, 4096]"}}
  h: {buft: CPU, usage: weights, tensors: {d: "q8_0[4096, 64]"}}
  i: {tensors: {x: {type: f32, ne: [4096, 8], flags: [input]}}}
graphs:
  main:
    nodes:
      one: mul_mat(a, x)
      two: mul_mat(b, one)
      three: mul_mat(c, two)
      four: mul_mat(d, three)
"""


@pytest.fixture
def rated(tmp_path: Path) -> Opened:
    path = tmp_path / "rated.yaml"
    path.write_text(RATED)
    return opened(path)


def test_estimated_lanes_are_the_time_table_of_the_estimate(rated: Opened) -> None:
    """What the estimator says of a batch is how long the drawing of it is."""
    trace = planned_trace(rated)
    checked(trace)
    assert trace.clock is Clock.ESTIMATED
    assert "RTX 3090" in trace.about
    plan = watch(rated, Moment()).plan
    batch = PlanTimes(rated.model).batch(plan, 4)
    splits = [s for s in trace.slices if s.category == "split"]
    begin = min(s.start for s in trace.slices if s.category in ("split", "copy"))
    assert max(s.end for s in splits) - begin == pytest.approx(1e9 * duration(batch.steps, 1, 4).mid, abs=10)
    for split, stretch in zip(splits, batch.steps, strict=True):
        assert split.end - split.start == pytest.approx(1e9 * stretch.seconds.mid, abs=3)
        nodes = [s for s in trace.slices if s.category == "node" and s.args["split"] == int(split.name[6:])]
        assert sum(n.end - n.start for n in nodes) == pytest.approx(split.end - split.start, abs=len(nodes) + 1)


def test_a_name_is_text_whatever_it_is() -> None:
    name = '</script>"\\\u202e'
    spec = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4], "name": name}}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
    }
    assert "\u202e" not in perfetto_text(planned_trace(opened(spec)))


def paths_of(calls: list[TraceLine]) -> set[tuple[str, ...]]:
    """The functions on the way to each call, the outermost first."""
    out = set()
    path: list[str] = []
    for call in calls:
        if not call.is_note:
            path = [*path[: call.depth], call.text.partition("(")[0]]
            out.add(tuple(path))
    return out


@pytest.mark.parametrize(
    ("sample", "release"),
    [
        ("four-passes", "2024-01"),
        ("priority", "2025-03"),
        ("pipeline", "0.20.2"),
        ("pipeline", "0.26"),
        ("outgrown", "0.20.2"),
    ],
)
def test_the_way_to_every_call_is_the_debuggers_stack(sample: str, release: str) -> None:
    scenario = ggmltool.load(sample, ggml=release)
    history = record_history(scenario, compute=True)
    steps = calls_of(trace_steps(scenario.opened, compute=True))
    told = paths_of([call for step in steps for call in step])
    kinds = (Computed, Grown, Synchronized, TensorCopied, TensorWritten)
    stacks = {history.functions(at)[-2::-1] for at, p in enumerate(history.points) if isinstance(p.event, kinds)}
    assert stacks
    assert stacks <= told


def test_january_2024_copies_as_its_source_does_and_writes_before_it_computes() -> None:
    found = trace_steps(ggmltool.load("four-passes").opened, compute=True)
    calls = [call.text for call in calls_of(found)[-1] if not call.is_note]
    copy = calls.index("ggml_backend_tensor_copy_async(tok → CUDA0#tok, 512 bytes)")
    assert calls[copy + 1 : copy + 4] == [
        "ggml_backend_tensor_set_async(CUDA0#tok, offset 0, 512 bytes)",
        "ggml_backend_cuda_set_tensor_async(CUDA0)",
        "cudaMemcpyAsync",
    ]
    write = calls.index("ggml_backend_tensor_set(bias, offset 0, 128 bytes)")
    assert write < calls.index("ggml_backend_graph_compute(CPU)  split 2: out, shifted, result")
    assert not any("graph_compute_async" in call for call in calls)


def test_arguments_of_a_copy_in_january_2024_are_those_of_its_split() -> None:
    history = record_history(ggmltool.load("four-passes"), compute=True)
    at = next(at for at, point in enumerate(history.points) if isinstance(point.event, TensorCopied))
    assert [frame.function for frame in history.stack(at)[:3]] == [
        "ggml_backend_cuda_set_tensor_async",
        "ggml_backend_tensor_set_async",
        "ggml_backend_tensor_copy_async",
    ]
    copied = history.labels(at)["CUDA0#tok"]
    for frame in history.stack(at)[:2]:
        arguments = dict(frame.arguments)
        assert (arguments["tensor"].index, arguments["backend"].index) == (copied, 0)  # type: ignore[union-attr]
