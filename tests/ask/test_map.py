"""The memory map: what is drawn is where it lies, nothing covers anything else, and all of it can be read."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ggmltool
from ggmltool.ask.buffers.map import MemoryMap, memory_map
from ggmltool.ask.buffers.svg import map_svg
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.memory import MemoryPlan, TensorLifetime
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.inspect.watched import Keep, Record, watch
from ggmltool.scenario.samples import sample_name, samples
from ggmltool.show.html import picture_page
from ggmltool.show.svg import Box
from tests.ask.drawn import check_drawing, meeting
from tests.ask.plans import EVENTS, GOLDEN, TWO_DEVICES
from tests.conformance.fuzz import scenario as random_scenario
from tests.conformance.fuzz_wide import wide_scenario
from tests.conformance.golden import random_scenarios as judged_scenarios
from tests.golden import check_golden
from tests.lifetimes import memory_plan
from tests.needs import needs_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OLD, SEEDS = ("2025-03", "2024-01"), 12
HOSTILE = "</text><script>alert(1)</script>&\"'\x1b[31m\x00\ud800\u202e"


def at_once(lives: tuple[TensorLifetime, TensorLifetime]) -> bool:
    """Whether two lives have a byte in common at one step: what ggml itself gets wrong is drawn as it is."""
    a, b = lives
    ends = [float("inf") if life.end is None else life.end for life in lives]
    together = a.start <= ends[1] and b.start <= ends[0]
    return together and a.offset < b.offset + b.size and b.offset < a.offset + a.size


def numbers_of(plan: Plan) -> dict[str, int]:
    return {node.id: node.index for node in plan.nodes}


def check_map(plan: Plan, memory: MemoryPlan, title: str) -> MemoryMap:
    """A drawing of these is sound, and its tiles lie as the tensors do."""
    laid = memory_map(plan, memory, numbers_of(plan))
    assert len(check_drawing(map_svg(plan, memory, title, numbers_of(plan))).texts) >= 2
    for panel in laid.panels:
        boxes = [tile.box for tile in panel.tiles]
        for one, other in meeting(boxes):
            assert at_once((panel.tiles[one].life, panel.tiles[other].life))
        for a, b in combinations(panel.tiles, 2):
            if a.life.offset + a.life.size <= b.life.offset:
                assert a.box.y0 >= b.box.y1
        for box in boxes:
            assert panel.frame.x0 <= box.x0 < box.x1 <= panel.frame.x1 + 0.1
            assert panel.frame.y0 - 0.1 <= box.y0 < box.y1 <= panel.frame.y1
    drawn = sum(len(panel.tiles) + len(panel.small) for panel in laid.panels)
    assert drawn == len([life for life in memory.lifetimes if life.size])
    return laid


@pytest.mark.parametrize("sample", [sample_name(path) for path in samples()])
def test_every_sample_is_drawn(sample: str) -> None:
    opened = Opened(ggmltool.load(sample), sample)
    for graph in opened.model.graphs:
        at = watch(opened, Moment(graph, "alloc"), Record(Keep.MEMORY))
        check_map(at.plan, at.record.memory, at.title)


@cache
def random_scenarios(release: str) -> list[Any]:
    """Some for a release; the older ones lack what others may have, so that theirs are those they were judged by."""
    if release in OLD:
        return [recorded["scenario"] for recorded in judged_scenarios(release)[:SEEDS]]
    return [random_scenario(seed) if seed % 2 else wide_scenario(seed) for seed in range(SEEDS)]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_scenarios_are_drawn(seed: int, release: str) -> None:
    scenario = ggmltool.load(random_scenarios(release)[seed], ggml=release)
    for graph in scenario.model.graphs:
        at = watch(Opened(scenario, "it"), Moment(graph, "alloc"), Record(Keep.MEMORY))
        check_map(at.plan, at.record.memory, at.title)


@st.composite
def memories(draw: st.DrawFn) -> MemoryPlan:
    """What an allocator could have planned: in each column of bytes one tensor after the other."""
    n = draw(st.integers(1, 400))
    lives, offset = [], 0
    for lane in range(draw(st.integers(1, 12))):
        size = draw(st.integers(1, 1 << draw(st.integers(1, 40))))
        step = -1
        while step < n and draw(st.integers(0, 5)):
            start = draw(st.integers(step, n - 1))
            end = draw(st.none() | st.integers(start, n - 1))
            name = draw(st.sampled_from(["ffn_out-3", "blk.11.attn_q.weight (view)", HOSTILE, "", "é" * 90]))
            kept = draw(st.booleans())
            lives.append(TensorLifetime(f"{name}{lane}", "CUDA0", 0, offset, size, start, end, kept))
            step = n if end is None else end + 1
        offset += size
    return MemoryPlan(tuple(lives), tuple(f"node-{i // 7}" if i % 3 else HOSTILE for i in range(n)))


@settings(max_examples=60, deadline=None)
@given(memories(), st.sampled_from(["a graph", HOSTILE, "w" * 300]))
def test_whatever_lies_in_memory_is_drawn(memory: MemoryPlan, title: str) -> None:
    laid = check_map(replace(TWO_DEVICES, buffer_sizes=()), memory, title)
    assert bool(laid.panels) == bool(memory.lifetimes)


def test_a_graph_of_thousands_of_nodes_stays_small() -> None:
    n = 10_000
    names = tuple(f"a-name-as-long-as-ggml-lets-tensors-have-them-in-its-struct-{i}" for i in range(n))
    for k in (10, 2_000, n):
        lives = (
            TensorLifetime(names[i], "CUDA0", 0, 1_000_003 * (i % 97), 900_000 + 17 * i, i, min(i + 89, k - 1))
            for i in range(k)
        )
        svg = map_svg(TWO_DEVICES, MemoryPlan(tuple(lives), names[:k]), "many", {})
        assert len(svg) < 1_000_000
        check_drawing(svg)
    assert re.search(r">[1-9]\d\d\d tensors below a pixel, drawn together<", svg)


def test_what_few_nodes_need_leaves_room_for_the_rest() -> None:
    """A tensor a hundred times as large as all others, for one node of many: the scale changes above the others."""
    rest = [TensorLifetime(f"t{i}", "CUDA0", 0, 0, 10 << 20, i, i) for i in range(200)]
    large = TensorLifetime("logits", "CUDA0", 0, 10 << 20, 1 << 30, 150, 151)
    memory = MemoryPlan((*rest, large), tuple(f"n{i}" for i in range(200)))
    (panel,) = check_map(TWO_DEVICES, memory, "logits").panels
    assert panel.bend == 10 << 20
    assert panel.y(0) - panel.y(panel.bend) > 0.6 * (panel.frame.y1 - panel.frame.y0)
    svg = map_svg(TWO_DEVICES, memory, "logits", {})
    assert "the scale changes" in svg
    assert ">logits, 1 GiB<" in svg
    (plain,) = memory_map(TWO_DEVICES, MemoryPlan(tuple(rest), memory.nodes), {}).panels
    assert plain.bend == 0


def test_two_devices_look_as_accepted() -> None:
    check_golden(GOLDEN / "map.svg", map_svg(TWO_DEVICES, memory_plan(EVENTS), "two devices", numbers_of(TWO_DEVICES)))


def test_a_notebook_shows_it() -> None:
    svg = ggmltool.load("moe").memory_map(step="reserve")
    assert svg._repr_svg_() == svg
    assert "reserve main" in svg


@needs_chromium
def test_a_browser_finds_the_words_where_they_are_reckoned(tmp_path: Path, browser: Browser) -> None:
    """In the browser's own fonts no word is wider than the room that was kept for it, and none covers another."""
    where = (
        "[...document.querySelectorAll('text')].map(t => {const b = t.getBoundingClientRect();"
        "return [b.left, b.top, b.right, b.bottom]})"
    )
    with browser.new_page(viewport={"width": 1200, "height": 900}) as page:
        for sample in ("transformer", "gemma-3-270m-ngl9", "chunks"):
            svg = ggmltool.load(sample).memory_map()
            (tmp_path / "map.html").write_text(picture_page(svg, sample), "utf-8")
            page.goto((tmp_path / "map.html").as_uri())
            found = [Box(*box) for box in page.evaluate(where)]
            for text, box in zip(check_drawing(svg).texts, found, strict=True):
                assert text.upright or box.x1 - box.x0 <= text.box.x1 - text.box.x0 + 1, text.words
            assert not meeting([Box(b.x0, b.y0 + 2, b.x1, b.y1 - 2) for b in found])  # lines have room around letters
