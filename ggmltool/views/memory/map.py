"""The compute buffers over time, laid out for a drawing: a panel per chunk, a tile per tensor.

Program order goes to the right, offsets upwards. Nothing here draws: see map_svg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import sqrt
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.folded import LayerSpan, layer_spans
from ggmltool.inspect.memory import Lifetime, MemoryPlan
from ggmltool.show.svg import Box
from ggmltool.views.memory.buffers import Buffer, buffers_of

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

    life: Lifetime
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
    small: tuple[Lifetime, ...]
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

    def box(self, life: Lifetime) -> Box:
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


def memory_map(plan: Plan, memory: MemoryPlan, numbers: Mapping[str, int] | None = None) -> MemoryMap:
    """The layout of what the allocator planned; without panels where no buffer has a byte. `numbers` are those of the
    nodes in the graph, by default in the plan."""
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
    panels, y = [], TOP
    for buffer, chunk, nbytes in there:
        y += HEADER
        frame = Box(LEFT, y, WIDTH - RIGHT, y + _height(nbytes / largest, len(there)))
        lives = [life for life in memory.of(buffer.buft) if life.chunk == chunk]
        backend = order.index(buffer.backend)
        n_steps = len(memory.nodes)
        bend = bend_of(lives, nbytes, n_steps)
        panel = Panel(buffer, backend, chunk, nbytes, frame, n_steps, (), (), tuple(_water(lives)), bend)
        panels.append(_with_tiles(panel, lives, copies, MOST_TILES // len(there)))
        y = frame.y1 + below
    turns = {name: step for step, name in enumerate(memory.nodes)}
    steps = {number: turns[id] for id, number in (numbers or numbers_of(plan)).items() if id in turns}
    return MemoryMap(tuple(panels), layers, tuple(_computing(plan, memory)), steps, y)


def numbers_of(plan: Plan) -> dict[str, int]:
    """The numbers of the nodes in the order in which they are computed."""
    return {node.id: node.index for node in plan.nodes}


def _height(part: float, panels: int) -> float:
    """How high a panel is, of the largest 1."""
    low, high = (110, 300) if panels <= 3 else (90, 200) if panels <= 8 else (60, 120)
    return round(low + (high - low) * sqrt(part))


def _with_tiles(panel: Panel, lives: Sequence[Lifetime], copies: set[str], most: int) -> Panel:
    def area(box: Box) -> float:
        return (box.x1 - box.x0) * (box.y1 - box.y0)

    boxes = [(panel.box(life), life) for life in lives]
    seen = [(box, life) for box, life in boxes if box.x1 - box.x0 >= 1 and box.y1 - box.y0 >= 1]
    large = sorted(seen, key=lambda one: -area(one[0]))[:most]
    drawn = {id(life) for _, life in large}
    tiles = tuple(Tile(life, _kind(life, copies), box) for box, life in seen if id(life) in drawn)
    small = tuple(life for _, life in boxes if id(life) not in drawn)
    return replace(panel, tiles=tiles, small=small)


def _kind(life: Lifetime, copies: set[str]) -> Kind:
    if life.tensor in copies:
        return Kind.COPIED
    if life.start < 0:
        return Kind.INPUT
    return Kind.OUTPUT if life.kept else Kind.COMPUTED


def bend_of(lives: Sequence[Lifetime], nbytes: int, n_steps: int) -> int:
    """The offset below which everything lies at nearly all steps, where that is a small part of the chunk; else 0."""
    tops = [0] * (n_steps + 1)
    for life in sorted(lives, key=lambda life: life.offset + life.size):
        end = n_steps if life.end is None else life.end + 1
        tops[life.start + 1 : end + 1] = [life.offset + life.size] * (end - life.start)
    usual = sorted(tops)[int(_USUALLY * n_steps)]
    return usual if 0 < usual * _SMALL_PART < nbytes else 0


def _water(lives: Sequence[Lifetime]) -> Iterator[tuple[int, int]]:
    high = 0
    for life in sorted(lives, key=lambda life: life.start):
        if life.offset + life.size > high:
            high = life.offset + life.size
            yield life.start, high


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
