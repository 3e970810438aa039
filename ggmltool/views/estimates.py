"""Estimates as text: always with their range, and with no more digits than they are worth."""

from __future__ import annotations

from collections.abc import Mapping

from ggmltool.estimate.forecast import SOME_HOST, Speeds
from ggmltool.estimate.records import Estimate, Rates

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds_text(estimate: Estimate) -> str:
    """Likely seconds and, in brackets, the least and the most.

    >>> seconds_text(Estimate(0.0021, 0.00304, 0.0048)), seconds_text(Estimate(90.0, 130.0, 200.0))
    ('3.04 ms (2.1–4.8)', '130 s (90–200)')
    """
    scale, unit = next(((s, u) for s, u in _UNITS if estimate.mid >= s), _UNITS[-1])
    low, mid, high = (digits(s / scale) for s in estimate)
    return f"{mid} {unit} ({low}–{high})"


def rate_text(estimate: Estimate) -> str:
    """How many in a second: likely and, in brackets, at least and at most.

    >>> rate_text(Estimate(11.88, 15.18, 18.53))
    '15.2 (11.9–18.5)'
    """
    low, mid, high = map(digits, estimate)
    return f"{mid} ({low}–{high})"


def digits(value: float) -> str:
    """Three digits of a number.

    >>> digits(0.0), digits(1234.5), digits(99.96), digits(3.04), digits(0.5)
    ('0', '1230', '100', '3.04', '0.5')
    """
    if value <= 0:
        return "0"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e" in text or float(text) >= 100 else text


def speed_lines(speeds: Speeds, rates: Mapping[str, Rates]) -> list[str]:
    """What is estimated of a placement, and whose rates that is by."""
    lines = []
    deep = f" with {speeds.cached} in the cache" if speeds.cached else ""
    if speeds.token is not None and speeds.token_rate is not None:
        seqs = f" of {speeds.n_seqs} sequences" if speeds.n_seqs > 1 else ""
        lines.append(f"estimate: {rate_text(speeds.token_rate)} tokens/s{seqs}{deep}")
    if speeds.prompt is not None and speeds.prompt_rate is not None:
        lines.append(
            f"estimate: first token of a prompt of {speeds.n_prompt}{deep} after {seconds_text(speeds.prompt)}, "
            f"{rate_text(speeds.prompt_rate)} tokens/s"
        )
    return [*lines, hardware(rates)]


def hardware(rates: Mapping[str, Rates]) -> str:
    """The hardware of each backend, and for which nobody named it."""
    named = [f"{name} is {of.name}" for name, of in rates.items() if of is not SOME_HOST]
    assumed = [name for name, of in rates.items() if of is SOME_HOST]
    return ", ".join(named) + (f"; {' and '.join(assumed)} not named, taken for {SOME_HOST.name}" if assumed else "")
