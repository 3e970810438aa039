"""The state at every point is the one that ggml has then: nothing is there before it is told, and looking changes
nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.events import SPLIT_GRAPH, Allocated, Assigned, Entered, Event, Freed, Left, Reused
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.samples import samples
from ggmltool.state.story.points import Cells
from ggmltool.state.story.shadow import cells_of

SAMPLES = [path for path in samples() if path.suffix == ".yaml"]


def steps(run: Run) -> None:
    for step in run.model.steps:
        if step.kind in ("reserve", "alloc", "reset"):
            run.step(step)


def told(path: Path, look: bool) -> tuple[list[Event], list[Cells], Cells]:
    """The events of a run, and the state at each if somebody looks; the state at the end."""
    events: list[Event] = []
    states: list[Cells] = []

    def hear(event: Event) -> None:
        events.append(event)
        if look:
            states.append(cells_of(run))

    run = ggmltool.load(path).start(hear)
    steps(run)
    return events, states, cells_of(run)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_looking_changes_nothing(path: Path) -> None:
    seen, _, end = told(path, look=True)
    unseen, _, silent_end = told(path, look=False)
    assert seen == unseen
    assert end == silent_end


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_a_backend_is_there_when_it_is_told_and_not_before(path: Path) -> None:
    events, states, _ = told(path, look=True)
    splitting = False
    for at, event in enumerate(events):
        if isinstance(event, Entered | Left) and event.function in SPLIT_GRAPH:
            splitting = isinstance(event, Entered)
            continue
        if not splitting or event is events[0]:
            continue
        before, now = states[at - 1], states[at]
        given = {key[1] for key, b in now.items() if key[0] == "id" and b not in (-1, before.get(key, -1))}
        if isinstance(event, Assigned):
            cells = {key[1]: cell for key, cell in now.items() if key[0] == "tensor"}
            assert {cells[t].id or cells[t].name for t in given} <= {event.tensor}
            assert all(now["cause", t] == event.cause for t in given if event.rule)
        else:
            copies = {key[1] for key in now if key[0] == "copies" and key not in before}
            assert not given or (copies and ggmltool.load(path).model.release.name == "2024-01")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_memory_is_taken_and_given_back_when_it_is_told(path: Path) -> None:
    events, states, _ = told(path, look=True)
    for at, event in enumerate(events[1:], 1):
        before, now = states[at - 1], states[at]
        changed = {key: blocks for key, blocks in now.items() if key[0] == "free" and blocks != before.get(key)}
        if isinstance(event, Allocated | Freed):
            # Buffer ids of one buffer type have one planner.
            assert len(set(changed.values())) <= 1
        elif isinstance(event, Reused):
            assert not changed
