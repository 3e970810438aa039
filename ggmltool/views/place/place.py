"""A placement for people: what lies where, what each device needs, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from ggmltool.inspect.placed import Placed, PlacedTensor
from ggmltool.views.explain.reasons import refusal_text
from ggmltool.views.palette import term_colors
from ggmltool.views.table import Cell, Column, Head, Row, Style, Table, heading, render_lines, render_table
from ggmltool.views.text import count, printable, size

_DEVICES = (
    Head("device"),
    Head("buffer type", cut=True, drop=5),
    Head("weights", right=True),
    Head("cache", right=True),
    Head("compute", right=True),
    Head("output", right=True, drop=3),
    Head("total", right=True),
    Head("free", right=True, drop=6),
    Head("left", right=True),
    Head("margin", right=True, drop=4),
)

_LAYERS = (
    Head("layers"),
    Head("device"),
    Head("buffer type", cut=True, drop=6),
    Head("weights", right=True),
    Head("size", right=True),
    Head("cache", right=True),
    Head("reason", cut=True, drop=5),
)

MARGIN = "margin: {} stays free for the driver's context, runtime pools and what else no planner sees (--margin)"


def place_view(placed: Placed, title: str, options: str, style: Style, tensors: bool = False) -> str:
    """The devices with what they need, then the layers, or every tensor; at the end what to know of the plan."""
    n_layer = len(placed.layers) - 1
    parts = [heading(title, [options or "all layers on GPUs", count(n_layer, "layer")], style)]
    parts += ["\n", render_table(_DEVICES, _device_rows(placed), style)]
    if placed.tensors:
        table = _tensor_table(placed, style) if tensors else render_table(_LAYERS, _layer_rows(placed), style)
        parts += ["\n", table]
    parts += ["\n", render_lines(_facts(placed, style), style)]
    return "".join(parts)


def _inks(placed: Placed) -> dict[str, str]:
    return term_colors(placed.backends)


def _device_rows(placed: Placed) -> list[Row]:
    inks = _inks(placed)
    rows: list[Row] = []
    seen: set[str] = set()
    for use in placed.uses:
        first = use.device not in seen
        seen.add(use.device)
        left = placed.left(use.device) if first else None
        memory = placed.memory.get(use.device) if first else None
        rows.append(
            [
                Cell(use.device if first else "", inks.get(use.device, "")),
                use.buft if use.buft != use.device else "",
                *(size(n) if n else "" for n in (use.weights, use.cache, use.compute, use.output)),
                size(use.total),
                "" if memory is None else size(memory),
                "" if left is None else Cell(_signed(left), "bold red" if use.device in placed.short else ""),
                "" if left is None or not placed.margins.get(use.device) else size(placed.margins[use.device]),
            ]
        )
    return rows


def _signed(n: int) -> str:
    return f"-{size(-n)}" if n < 0 else size(n)


def _layer_rows(placed: Placed) -> list[Row]:
    """A row per run of layers alike and buffer type."""
    inks = _inks(placed)
    layers: dict[str, list[PlacedTensor]] = {}
    for t in placed.tensors:
        layers.setdefault(t.layer, []).append(t)
    order = sorted(layers, key=_layer_key)
    runs: list[tuple[list[str], list[PlacedTensor]]] = []
    for layer in order:
        alike = runs and layer.isdecimal() and runs[-1][0][-1].isdecimal()
        if alike and _signature(layers[layer]) == _signature(layers[runs[-1][0][-1]]):
            runs[-1][0].append(layer)
            runs[-1][1].extend(layers[layer])
        else:
            runs.append(([layer], list(layers[layer])))
    rows: list[Row] = []
    for names, tensors in runs:
        label = names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"
        for i, (buft, device) in enumerate(sorted({(t.buft, t.device) for t in tensors})):
            mine = [t for t in tensors if t.buft == buft]
            weights = [t for t in mine if t.kind == "weight"]
            because = ", ".join(dict.fromkeys(t.rule for t in mine if t.option))
            cache = sum(t.nbytes for t in mine if t.kind == "cache")
            row: Row = [
                label if i == 0 else "",
                Cell(device, inks.get(device, "")),
                buft if buft != device else "",
                str(len(weights)) if weights else "",
                size(sum(t.nbytes for t in weights)) if weights else "",
                size(cache) if cache else "",
                because,
            ]
            rows.append(row)
    return rows


def _layer_key(layer: str) -> tuple[int, int]:
    if layer.isdecimal():
        return 1, int(layer)
    return {"input": (0, 0), "output": (2, 0)}.get(layer, (3, 0))


def _signature(tensors: Sequence[PlacedTensor]) -> tuple[object, ...]:
    """What makes layers alike: how many weights and caches lie where, and by which option."""
    found: dict[tuple[str, str, str], int] = {}
    for t in tensors:
        key = (t.buft, t.kind, t.rule if t.option else "")
        found[key] = found.get(key, 0) + 1
    return tuple(sorted(found.items()))


def _tensor_table(placed: Placed, style: Style) -> str:
    inks = _inks(placed)
    table = Table[PlacedTensor](
        Column("tensor", lambda t: t.name, cut=True),
        Column("layer", lambda t: t.layer, right=True, drop=1),
        Column("type", lambda t: t.type, drop=5),
        Column("size", lambda t: size(t.nbytes), right=True),
        Column("buffer", lambda t: Cell(t.buft, inks.get(t.device, ""))),
        Column("reason", lambda t: t.rule if t.used else f"{t.rule}; the graph does not use it", cut=True),
    )
    return table.render(placed.tensors, style)


def _facts(placed: Placed, style: Style) -> list[str]:
    many = len(placed.graphs) > 1
    lines = [placed.program] if placed.program else []
    for name, splits, copied in placed.graphs:
        lines.append(f"{name}: " * many + f"{count(splits, 'split')}, {size(copied)} copied per batch")
    for refused, there, n in placed.unsupported:
        text = f"{refusal_text(refused)}: {count(n, 'node')} on {there}"
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    if len(set(placed.decided.values())) > 1:
        lines += [f"{backend}'s compute buffer is as large as {g} needs it" for backend, g in placed.decided.items()]
    elif placed.decided:
        lines.append(f"compute buffers as reserved for graph {next(iter(placed.decided.values()))}")
    lines += _copies(placed)
    for device, n in placed.short.items():
        lines.append(f"{device} does not fit: {size(n)} short" + _of_margin(placed, device))
    known = [device for device in placed.memory if device not in placed.short]
    if known:
        lines.append(f"fits: {', '.join(known)}")
    margins = ", ".join(dict.fromkeys(size(placed.margins[d]) for d in placed.memory if placed.margins.get(d)))
    notes = [MARGIN.format(margins)] if margins else []
    for text in (*notes, *(f"note: {warning}" for warning in placed.warnings)):
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    return list(map(printable, lines))


def _copies(placed: Placed) -> list[str]:
    """Whether there are pipeline copies; what they would need, if llama.cpp goes on without them."""
    if placed.with_copies:
        needs = {device: sum(u.total for u in placed.uses if u.device == device) for device in placed.with_copies}
        told = [
            f"{device} {size(n)} with, {size(needs[device])} without"
            for device, n in placed.with_copies.items()
            if n != needs[device]
        ]
        return [f"pipeline copies do not fit, llama.cpp retries without: {'; '.join(told)}"]
    if placed.parallel:
        return ["pipeline copies: 4"]
    return [f"no pipeline copies: {placed.pipeline}"] if placed.pipeline else []


def _of_margin(placed: Placed, device: str) -> str:
    """What of a lack is due to the margin alone."""
    left = placed.left(device)
    return f" of its margin ({size(left)} left)" if left is not None and left >= 0 else ""


def place_json(placed: Placed) -> dict[str, Any]:
    """The placement as data: bytes, device by device and tensor by tensor."""
    devices = [
        {
            **asdict(use),
            "total": use.total,
            "memory": placed.memory.get(use.device),
            "left": placed.left(use.device),
            "margin": placed.margins.get(use.device, 0) if use.device in placed.memory else None,
        }
        for use in placed.uses
    ]
    return {
        "ggmltool": 1,
        "kind": "placement",
        "options": dict(placed.options),
        "fits": not placed.short,
        "short": placed.short,
        "graphs": [{"graph": name, "splits": splits, "copied": copied} for name, splits, copied in placed.graphs],
        "parallel": placed.parallel,
        "no_pipeline_because": placed.pipeline or None,
        "with_pipeline_copies": dict(placed.with_copies) or None,
        "decided": dict(placed.decided),
        "devices": devices,
        "layers": [{"layer": i, "device": d} for i, d in enumerate(placed.layers[:-1])]
        + [{"layer": "output", "device": placed.layers[-1]}],
        "tensors": [t._asdict() for t in placed.tensors],
        "unsupported": [{**r._asdict(), "runs_on": there, "nodes": n} for r, there, n in placed.unsupported],
        "warnings": list(placed.warnings),
        **({"error": dict(placed.error)} if placed.error is not None else {}),
    }
