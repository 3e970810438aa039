"""The memory that the page shows at an event is that of the run when it was announced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ggmltool
from ggmltool.state.story.history import record_history
from tests.ask.report.conftest import SAMPLES
from tests.needs import needs_chromium

if TYPE_CHECKING:
    from tests.ask.report.conftest import Show

pytestmark = needs_chromium

MEMORY = {"AllocationStarted", "Allocated", "Reused", "NotReused", "Freed", "Kept"}

FREE = """(names) => {
  const { model } = store;
  const of = model.events.flatMap((_, e) => names.includes(model.kindOf(e)) ? [e] : []);
  return of.map((e) => model.lanes.map((lane) => ({
    backend: lane.buffer.backend, chunk: lane.chunk, size: lane.size, free: model.free(lane, e),
  })));
}"""


@pytest.mark.parametrize("sample", ["inplace", "chunks", "allocator", "moe", "transformer", "arena", "node-order"])
def test_free_blocks_are_those_of_the_run(show: Show, sample: str) -> None:
    lanes: list[list[dict[str, Any]]] = show(f"{sample}.yaml").js(FREE, sorted(MEMORY))
    history = record_history(ggmltool.load(SAMPLES / f"{sample}.yaml").opened.scenario)
    points = [i for i, point in enumerate(history.points) if type(point.event).__name__ in MEMORY]
    assert lanes
    compared = 0
    for shown, point in zip(lanes, points, strict=False):
        cells = history.cells(point)
        for lane in shown:
            blocks = cells.get(("free", lane["backend"], lane["chunk"]))
            if blocks is not None:
                cut = [[at, min(size, lane["size"] - at)] for at, size in blocks if at < lane["size"] and size]
                assert lane["free"] == cut, (history.points[point], lane)
                compared += 1
    assert compared > len(lanes) // 3
