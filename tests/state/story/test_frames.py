"""The call stacks of points: functions that the release has, with its parameters, each called by the next."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.events import Allocated, Freed, TensorCopied
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.samples import samples
from ggmltool.state.story.arguments import ArgumentPointer
from ggmltool.state.story.calls import MAIN, calls_of
from ggmltool.state.story.history import History, record_history

FUNCTIONS = Path(__file__).parent / "functions"
"""Of each release the functions in ggml-alloc.c and ggml-backend.cpp, as they are defined there."""


def names(history: History, kind: type) -> list[str]:
    """The functions on the stack of the first event of a kind."""
    at = next(i for i, point in enumerate(history.points) if isinstance(point.event, kind))
    return [frame.function for frame in history.stack(at)]


@pytest.mark.parametrize("release", RELEASES)
def test_functions_are_in_the_release(release: str) -> None:
    source = (FUNCTIONS / f"{release}.txt").read_text("utf-8").splitlines()
    calls = calls_of(release)
    of_devices = {function for last in calls.last.values() for function in last.values()}
    assert of_devices <= calls.callers.keys()
    own = {f for f in calls.callers.keys() - of_devices if "." not in f}
    assert {f"{function}({', '.join(calls.parameters[function])})" for function in own} <= set(source)
    assert {caller for callers in calls.callers.values() for caller in callers} <= calls.callers.keys() | {MAIN}
    assert set(calls.instead.values()) <= calls.callers.keys()


def test_allocating_stands_under_all_that_called_it() -> None:
    history = record_history(ggmltool.load("chunks"))
    assert names(history, Allocated) == [
        "ggml_dyn_tallocr_alloc",
        "ggml_gallocr_allocate_node",
        "ggml_gallocr_alloc_graph_impl",
        "ggml_gallocr_reserve_n_impl",
        "ggml_gallocr_reserve_n",
        "ggml_backend_sched_reserve",
        "main",
    ]


def test_in_march_2025_a_tensor_is_freed_and_not_bytes() -> None:
    history = record_history(ggmltool.load("march-2025"))
    assert names(history, Freed)[:2] == ["ggml_dyn_tallocr_free_tensor", "ggml_gallocr_free_node"]
    at = next(i for i, point in enumerate(history.points) if isinstance(point.event, Freed))
    event = history.points[at].event
    assert isinstance(event, Freed)
    arguments = dict(history.stack(at)[0].arguments)
    assert arguments["offset"] == event.offset
    assert history.cells(at)["tensor", arguments["tensor"].index].id == event.tensor  # type: ignore[union-attr,index]


def test_january_2024_has_other_functions() -> None:
    history = record_history(ggmltool.load("four-passes"), compute=True)
    assert history.release == "2024-01"
    assert names(history, Allocated) == [
        "ggml_tallocr_alloc",
        "allocate_node",
        "ggml_tallocr_alloc_graph_impl",
        "ggml_gallocr_alloc_graph_n",
        "sched_alloc_splits",
        "ggml_backend_sched_init_measure",
        "main",
    ]


def test_a_copy_is_made_by_what_the_devices_have() -> None:
    history = record_history(ggmltool.load("offload"), compute=True)
    at = next(i for i, point in enumerate(history.points) if isinstance(point.event, TensorCopied))
    functions = [frame.function for frame in history.stack(at)]
    assert functions[-5:] == [
        "ggml_backend_sched_copy_input",
        "ggml_backend_sched_compute_splits",
        "ggml_backend_sched_graph_compute_async",
        "ggml_backend_sched_graph_compute",
        "main",
    ]
    frame = next(frame for frame in history.stack(at) if frame.function == "ggml_backend_sched_copy_input")
    assert dict(frame.arguments)["split"] == ArgumentPointer("split", 0)


@pytest.mark.parametrize("path", [p for p in samples() if p.suffix == ".yaml"], ids=lambda p: p.name)
def test_every_stack_is_a_way_to_main(path: Path) -> None:
    history = record_history(ggmltool.load(path), compute=False)
    calls = calls_of(history.release)
    seen = set()
    for at in range(len(history.points)):
        functions = history.functions(at)
        assert functions[-1] == MAIN
        known = [f for f in functions if f in calls.callers or f == MAIN]
        assert all(outer in calls.callers[inner] for inner, outer in pairwise(known))
        assert len(functions) - len(known) <= 1
        if functions not in seen:
            seen.add(functions)
            assert [frame.function for frame in history.stack(at)] == list(functions)


@pytest.mark.parametrize("sample", ["inplace", "preallocated", "buffer-not-set", "four-passes"])
def test_a_frame_is_that_of_the_stack(sample: str) -> None:
    history = record_history(ggmltool.load(sample), compute=False)
    for at in range(len(history.points)):
        stack = history.stack(at)
        assert tuple(history.frame(at, n) for n in range(len(stack))) == stack
        assert history.frame(at, len(stack)) is history.frame(at, -1) is None
