"""How well a color is read on another, as WCAG 2 measures it."""

from __future__ import annotations

TEXT = 4.5
"""What AA asks of text; of large text, lines and marks 3."""


def contrast(a: str, b: str) -> float:
    """The ratio of two colors `#rrggbb`, from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def xterm(number: int) -> str:
    """One of a terminal's 256 colors, from 16 on.

    >>> xterm(33), xterm(243)
    ('#0087ff', '#767676')
    """
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    levels = (0, 95, 135, 175, 215, 255)
    return "#" + "".join(f"{levels[(number - 16) // n % 6]:02x}" for n in (36, 6, 1))


def _luminance(color: str) -> float:
    parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
