"""The compute buffers over time, laid out for a drawing: a panel per chunk, a tile per tensor.

Program order goes to the right, offsets upwards. Nothing here draws: see map_svg.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ask.buffers.record import Buffer, buffers_of
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.fold import LayerSpan, layer_spans
from ggmltool.inspect.memory import MemoryPlan, TensorLifetime
from ggmltool.show.svg import ASCENT, DESCENT, SMALL, Box, Text, fitted, outline, text_width
from ggmltool.show.text import printable, size

if TYPE_CHECKING:
    import numpy as np

WIDTH, LEFT, RIGHT = 960.0, 84.0, 18.0
TOP, HEADER, FOOT = 62.0, 30.0, 36.0
LAYER_ROW = 16.0
"""Units of the drawing: the title above, each panel's header, the axis below it, and its row of layers."""

BEND_AT = 0.7
"""The part of a frame's height below a bend of its scale."""

_USUALLY, _SMALL_PART = 0.97, 4

MOST_TILES = 2_000
"""Tensors of the drawing that have a tile of their own: the largest areas. All others are drawn as one."""


class Kind(Enum):
    """What a tensor in a compute buffer is."""

    COMPUTED = "computed"
    INPUT = "input"
    OUTPUT = "output"
    COPIED = "copy of the scheduler's"


class Tile(NamedTuple):
    """A tensor where it is drawn."""

    life: TensorLifetime
    kind: Kind
    box: Box


class Span(NamedTuple):
    """Steps `[start, end)` whose nodes one backend computes."""

    start: int
    end: int
    backend: int


@dataclass(frozen=True, slots=True)
class Panel:
    """A chunk of a buffer in its `frame`: `tiles`, and the tensors that are too `small` for one.

    `water` are the steps at which the highest byte in use so far rises, with that byte's end. `bend` is the offset at
    which the scale changes, since what is above is most of the chunk, but in use for a few nodes only; 0 for none.
    """

    buffer: Buffer
    backend: int
    chunk: int
    nbytes: int
    frame: Box
    n_steps: int
    tiles: tuple[Tile, ...]
    small: tuple[TensorLifetime, ...]
    water: tuple[tuple[int, int], ...]
    bend: int = 0

    def x(self, step: float) -> float:
        """Where a step begins; -1, what is before the first node, has a column of its own."""
        return self.frame.x0 + (self.frame.x1 - self.frame.x0) * (step + 1) / (self.n_steps + 1)

    def y(self, offset: float) -> float:
        """Where an offset lies."""
        if offset <= self.bend:
            part = BEND_AT * offset / self.bend if self.bend else 0.0
        else:
            low = BEND_AT if self.bend else 0.0
            part = low + (1 - low) * (offset - self.bend) / (self.nbytes - self.bend)
        return self.frame.y1 - (self.frame.y1 - self.frame.y0) * part

    def box(self, life: TensorLifetime) -> Box:
        """Where a tensor lies, to a tenth, so that neighbors have one edge."""
        end = self.n_steps if life.end is None else life.end + 1
        edges = self.x(life.start), self.y(life.offset + life.size), self.x(end), self.y(life.offset)
        return Box(*(round(edge, 1) for edge in edges))


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """All panels, from top to bottom, and what their axis shows: layers, the backend that computes each step, and the
    step of each node by its number in the graph (copies are steps without a number)."""

    panels: tuple[Panel, ...]
    layers: tuple[LayerSpan, ...]
    computing: tuple[Span, ...]
    steps: dict[int, int]
    bottom: float


def memory_map(plan: Plan, memory: MemoryPlan, numbers: Mapping[str, int]) -> MemoryMap:
    """The layout of what the allocator planned; without panels where no buffer has a byte. `numbers` are those of the
    nodes in the graph."""
    there = [
        (buffer, chunk, nbytes)
        for buffer in buffers_of(plan, memory)
        for chunk, nbytes in enumerate(buffer.chunks)
        if nbytes
    ]
    names = {node.id: node.name for node in plan.nodes}
    layers = tuple(layer_spans([names.get(node, node) for node in memory.nodes]))
    below = FOOT + (LAYER_ROW if layers else 0)
    order = [name for name, _ in plan.backends]
    copies = {copy.name for copy in plan.copies if copy.name != copy.of}
    largest = max((nbytes for *_, nbytes in there), default=1)
    low, high = (110, 300) if len(there) <= 3 else (90, 200) if len(there) <= 8 else (60, 120)
    panels, y = [], TOP
    for buffer, chunk, nbytes in there:
        y += HEADER
        frame = Box(LEFT, y, WIDTH - RIGHT, y + round(low + (high - low) * sqrt(nbytes / largest)))
        lives = memory.of(buffer.buft, chunk)
        backend = order.index(buffer.backend)
        n_steps = len(memory.nodes)
        water: list[tuple[int, int]] = []
        for life in sorted(lives, key=lambda life: life.start):
            if life.offset + life.size > (water[-1][1] if water else 0):
                water.append((life.start, life.offset + life.size))
        bend = bend_of(lives, nbytes, n_steps)
        panel = Panel(buffer, backend, chunk, nbytes, frame, n_steps, (), (), tuple(water), bend)
        panels.append(_with_tiles(panel, lives, copies, MOST_TILES // len(there)))
        y = frame.y1 + below
    turns = {name: step for step, name in enumerate(memory.nodes)}
    steps = {number: turns[id] for id, number in numbers.items() if id in turns}
    return MemoryMap(tuple(panels), layers, tuple(_computing(plan, memory)), steps, y)


def _with_tiles(panel: Panel, lives: Sequence[TensorLifetime], copies: set[str], most: int) -> Panel:
    def area(one: tuple[Box, TensorLifetime]) -> float:
        return (one[0].x1 - one[0].x0) * (one[0].y1 - one[0].y0)

    def kind(life: TensorLifetime) -> Kind:
        if life.tensor in copies:
            return Kind.COPIED
        return Kind.INPUT if life.start < 0 else Kind.OUTPUT if life.kept else Kind.COMPUTED

    boxes = [(panel.box(life), life) for life in lives]
    seen = [(box, life) for box, life in boxes if box.x1 - box.x0 >= 1 and box.y1 - box.y0 >= 1]
    drawn = {id(life) for _, life in sorted(seen, key=area, reverse=True)[:most]}
    tiles = tuple(Tile(life, kind(life), box) for box, life in seen if id(life) in drawn)
    small = tuple(life for _, life in boxes if id(life) not in drawn)
    return replace(panel, tiles=tiles, small=small)


def bend_of(lives: Sequence[TensorLifetime], nbytes: int, n_steps: int) -> int:
    """The offset below which everything lies at nearly all steps, where that is a small part of the chunk; else 0."""
    tops = [0] * (n_steps + 1)
    for life in sorted(lives, key=lambda life: life.offset + life.size):
        end = n_steps if life.end is None else life.end + 1
        tops[life.start + 1 : end + 1] = [life.offset + life.size] * (end - life.start)
    usual = sorted(tops)[int(_USUALLY * n_steps)]
    return usual if 0 < usual * _SMALL_PART < nbytes else 0


def _computing(plan: Plan, memory: MemoryPlan) -> Iterator[Span]:
    """Who computes the nodes; what is no node, such as a copy, belongs to the node behind it."""
    order = {name: i for i, (name, _) in enumerate(plan.backends)}
    split_of = {node.id: plan.splits[node.split].backend for node in plan.nodes}
    start = end = 0
    number = None
    for step, node in enumerate(memory.nodes):
        backend = order.get(split_of.get(node, ""))
        if backend is None:
            continue
        if number is not None and backend != number:
            yield Span(start, end, number)
            start = end
        number, end = backend, step + 1
    if number is not None:
        yield Span(start, len(memory.nodes), number)


NAME = 60
"""Characters of a name that are shown at most."""

LINE = (ASCENT + DESCENT) * SMALL
"""The height of a line."""

_PAD = 3.0
_CALLED, _LEGIBLE = 3, 7
"""How many tensors are named beside the peak, and how short a name may be cut."""
_NARROW = 30


def peak_x(panel: Panel) -> float | None:
    """The middle of the step with most bytes alive in the buffer."""
    return None if panel.buffer.peak is None else panel.x(panel.buffer.peak.step + 0.5)


def shown_name(life: TensorLifetime) -> str:
    """A tensor's name as it is drawn."""
    return printable(life.tensor[:NAME])


def labels(tile: Tile, line: float | None) -> list[Text]:
    """Name and size of a tensor where its tile has room for them, beside the line at the peak; else nothing."""
    box = Box(tile.box.x0 + _PAD, tile.box.y0 + _PAD / 2, tile.box.x1 - _PAD, tile.box.y1 - _PAD / 2)
    if line is not None and box.x0 - _PAD < line < box.x1 + _PAD:
        left, right = box._replace(x1=line - _PAD), box._replace(x0=line + _PAD)
        box = left if left.x1 - left.x0 > right.x1 - right.x0 else right
    wide, high = box.x1 - box.x0, box.y1 - box.y0
    name = shown_name(tile.life)
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
    long = text_width(name, SMALL)
    if high >= LINE and long <= wide:
        nbytes = size(tile.life.size)
        both = high >= 2 * LINE and text_width(nbytes, SMALL) <= wide
        y = middle[1] + (ASCENT - DESCENT) / 2 * SMALL - (LINE / 2 if both else 0)
        texts = [Text(middle[0], y, name, SMALL, "middle")]
        return texts + [Text(middle[0], y + LINE, nbytes, SMALL, "middle")] * both
    if wide >= LINE and long <= high:
        x = middle[0] + (ASCENT - DESCENT) / 2 * SMALL
        return [Text(x, middle[1], name, SMALL, "middle", upright=True)]
    cut = fitted(name, wide, SMALL) if high >= LINE else ""
    y = middle[1] + (ASCENT - DESCENT) / 2 * SMALL
    return [Text(middle[0], y, cut, SMALL, "middle")] if len(cut) >= _LEGIBLE else []


def callouts(panel: Panel, others: Sequence[Text]) -> Iterator[Text]:
    """The names of the largest tensors at the peak whose tiles have no room for one: beside the line, if it is free."""
    x, peak = peak_x(panel), panel.buffer.peak
    if x is None or peak is None:
        return
    named = {text.words for text in others}
    taken = [tile.box for tile in panel.tiles]
    for life in peak.tensors[:_CALLED]:
        box = panel.box(life)
        if life.chunk != panel.chunk or shown_name(life) in named or box.x1 - box.x0 > _NARROW:
            continue
        text = _beside(box, f"{shown_name(life)}, {size(life.size)}", panel.frame, taken)
        if text is not None:
            taken.append(text.box)
            yield text


def _beside(tile: Box, words: str, frame: Box, taken: Sequence[Box]) -> Text | None:
    """The words beside a tile, as near to its middle as nothing is in the way; None if something is everywhere."""
    middle = (tile.y0 + tile.y1) / 2
    lines = range(int((tile.y1 - tile.y0) / LINE / 2) + 1)
    for far in (side * n * LINE for n in lines for side in (1, -1)):
        y = middle + far + (ASCENT - DESCENT) / 2 * SMALL
        for text in (Text(tile.x0 - 8, y, words, SMALL, "end"), Text(tile.x1 + 8, y, words, SMALL)):
            inside = frame.x0 < text.box.x0 and text.box.x1 < frame.x1
            inside = inside and frame.y0 <= text.box.y0 and text.box.y1 <= frame.y1
            if inside and not any(text.box.meets(other) for other in taken):
                return text
    return None


def small_area(panel: Panel, room: int) -> str:
    """The path around all tensors that are too small for a tile, pixel by pixel; coarser where that is longer than
    `room` characters. Empty if there are none."""
    if not panel.small:
        return ""
    boxes = [panel.box(life) for life in panel.small]
    cell = 1
    while len(d := _covered(boxes, panel.frame, cell)) > room:
        cell *= 2
    return d


def _covered(boxes: Iterable[Box], frame: Box, cell: int) -> str:
    import numpy as np

    wide, high = (int(-(-n // cell)) for n in (frame.x1 - frame.x0, frame.y1 - frame.y0))
    cells = np.zeros((high, wide), dtype=np.bool_)
    for box in boxes:
        x0, y0 = (int(n // cell) for n in (box.x0 - frame.x0, box.y0 - frame.y0))
        x1, y1 = (int(-(-n // cell)) for n in (box.x1 - frame.x0, box.y1 - frame.y0))
        cells[min(y0, high - 1) : max(y1, y0 + 1), min(x0, wide - 1) : max(x1, x0 + 1)] = True
    x, y = frame.x0, frame.y0
    parts = (
        Box(x + x0 * cell, y + y0 * cell, min(x + x1 * cell, frame.x1), min(y + y1 * cell, frame.y1))
        for x0, y0, x1, y1 in _blocks(cells)
    )
    return "".join(map(outline, parts))


def _blocks(cells: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int, int, int]]:
    """Rectangles of cells that are set: runs of a row, as long as the rows below have the same."""
    open_since: dict[tuple[int, int], int] = {}
    for y, row in enumerate([*cells.tolist(), []]):
        changes = [i for i, (a, b) in enumerate(pairwise([False, *row, False])) if a != b]
        runs = set(zip(changes[::2], changes[1::2], strict=True))
        for run in [run for run in open_since if run not in runs]:
            yield run[0], open_since.pop(run), run[1], y
        for run in runs:
            open_since.setdefault(run, y)
