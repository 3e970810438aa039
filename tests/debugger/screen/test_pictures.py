"""Whole screens as text, at the smallest size and at a large one, and what colors say on them.

`GGMLTOOL_SCREENS=folder pytest tests/debugger/screen/test_pictures.py` writes each as an SVG, too, to be looked at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import ggmltool
from ggmltool.debugger.screen.app import DebuggerApp
from ggmltool.debugger.screen.look import Look
from ggmltool.debugger.screen.pane import Pane
from ggmltool.show.colors import DARK, LIGHT, colors
from tests.debugger.screen.screens import GOLDEN, SMALL, WIDE, app_of, drive, press, seen, settled, text_of
from tests.golden import check_golden

SCREENS = {
    "inplace": ("inplace", "g '94 enter", False),
    "inplace_memory": ("inplace", "g '118 enter 2", False),
    "inplace_over_time": ("inplace", "g '118 enter m", False),
    "inplace_details": ("inplace", "g '93 enter 3", False),
    "four_passes": ("four-passes", "g 'masked enter g '77 enter", True),
    "four_passes_details": ("four-passes", "g '77 enter 3", True),
    "moe_copies": ("moe", "N N", False),
    "chunks": ("chunks", "end P right right right 2", False),
    "march_2025": ("march-2025", "slash 'free enter", False),
    "versions_memory": ("versions-memory", "n n n n n n b", False),
    "transformer": ("transformer", "slash 'soft_max enter n", False),
    "refused": ("preallocated", "end", False),
    "find_and_breakpoint": ("inplace", "g 'later enter b slash 'x6 enter", False),
}
"""Screens by their names: a sample, the keys, and whether it computes."""


def picture(name: str, size: tuple[int, int]) -> str:
    sample, keys, compute = SCREENS[name]

    def look(app: DebuggerApp) -> str:
        if folder := os.environ.get("GGMLTOOL_SCREENS"):
            Path(folder, f"{name}_{size[0]}x{size[1]}.svg").write_text(app.export_screenshot(), "utf-8")
        return text_of(app)

    return seen(look, keys, sample=sample, size=size, compute=compute)[0]


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_accepted(name: str, size: tuple[int, int]) -> None:
    check_golden(GOLDEN / f"{name}_{size[0]}x{size[1]}.txt", picture(name, size))


def test_a_screen_is_as_large_as_its_terminal_whatever_that_becomes() -> None:
    app = app_of("inplace")

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, "g '94 enter")
        for width, height, panes in ((80, 24, 2), (120, 40, 4), (200, 60, 5), (40, 10, 1), (20, 6, 1), (80, 24, 2)):
            await pilot.resize_terminal(width, height)
            await settled(pilot)
            lines = text_of(app).splitlines()
            assert len(lines) == height
            assert max(map(len, lines)) <= width
            assert sum(pane.display for pane in app.panes) == panes
            assert (app.now.at, app.selected) == (94, "x2")

    drive(app, do)


@pytest.mark.parametrize("dark", [True, False])
def test_backends_have_their_colors_in_graph_and_memory(dark: bool) -> None:
    app = app_of("moe", dark=dark)
    ground = DARK if dark else LIGHT

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, "g '100 enter")
        own = colors(app.scene.backends)
        for backend, word in (("CUDA0", "logits"), ("CPU", "weights")):
            styles = _styles(app.query_one("#graph", Pane), word)
            ink = own[backend].dark_ink if dark else own[backend].ink
            assert (ink.lower(), ground.paper) in styles[backend]
        paints = {paint for found in _styles(app.query_one("#map", Pane), "probs").values() for _, paint in found}
        shades = {app.look.range("CUDA0", shade).bgcolor for shade in range(4)}
        assert paints & {s.get_truecolor().hex for s in shades if s is not None}

    drive(app, do, WIDE)


def _styles(pane: Pane, word: str) -> dict[str, set[tuple[str, str]]]:
    """The colors (ink, paper) of each word in the lines that have a word."""
    out: dict[str, set[tuple[str, str]]] = {}
    for y in range(pane.scrollable_content_region.height):
        strip = pane.render_line(y)
        if word not in strip.text:
            continue
        for segment in strip:
            style = segment.style
            if style is not None and style.color is not None and style.bgcolor is not None:
                pair = style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex
                out.setdefault(segment.text.strip(), set()).add(pair)
    return out


def test_without_colors_there_are_none_and_ranges_are_still_told_apart() -> None:
    app = app_of("inplace", colored=False)

    async def do(pilot: Pilot[None]) -> None:
        await press(pilot, "g '118 enter 2")
        for name in ("#graph", "#map", "#events", "#story"):
            pane = app.query_one(name, Pane)
            for y in range(pane.scrollable_content_region.height):
                for segment in pane.render_line(y):
                    assert segment.style is None or (segment.style.color is None and segment.style.bgcolor is None)
        text = text_of(app)
        assert "|later" in text
        assert "|x3" in text
        assert "░" in text

    drive(app, do)


def test_a_shade_is_there_for_each_number() -> None:
    look = Look(["CPU"])
    assert len({look.range("CPU", shade).bgcolor for shade in range(4)}) == 4


EVIL = ("[bold]x[/bold][@click=app.quit]y[/]", "a\u202eb", "行列乗算" * 6, "e" + "\u0301" * 40)
"""Names: with markup, that turn the direction, of wide letters, and of one with many marks."""


@pytest.mark.parametrize("size", [SMALL, WIDE], ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_name_is_only_a_name(size: tuple[int, int], tmp_path: Path) -> None:
    nodes: dict[str, Any] = {name: {"op": "mul_mat", "src": ["w", "x"]} for name in EVIL}
    scenario = {
        "ggmltool": 1,
        "name": "".join(EVIL),
        "backends": ["CUDA0", "CPU"],
        "contexts": {
            "w": {"buft": "CPU", "usage": "weights", "tensors": {"w": "f32[64, 64]"}},
            "in": {"tensors": {"x": {"type": "f32", "ne": [64, 4], "flags": ["input"]}}},
        },
        "graphs": {
            "main": {
                "nodes": nodes
                | {f"y{i}": {"op": "sqr", "src": [name]} for i, name in enumerate(EVIL)}
                | {"z": {"op": "add", "src": ["y0", "y3"]}, "end": {"op": "add", "src": ["y1", "y2"]}}
            }
        },
    }
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(scenario))
    app = app_of(str(path))

    async def do(pilot: Pilot[None]) -> None:
        selected = set()
        for keys in ("slash 'z enter n n n n", "1", "2", "m", "4", "5", "escape home 3 n", *["n"] * 12):
            await press(pilot, keys)
            selected.add(app.selected)
            lines = text_of(app).splitlines()
            assert len(lines) == size[1]
            assert all(line.isprintable() for line in lines)
            assert app.is_running
            for pane in app.panes:
                if pane.display:
                    for y in range(pane.scrollable_content_region.height):
                        assert pane.render_line(y).cell_length == pane.scrollable_content_region.width
        shown = "".join(text_of(app).split())
        assert "\x1b" not in shown
        assert selected >= set(EVIL)

    drive(app, do, size)


def test_the_manual_shows_what_is_on_the_screen() -> None:
    page = (Path(ggmltool.__file__).parent / "docs" / "tui.md").read_text("utf-8")
    assert f"```text\n{picture('inplace', (78, 22))}```" in page
