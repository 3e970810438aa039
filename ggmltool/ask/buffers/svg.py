"""The memory map as SVG: every compute buffer over program order, tensors in the colors of their backends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ask.buffers.map import (
    BEND_AT,
    FOOT,
    LAYER_ROW,
    LEFT,
    LINE,
    NAME,
    RIGHT,
    WIDTH,
    Kind,
    MemoryMap,
    Panel,
    Tile,
    callouts,
    labels,
    memory_map,
    peak_x,
    shown_name,
    small_area,
)
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import MemoryPlan, Peak
from ggmltool.show.colors import DARK, LIGHT, Color, colors
from ggmltool.show.svg import (
    LARGE,
    SMALL,
    Box,
    Svg,
    Text,
    document,
    fitted,
    mixed,
    number,
    outline,
    path,
    rect,
    round_numbers,
    spread,
    style,
)
from ggmltool.show.text import count, plan_step, printable, shortened, size

_PLOT = WIDTH - LEFT - RIGHT
_MOST_SMALL = 150_000
"""Characters that all the areas of small tensors together may take; where they take more they are drawn coarser."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SHADE, _DEEP = 0.28, 0.55
_HATCH = 'patternUnits="userSpaceOnUse" width="6" height="6" patternTransform="rotate(45)"'
_DOTS = 'patternUnits="userSpaceOnUse" width="7" height="7"'
_DEFS = (
    f'<defs><pattern id="ggmltool-free" {_HATCH}><path class="free" d="M1 0V6"/></pattern>'
    f'<pattern id="ggmltool-copy" {_DOTS}><circle class="paper" cx="2" cy="2" r="1.1"/>'
    '<circle class="paper" cx="5.5" cy="5.5" r="1.1"/></pattern></defs>'
)


def map_svg(plan: Plan, memory: MemoryPlan, title: str, numbers: Mapping[str, int]) -> Svg:
    """The drawing: a panel for each chunk of each compute buffer, a legend, and a description in words.

    Tensors below a pixel are drawn together, and the drawing says how many; it stays below a megabyte.
    """
    laid, turns = memory_map(plan, memory, numbers), memory.turns(numbers)
    inks = colors(name for name, _ in plan.backends)
    nodes = count(len(plan.nodes), "node")
    if len(memory.nodes) != len(plan.nodes):
        nodes += f", {len(memory.nodes)} with the scheduler's copies"
    facts = [plan_step(plan), f"ggml {plan.ggml}", nodes]
    facts.append(f"{size(sum(panel.nbytes for panel in laid.panels))} in compute buffers")
    head = fitted(f"Memory over time: {printable(title)}", _PLOT + LEFT - RIGHT, LARGE, bold=True)
    placed = _placed(laid, inks)
    bottom = placed[-1][1].y + 18 if placed else laid.bottom + FOOT
    elements = [
        style(inks.values(), *_rules(list(inks.values()))),
        _DEFS,
        rect(Box(0, 0, WIDTH, bottom), "paper"),
        Text(RIGHT, 30, head, LARGE, bold=True).element,
        Text(RIGHT, 50, fitted(" · ".join(facts), _PLOT + LEFT - RIGHT, 12), look="soft").element,
    ]
    for panel in laid.panels:
        elements += ["<g>", *_panel(panel, laid, turns, _MOST_SMALL // len(laid.panels)), "</g>"]
    if not laid.panels:
        elements.append(Text(RIGHT, 84, "No compute buffer holds anything.").element)
    elements += _legend(placed)
    return document((WIDTH, bottom), f"Memory over time: {title}", _description(laid, turns, facts), elements)


def _rules(backends: Sequence[Color]) -> tuple[str, str]:
    """The drawing's own rules on a light and on a dark ground: the shades of the kinds, hatches, lines."""
    out = []
    for ground, inks in (
        (LIGHT, [(c.fill, c.ink) for c in backends]),
        (DARK, [(c.dark_fill, c.dark_ink) for c in backends]),
    ):
        parts = [
            f".free{{stroke:{ground.hatch};stroke-width:2}}",
            f".copy{{fill:url(#ggmltool-copy)}}.hatch{{fill:url(#ggmltool-free)}}.edge{{stroke:{ground.paper};fill:none}}",
            f".water{{stroke:{ground.ink};stroke-dasharray:5 3;fill:none}}",
            f".bend{{stroke:{ground.soft};stroke-width:3;stroke-dasharray:1 5;fill:none}}",
            f".peak{{stroke:{ground.ink};stroke-dasharray:1 3;fill:none}}",
        ]
        parts += [f".s{i}{{fill:{mixed(fill, ink, _SHADE)}}}" for i, (fill, ink) in enumerate(inks)]
        parts += [f".m{i}{{fill:{mixed(fill, ink, _DEEP)}}}" for i, (fill, ink) in enumerate(inks)]
        parts += [f".o{i}{{fill:{fill};stroke:{ink};stroke-width:2}}" for i, (fill, ink) in enumerate(inks)]
        out.append("".join(parts))
    return out[0], out[1]


def _panel(panel: Panel, laid: MemoryMap, turns: Sequence[str], room: int) -> Iterator[str]:
    yield from _header(panel, turns)
    yield rect(panel.frame, "hatch")
    frame = panel.frame
    lines = [f"M{number(frame.x0)} {number(panel.y(at))}H{number(frame.x1)}" for at, _ in _offsets(panel)]
    if len(laid.layers) <= _PLOT / 8:
        lines += [f"M{number(panel.x(s.start))} {number(frame.y0)}V{number(frame.y1)}" for s in laid.layers]
    yield path("".join(lines), "grid")
    small = small_area(panel, room)
    if small:
        yield path(small, f"m{panel.backend}")
    for tile in panel.tiles:
        yield _tile(tile, panel.backend, turns)
    copied = "".join(outline(tile.box) for tile in panel.tiles if tile.kind is Kind.COPIED)
    if copied:
        yield path(copied, "copy")
    edges = "".join(outline(t.box) for t in panel.tiles if min(t.box.x1 - t.box.x0, t.box.y1 - t.box.y0) > 3)
    if edges:
        yield path(edges, "edge")
    x_of_peak = peak_x(panel)
    names = [text for tile in panel.tiles for text in labels(tile, x_of_peak)]
    yield from (text.element for text in names)
    for text in callouts(panel, names):
        yield rect(text.box, "paper")
        yield text.element
    water = ""
    for step, high in panel.water:
        water += f"{'H' if water else 'M'}{number(panel.x(step))}{'V' if water else ' '}{number(panel.y(high))}"
    yield path(f"{water}H{number(frame.x1)}", "water")
    if x_of_peak is not None:
        x, y = number(x_of_peak), frame.y0
        yield path(f"M{x} {number(y)}V{number(frame.y1)}", "peak")
        yield path(f"M{x} {number(y)}l-4.5 -7h9z", "ink")
    yield from _axes(panel, laid)


def _header(panel: Panel, turns: Sequence[str]) -> Iterator[str]:
    """The name of the buffer, its size, and its peak, on one line above the frame."""
    y = panel.frame.y0 - 11
    chunks = panel.buffer.chunks
    name = printable(panel.buffer.backend) + (f", chunk {panel.chunk}" if len(chunks) > 1 else "")
    head = Text(LEFT, y, fitted(name, _PLOT / 3, 13, bold=True), 13, look=f"i{panel.backend}", bold=True)
    yield head.element
    x = head.box.x1 + 10
    facts = size(panel.nbytes) + (f" of {size(panel.buffer.size)}" if len(chunks) > 1 else "")
    peak = panel.buffer.peak
    if peak is not None and panel.chunk == 0:
        facts += f" · peak {size(peak.nbytes)} {_when(peak, turns)}"
    yield Text(x, y, fitted(facts, WIDTH - RIGHT - x, 12), look="soft").element


def _when(peak: Peak, turns: Sequence[str]) -> str:
    return f"at node {printable(turns[peak.step])}" if peak.step >= 0 else "before the first node"


def _offsets(panel: Panel) -> list[tuple[float, str]]:
    """Round offsets, with their names, as many as there is room for; on either side of a bend those of its scale."""
    high = panel.frame.y1 - panel.frame.y0
    if not panel.bend:
        return list(_rounds(panel.nbytes, high))
    above = [at for at in _rounds(panel.nbytes, high * (1 - BEND_AT)) if panel.y(at[0]) < panel.y(panel.bend) - LINE]
    return [at for at in _rounds(panel.bend, high * BEND_AT) if at[0] <= panel.bend] + above


def _rounds(nbytes: int, high: float) -> Iterator[tuple[float, str]]:
    power = max(0, min((nbytes.bit_length() - 1) // 10, len(_UNITS) - 1))
    for n in round_numbers(nbytes / 1024**power, max(2, int(high / 42))):
        if n * 1024**power <= nbytes:
            yield n * 1024**power, f"{n:,} {_UNITS[power]}" if n else "0"


def _axes(panel: Panel, laid: MemoryMap) -> Iterator[str]:
    """Offsets to the left; below who computes, the numbers of the nodes, and the layers."""
    frame = panel.frame
    for at, name in _offsets(panel):
        yield Text(frame.x0 - 8, panel.y(at) + 4, name, SMALL, "end", "soft").element
    yield path(f"M{number(frame.x0)} {number(frame.y0)}V{number(frame.y1)}H{number(frame.x1)}", "axis")
    if panel.bend:
        yield path(f"M{number(frame.x0)} {number(panel.y(panel.bend))}H{number(frame.x1)}", "bend")
    for span in laid.computing:
        yield rect(Box(panel.x(span.start), frame.y1 + 3, panel.x(span.end), frame.y1 + 9), f"i{span.backend}")
    y = frame.y1 + 22
    yield Text(frame.x0 - 8, y, "node", SMALL, "end", "soft").element
    rounds = (int(n) for n in round_numbers(max(laid.steps, default=0), 12) if n == int(n))
    numbers = (
        Text(panel.x(laid.steps[n] + 0.5), y, str(n), SMALL, "middle", "soft") for n in rounds if n in laid.steps
    )
    yield from (text.element for text in spread(numbers))
    if laid.layers:
        y += LAYER_ROW
        yield Text(frame.x0 - 8, y, "layer", SMALL, "end", "soft").element
        middles = ((panel.x(s.start) + panel.x(s.end)) / 2 for s in laid.layers)
        names = (Text(x, y, str(s.layer), SMALL, "middle", "soft") for x, s in zip(middles, laid.layers, strict=True))
        yield from (text.element for text in spread(names, gap=3))
        ticks = (f"M{number(panel.x(s.start))} {number(y - 10)}v12" for s in laid.layers)
        if len(laid.layers) <= _PLOT / 8:
            yield path("".join(ticks), "grid")


def _tile(tile: Tile, backend: int, turns: Sequence[str]) -> str:
    life = tile.life
    first = f"node {shortened([turns[life.start]], 1)[:NAME]}" if life.start >= 0 else "the start"
    last = "the end" if life.end is None else f"node {turns[life.end][:NAME]}"
    over = f", in the place of {life.reused[:NAME]}" if life.reused else ""
    title = (
        f"{life.tensor[:NAME]}: {size(life.size)} at offset {life.offset:,}, from {first} to {last}; "
        f"{tile.kind.value}{over}"
    )
    look, box = "s" if tile.kind is Kind.INPUT else "b", tile.box
    if tile.kind is Kind.OUTPUT and min(box.x1 - box.x0, box.y1 - box.y0) >= 3:
        look, box = "o", Box(box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1)
    return rect(box, f"{look}{backend}", title)


class _Key(NamedTuple):
    """An entry of the legend: the classes of its mark, what it is, and the shape of the mark."""

    look: str
    words: str
    shape: str = "box"


def _keys(laid: MemoryMap, inks: dict[str, Color]) -> list[_Key]:
    """What there is to explain, and nothing else."""
    kinds = {tile.kind for panel in laid.panels for tile in panel.tiles}
    small = sum(len(panel.small) for panel in laid.panels)
    one = laid.panels[0].backend if laid.panels else 0
    keys = [
        _Key(f"b{one}", "computed tensor") if Kind.COMPUTED in kinds else None,
        _Key(f"s{one}", "input") if Kind.INPUT in kinds else None,
        _Key(f"o{one}", "output") if Kind.OUTPUT in kinds else None,
        _Key(f"b{one} copy", "copy of the scheduler's") if Kind.COPIED in kinds else None,
        _Key(f"m{one}", f"{count(small, 'tensor')} below a pixel, drawn together", "dots") if small else None,
        _Key("hatch", "free"),
        _Key("water", "highest byte in use so far", "line"),
        _Key("ink", "most bytes alive", "peak"),
        _Key("bend", "the scale changes", "line") if any(panel.bend for panel in laid.panels) else None,
        *(_Key(f"i{i}", f"{printable(name)} computes", "bar") for i, name in enumerate(inks)),
    ]
    computing = {span.backend for span in laid.computing}
    return [key for key in keys if key and (key.shape != "bar" or int(key.look[1:]) in computing)]


def _placed(laid: MemoryMap, inks: dict[str, Color]) -> list[tuple[_Key, Text]]:
    """The legend in rows of the drawing's width."""
    x, y, out = RIGHT, laid.bottom + 26, []
    for key in _keys(laid, inks) if laid.panels else ():
        text = Text(x + 26, y, fitted(key.words, _PLOT, 12))
        if text.box.x1 > WIDTH - RIGHT and x > RIGHT:
            x, y = RIGHT, y + 22
            text = text._replace(x=x + 26, y=y)
        out.append((key, text))
        x = text.box.x1 + 22
    return out


def _legend(placed: Sequence[tuple[_Key, Text]]) -> Iterator[str]:
    for key, text in placed:
        box = Box(text.x - 26, text.y - 10, text.x - 6, text.y + 2)
        middle = (box.y0 + box.y1) / 2
        if key.shape == "line":
            yield path(f"M{number(box.x0)} {number(middle)}H{number(box.x1)}", key.look)
        elif key.shape == "peak":
            yield path(f"M{number(box.x0 + 10)} {number(middle + 4)}l-4.5 -7h9z", key.look)
        elif key.shape == "bar":
            yield rect(box._replace(y0=middle - 3, y1=middle + 3), key.look)
        elif key.shape == "dots":
            dots = (box.x0 + 3 * i for i in range(7))
            yield path("".join(outline(Box(x, middle - 1, x + 1.5, middle + 1)) for x in dots), key.look)
        else:
            looks = key.look.split()
            yield from (rect(box, look) for look in looks)
        yield text.element


def _description(laid: MemoryMap, turns: Sequence[str], facts: Sequence[str]) -> str:
    """The drawing in words."""
    lines = [f"{', '.join(facts)}. Program order to the right, offsets upwards."]
    for panel in laid.panels:
        peak, n = panel.buffer.peak, len(panel.tiles) + len(panel.small)
        chunk = f", chunk {panel.chunk}" if len(panel.buffer.chunks) > 1 else ""
        words = f"{panel.buffer.backend}{chunk}: {size(panel.nbytes)}, {count(n, 'tensor')}"
        if peak is not None and panel.chunk == 0:
            top = [f"{shown_name(life)} {size(life.size)}" for life in peak.tensors[:3]]
            words += f"; at most {size(peak.nbytes)} alive, {_when(peak, turns)}; the largest then: {', '.join(top)}"
        lines.append(f"{words}.")
    return " ".join(lines)
