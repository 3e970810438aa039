"""What the screen reads from events is what the engine's own state says, at every point, in every release."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ggmltool.ask.lifetime.record import Lifetimes
from ggmltool.debugger.screen.scene import Scene
from ggmltool.inspect.opened import Moment
from tests.debugger.screen.screens import history_of

SAMPLES = [
    ("inplace", False),
    ("moe", False),
    ("chunks", False),
    ("views", False),
    ("transformer", False),
    ("outgrown", False),
    ("pipeline", False),
    ("march-2025", False),
    ("versions-memory", False),
    ("four-passes", True),
]


@pytest.mark.parametrize(("sample", "compute"), SAMPLES)
def test_tensors_and_free_blocks_fill_every_chunk_at_every_point(sample: str, compute: bool) -> None:
    opened, history = history_of(sample, compute)
    scene = Scene(opened, history)
    measured = scene.timeline.work[1].last
    seen = 0
    for at in range(scene.last + 1):
        now = scene.now(at)
        for chunk in now.chunks:
            b = scene.bufts.index(chunk.place[0])
            free = now.cells.get(("free", b, chunk.place[1]))
            if free is None or now.planning is None:
                continue
            if sample == "four-passes" and not scene.timeline.work[1].first < now.planning.nodes[0][0] <= at < measured:
                continue  # the program itself allocates inputs there, before the allocator is told of them
            end = 0
            blocks = [(s.offset, s.size_at(at)) for s in chunk.spans] + list(free)
            for offset, size in sorted(blocks):
                assert offset == end, (at, chunk.place, blocks)
                end = offset + size
            assert end >= now.cells[("max_size", b, chunk.place[1])]
            seen += bool(chunk.spans)
    assert seen > 3


@pytest.mark.parametrize("sample", ["inplace", "moe", "transformer", "views"])
def test_the_spans_of_a_plan_are_the_lifetimes_of_the_allocator(sample: str) -> None:
    opened, history = history_of(sample)
    scene = Scene(opened, history)
    memory = Lifetimes(opened, Moment(step="reserve")).memory
    plan = scene.timeline.plannings[0]
    assert [(s.tensor, *s.place, s.offset, s.size, s.start, s.end, s.kept, s.reused) for s in plan.spans] == [
        (x.tensor, x.buft, x.chunk, x.offset, x.size, x.start, x.end, x.kept, x.reused) for x in memory.lifetimes
    ]
    assert [name for _, name in plan.nodes] == list(memory.nodes)


@pytest.mark.parametrize(("sample", "compute"), SAMPLES)
def test_ranges_that_touch_have_different_shades(sample: str, compute: bool) -> None:
    scene = Scene(*history_of(sample, compute))
    for plan in scene.timeline.plannings:
        for at in [s.first for s in plan.spans]:
            there = sorted((s for s in plan.spans if s.alive(at)), key=lambda s: (s.place, s.offset))
            for one, next_ in pairwise(there):
                if one.place == next_.place and one.offset + one.size == next_.offset and one.trim < 0:
                    assert one.shade != next_.shade
