"""The lifetimes that a list of events tells of."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.events import Event
from ggmltool.inspect.memory import MemoryPlan, MemoryRecorder


def memory_plan(events: Iterable[Event]) -> MemoryPlan:
    """The lifetimes of the last plan that the events tell of."""
    recorder = MemoryRecorder()
    for event in events:
        recorder.hear(event)
    return recorder.plan
