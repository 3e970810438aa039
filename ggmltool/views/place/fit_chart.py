"""A chart of what can be had together: how long the context, and how fast a token. As SVG, on axes with numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log2, log10
from typing import NamedTuple

from ggmltool.views.text import printable

_WIDTH, _PLOT_HEIGHT = 860, 400
_LEFT, _RIGHT, _TOP = 64, 24, 62
_CHAR, _LINE = 7.0, 18
_RADIUS = 4.5
_FONT = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11.5"'
_INK, _SOFT, _BEST, _GRID = "#1f4e8c", "#9db7d5", "#c2571a", "#e3e3e3"


class Point(NamedTuple):
    """A placement: tokens of context; the value above it, likely and between what; what it is, in words."""

    n_ctx: int
    low: float
    mid: float
    high: float
    words: str
    best: bool = False


class Box(NamedTuple):
    """A part of the picture that is taken."""

    x0: float
    y0: float
    x1: float
    y1: float

    def meets(self, other: Box) -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1


class _Axes(NamedTuple):
    """From contexts (by powers of two) and values (from 0) to places in the picture."""

    ctx: tuple[float, float]
    top: float

    def x(self, n_ctx: float) -> float:
        low, high = self.ctx
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (log2(n_ctx) - low) / (high - low)

    def y(self, value: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - value / self.top)


def fit_chart(points: Sequence[Point], title: str, unit: str) -> str:
    """The chart of some placements, numbered as in the list below it; the line joins those that nothing beats in both.

    `unit` is what the values are. Whiskers show the range of an estimate.
    """
    ordered = sorted(points, key=lambda p: (p.n_ctx, -p.mid))
    axes = _axes(ordered)
    rows = [f"{i:>2}  {_row(p, unit)}" for i, p in enumerate(ordered, 1)]
    bottom = _TOP + _PLOT_HEIGHT
    width = max(_WIDTH, _LEFT + max(map(len, rows), default=0) * _CHAR + _RIGHT, len(title) * 9.5 + _LEFT)
    height = bottom + 66 + _LINE * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {_FONT}>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        _text(_LEFT, 26, title, size=15, weight="bold"),
        _text(_LEFT, 46, unit, color="#555555"),
        *_grid(axes),
        *_frontier(ordered, axes),
        *_marks(ordered, axes),
    ]
    for i, (row, point) in enumerate(zip(rows, ordered, strict=True)):
        weight = "bold" if point.best else "normal"
        out.append(_text(_LEFT, bottom + 66 + _LINE * i, row, color=_BEST if point.best else "#222222", weight=weight))
    return "\n".join([*out, "</svg>", ""])


def pareto(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats in context and value, by context.

    >>> p = [Point(8, 1, 9, 9, ""), Point(16, 1, 5, 9, ""), Point(8, 1, 4, 9, "")]
    >>> [(q.n_ctx, q.mid) for q in pareto(p)]
    [(8, 9), (16, 5)]
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (-p.n_ctx, -p.mid)):
        if not kept or point.mid > kept[-1].mid:
            kept.append(point)
    return kept[::-1]


def _axes(points: Sequence[Point]) -> _Axes:
    low = floor(log2(min(p.n_ctx for p in points)))
    high = ceil(log2(max(p.n_ctx for p in points)))
    return _Axes((low - 0.15, max(high, low + 1) + 0.15), _steps(max(p.high for p in points))[-1])


def _steps(most: float) -> list[float]:
    """Round numbers from 0 to at least the largest value.

    >>> _steps(43)
    [0, 10, 20, 30, 40, 50]
    >>> _steps(0.7)[1:3]
    [0.2, 0.4]
    """
    if most <= 0:
        return [0, 1]
    tens = 10 ** floor(log10(most / 4))
    step = next(n * tens for n in (1, 2, 2.5, 5, 10) if n * tens * 6 >= most)
    return [_short(i * step) for i in range(ceil(most / step) + 1)]


def _short(value: float) -> float:
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded


def _grid(axes: _Axes) -> Iterator[str]:
    """Lines and numbers of both axes: a context for every power of two."""
    bottom, right = _TOP + _PLOT_HEIGHT, _WIDTH - _RIGHT
    for value in _steps(axes.top):
        y = axes.y(value)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_GRID}"/>'
        yield _text(_LEFT - 8, y + 4, f"{value:,}", anchor="end")
    first, last = ceil(axes.ctx[0]), floor(axes.ctx[1])
    every = max(1, ceil((last - first + 1) / 12))
    for power in range(first, last + 1, every):
        x = axes.x(2**power)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{_GRID}"/>'
        yield _text(x, bottom + 18, _tokens(2**power), anchor="middle")
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#444444"/>'
    yield f'<line x1="{_LEFT}" y1="{_TOP}" x2="{_LEFT}" y2="{bottom}" stroke="#444444"/>'
    yield _text((_LEFT + right) / 2, bottom + 38, "context, tokens", anchor="middle", color="#555555")


def _tokens(n: int) -> str:
    """
    >>> _tokens(512), _tokens(32768), _tokens(1 << 20)
    ('512', '32K', '1M')
    """
    if n >= 1 << 20 and not n % (1 << 20):
        return f"{n >> 20}M"
    return f"{n >> 10}K" if n >= 1024 and not n % 1024 else str(n)


def _frontier(points: Sequence[Point], axes: _Axes) -> Iterator[str]:
    joined = pareto(points)
    if len(joined) > 1:
        path = " ".join(f"{axes.x(p.n_ctx):.1f},{axes.y(p.mid):.1f}" for p in joined)
        yield f'<polyline points="{path}" fill="none" stroke="{_SOFT}" stroke-width="1.5"/>'


def _marks(points: Sequence[Point], axes: _Axes) -> Iterator[str]:
    """Every point with its whisker, then the numbers, each where nothing else is."""
    taken: list[Box] = []
    for p in points:
        x, y = axes.x(p.n_ctx), axes.y(p.mid)
        ink = _BEST if p.best else _INK
        if p.high > p.low:
            top, low = axes.y(p.high), axes.y(p.low)
            yield f'<path d="M{x:.1f} {top:.1f}V{low:.1f}" stroke="{ink}" stroke-opacity="0.45"/>'
            taken.append(Box(x - 1, top, x + 1, low))
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="{ink}"/>'
        taken.append(Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS))
    for i, p in enumerate(points, 1):
        box = _free(axes.x(p.n_ctx), axes.y(p.mid), len(str(i)) * _CHAR + 2, taken)
        taken.append(box)
        yield _text(box.x0 + 1, box.y1 - 3, str(i), color=_BEST if p.best else _INK, weight="bold")


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


def _row(point: Point, unit: str) -> str:
    about = f"{point.mid:.3g}" + (f" ({point.low:.3g}–{point.high:.3g})" if point.high > point.low else "")
    return f"{point.n_ctx:>7}  {about} {unit.partition(',')[0]}  {point.words}"


def _text(
    x: float, y: float, text: str, size: float = 0, anchor: str = "", color: str = "#222222", weight: str = ""
) -> str:
    more = f' font-size="{size}"' * bool(size) + f' text-anchor="{anchor}"' * bool(anchor)
    more += f' font-weight="{weight}"' * (weight == "bold")
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{more} xml:space="preserve">{escape(printable(text))}</text>'
