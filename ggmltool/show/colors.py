"""One color per backend, the same in tables, pictures and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32


class Color(NamedTuple):
    """`ink` for text and lines on a light ground, `fill` a tint of it for areas under dark text; `term` the ink of a
    terminal, one of its 256 colors, on black as on white; `dark_ink` and `dark_fill` the two on a dark ground, the fill
    under light text."""

    ink: str
    fill: str
    term: str
    dark_ink: str
    dark_fill: str


PALETTE: tuple[Color, ...] = (
    Color("#1f7e3a", "#c9ecd2", "color(28)", "#32ae52", "#1b502f"),
    Color("#156dcd", "#cfe4fb", "color(33)", "#579cea", "#204670"),
    Color("#8f651f", "#f8e3c4", "color(166)", "#d98a1f", "#63441a"),
    Color("#a23fc6", "#ecd7f6", "color(134)", "#c27fe0", "#543468"),
    Color("#d22a26", "#f8d3d2", "color(167)", "#de7d79", "#632d2f"),
    Color("#1d7878", "#c5ecec", "color(30)", "#1faaaa", "#155054"),
    Color("#7c6e1e", "#efeac0", "color(100)", "#a89a1f", "#4e4b1a"),
    Color("#ca267a", "#f8d5e6", "color(162)", "#de77aa", "#633250"),
    Color("#5363cb", "#d9def7", "color(62)", "#8595e1", "#363f68"),
    Color("#5e752a", "#dfeac9", "color(64)", "#82a542", "#3d4d28"),
    Color("#a75737", "#f3dcd1", "color(130)", "#d08868", "#5c3d33"),
    Color("#2c7599", "#d0e8f2", "color(31)", "#4fa3c7", "#294e61"),
    Color("#8759ad", "#e4daf1", "color(97)", "#a28fc8", "#483f5e"),
    Color("#43776e", "#d3ebe1", "color(65)", "#5fa88a", "#2f5047"),
    Color("#86682a", "#eedfc9", "color(94)", "#c38e55", "#514028"),
    Color("#6d6d6d", "#e4e4e4", "color(243)", "#999999", "#444649"),
)

NO_BACKEND = Color("#6a6a6a", "#eeeeee", "color(243)", "#9a9a9a", "#3a3d42")
"""What has no backend, or none alone."""


class Ground(NamedTuple):
    """What pictures and pages are drawn on: `paper`, the `ink` of words, `soft` ink of what matters less, `line` for
    grids and frames, `hatch` for what is free."""

    paper: str
    ink: str
    soft: str
    line: str
    hatch: str


LIGHT = Ground("#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#dfe3e8")
DARK = Ground("#0d1117", "#f0f6fc", "#9198a1", "#3d444d", "#262c36")


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
        kind, number = _NUMBER.match(name).groups()  # type: ignore[union-attr] # it matches any text
        first = _FIRST.get(kind, crc32(kind.encode("utf-8", "surrogateescape")))
        place = (first + int(number or 0)) % len(_OTHERS)
        while _OTHERS[place] in places.values() and len(places) < len(_OTHERS):
            place = (place + 1) % len(_OTHERS)
        places[name] = _CPU if name == "CPU" else _OTHERS[place]
    return {name: PALETTE[place] for name, place in places.items()}


def term_colors(backends: Iterable[str]) -> dict[str, str]:
    """The color of each backend as terminals have it."""
    return {name: color.term for name, color in colors(backends).items()}
