"""Colors and faces of the screen: on a dark ground, on a light one, or without colors."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from rich.color import Color as RichColor
from rich.color import blend_rgb
from rich.style import Style
from textual.theme import Theme

from ggmltool.show.colors import DARK, LIGHT, NO_BACKEND, Ground, colors

_SHADES = (0.0, 0.3, -0.4, 0.5)
"""Ranges that touch are told apart by their shade: the fill, more of the ink, more of the paper, much of the ink."""


class Face(NamedTuple):
    """The styles of words and rows, whatever they are about."""

    plain: Style
    soft: Style
    bold: Style
    head: Style
    good: Style
    bad: Style
    note: Style
    cursor: Style
    here: Style
    hit: Style
    line: Style
    hatch: Style


class Look:
    """The styles for a ground. `backends` get the colors that they have everywhere."""

    def __init__(self, backends: Iterable[str], dark: bool = True, colored: bool = True) -> None:
        self.dark = dark
        self.colored = colored
        self.ground: Ground = DARK if dark else LIGHT
        self.mark = "#f2cc60" if dark else "#8a5a00"
        self._colors = colors(backends) if colored else {}
        self.face = _colored(self.ground, self.mark, dark) if colored else _plain()
        self.ink = cache(self._ink)
        self.range = cache(self._range)

    @property
    def base(self) -> Style:
        """What lies below all other styles."""
        return Style(color=self.ground.ink, bgcolor=self.ground.paper) if self.colored else Style()

    @property
    def theme(self) -> Theme:
        """The colors that widgets get."""
        ground, mark = self.ground, self.mark
        return Theme(
            "ggmltool-dark" if self.dark else "ggmltool-light",
            primary=mark,
            accent=mark,
            foreground=ground.ink,
            background=ground.paper,
            surface=ground.paper,
            panel=ground.line,
            dark=self.dark,
        )

    def _ink(self, backend: str) -> Style:
        if not self.colored:
            return self.face.plain
        color = self._colors.get(backend, NO_BACKEND)
        return Style(color=color.dark_ink if self.dark else color.ink)

    def _range(self, backend: str, shade: int, selected: bool = False) -> Style:
        if not self.colored:
            return Style(reverse=shade % 2 == 0, bold=selected, underline=selected)
        color = self._colors.get(backend, NO_BACKEND)
        ink, fill = (color.dark_ink, color.dark_fill) if self.dark else (color.ink, color.fill)
        if selected:
            return Style(color=self.ground.paper, bgcolor=ink, bold=True)
        amount = _SHADES[shade % len(_SHADES)]
        towards = ink if amount > 0 else self.ground.paper
        one, other = (RichColor.parse(color).get_truecolor() for color in (fill, towards))
        return Style(color=self.ground.ink, bgcolor=RichColor.from_triplet(blend_rgb(one, other, abs(amount))))


def _colored(ground: Ground, mark: str, dark: bool) -> Face:
    return Face(
        plain=Style(color=ground.ink),
        soft=Style(color=ground.soft),
        bold=Style(color=ground.ink, bold=True),
        head=Style(color=ground.soft, bold=True),
        good=Style(color="#32ae52" if dark else "#1f7e3a"),
        bad=Style(color="#de7d79" if dark else "#d22a26"),
        note=Style(color=mark),
        cursor=Style(bgcolor="#1f2a3a" if dark else "#dbe9fb"),
        here=Style(color=mark, bold=True),
        hit=Style(color="#0d1117" if dark else "#ffffff", bgcolor=mark),
        line=Style(color=ground.line),
        hatch=Style(color=ground.soft, bgcolor=ground.hatch),
    )


def _plain() -> Face:
    none, bold, dim = Style(), Style(bold=True), Style(dim=True)
    return Face(
        plain=none, soft=dim, bold=bold, head=bold, good=none, bad=bold, note=bold, cursor=Style(underline=True),
        here=bold, hit=Style(reverse=True), line=dim, hatch=dim,
    )  # fmt: skip
