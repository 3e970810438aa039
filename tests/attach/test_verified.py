"""A process beside its plan: equal, or the first field that is not, in the order in which ggml decides."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ggmltool
from ggmltool.ask.attach.verified import Likely, Stage, verified_view, verify
from ggmltool.attach.state import LeftState
from ggmltool.ggml.alloc.common import INVALID
from ggmltool.ggml.sched.past import past_of
from ggmltool.ggml.sched.state import SchedulerState
from ggmltool.show.table import Style

DOCUMENT: dict[str, Any] = {
    "ggmltool": 1,
    "backends": [{"name": "CUDA0", "profile": "custom", "supports": {"except": ["silu"]}}, {"name": "CPU"}],
    "contexts": {
        "w": {"buft": "CUDA0", "usage": "weights", "tensors": {"w": "f32[8, 8]"}},
        "in": {"tensors": {"x": "f32[8, 4]"}},
    },
    "graphs": {"main": {"nodes": {"y": "mul_mat(w, x)", "z": "silu(y)", "r": "add(y, z)"}}},
}


def shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def decided() -> dict[str, Any]:
    """What a process decides that does as planned."""
    return copy.deepcopy(ggmltool.load(DOCUMENT).plan("main").as_dict())


def test_a_process_that_did_as_planned_is_equal() -> None:
    found = verify(DOCUMENT, "main", "alloc", decided())
    assert found.same
    assert found.first is None
    assert found.fields > 70
    assert "the program did what the plan says" in verified_view(found, "p", Style())


@pytest.mark.parametrize(
    ("path", "value", "stage", "row"),
    [
        (("nodes", 1, "backend"), "CUDA0", Stage.BACKENDS, "z"),
        (("leafs", 0, "backend"), "CPU", Stage.BACKENDS, "w"),
        (("splits", 1, "inputs"), [], Stage.SPLITS, "split 1"),
        (("copies", 0, "name"), "CPU#x#1", Stage.COPIES, "CPU#y#0"),
        (("nodes", 1, "src"), ["y"], Stage.SOURCES, "z"),
        (("nodes", 2, "offset"), 4096, Stage.MEMORY, "r"),
        (("copies", 0, "chunk"), 1, Stage.MEMORY, "CPU#y#0"),
        (("buffer_sizes", "CPU"), 4096, Stage.SIZES, "CPU"),
        (("nodes", 0, "use_count"), 7, Stage.GRAPH, "y"),
    ],
)
def test_one_field_is_found(path: tuple[Any, ...], value: object, stage: Stage, row: str) -> None:
    process = decided()
    where: Any = process
    for key in path[:-1]:
        where = where[key]
    was, where[path[-1]] = where[path[-1]], value
    found = verify(DOCUMENT, "main", "alloc", process)
    assert found.first is not None
    assert (found.different, found.first.stage, found.first.row) == (1, stage, row)
    assert (found.first.process, found.first.plan) == tuple(map(shown, (value, was)))
    text = verified_view(found, "p", Style())
    assert f"{found.first.field} of {row}" in text


def test_the_first_is_the_one_that_ggml_decides_first() -> None:
    process = decided()
    process["buffer_sizes"]["CPU"] = 1
    process["nodes"][0]["offset"] = 1
    process["nodes"][1]["backend"] = "CUDA0"
    found = verify(DOCUMENT, "main", "alloc", process)
    assert found.different == 3
    assert found.first is not None
    assert found.first.stage is Stage.BACKENDS
    text = " ".join(verified_view(found, "p", Style()).split())
    assert "because z is on CPU" in text
    assert "CUDA0 does not support SILU" in text


def test_what_may_be_behind_it_is_said() -> None:
    process = decided()
    process["nodes"][1]["backend"] = "CUDA0"
    assert verify(DOCUMENT, "main", "alloc", process).likely == [Likely.NOT_ASKED, Likely.VERSION]
    guessed = ("the graph was allocated before: user assignments cannot be told",)
    assert Likely.USER in verify(DOCUMENT, "main", "alloc", process, guessed).likely


def test_a_plan_that_ggml_would_refuse_is_a_divergence_too() -> None:
    document = {**DOCUMENT, "scheduler": {"graph_size": 1}}
    found = verify(document, "main", "alloc", decided())
    assert found.first is not None
    assert found.first.stage is Stage.OUTCOME
    assert found.likely[0] is Likely.REFUSED


def test_more_rows_are_told_by_their_number() -> None:
    process = decided()
    process["splits"].append({"id": 3, "backend": "CPU", "i_start": 3, "i_end": 3, "inputs": []})
    found = verify(DOCUMENT, "main", "alloc", process)
    assert found.first is not None
    assert (found.first.field, found.first.process, found.first.plan) == ("number of splits", "4", "3")


def left() -> LeftState:
    """The state in which such a process leaves its scheduler."""
    run = ggmltool.load(DOCUMENT).start()
    run.alloc("main")
    assert isinstance(run.sched, SchedulerState)
    return LeftState(past_of(run.sched), len(run.sched.hash_keys()))


def changed(**fields: Any) -> LeftState:
    return left()._replace(past=replace(left().past, **fields))


def test_what_the_scheduler_keeps_is_compared() -> None:
    process = decided()
    found = verify(DOCUMENT, "main", "alloc", process, left=left())
    assert found.same
    assert found.fields > verify(DOCUMENT, "main", "alloc", process).fields + 20


@pytest.mark.parametrize(("which", "field"), [("prev_node_ids", "nodes"), ("prev_leaf_ids", "leafs")])
def test_the_graph_before_is_compared(which: str, field: str) -> None:
    document = {**DOCUMENT, "scheduler": {"past": {"node_ids": [["CPU", 2]], "leaf_ids": [["CPU", 2]]}}}
    run = ggmltool.load(document).start()
    run.alloc("main")
    assert isinstance(run.sched, SchedulerState)
    ours = past_of(run.sched)
    for before, said in (((1, 1, 5), None), ((0, 1), f"backends of the {field} before")):
        first = verify(
            document, "main", "alloc", decided(), left=LeftState(replace(ours, **{which: before}), None)
        ).first
        assert (first and first.field) == said


@pytest.mark.parametrize(
    ("state", "row", "field"),
    [
        (lambda: left()._replace(keys=3), "", "keys of the hash set"),
        (lambda: changed(cur_copy=1), "", "cur_copy"),
        (lambda: changed(is_alloc=False), "", "is_alloc"),
        (lambda: changed(hash_size=1), "", "hash_size"),
        (lambda: changed(node_ids=(1, 1, 1, 1, 1)), "", "backends of the scheduler's nodes"),
        (lambda: changed(buffers=((1,), (2,))), "CUDA0", "buffers of chunks"),
        (lambda: changed(planners=((), ())), "CUDA0", "planned chunks"),
        (lambda: changed(nodes=left().past.nodes[1:]), "", "number of the allocator's nodes"),
        (lambda: changed(nodes=((INVALID, ()),) * len(left().past.nodes)), "y", "planned place"),
    ],
)
def test_a_field_that_it_keeps_is_found(state: Callable[[], LeftState], row: str, field: str) -> None:
    found = verify(DOCUMENT, "main", "alloc", decided(), left=state())
    assert found.first is not None
    assert found.first.stage is Stage.LEFT
    assert (found.first.row, found.first.field) == (row, field)
    assert "what the scheduler keeps for the next graph" in verified_view(found, "p", Style())
