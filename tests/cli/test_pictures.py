"""The pictures of the README: what they show is what the commands still draw.

GGMLTOOL_UPDATE_GOLDEN=1 draws them anew, which needs Graphviz.
"""

from __future__ import annotations

import html
import io
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.cli.conftest import SAMPLES, Call
from tests.golden import UPDATE
from tests.needs import needs_dot

PICTURES = SAMPLES / "pictures"
DRAWN = {
    "transformer.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "transformer.yaml"),
    "gemma-3-270m-ngl9.svg": ("dot", "--style", "ggmltool", "--fold", SAMPLES / "gemma-3-270m-ngl9.json.gz"),
}
CHART = ("buffers", "--chart", SAMPLES / "moe.yaml")
WIDTH = 90


def texts(svg: str) -> Counter[str]:
    """The words that a picture shows, and the names of its nodes and edges."""
    found = re.findall(r"<(?:text|title)\b[^>]*>([^<]*)</", svg)
    return Counter(html.unescape(text).replace("\xa0", " ").strip() for text in found)


def terminal_svg(text: str) -> str:
    """What a terminal shows as a picture, with whatever monospaced font the reader has."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), end="")
    svg = console.export_svg(title="ggmltool buffers --chart moe.yaml", unique_id="ggmltool")
    return re.sub(r"\s*@font-face \{.*?\}|\s*<!--.*?-->", "", svg, flags=re.DOTALL)


@needs_dot
@pytest.mark.parametrize("picture", DRAWN)
def test_a_drawing_shows_what_is_drawn_now(call: Call, picture: str) -> None:
    assert call(*DRAWN[picture], "-o", picture).status == 0
    drawn = Path(picture).read_text("utf-8")
    if os.environ.get(UPDATE):
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / picture).write_text(drawn, "utf-8")
    assert texts((PICTURES / picture).read_text("utf-8")) == texts(drawn)


def test_the_terminal_shows_what_is_printed_now(call: Call) -> None:
    picture = PICTURES / "buffers-chart.svg"
    result = call(*CHART, "--color", "always", columns=WIDTH)
    if os.environ.get(UPDATE):
        PICTURES.mkdir(exist_ok=True)
        picture.write_text(terminal_svg(result.out), "utf-8")
    shown = "".join(re.findall(r"<text class=\"ggmltool-r[^>]*>([^<]*)</text>", picture.read_text("utf-8")))
    printed = Text.from_ansi(result.out).plain
    assert "".join(html.unescape(shown).split()) == "".join(printed.split())


@pytest.mark.parametrize("picture", [*DRAWN, "buffers-chart.svg"])
def test_a_picture_is_small_and_needs_nothing_else(picture: str) -> None:
    svg = (PICTURES / picture).read_text("utf-8")
    assert len(svg) < 300_000
    assert not re.search(r"<script|<image|@import|@font-face|url\((?!#)", svg)
    assert set(re.findall(r"https?://[^/\"\s]+", svg)) == {"http://www.w3.org"}
