"""The tables that llama.cpp's --fit logs: what a model and a context need on every device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.sources.llama.own_fit.records import FitDevice, Measured, Parts, mib

_PREFIXES = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Radeon ", "Instinct ")
_HEAD = "| {} | {}   {}    {}   {}   {}   {}    {} |"
_DEVICE = "| {} | {} = {} + ({} = {} + {} + {}) + {} |"
_OTHER = "| {} | {}   {}    {} = {} + {} + {}    {} |"


def breakdown(devices: Sequence[FitDevice], measured: Measured) -> list[str]:
    """common_memory_breakdown_print: a row per device, one of the host, one of each other buffer type; in MiB."""
    rows = list(_rows(devices, measured))
    widths = [max(len(cells[j]) for _, cells in rows) for j in range(8)]
    lines = []
    for template, (name, *numbers) in rows:
        cells = [name.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))]
        lines.append("common_memory_breakdown_print: " + template.format(*cells))
    return lines


def names(devices: Sequence[FitDevice]) -> list[str]:
    """The devices as the log names them, in a column."""
    shown = [f"{d.name} ({d.description})" for d in devices]
    return [name.ljust(max(map(len, shown))) for name in shown]


def _rows(devices: Sequence[FitDevice], measured: Measured) -> Iterator[tuple[str, list[str]]]:
    titles = ["memory breakdown [MiB]", "total", "free", "self", "model", "context", "compute", "unaccounted"]
    yield _HEAD, titles
    for device, parts in zip(devices, measured.devices, strict=True):
        unaccounted = mib(device.total - device.free - parts.total)
        memory = [str(mib(device.total)), str(mib(device.free))]
        yield _DEVICE, [f"  - {device.name} ({_short(device.description)})", *memory, *_mibs(parts), str(unaccounted)]
    for name, parts in (("Host", measured.host), *measured.others):
        yield _OTHER, [f"  - {name}", "", "", *_mibs(parts), ""]


def _mibs(parts: Parts) -> list[str]:
    return [str(mib(n)) for n in (parts.total, *parts)]


def _short(description: str) -> str:
    """A description without the names of makers and series."""
    for prefix in _PREFIXES:
        description = description.removeprefix(prefix)
    return description
