"""The placements that `fit` found as points of its chart: contexts, and tokens in a second."""

from __future__ import annotations

from ggmltool.inspect.fit_wishes import shell_words
from ggmltool.inspect.fitting import Fit
from ggmltool.sources.llama.search.found import Candidate
from ggmltool.views.place.fit import spilled
from ggmltool.views.place.fit_chart import Point, fit_chart

_MOST = 40
"""Placements in a chart."""

_APART = ("-c", "--n-cpu-moe", "--n-cpu-ffn", "-ot")
"""Options that are told otherwise."""


def chart_of(fit: Fit) -> str:
    """The chart of the best placement of each setting, as SVG; where no speeds are known, of layers on GPUs."""
    shown = [ranked.candidate for ranked in fit.found.ranked[:_MOST]]
    rated = all(fit.token(c) is not None for c in shown)
    devices = ", ".join(f"{device}:{n / 2**30:.3g}GiB" for device, n in fit.memory.items())
    unit = "tokens/s, one token at a time" if rated else "layers on GPUs, since the speed of these devices is not known"
    points = [_point(fit, c, rated, c is fit.found.best) for c in shown]
    return fit_chart(points, f"{fit.title} on {devices}" if devices else fit.title, unit)


def _point(fit: Fit, c: Candidate, rated: bool, best: bool) -> Point:
    options = fit.wishes.options(c)
    words = shell_words({name: value for name, value in options.items() if name not in _APART})
    layers = float(c.choice.n_gpu_layers)
    low, mid, high = c.seconds.token.rate(1) if rated else (layers, layers, layers)
    return Point(c.n_ctx, low, mid, high, " ".join(filter(None, [words, spilled(options)])), best)
