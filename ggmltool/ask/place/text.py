"""A placement for people: what lies where, what each device needs, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.chosen import Chosen
from ggmltool.ask.place.record import PlacedRow, PlacementShown, UseRow
from ggmltool.ask.splits.seconds import speed_lines
from ggmltool.ask.words import refusal_text
from ggmltool.inspect.decisions import TurnedDownRow
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, size

MARGIN = "margin: {} stays free for the driver's context, runtime pools and whatever else no plan has (--margin)"


def placement(answer: Answer[PlacementShown], style: Style) -> str:
    """What llama.cpp chose, where it did; then the devices with what they need, the layers, or every tensor; at the end
    what to know of the plan."""
    placed, chosen = answer.facts, answer.facts.chosen
    search = [] if chosen is None else [chosen_view(chosen, style), "\n"]
    n_layer = len(placed.layers) - 1
    top = heading(answer.title, [answer.heading or "all layers on GPUs", count(n_layer, "layer")], style)
    parts = [*search, top, "\n", device_table(placed).render(placed.devices, style)]
    if placed.tensors:
        parts += ["\n", _tensor_table(placed, style) if placed.all_tensors else _layer_table(placed, style)]
    parts += ["\n", render_lines(placement_facts(placed, style), style)]
    return "".join(parts)


def device_table(placed: PlacementShown) -> Table[UseRow]:
    """What the buffer types of each device hold; what is the device's stands beside its first one."""
    inks = term_colors(placed.backends)
    firsts = {use.device: use for use in reversed(placed.devices)}

    def is_first(use: UseRow) -> bool:
        return firsts[use.device] is use

    def left(use: UseRow) -> Cell | None:
        if use.left is None or not is_first(use):
            return None
        return Cell(signed(use.left), "bold red" if use.device in placed.short else "")

    return Table(
        Column("device", lambda u: Cell(u.device if is_first(u) else "", inks.get(u.device, ""))),
        Column("buffer type", lambda u: u.buft if u.buft != u.device else None, cut=True, drop=5),
        Column("weights", lambda u: _some(u.weights), right=True),
        Column("cache", lambda u: _some(u.cache), right=True),
        Column("compute", lambda u: _some(u.compute), right=True),
        Column("output", lambda u: _some(u.output), right=True, drop=3),
        Column("total", lambda u: size(u.total), right=True),
        Column("free", lambda u: size(u.memory) if u.memory is not None and is_first(u) else None, right=True, drop=6),
        Column("left", left, right=True),
        Column("margin", lambda u: _some(u.margin) if is_first(u) else None, right=True, drop=4),
    )


def _some(nbytes: int | None) -> str | None:
    return size(nbytes) if nbytes else None


def signed(nbytes: int) -> str:
    """What is left, or lacks."""
    return f"-{size(-nbytes)}" if nbytes < 0 else size(nbytes)


class _Run(NamedTuple):
    """Layers alike in one buffer type; `label` is "" behind their first one."""

    label: str
    device: str
    buft: str
    tensors: list[PlacedRow]

    def of(self, kind: str) -> list[int]:
        """The bytes of each weight or cache."""
        return [t.nbytes for t in self.tensors if t.kind == kind]


def _layer_table(placed: PlacementShown, style: Style) -> str:
    inks = term_colors(placed.backends)
    table = Table[_Run](
        Column("layers", lambda r: r.label),
        Column("device", lambda r: Cell(r.device, inks.get(r.device, ""))),
        Column("buffer type", lambda r: r.buft if r.buft != r.device else None, cut=True, drop=6),
        Column("weights", lambda r: len(r.of("weight")) or None, right=True),
        Column("size", lambda r: size(sum(r.of("weight"))) if r.of("weight") else None, right=True),
        Column("cache", lambda r: _some(sum(r.of("cache"))), right=True),
        Column("reason", lambda r: ", ".join(dict.fromkeys(t.rule for t in r.tensors if t.option)), cut=True, drop=5),
    )
    return table.render(_runs(placed), style)


def _runs(placed: PlacementShown) -> Iterator[_Run]:
    """The runs of layers alike, each buffer type by itself."""
    layers: dict[str, list[PlacedRow]] = {}
    for t in placed.tensors:
        layers.setdefault(t.layer, []).append(t)
    places = {"input": (0, 0), "output": (2, 0)}
    runs: list[tuple[list[str], list[PlacedRow]]] = []
    for layer in sorted(layers, key=lambda layer: (1, int(layer)) if layer.isdecimal() else places.get(layer, (3, 0))):
        alike = runs and layer.isdecimal() and runs[-1][0][-1].isdecimal()
        if alike and _signature(layers[layer]) == _signature(layers[runs[-1][0][-1]]):
            runs[-1][0].append(layer)
            runs[-1][1].extend(layers[layer])
        else:
            runs.append(([layer], list(layers[layer])))
    for names, tensors in runs:
        label = names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"
        for buft, device in sorted({(t.buft, t.device) for t in tensors}):
            yield _Run(label, device, buft, [t for t in tensors if t.buft == buft])
            label = ""


def _signature(tensors: Sequence[PlacedRow]) -> tuple[object, ...]:
    """What makes layers alike: how many weights and caches lie where, and by which option."""
    found: dict[tuple[str, str, str], int] = {}
    for t in tensors:
        key = (t.buft, t.kind, t.rule if t.option else "")
        found[key] = found.get(key, 0) + 1
    return tuple(sorted(found.items()))


def _tensor_table(placed: PlacementShown, style: Style) -> str:
    inks = term_colors(placed.backends)
    table = Table[PlacedRow](
        Column("tensor", lambda t: t.name, cut=True),
        Column("layer", lambda t: t.layer, right=True, drop=1),
        Column("type", lambda t: t.type, drop=5),
        Column("size", lambda t: size(t.nbytes), right=True),
        Column("buffer", lambda t: Cell(t.buft, inks.get(t.device, ""))),
        Column("reason", lambda t: t.rule if t.used else f"{t.rule}; the graph does not use it", cut=True),
    )
    return table.render(placed.tensors, style)


def placement_facts(placed: PlacementShown, style: Style) -> list[str]:
    """What to know of the plan: splits, copies, what decides a size, what fits, the margin, warnings."""
    needs = placed.needs
    many = len(needs.graphs) > 1
    lines = [placed.program] if placed.program else []
    for name, splits, copied in needs.graphs:
        lines.append(f"{name}: " * many + f"{count(splits, 'split')}, {size(copied)} copied per ubatch")
    for row in placed.unsupported:
        refused = TurnedDownRow(row.backend, row.op, row.why, row.lacks)
        text = f"{refusal_text(refused)}: {count(row.nodes, 'node')} on {row.runs_on}"
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    if len(set(needs.decided.values())) > 1:
        lines += [f"graph {g} decides the compute buffer of {backend}" for backend, g in needs.decided.items()]
    elif needs.decided:
        lines.append(f"compute buffers as reserved for graph {next(iter(needs.decided.values()))}")
    lines += _copies(placed)
    if placed.shares:
        told = [f"{s.gpu} {s.got:.1%} (-ts {s.asked:.1%})" for s in placed.shares]
        text = f"cut tensors: {', '.join(told)}; {size(placed.shares[0].whole)} whole on each"
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    for device, n in placed.short.items():
        left = needs.left(device)
        of_margin = f" of its margin ({size(left)} left)" if left is not None and left >= 0 else ""
        lines.append(f"{device} does not fit: {size(n)} short{of_margin}")
    if needs.error is not None and dict(needs.error)["kind"] == "failed":
        lines.append(f"does not fit: {dict(needs.error)['message']}")
    known = [device for device in needs.memory if device not in placed.short]
    if known and needs.error is None:
        lines.append(f"fits: {', '.join(known)}")
    margins = ", ".join(dict.fromkeys(size(needs.margins[d]) for d in needs.memory if needs.margins.get(d)))
    notes = [MARGIN.format(margins)] if margins else []
    speeds = speed_lines(placed.estimates, placed.rates) if placed.estimates is not None else []
    for text in (*speeds, *notes, *(f"note: {warning}" for warning in placed.warnings)):
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    return list(map(printable, lines))


def _copies(placed: PlacementShown) -> list[str]:
    """Whether there are pipeline copies; what they would need, if llama.cpp goes on without them."""
    needs = placed.needs
    if needs.with_copies:
        without = {device: needs.of(device) for device in needs.with_copies}
        told = [
            f"{device} {size(n)} with, {size(without[device])} without"
            for device, n in needs.with_copies.items()
            if n != without[device]
        ]
        return [f"pipeline copies do not fit; llama.cpp retries without them: {'; '.join(told)}"]
    if placed.parallel:
        return ["pipeline copies: 4"]
    return [f"no pipeline copies: {placed.no_pipeline_because}"] if placed.no_pipeline_because else []


def chosen_view(chosen: Chosen, style: Style) -> str:
    """What --fit looked at and said, without the tables of memory that it logs, and the parameters that it set."""
    fitted = chosen.fitted
    facts = [f"{d.name} {f'{size(d.free)} free' if d.free else 'reports no memory'}" for d in chosen.devices] or [
        "no GPU"
    ]
    facts.append(f"target {', '.join(dict.fromkeys(map(size, chosen.margins)))}")
    told = [f"after {count(len(fitted.trials), 'measurement')}: {chosen.arguments}"]
    if fitted.status == "crash":
        told = [f"llama.cpp {fitted.reason} and ends here"]
    elif not fitted.ok:
        told.append(f"llama.cpp gives up: {fitted.reason}; it goes on with the parameters above")
    # The function that says nearly all lines is not named.
    said = [text.removeprefix("common_params_fit_impl: ") for text in fitted.log]
    said = [text for text in said if not text.startswith("common_memory_breakdown_print: ")]
    return "".join(
        [heading("llama.cpp's --fit", facts, style), "\n", _wrapped(said, style), "\n", _wrapped(told, style)]
    )


def _wrapped(texts: Sequence[str], style: Style) -> str:
    lines = []
    for text in texts:
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        lines += wrap(printable(text), max(style.width, 20), subsequent_indent=indent) or [""]
    return render_lines(lines, style)


def failure(chosen: Chosen) -> str:
    """Why there is no success, in a line."""
    fitted = chosen.fitted
    return f"llama.cpp {fitted.reason}" if fitted.status == "crash" else fitted.log[-1]
