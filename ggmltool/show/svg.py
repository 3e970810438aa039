"""Drawings as SVG: words whose room is known before they are drawn, round numbers for axes, light and dark grounds.

A drawing is read by whatever shows SVG: fonts are those that are everywhere, styles are plain rules without variables,
dark is for screens that ask for it, and what is printed is dark on white.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

from ggmltool.show.colors import DARK, LIGHT, NO_BACKEND, PALETTE, Color, Ground
from ggmltool.show.text import printable

SMALL, NORMAL, LARGE = 11.0, 12.0, 16.0
"""Sizes of text, in units of the drawing."""

ASCENT, DESCENT = 0.95, 0.25
"""How far text reaches above and below its line, in units of its size."""

FONT = "Helvetica, Arial, 'Liberation Sans', 'Noto Sans', 'DejaVu Sans', sans-serif"
"""What is everywhere, under one of its names."""

_WIDTHS = bytes.fromhex(
    "20282e54405f4e1b272732542024202240404040404040404040222254545435644445464d3f3a4d4b1d1d4238564b4f"
    "3c4f453f3d494463453d452722275432323d3f373f3e233f3f1c1c3a1c613f3d3f3f2934273f3b523b3b3440224054"
)
"""In hundredths of the size, from the blank to the tilde: those of DejaVu Sans, the widest of the fonts."""
_OTHER, _BOLD = 105, 1.14


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a text is at most, in units of the drawing.

    >>> round(text_width("ggml", 10), 1), text_width("é", 10)
    (25.1, 10.5)
    """
    wide = sum(_WIDTHS[ord(c) - 32] if " " <= c <= "~" else _OTHER for c in text)
    return wide * size / 100 * (_BOLD if bold else 1)


def fitted(text: str, room: float, size: float, bold: bool = False) -> str:
    """The text as far as there is room for it, `…` where it was cut; empty if no character fits.

    >>> fitted("attn_norm", 100, 12), fitted("attn_norm", 50, 12), fitted("attn_norm", 5, 12)
    ('attn_norm', 'attn_…', '')
    """
    if text_width(text, size, bold) <= room:
        return text
    keep, used = 0, text_width("…", size, bold)
    for c in text:
        used += text_width(c, size, bold)
        if used > room:
            break
        keep += 1
    return text[:keep] + "…" if keep else ""


class Box(NamedTuple):
    """A part of a drawing."""

    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: Box) -> bool:
        """Whether the two have more than an edge in common."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1


class Text(NamedTuple):
    """Words at a place: `x` is their start, middle or end, `y` their line; `upright` ones are turned, and read upwards.

    `look` names classes: `soft` ink, `b0` ink of the first backend.
    """

    x: float
    y: float
    words: str
    size: float = NORMAL
    anchor: str = "start"
    look: str = ""
    bold: bool = False
    upright: bool = False

    @property
    def box(self) -> Box:
        """The room that it takes at most."""
        wide = text_width(self.words, self.size, self.bold)
        back = {"start": 0.0, "middle": wide / 2, "end": wide}[self.anchor]
        up, down = ASCENT * self.size, DESCENT * self.size
        if self.upright:
            return Box(self.x - up, self.y - wide + back, self.x + down, self.y + back)
        return Box(self.x - back, self.y - up, self.x - back + wide, self.y + down)

    @property
    def element(self) -> str:
        """As an element; whatever would not be seen as it is stands as an escape."""
        more = f' class="{self.look}"' * bool(self.look)
        more += f' font-size="{number(self.size)}"' * (self.size != NORMAL)
        more += f' text-anchor="{self.anchor}"' * (self.anchor != "start") + ' font-weight="bold"' * self.bold
        more += f' transform="rotate(-90 {number(self.x)} {number(self.y)})"' * self.upright
        more += ' xml:space="preserve"' * ("  " in self.words or self.words.startswith(" "))
        words = escape(printable(self.words), quote=False)
        return f'<text x="{number(self.x)}" y="{number(self.y)}"{more}>{words}</text>'


def number(value: float) -> str:
    """A coordinate, to a tenth.

    >>> number(2.0), number(2.04), number(-0.01)
    ('2', '2', '0')
    """
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def rect(box: Box, look: str, title: str = "") -> str:
    """A box; the title is shown where the pointer rests."""
    at = f'x="{number(box.x0)}" y="{number(box.y0)}"'
    room = f'width="{number(box.x1 - box.x0)}" height="{number(box.y1 - box.y0)}"'
    inside = f"><title>{escape(printable(title), quote=False)}</title></rect>" if title else "/>"
    return f'<rect class="{look}" {at} {room}{inside}'


def path(d: str, look: str) -> str:
    """A line, or an area."""
    return f'<path class="{look}" d="{d}"/>'


def outline(box: Box) -> str:
    """The path around a box."""
    return f"M{number(box.x0)} {number(box.y0)}H{number(box.x1)}V{number(box.y1)}H{number(box.x0)}z"


def round_numbers(most: float, steps: int = 6) -> list[float]:
    """Round numbers from 0 to at least the largest value, in at most so many steps.

    >>> round_numbers(43)
    [0, 10, 20, 30, 40, 50]
    >>> round_numbers(0.7)[1:3]
    [0.2, 0.4]
    """
    if most <= 0:
        return [0, 1]
    tens = 10 ** floor(log10(most / steps))
    step = next(n * tens for n in (1, 2, 2.5, 5, 10, 20) if n * tens * steps >= most)
    return [_short(i * step) for i in range(ceil(most / step - 1e-9) + 1)]


def _short(value: float) -> float:
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def spread(texts: Iterable[Text], gap: float = 6) -> Iterator[Text]:
    """Of texts on one line, from left to right, those that come behind the one before."""
    end = float("-inf")
    for text in texts:
        box = text.box
        if box.x0 >= end + gap:
            end = box.x1
            yield text


def mixed(a: str, b: str, part: float) -> str:
    """A color between two, `part` of the way to the second.

    >>> mixed("#000000", "#ff8000", 0.5)
    '#804000'
    """
    both = zip(*(bytes.fromhex(color[1:]) for color in (a, b)), strict=True)
    return "#" + bytes(round(x + (y - x) * part) for x, y in both).hex()


def style(backends: Iterable[Color] = (), light: str = "", dark: str = "") -> str:
    """The style sheet: `ink`, `soft` ink and `paper` as areas, `grid` and `axis` as lines; for the backend of each
    number b0 (area), i0 (ink of words and areas), k0 (line). `light` and `dark` are the drawing's own rules on them."""
    colors = list(backends)
    on_light = _rules(LIGHT, [(c.fill, c.ink) for c in colors]) + light
    on_dark = _rules(DARK, [(c.dark_fill, c.dark_ink) for c in colors]) + dark
    return f"<style>\n{on_light}\n@media screen and (prefers-color-scheme:dark){{{on_dark}}}\n</style>"


def _rules(ground: Ground, backends: Iterable[tuple[str, str]]) -> str:
    parts = [
        f"text,.ink{{fill:{ground.ink}}}.soft{{fill:{ground.soft}}}.paper{{fill:{ground.paper}}}",
        f".grid{{stroke:{ground.line};fill:none}}.axis{{stroke:{ground.soft};fill:none}}",
    ]
    for i, (fill, ink) in enumerate(backends):
        parts.append(f".b{i}{{fill:{fill}}}.i{i}{{fill:{ink}}}.k{i}{{stroke:{ink};fill:none}}")
    return "".join(parts)


class Svg(str):
    """A whole drawing, which a notebook shows as one."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def document(room: tuple[float, float], title: str, description: str, elements: Iterable[str]) -> Svg:
    """The whole drawing on paper. Title and description are for those who do not see it."""
    wide, high = (number(n) for n in room)
    room_of_it = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    read = 'role="img" aria-labelledby="ggmltool-title ggmltool-desc"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {room_of_it} {read} font-family="{FONT}" font-size="12">',
        f'<title id="ggmltool-title">{escape(printable(title), quote=False)}</title>',
        f'<desc id="ggmltool-desc">{escape(printable(description), quote=False)}</desc>',
        *elements,
        "</svg>",
        "",
    ]
    return Svg("\n".join(lines))


_START = re.compile(r"<svg\b[^>]*>", re.DOTALL)
_OTHERS = {
    "white": DARK.paper,
    LIGHT.paper: DARK.paper,
    "#f5f5f5": "#161b22",
    "#bbbbbb": DARK.line,
    "black": DARK.soft,
    LIGHT.soft: DARK.soft,
    "#555555": DARK.soft,
    "#666666": DARK.soft,
    "#888888": DARK.soft,
    "#222222": DARK.ink,
}
"""Colors of the drawings that are no backend's, and what they are on dark."""


def finished(svg: str, title: str) -> str:
    """The drawing with a name, fonts that are everywhere, and its colors on a dark ground."""
    start = _START.search(svg)
    if start is None:
        return svg
    named = f'<title id="ggmltool-title">{escape(printable(title), quote=False)}</title>'
    read = ' role="img" aria-labelledby="ggmltool-title">'
    dark = f"@media screen and (prefers-color-scheme:dark){{{''.join(_dark_rules())}}}"
    style = f"<style>text{{font-family:{FONT}}}\n{dark}</style>"
    return f"{svg[: start.end() - 1]}{read}\n{named}\n{style}{svg[start.end() :]}"


def _dark_rules() -> Iterator[str]:
    """Rules by the colors that the drawing has as attributes; texts without one are black."""
    yield f"text{{fill:{DARK.ink}}}"
    for color in (*PALETTE, NO_BACKEND):
        yield f'[fill="{color.fill}"]{{fill:{color.dark_fill}}}'
        yield f'[stroke="{color.ink}"]{{stroke:{color.dark_ink}}}[fill="{color.ink}"]{{fill:{color.dark_ink}}}'
    for light, dark in _OTHERS.items():
        yield f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
