"""One colour per backend, the same in tables, pictures and pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Color(NamedTuple):
    """`ink` for text and lines, readable on dark and on light; `fill` a tint of it for areas under black text."""

    ink: str
    fill: str


PALETTE: tuple[Color, ...] = (
    Color("#2fa84f", "#c9ecd2"),
    Color("#3b8eea", "#cfe4fb"),
    Color("#d98a1f", "#f8e3c4"),
    Color("#b565d9", "#ecd7f6"),
    Color("#d9534f", "#f8d3d2"),
    Color("#1fa8a8", "#c5ecec"),
    Color("#a89a1f", "#efeac0"),
    Color("#d95f9e", "#f8d5e6"),
    Color("#6f7fd9", "#d9def7"),
    Color("#7f9f3f", "#dfeac9"),
    Color("#c97a5a", "#f3dcd1"),
    Color("#4fa3c7", "#d0e8f2"),
    Color("#9a7fc0", "#e4daf1"),
    Color("#5fa88a", "#d3ebe1"),
    Color("#b0803f", "#eedfc9"),
    Color("#8f8f8f", "#e4e4e4"),
)


def colors(backends: Iterable[str]) -> dict[str, Color]:
    """The colour of each backend, by its place in the list of backends."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(backends))}
