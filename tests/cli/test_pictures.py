"""The pictures of the README: what they show is what the commands still draw.

GGMLTOOL_UPDATE_GOLDEN=1 draws them anew, which needs Graphviz and Chromium.
"""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import UPDATE, check_golden
from tests.needs import needs_chromium, needs_dot

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = SAMPLES / "pictures"
DRAWN = {
    "transformer.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "transformer.yaml"),
    "gemma-3-270m-ngl9.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
    "overview.svg": ("dot", "--overview", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
}
"""Laid out by Graphviz, which places things as its version and its fonts do: their words are compared."""

MAPS = {
    "memory.svg": ("buffers", SAMPLES / "transformer.yaml"),
    "memory-gemma-3-270m-ngl9.svg": ("buffers", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
}
"""Drawn by ggmltool alone: compared byte for byte."""

PAGE = "report.png"
"""The page of a report in a browser."""


def texts(svg: str) -> Counter[str]:
    """The words that a picture shows, and the names of its nodes and edges."""
    found = re.findall(r"<(?:text|title)\b[^>]*>([^<]*)</", svg)
    return Counter(html.unescape(text).replace("\xa0", " ").strip() for text in found)


@needs_dot
@pytest.mark.parametrize("picture", DRAWN)
def test_a_drawing_shows_what_is_drawn_now(call: Call, picture: str) -> None:
    assert call(*DRAWN[picture], "-o", picture).status == 0
    drawn = Path(picture).read_text("utf-8")
    if os.environ.get(UPDATE):
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / picture).write_text(drawn, "utf-8")
    assert texts((PICTURES / picture).read_text("utf-8")) == texts(drawn)


@pytest.mark.parametrize("picture", MAPS)
def test_a_map_is_what_is_drawn_now(call: Call, picture: str) -> None:
    assert call(*MAPS[picture], "-o", picture).status == 0
    check_golden(PICTURES / picture, Path(picture).read_text("utf-8"))


@pytest.mark.parametrize("picture", [*DRAWN, *MAPS])
def test_a_picture_is_small_and_needs_nothing_else(picture: str) -> None:
    svg = (PICTURES / picture).read_text("utf-8")
    assert len(svg) < 300_000
    assert "\\x" not in svg
    assert not re.search(r"<script|<image|@import|@font-face|url\((?!#)", svg)
    assert set(re.findall(r"https?://[^/\"\s]+", svg)) == {"http://www.w3.org"}


def test_every_picture_is_one_of_these_and_shown() -> None:
    assert {path.name for path in PICTURES.iterdir()} == {*DRAWN, *MAPS, PAGE}
    pages = [SAMPLES.parent / "README.md", *(SAMPLES.parent / "ggmltool" / "docs").glob("*.md")]
    shown = "".join(path.read_text("utf-8") for path in pages)
    assert not [name for name in (*DRAWN, *MAPS, PAGE) if f"sample_graphs/pictures/{name}" not in shown]


@needs_chromium
def test_the_picture_of_the_page_is_of_the_page(call: Call, tmp_path: Path, browser: Browser) -> None:
    """The browser's fonts are its own, so it is not compared pixel by pixel: what it shows must be on the page."""
    call("report", "-o", "report.html", SAMPLES / "transformer.yaml")
    with browser.new_page(viewport={"width": 1180, "height": 800}) as page:
        page.goto((tmp_path / "report.html").as_uri())
        page.wait_for_selector("[data-ready=true]")
        page.get_by_role("button", name="kq", exact=True).first.click()
        page.locator("#memory").evaluate("section => section.scrollIntoView({behavior: 'instant'})")
        page.get_by_role("button", name="when it got them").click()
        assert "it goes with its neighbor" in page.inner_text("body")
        picture = page.screenshot()
    if os.environ.get(UPDATE):
        (PICTURES / PAGE).write_bytes(picture)
    kept = (PICTURES / PAGE).read_bytes()
    assert kept[16:24] == picture[16:24]  # its width and height
    assert len(kept) < 300_000
