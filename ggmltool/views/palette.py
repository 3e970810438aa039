"""One colour per backend, the same in tables, pictures and pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Color(NamedTuple):
    """`ink` for text and lines, readable on dark and on light; `fill` a tint of it for areas under black text;
    `term` the ink of a terminal, one of its 256 colours."""

    ink: str
    fill: str
    term: str


PALETTE: tuple[Color, ...] = (
    Color("#2fa84f", "#c9ecd2", "color(71)"),
    Color("#3b8eea", "#cfe4fb", "color(33)"),
    Color("#d98a1f", "#f8e3c4", "color(172)"),
    Color("#b565d9", "#ecd7f6", "color(134)"),
    Color("#d9534f", "#f8d3d2", "color(167)"),
    Color("#1fa8a8", "#c5ecec", "color(37)"),
    Color("#a89a1f", "#efeac0", "color(142)"),
    Color("#d95f9e", "#f8d5e6", "color(169)"),
    Color("#6f7fd9", "#d9def7", "color(104)"),
    Color("#7f9f3f", "#dfeac9", "color(107)"),
    Color("#c97a5a", "#f3dcd1", "color(173)"),
    Color("#4fa3c7", "#d0e8f2", "color(74)"),
    Color("#9a7fc0", "#e4daf1", "color(140)"),
    Color("#5fa88a", "#d3ebe1", "color(72)"),
    Color("#b0803f", "#eedfc9", "color(137)"),
    Color("#8f8f8f", "#e4e4e4", "color(245)"),
)


def colors(backends: Iterable[str]) -> dict[str, Color]:
    """The colour of each backend, by its place in the list of backends."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(dict.fromkeys(backends))}
