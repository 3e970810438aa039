"""A chart of what can be had together: how long the context, and how fast a token. As SVG, on axes with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, floor, log2
from typing import NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.fit.record import FitShown, token_of
from ggmltool.ask.fit.text import spilled
from ggmltool.ask.fit.wishes import shell_words
from ggmltool.show.colors import DARK, LIGHT, PALETTE
from ggmltool.show.svg import Box, Svg, Text, document, number, path, rect, round_numbers, style
from ggmltool.sources.llama.search.candidates import Candidate

_WIDTH, _PLOT_HEIGHT = 860, 400
_LEFT, _RIGHT, _TOP = 64, 24, 62
_CHAR, _LINE = 7.0, 18
_RADIUS = 4.5
_MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_LIKE, _BEST = PALETTE[1], PALETTE[2]
"""Of the points, and of the best."""


class ChartPoint(NamedTuple):
    """A placement: tokens of context; the value above it, likely and between what; what it is, in words."""

    n_ctx: int
    low: float
    mid: float
    high: float
    words: str
    best: bool = False


class _Axes(NamedTuple):
    """From contexts (by powers of two) and values (from 0) to places in the picture."""

    ctx: tuple[float, float]
    top: float

    def x(self, n_ctx: float) -> float:
        low, high = self.ctx
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (log2(n_ctx) - low) / (high - low)

    def y(self, value: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - value / self.top)


def fit_chart(points: Sequence[ChartPoint], title: str, unit: str) -> Svg:
    """The chart of some placements, numbered as in the list below it; the line joins those that nothing beats in both.

    `unit` is what the values are. Whiskers show the range of an estimate.
    """
    ordered = sorted(points, key=lambda p: (p.n_ctx, -p.mid))
    low, high = floor(log2(min(p.n_ctx for p in points))), ceil(log2(max(p.n_ctx for p in points)))
    top = round_numbers(max(p.high for p in points))[-1]
    axes = _Axes((low - 0.15, max(high, low + 1) + 0.15), top)
    rows = []
    for i, p in enumerate(ordered, 1):
        about = f"{p.mid:.3g}" + (f" ({p.low:.3g}–{p.high:.3g})" if p.high > p.low else "")
        rows.append(f"{i:>2}  {p.n_ctx:>7}  {about} {unit.partition(',')[0]}  {p.words}")
    joined = pareto(points)
    steps = "L".join(f"{number(axes.x(p.n_ctx))} {number(axes.y(p.mid))}" for p in joined)
    rules = f".mono{{font-family:{_MONO}}}.whisker{{stroke-opacity:.45}}"
    light, dark = (f".frontier{{stroke:{ground.soft};stroke-width:1.5;fill:none}}" for ground in (LIGHT, DARK))
    bottom = _TOP + _PLOT_HEIGHT
    head = Text(_LEFT, 26, title, 15, bold=True)
    width = max(_WIDTH, _LEFT + max(map(len, rows), default=0) * _CHAR + _RIGHT, head.box.x1 + _RIGHT)
    height = bottom + 66 + _LINE * len(rows)
    best = next((row for row, point in zip(rows, ordered, strict=True) if point.best), "")
    elements = [
        style((_LIKE, _BEST), rules + light, dark),
        rect(Box(0, 0, width, height), "paper"),
        head.element,
        Text(_LEFT, 46, unit, look="soft").element,
        *_grid(axes),
        *([path(f"M{steps}", "frontier")] if len(joined) > 1 else []),
        *_marks(ordered, axes),
    ]
    for i, (row, point) in enumerate(zip(rows, ordered, strict=True)):
        look = "mono i1" if point.best else "mono"
        elements.append(Text(_LEFT, bottom + 66 + _LINE * i, row, 11.5, look=look, bold=point.best).element)
    words = f"{unit}, over tokens of context; {len(rows)} placements. The best: {' '.join(best.split())}"
    return document((width, height), title, words, elements)


def pareto(points: Sequence[ChartPoint]) -> list[ChartPoint]:
    """The points that no other one beats in context and value, by context.

    >>> p = [Point(8, 1, 9, 9, ""), Point(16, 1, 5, 9, ""), Point(8, 1, 4, 9, "")]
    >>> [(q.n_ctx, q.mid) for q in pareto(p)]
    [(8, 9), (16, 5)]
    """
    kept: list[ChartPoint] = []
    for point in sorted(points, key=lambda p: (-p.n_ctx, -p.mid)):
        if not kept or point.mid > kept[-1].mid:
            kept.append(point)
    return kept[::-1]


def _grid(axes: _Axes) -> Iterator[str]:
    """Lines and numbers of both axes: a context for every power of two."""
    bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
    for value in round_numbers(axes.top):
        y = axes.y(value)
        yield path(f"M{_LEFT} {number(y)}H{right}", "grid")
        yield Text(_LEFT - 8, y + 4, f"{value:,}", anchor="end").element
    first, last = ceil(axes.ctx[0]), floor(axes.ctx[1])
    every = max(1, ceil((last - first + 1) / 12))
    for power in range(first, last + 1, every):
        x = axes.x(2**power)
        yield path(f"M{number(x)} {_TOP}V{bottom}", "grid")
        yield Text(x, bottom + 18, _tokens(2**power), anchor="middle").element
    yield path(f"M{_LEFT} {_TOP}V{bottom}H{right}", "axis")
    yield Text((_LEFT + right) / 2, bottom + 38, "context, tokens", anchor="middle", look="soft").element


def _tokens(n: int) -> str:
    """
    >>> _tokens(512), _tokens(32768), _tokens(1 << 20)
    ('512', '32K', '1M')
    """
    if n >= 1 << 20 and not n % (1 << 20):
        return f"{n >> 20}M"
    return f"{n >> 10}K" if n >= 1024 and not n % 1024 else str(n)


def _marks(points: Sequence[ChartPoint], axes: _Axes) -> Iterator[str]:
    """Every point with its whisker, then the numbers, each where nothing else is."""
    taken: list[Box] = []
    for p in points:
        x, y = axes.x(p.n_ctx), axes.y(p.mid)
        if p.high > p.low:
            top, low = axes.y(p.high), axes.y(p.low)
            yield path(f"M{number(x)} {number(top)}V{number(low)}", f"k{int(p.best)} whisker")
            taken.append(Box(x - 1, top, x + 1, low))
        yield f'<circle class="i{int(p.best)}" cx="{number(x)}" cy="{number(y)}" r="{_RADIUS}"/>'
        taken.append(Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS))
    for i, p in enumerate(points, 1):
        box = _free(axes.x(p.n_ctx), axes.y(p.mid), len(str(i)) * _CHAR * 1.3 + 2, taken)
        taken.append(box)
        yield Text(box.x0 + 1, box.y1 - 3, str(i), look=f"i{int(p.best)}", bold=True).element


def _free(x: float, y: float, width: float, taken: Sequence[Box]) -> Box:
    """A place for a number near a point that meets nothing else, nearest first; above the plot there is always one."""
    high = 14.0
    for far in range(7, 400, 7):
        for dx, dy in ((1, -0.6), (-1, -0.6), (1, 0.6), (-1, 0.6), (0, -1), (0, 1)):
            x0 = x + dx * far - (width if dx < 0 else width / 2 if not dx else 0)
            y0 = y + dy * far - (high if dy < 0 else 0)
            box = Box(x0, y0, x0 + width, y0 + high)
            inside = box.x0 > _LEFT and box.x1 < _WIDTH and box.y0 > _TOP - 14 and box.y1 < _TOP + _PLOT_HEIGHT
            if inside and not any(box.meets(other) for other in taken):
                return box
    return Box(x, y - high, x + width, y)


_MOST = 40
"""Placements in a chart."""

_APART = ("-c", "--n-cpu-moe", "--n-cpu-ffn", "-ot")
"""Options that are told otherwise."""


def chart_of(answer: Answer[FitShown]) -> str:
    """The chart of the best placement of each setting, as SVG; where no speeds are known, of what tells them apart:
    layers on GPUs, or else the room that is left."""
    fit = answer.facts
    shown = [ranked.candidate for ranked in fit.found.ranked[:_MOST]]
    devices = ", ".join(f"{device}:{n / 2**30:.3g}GiB" for device, n in fit.memory.items())
    unit, value = _measure(fit, shown)
    points = []
    for c in shown:
        options = fit.wishes.options(c)
        words = shell_words({name: text for name, text in options.items() if name not in _APART})
        told = " ".join(filter(None, [words, spilled(options)]))
        points.append(ChartPoint(c.n_ctx, *value(c), told, c is fit.found.best))
    return fit_chart(points, f"{answer.title} on {devices}" if devices else answer.title, unit)


def _measure(
    fit: FitShown, shown: Sequence[Candidate]
) -> tuple[str, Callable[[Candidate], tuple[float, float, float]]]:
    """What the chart is of, and its value for a placement, likely and between what."""
    if all(token_of(c, fit.phase) is not None for c in shown):
        return "tokens/s, one token at a time", lambda c: c.seconds.token.rate(1)
    unknown = "since the speed of these devices is not known"
    if len({c.choice.n_gpu_layers for c in shown}) > 1:
        return f"layers on GPUs, {unknown}", lambda c: (c.choice.n_gpu_layers,) * 3
    return f"MiB left on the fullest device, beyond the margin, {unknown}", lambda c: (max(c.room >> 20, 0),) * 3
