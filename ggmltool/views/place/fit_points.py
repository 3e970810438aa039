"""The placements that `fit` found as points of its chart: contexts, and tokens in a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ggmltool.inspect.fit_wishes import shell_words
from ggmltool.inspect.fitting import Fit
from ggmltool.sources.llama.search.candidates import Candidate
from ggmltool.views.place.fit import spilled
from ggmltool.views.place.fit_chart import Point, fit_chart

_MOST = 40
"""Placements in a chart."""

_APART = ("-c", "--n-cpu-moe", "--n-cpu-ffn", "-ot")
"""Options that are told otherwise."""


def chart_of(fit: Fit) -> str:
    """The chart of the best placement of each setting, as SVG; where no speeds are known, of what tells them apart:
    layers on GPUs, or else the room that is left."""
    shown = [ranked.candidate for ranked in fit.found.ranked[:_MOST]]
    devices = ", ".join(f"{device}:{n / 2**30:.3g}GiB" for device, n in fit.memory.items())
    unit, value = _measure(fit, shown)
    points = [_point(fit, c, value(c), c is fit.found.best) for c in shown]
    return fit_chart(points, f"{fit.title} on {devices}" if devices else fit.title, unit)


def _measure(fit: Fit, shown: Sequence[Candidate]) -> tuple[str, Callable[[Candidate], tuple[float, float, float]]]:
    """What the chart is of, and its value for a placement, likely and between what."""
    if all(fit.token(c) is not None for c in shown):
        return "tokens/s, one token at a time", lambda c: c.seconds.token.rate(1)
    unknown = "since the speed of these devices is not known"
    if len({c.choice.n_gpu_layers for c in shown}) > 1:
        return f"layers on GPUs, {unknown}", lambda c: (c.choice.n_gpu_layers,) * 3
    return f"MiB left on the fullest device, beyond the margin, {unknown}", lambda c: (max(c.room >> 20, 0),) * 3


def _point(fit: Fit, c: Candidate, value: tuple[float, float, float], best: bool) -> Point:
    options = fit.wishes.options(c)
    words = shell_words({name: value for name, value in options.items() if name not in _APART})
    low, mid, high = value
    return Point(c.n_ctx, low, mid, high, " ".join(filter(None, [words, spilled(options)])), best)
