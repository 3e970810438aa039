"""What an SVG drawing holds, read back from its text: sizes, words with their room, boxes by class."""

from __future__ import annotations

import re
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree as ET

from ggmltool.show.svg import Box, Text

NS = "{http://www.w3.org/2000/svg}"
SLACK = 0.2
"""Coordinates are written to a tenth."""


class Drawn(NamedTuple):
    """A drawing: its frame, its texts, and the boxes of all elements `rect` with their classes."""

    root: ET.Element
    frame: Box
    texts: list[Text]
    rects: list[tuple[str, Box]]


def drawn(svg: str) -> Drawn:
    """The drawing of a text, which has to be XML without anything that runs or comes from elsewhere."""
    assert "<!" not in svg
    root = ET.fromstring(svg)
    assert {element.tag.removeprefix(NS) for element in root.iter()} <= {
        "svg", "title", "desc", "style", "defs", "pattern", "path", "circle", "rect", "g", "text",
    }  # fmt: skip
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on") or "href" in name]
    wide, high = float(root.get("width", "0")), float(root.get("height", "0"))
    texts = [_text(element) for element in root.iter(f"{NS}text")]
    rects = [(element.get("class", ""), _box(element)) for element in root.iter(f"{NS}rect")]
    return Drawn(root, Box(0, 0, wide, high), texts, rects)


def _text(element: ET.Element) -> Text:
    return Text(
        float(element.get("x", "0")),
        float(element.get("y", "0")),
        element.text or "",
        float(element.get("font-size", "12")),
        element.get("text-anchor", "start"),
        element.get("class", ""),
        element.get("font-weight") == "bold",
        "transform" in element.attrib,
    )


def _box(element: ET.Element) -> Box:
    x, y, wide, high = (float(element.get(name, "0")) for name in ("x", "y", "width", "height"))
    return Box(x, y, x + wide, y + high)


def check_drawing(svg: str) -> Drawn:
    """All words and boxes are inside, no words meet others, and those who do not see the drawing are told of it."""
    found = drawn(svg)
    for box in [*(text.box for text in found.texts), *(box for _, box in found.rects)]:
        assert box.x0 >= -SLACK
        assert box.y0 >= -SLACK
        assert box.x1 <= found.frame.x1 + SLACK, box
        assert box.y1 <= found.frame.y1 + SLACK, box
    for one, other in meeting([text.box for text in found.texts]):
        raise AssertionError(f"{found.texts[one].words!r} is drawn over {found.texts[other].words!r}")
    assert found.root.get("role") == "img"
    named = (found.root.get("aria-labelledby") or "").split()
    assert [element.get("id") for element in list(found.root)[:2]] == named
    assert all(element.text for element in list(found.root)[:2])
    assert re.search(r"prefers-color-scheme:dark", svg)
    return found


def meeting(boxes: list[Box]) -> list[tuple[int, int]]:
    """The pairs of boxes that have more in common than an edge."""
    smaller = [Box(b.x0 + SLACK, b.y0 + SLACK, b.x1 - SLACK, b.y1 - SLACK) for b in boxes]
    return [(i, k) for (i, a), (k, b) in combinations(enumerate(smaller), 2) if a.meets(b)]
