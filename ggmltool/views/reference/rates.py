"""Rates of devices as a table, with where the numbers are from."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.estimate.records import Rates
from ggmltool.inspect.rates import RatesInfo
from ggmltool.show.table import Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, size

_GIGA, _TERA = 1e9, 1e12


def _rate(rates: Rates | None, field: str, unit: float) -> str:
    return "" if rates is None else _figure(getattr(rates, field) / unit)


def _link(rates: Rates | None) -> str:
    return "" if rates is None or rates.to_device is None else _figure(rates.to_device.pinned / _GIGA)


def _figure(number: float) -> str:
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


_TABLE: Table[RatesInfo] = Table(
    Column("device", get=lambda r: r.name, cut=True),
    Column("backends", get=lambda r: ", ".join(r.backends), drop=5),
    Column("memory", right=True, drop=7, get=lambda r: "" if r.memory is None else size(r.memory)),
    Column("free", right=True, get=lambda r: "" if r.free is None else size(r.free)),
    Column("GB/s", right=True, get=lambda r: _rate(r.rates, "memory", _GIGA)),
    Column("f32", right=True, drop=1, get=lambda r: _rate(r.rates, "f32", _TERA)),
    Column("f16", right=True, get=lambda r: _rate(r.rates, "f16", _TERA)),
    Column("bf16", right=True, drop=6, get=lambda r: _rate(r.rates, "bf16", _TERA)),
    Column("int8", right=True, get=lambda r: _rate(r.rates, "int8", _TERA)),
    Column("to it GB/s", right=True, drop=2, get=lambda r: _link(r.rates)),
)  # fmt: skip


def rates_view(infos: Sequence[RatesInfo], title: str, style: Style, sources: bool = True) -> str:
    """Memory, its rate, tera operations a second by type, and the way to the device; below, the sources."""
    top = heading(title, [count(len(infos), "device"), "f32 to int8: tera operations a second at best"], style)
    return top + _TABLE.render(infos, style) + (_sources(infos, style) if sources else "")


def _sources(infos: Sequence[RatesInfo], style: Style) -> str:
    """Who says which numbers, once for all devices."""
    lines = [""]
    for info in {info.name: info for info in infos}.values():
        if info.rates is None:
            continue
        by_source: dict[str, list[str]] = {}
        for key, source in info.rates.sources.items():
            by_source.setdefault(source, []).append(key)
        for source, keys in by_source.items():
            lines += [f"  {info.name}, {', '.join(keys)}:", *(f"    {part}" for part in source.split("; "))]
    return render_lines(lines, style) if len(lines) > 1 else ""
