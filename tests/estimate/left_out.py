"""What the factors say of a card without measurements: each device is estimated by what is fitted to all others.

All rows of the device, of both halves and of the new ones, are estimated by factors fitted to the fitted half without
it. `left_out.csv` has the estimates, written by `python -m tests.estimate.calibrate --write`, as fitting once for each
device takes a minute. CPUs are not fitted to, and have no part in it.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ggmltool.estimate.records import Efficiency, Rates, ShareRange
from tests.estimate.calibrate import (
    HEADING,
    Case,
    Errors,
    device_rates,
    errors_of,
    estimated,
    fit_backend,
    generation_of,
    table,
)
from tests.estimate.measurements import Row

FILE = Path(__file__).parent / "left_out.csv"


class LeftOut(NamedTuple):
    """A measurement and its estimate by what is known of other devices: tokens a second at least, likely, at most."""

    row: Row
    low: float
    mid: float
    high: float

    @property
    def estimate(self) -> tuple[float, float, float, float]:
        """What was measured, and the estimate."""
        return self.row.rate, self.low, self.mid, self.high


def left_out(every: Sequence[Case], devices: Sequence[tuple[str, str]] | None = None) -> list[LeftOut]:
    """The estimates of all cases, or of those of devices by name and backend, each without its device."""
    asked = {(c.row.device, c.row.backend) for c in every if c.row.backend != "CPU"}
    found: dict[tuple[str, str], list[LeftOut]] = {}
    for device, backend in asked if devices is None else devices:
        others = [c for c in every if c.row.fitted and c.row.backend == backend and c.row.device != device]
        shares = fit_backend(others)
        own = [c for c in every if (c.row.device, c.row.backend) == (device, backend)]
        found[device, backend] = [LeftOut(c.row, *_rounded(estimated(c, _rates(c.row, shares)))) for c in own]
    return [one for key in sorted(found) for one in found[key]]


def _rates(row: Row, shares: Mapping[str, Mapping[str, ShareRange]]) -> Rates:
    """A device's rates with factors as efficiency.toml would have them."""
    own = dict(shares[row.backend]) | dict(shares.get(f"{row.backend} {generation_of(row.device)}", {}))
    filling = own.pop("filling").mid
    return replace(device_rates(row), efficiency=Efficiency(**own), filling=filling)


def _rounded(estimate: tuple[float, float, float]) -> tuple[float, float, float]:
    low, mid, high = (float(f"{x:.5g}") for x in estimate)
    return low, mid, high


def write_left_out(found: Sequence[LeftOut]) -> None:
    """Write the file."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(
            [
                "device",
                "backend",
                "count",
                "model",
                "test",
                "depth",
                "ubatch",
                "fa",
                "measured",
                "low",
                "likely",
                "high",
            ]
        )
        for row, low, mid, high in found:
            out.writerow([*_key(row), low, mid, high])


def _key(row: Row) -> tuple[str, ...]:
    key = (row.device, row.backend, row.count, row.model, row.test, row.depth, row.ubatch, int(row.flash), row.rate)
    return tuple(map(str, key))


def read_left_out(rows: Sequence[Row]) -> list[LeftOut]:
    """The estimates in the file, each with its measurement. Raises KeyError where rows have no such measurement."""
    by_key = {_key(row): row for row in rows}
    with FILE.open(encoding="utf-8", newline="") as file:
        return [LeftOut(by_key[tuple(r[:-3])], *map(float, r[-3:])) for r in list(csv.reader(file))[1:]]


def device_errors(found: Sequence[LeftOut]) -> dict[tuple[str, str], Errors]:
    """The errors of each device, by name and backend."""
    groups: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for one in found:
        groups.setdefault((one.row.device, one.row.backend), []).append(one.estimate)
    return {key: errors_of(group) for key, group in groups.items()}


def left_out_report(found: Sequence[LeftOut]) -> str:
    """The errors by backend and test, and how the medians of devices lie."""
    lines = ["", f"each device left out of what is fitted\n{HEADING}", *table("", [(x.row, x.estimate) for x in found])]
    medians = {key: e.median for key, e in device_errors(found).items()}
    tenths = statistics.quantiles(medians.values(), n=10, method="inclusive")
    lines.append(
        f"median error of a device: {len(medians)} devices and backends, half below {tenths[4]:.1%}, nine of ten below "
        f"{tenths[8]:.1%}"
    )
    worst = sorted(medians, key=lambda key: -medians[key])[:5]
    lines.append(
        "farthest off: " + ", ".join(f"{device} {backend} {medians[device, backend]:.0%}" for device, backend in worst)
    )
    return "\n".join(lines)
