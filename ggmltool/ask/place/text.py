"""A placement for people: what lies where, what each device needs, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ask.answer import Answer
from ggmltool.ask.place.record import Placed, PlacedTensor, PlacementShown
from ggmltool.ask.splits.seconds import speed_lines
from ggmltool.ask.words import refusal_text
from ggmltool.show.colors import term_colors
from ggmltool.show.table import Cell, Column, Shown, Style, Table, heading, render_lines
from ggmltool.show.text import count, printable, size
from ggmltool.sources.llama.place.needs import BufferUse

if TYPE_CHECKING:
    from ggmltool.ask.place.chosen import Chosen

MARGIN = "margin: {} stays free for the driver's context, runtime pools and whatever else no plan has (--margin)"


def placement(answer: Answer[PlacementShown], style: Style) -> str:
    """What llama.cpp chose, where it did; then the devices with what they need, the layers, or every tensor; at the end
    what to know of the plan."""
    placed, chosen = answer.facts.placed, answer.facts.chosen
    search = [] if chosen is None else [chosen_view(chosen, style), "\n"]
    n_layer = len(placed.layers) - 1
    top = heading(answer.title, [answer.heading or "all layers on GPUs", count(n_layer, "layer")], style)
    parts = [*search, top, "\n", device_table(placed).render(placed.needs.uses, style)]
    if placed.tensors:
        parts += ["\n", _tensor_table(placed, style) if answer.facts.all_tensors else _layer_table(placed, style)]
    parts += ["\n", render_lines(placement_facts(placed, style), style)]
    return "".join(parts)


def _inks(placed: Placed) -> dict[str, str]:
    return term_colors(placed.backends)


def device_table(placed: Placed) -> Table[BufferUse]:
    """What the buffer types of each device hold; what is the device's stands beside its first one."""
    needs = placed.needs
    inks = _inks(placed)
    firsts = {use.device: use for use in reversed(needs.uses)}

    def of_device(get: Callable[[str], Shown]) -> Callable[[BufferUse], Shown]:
        return lambda use: get(use.device) if firsts[use.device] is use else None

    def left(device: str) -> Cell | None:
        n = needs.left(device)
        return None if n is None else Cell(_signed(n), "bold red" if device in placed.short else "")

    def free(device: str) -> str | None:
        return size(needs.memory[device]) if device in needs.memory else None

    def margin(device: str) -> str | None:
        return size(needs.margins[device]) if device in needs.memory and needs.margins.get(device) else None

    return Table(
        Column("device", lambda u: Cell(u.device if firsts[u.device] is u else "", inks.get(u.device, ""))),
        Column("buffer type", lambda u: u.buft if u.buft != u.device else None, cut=True, drop=5),
        Column("weights", lambda u: _some(u.weights), right=True),
        Column("cache", lambda u: _some(u.cache), right=True),
        Column("compute", lambda u: _some(u.compute), right=True),
        Column("output", lambda u: _some(u.output), right=True, drop=3),
        Column("total", lambda u: size(u.total), right=True),
        Column("free", of_device(free), right=True, drop=6),
        Column("left", of_device(left), right=True),
        Column("margin", of_device(margin), right=True, drop=4),
    )


def _some(nbytes: int) -> str | None:
    return size(nbytes) if nbytes else None


def _signed(n: int) -> str:
    return f"-{size(-n)}" if n < 0 else size(n)


class _Run(NamedTuple):
    """Layers alike in one buffer type; `label` is "" behind their first one."""

    label: str
    device: str
    buft: str
    tensors: list[PlacedTensor]

    def of(self, kind: str) -> list[int]:
        """The bytes of each weight or cache."""
        return [t.nbytes for t in self.tensors if t.kind == kind]


def _layer_table(placed: Placed, style: Style) -> str:
    inks = _inks(placed)
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


def _runs(placed: Placed) -> Iterator[_Run]:
    """The runs of layers alike, each buffer type by itself."""
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
    for names, tensors in runs:
        label = names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"
        for buft, device in sorted({(t.buft, t.device) for t in tensors}):
            yield _Run(label, device, buft, [t for t in tensors if t.buft == buft])
            label = ""


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


def placement_facts(placed: Placed, style: Style) -> list[str]:
    """What to know of the plan: splits, copies, what decides a size, what fits, the margin, warnings."""
    needs = placed.needs
    many = len(needs.graphs) > 1
    lines = [placed.program] if placed.program else []
    for name, splits, copied in needs.graphs:
        lines.append(f"{name}: " * many + f"{count(splits, 'split')}, {size(copied)} copied per ubatch")
    for refused, there, n in placed.unsupported:
        text = f"{refusal_text(refused)}: {count(n, 'node')} on {there}"
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
        lines.append(f"{device} does not fit: {size(n)} short" + _of_margin(placed, device))
    if needs.error is not None and dict(needs.error)["kind"] == "failed":
        lines.append(f"does not fit: {dict(needs.error)['message']}")
    known = [device for device in needs.memory if device not in placed.short]
    if known and placed.error is None:
        lines.append(f"fits: {', '.join(known)}")
    margins = ", ".join(dict.fromkeys(size(needs.margins[d]) for d in needs.memory if needs.margins.get(d)))
    notes = [MARGIN.format(margins)] if margins else []
    speeds = speed_lines(placed.speeds, placed.rates) if placed.speeds is not None else []
    for text in (*speeds, *notes, *(f"note: {warning}" for warning in placed.warnings)):
        lines += wrap(text, max(style.width, 20), subsequent_indent="  ")
    return list(map(printable, lines))


def _copies(placed: Placed) -> list[str]:
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
    return [f"no pipeline copies: {placed.pipeline}"] if placed.pipeline else []


def _of_margin(placed: Placed, device: str) -> str:
    """What of a lack is due to the margin alone."""
    left = placed.needs.left(device)
    return f" of its margin ({size(left)} left)" if left is not None and left >= 0 else ""


_LEAST = 20


def chosen_view(chosen: Chosen, style: Style) -> str:
    """What --fit looked at and said, without the tables of memory that it logs, and the parameters that it set."""
    facts = [f"{d.name} {_memory(d.free)}" for d in chosen.devices] or ["no GPU"]
    facts.append(f"target {', '.join(dict.fromkeys(map(size, chosen.margins)))}")
    lines = [line for said in _said(chosen) for line in _wrapped(said, style)]
    parts = [heading("llama.cpp's --fit", facts, style), "\n", render_lines(lines, style)]
    parts += ["\n", render_lines([line for text in _result(chosen) for line in _wrapped(text, style)], style)]
    return "".join(parts)


def _memory(free: int) -> str:
    return f"{size(free)} free" if free else "reports no memory"


def _said(chosen: Chosen) -> Iterator[str]:
    """The lines of the search; the function that says nearly all of them is not named."""
    for line in chosen.fitted.log:
        function, _, text = line.partition(": ")
        if function != "common_memory_breakdown_print":
            yield text if function == "common_params_fit_impl" else line


def _wrapped(text: str, style: Style) -> list[str]:
    indent = len(text) - len(text.lstrip())
    return wrap(printable(text), max(style.width, _LEAST), subsequent_indent=" " * (indent + 2)) or [""]


def _result(chosen: Chosen) -> Iterator[str]:
    fitted = chosen.fitted
    if fitted.status == "crash":
        yield f"llama.cpp {fitted.reason} and ends here"
        return
    yield f"after {count(len(fitted.trials), 'measurement')}: {chosen.arguments}"
    if not fitted.ok:
        yield f"llama.cpp gives up: {fitted.reason}; it goes on with the parameters above"


def failure(chosen: Chosen) -> str:
    """Why there is no success, in a line."""
    fitted = chosen.fitted
    return f"llama.cpp {fitted.reason}" if fitted.status == "crash" else fitted.log[-1]
