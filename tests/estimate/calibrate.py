"""Fit how much of their rates devices reach to one half of the published measurements, and tell the error on others.

    python -m tests.estimate.calibrate            # the errors of the factors in the package, and without each device
    python -m tests.estimate.calibrate --write    # fit them anew, and write them into it

For each backend the factors are those that make the mean of |log(estimated / measured)| smallest, each model on each
device counting alike; where a generation of GPUs has measurements of its own, its products are fitted once more. low
and high of a factor are what eight of ten measurements lie between. What the factors say of a card without measurements
is in left_out.py.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import ggmltool.data
from ggmltool.estimate.rates import fitted_shares, rates_of
from ggmltool.estimate.records import UNFITTED, Rates, ShareRange
from ggmltool.estimate.seconds import node_seconds
from ggmltool.estimate.work import NodeWork
from ggmltool.scenario.devices.rates import GpuData, known
from tests.estimate.measurements import Graphs, Row, measurements

OUT = Path(ggmltool.data.__file__).parent / "efficiency.toml"
FITTED = ("matvec", "stream", "matmul_quantized", "matmul_float", "attention", "launch", "filling")
OF_GENERATION = ("matvec", "matmul_quantized")
LEAST_OF_GENERATION = 1
"""Measurements of prompts that a generation needs for factors of its own."""
STEPS = (0.4, 0.2, 0.1, 0.05, 0.02)
PULL = 0.01
"""How much a factor is drawn to what it is without measurements, which only matters where nothing else tells."""
BOUNDS = {"launch": (0.1, 10.0), "filling": (1.0, 256.0)}
FILLING = 16.0
"""Columns of tiles that are not full, where nothing else is known."""
NARROWEST = 0.15
"""How far low and high are from what is likely, at least: half of the measurements know nothing of the other half."""
SHARES = (0.02, 1.0)
"""Between what a share of a rate must lie."""
HALVES = ("fit", "held", "new")
HEADING = "half   backend  test      n  median  90%   within low–high"
_HEAD = """\
# How much of what a device could do ggml's kernels reach: [low, likely, high], by backend, and by backend and
# generation of rates.toml where that is known better. Fitted to published measurements, written by `python -m
# tests.estimate.calibrate --write`. `launch`: how much longer or shorter a node's launch is than in rates.toml;
# `filling`: how many more columns a product with many computes, as tiles are not full.
"""


class Case(NamedTuple):
    """A measurement with the works of its nodes, each as often as the test computes it."""

    row: Row
    works: Mapping[NodeWork, float]
    weight: float


Factors = dict[str, float]


def cases(rows: Iterable[Row]) -> list[Case]:
    """The rows with what they compute; those of one model on one device weigh as much as those of another."""
    rows = list(rows)
    graphs = Graphs(rows)
    groups = Counter((r.device, r.backend, r.model, r.is_prompt) for r in rows)
    return [Case(r, _works(graphs, r), 1 / groups[r.device, r.backend, r.model, r.is_prompt]) for r in rows]


def _works(graphs: Graphs, row: Row) -> Mapping[NodeWork, float]:
    out: dict[NodeWork, float] = {}
    for cached, times in row.batches:
        for work in graphs.work(row.graph, cached).works:
            out[work] = out.get(work, 0.0) + times
    return out


def estimated(case: Case, rates: Rates) -> tuple[float, float, float]:
    """Tokens a second as they are estimated: at least, likely, at most. Devices take their layers in turn."""
    low = mid = high = 0.0
    for work, times in case.works.items():
        seconds = node_seconds(work, rates)
        low, mid, high = low + times * seconds.low, mid + times * seconds.mid, high + times * seconds.high
    return case.row.tokens / high, case.row.tokens / mid, case.row.tokens / low


def off(case: Case, rates: Rates) -> float:
    """log(estimated / measured)."""
    return math.log(estimated(case, rates)[1] / case.row.rate)


def generation_of(device: str) -> str:
    """The generation of a GPU in rates.toml, or the instructions of a CPU."""
    data = known(device).data
    return data.generation if isinstance(data, GpuData) else data.isa


def with_factors(rates: Rates, factors: Factors) -> Rates:
    """Rates with other likely shares."""
    shares = {key: ShareRange(x, x, x) for key, x in factors.items() if key != "filling"}
    return replace(rates, efficiency=rates.efficiency._replace(**shares), filling=factors.get("filling", rates.filling))


def fit(group: Sequence[Case], prior: Factors, rates_for: Callable[[Row], Rates]) -> Factors:
    """The factors that make the weighted mean of the errors smallest, found by steps along one of them at a time."""
    base = [(case, rates_for(case.row)) for case in group]
    total = sum(case.weight for case in group)

    def loss(factors: Factors) -> float:
        errors = sum(c.weight * abs(off(c, with_factors(rates, factors))) for c, rates in base)
        return errors / total + PULL * sum(math.log(factors[name] / prior[name]) ** 2 for name in prior)

    return _descend(loss, prior)


def _descend(loss: Callable[[Factors], float], at: Factors) -> Factors:
    best, least = dict(at), loss(at)
    for step in STEPS:
        better = True
        while better:
            better = False
            for name in best:
                for factor in (math.exp(step), math.exp(-step)):
                    low, high = BOUNDS.get(name, SHARES)
                    tried = best | {name: min(max(best[name] * factor, low), high)}
                    if tried == best:
                        continue
                    found = loss(tried)
                    if found < least - 1e-6:
                        best, least, better = tried, found, True
    return best


def device_rates(row: Row) -> Rates:
    """The rates of a row's device, with the memory that was said to be in it."""
    rates = rates_of(row.device, row.backend)
    return rates if row.bandwidth is None else replace(rates, memory=1e9 * row.bandwidth)


def unfitted(row: Row) -> Rates:
    """A device's rates with the shares that are likely where nothing was measured."""
    return replace(device_rates(row), efficiency=UNFITTED, filling=FILLING)


CPU = {
    "matvec": ShareRange(0.35, 0.6, 0.85),
    "stream": ShareRange(0.35, 0.6, 0.85),
    "matmul_quantized": ShareRange(0.1, 0.25, 0.5),
    "matmul_float": ShareRange(0.2, 0.45, 0.8),
    "attention": ShareRange(0.1, 0.3, 0.6),
}
"""What is taken for CPUs, of which too few measurements are known to fit anything: wide, and seen in `test_partial`."""
PRIOR = {name: FILLING if name == "filling" else getattr(UNFITTED, name).mid for name in FITTED}


def fit_all(fitted: Sequence[Case]) -> dict[str, dict[str, ShareRange]]:
    """The factors of every backend, and of generations, by the names that efficiency.toml has for them."""
    out: dict[str, dict[str, ShareRange]] = {}
    for backend in sorted({case.row.backend for case in fitted}):
        out |= fit_backend([case for case in fitted if case.row.backend == backend])
    return out | {"CPU": CPU}


def fit_backend(group: Sequence[Case]) -> dict[str, dict[str, ShareRange]]:
    """The factors of the one backend of these cases, and of generations that run it."""
    backend = group[0].row.backend
    whole = fit(group, PRIOR, unfitted)
    finer: dict[str, Factors] = {}
    for generation in sorted({generation_of(case.row.device) for case in group}):
        own = [case for case in group if generation_of(case.row.device) == generation]
        if sum(case.row.is_prompt for case in own) >= LEAST_OF_GENERATION:
            prior = {name: whole[name] for name in OF_GENERATION}
            finer[generation] = fit(own, prior, lambda row: with_factors(unfitted(row), whole))
    spread = _spread(group, lambda row: whole | finer.get(generation_of(row.device), {}))
    out = {backend: _ranged(whole, spread)}
    return out | {f"{backend} {generation}": _ranged(factors, spread) for generation, factors in finer.items()}


Spread = dict[bool, tuple[float, float]]
"""By whether it is of prompts: log(measured / estimated) below and above which one of ten measurements is."""


def _spread(group: Sequence[Case], factors_of: Callable[[Row], Factors]) -> Spread:
    out: Spread = {}
    for prompt in (False, True):
        errors = [-off(c, with_factors(unfitted(c.row), factors_of(c.row))) for c in group if c.row.is_prompt == prompt]
        tenths = statistics.quantiles(errors, n=10, method="inclusive") if len(errors) > 1 else [0.0] * 9
        out[prompt] = min(tenths[0], -NARROWEST), max(tenths[-1], NARROWEST)
    return out


def _ranged(factors: Factors, spread: Spread) -> dict[str, ShareRange]:
    """With a low and a high value: eight of ten measurements of prompts, or of answers, are between the estimates."""
    out = {}
    for name, mid in factors.items():
        down, up = spread[name.startswith("matmul") or name == "attention"]
        down, up = (0.0, 0.0) if name == "filling" else (-up, -down) if name == "launch" else (down, up)
        most = math.inf if name in BOUNDS else 1.0
        values = (mid * math.exp(down), mid, min(mid * math.exp(up), most))
        out[name] = ShareRange(*(float(f"{x:.3g}") for x in values))
    return out


def text_of(found: Mapping[str, Mapping[str, ShareRange]]) -> str:
    """The file efficiency.toml."""
    lines = [_HEAD]
    for name, factors in found.items():
        lines.append(f"[{name}]" if " " not in name else f'["{name}"]')
        lines += [f"{key} = [{', '.join(map(str, factor))}]" for key, factor in factors.items()]
        lines.append("")
    return "\n".join(lines)


class Errors(NamedTuple):
    """How far off estimates are: how many there are, the median, what nine of ten stay below, and how many of the
    measurements lie between low and high."""

    n: int
    median: float
    most: float
    within: float


def errors(group: Sequence[Case], rates_for: Callable[[Row], Rates]) -> Errors:
    """The errors of estimates of tokens a second, relative to what was measured."""
    return errors_of([(case.row.rate, *estimated(case, rates_for(case.row))) for case in group])


def errors_of(estimates: Sequence[tuple[float, float, float, float]]) -> Errors:
    """The errors of estimates: what was measured, and what was estimated at least, likely and at most."""
    relative = [abs(mid / rate - 1) for rate, _, mid, _ in estimates]
    within = sum(low <= rate <= high for rate, low, _, high in estimates)
    tenths = statistics.quantiles(relative, n=10, method="inclusive") if len(relative) > 1 else relative * 9
    return Errors(len(relative), statistics.median(relative), tenths[-1], within / len(relative))


def of_package(row: Row) -> Rates:
    """The rates that the package has for a row."""
    return device_rates(row)


def report(every: Sequence[Case], rates_for: Callable[[Row], Rates] = of_package) -> str:
    """The errors of the half that was fitted to, of the other, and of what was found later, by backend and test."""
    lines = [HEADING]
    for half in HALVES:
        lines += table(
            half, [(c.row, (c.row.rate, *estimated(c, rates_for(c.row)))) for c in every if c.row.half == half]
        )
    return "\n".join(lines)


def table(name: str, estimates: Sequence[tuple[Row, tuple[float, float, float, float]]]) -> list[str]:
    """A line for all of some estimates, and one for each backend and kind of test."""
    groups: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for row, estimate in estimates:
        for key in (("all", ""), (row.backend, row.test[:2])):
            groups.setdefault(key, []).append(estimate)
    lines = []
    for (backend, test), group in sorted(groups.items()):
        e = errors_of(group)
        lines.append(f"{name:6} {backend:8} {test:4} {e.n:6} {e.median:7.1%} {e.most:6.1%} {e.within:6.0%}")
    return lines


def main() -> None:
    """Fit and write if asked to, then print the errors."""
    from tests.estimate.left_out import left_out, left_out_report, write_left_out

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="fit the factors anew and write them into the package")
    every, write = cases(measurements()), parser.parse_args().write
    if write:
        OUT.write_text(text_of(fit_all([case for case in every if case.row.fitted])), "utf-8")
        fitted_shares.cache_clear()
    print(report(every))
    found = left_out(every)
    if write:
        write_left_out(found)
    print(left_out_report(found))


if __name__ == "__main__":
    main()
