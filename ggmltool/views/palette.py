"""One color per backend, the same in tables, pictures and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32


class Color(NamedTuple):
    """`ink` for text and lines, readable on dark and on light; `fill` a tint of it for areas under black text; `term`
    the ink of a terminal, one of its 256 colors."""

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


_CPU, *_OTHERS = 1, 0, *range(2, len(PALETTE))
"""The place of the CPU's color, and those of all other devices."""
_FIRST = {"OpenCL": 4, "Vulkan": 6, "SYCL": 8, "CANN": 10, "RPC": 11, "BLAS": 14} | dict.fromkeys(
    ("CUDA", "ROCm", "Metal", "MTL", "GPU"), 0
)
"""Where among the others the colors of a kind of device begin: the second device has the next one."""
_NUMBER = re.compile(r"(\D*)(\d{0,4})")


def colors(backends: Iterable[str]) -> dict[str, Color]:
    """The color of each backend: that of its name, the same wherever it is shown. Where two would have one, the later
    takes the next that is free.

    >>> alone, beside = colors(["CPU"]), colors(["CUDA0", "CUDA1", "CPU"])
    >>> alone["CPU"] == beside["CPU"], beside["CUDA1"] == colors(["CUDA1", "Vulkan0", "CPU"])["CUDA1"]
    (True, True)
    """
    places: dict[str, int] = {}
    for name in dict.fromkeys(backends):
        place = _place(name)
        while _OTHERS[place] in places.values() and len(places) < len(_OTHERS):
            place = (place + 1) % len(_OTHERS)
        places[name] = _CPU if name == "CPU" else _OTHERS[place]
    return {name: PALETTE[place] for name, place in places.items()}


def _place(name: str) -> int:
    kind, number = _NUMBER.match(name).groups()  # type: ignore[union-attr] # it matches any text
    first = _FIRST.get(kind, crc32(kind.encode("utf-8", "surrogateescape")))
    return int(first + int(number or 0)) % len(_OTHERS)


def term_colors(backends: Iterable[str]) -> dict[str, str]:
    """The color of each backend as terminals have it."""
    return {name: color.term for name, color in colors(backends).items()}
