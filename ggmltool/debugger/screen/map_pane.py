"""The memory map: each chunk of each compute buffer as it is now, or over program order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType

from ggmltool.debugger.screen.bar import Owner, Window, axis, bar, chunk_title, fitted, owners, window_of
from ggmltool.debugger.screen.pane import Pane
from ggmltool.debugger.screen.story import when_text
from ggmltool.debugger.screen.timeline import Place, Planning, TensorSpan
from ggmltool.show.text import printable, size

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import SceneChunk

MARGIN = 10
"""Columns in front of the drawing, for offsets."""


class MapDrawing(NamedTuple):
    """What lies in each cell, the highest offset first; `nodes` are the numbers of the nodes that are shown, the first
    cell begins before the first node at -1."""

    cells: list[list[TensorSpan | None]]
    nodes: Window
    extent: int


def drawing(plan: Planning, place: Place, nodes: Window, width: int, height: int) -> MapDrawing:
    """The rectangles of a chunk. Where several share a cell, the larger one is drawn."""
    extent = max(plan.extent.get(place, 0), 1)
    cells: list[list[TensorSpan | None]] = [[None] * width for _ in range(height)]
    last = len(plan.nodes)
    there = [s for s in plan.spans if s.place == place]
    for span in sorted(there, key=lambda s: s.size):
        first, end = max(span.start, nodes.low), min(last if span.end is None else span.end + 1, nodes.high)
        if first >= end:
            continue
        left = nodes.cell(first, width)
        columns = range(left, min(max(nodes.cell(end, width), left + 1), width))
        bottom = span.offset * height // extent
        top = max((span.offset + span.size) * height // extent, bottom + 1)
        for row in range(height - top, height - bottom):
            for column in columns:
                cells[row][column] = span
    return MapDrawing(cells, nodes, extent)


def draw(
    made: MapDrawing, backend: str, node: int, selected: str, hovered: TensorSpan | None, look: Look
) -> list[Text]:
    """The rows, with offsets in front; the column of `node` is marked below."""
    height, width = len(made.cells), len(made.cells[0])
    out = []
    named: set[int] = set()
    for row, cells in enumerate(made.cells):
        top = made.extent * (height - row) // height
        label = size(top) if row % 4 == 0 else ""
        line = Text(f"{label:>{MARGIN - 2}} │", look.face.soft)
        for owner, run in groupby(cells, lambda cell: cell):
            n = len(list(run))
            if owner is None:
                line.append(" " * n, look.face.hatch)
                continue
            style = look.range(backend, owner.shade, owner.tensor == selected or owner is hovered)
            name = printable(owner.tensor)
            shown = id(owner) not in named and n > min(cell_len(name), 3)
            line.append("▏" + fitted(name if shown else "", n - 1), style)
            if shown:
                named.add(id(owner))
        out.append(line)
    line = Text(f"{'0 B':>{MARGIN - 2}} └", look.face.soft)
    marked = made.nodes.cell(node, width)
    inside = 0 <= marked < width
    line.append("─" * (marked if inside else width), look.face.soft)
    if inside:
        line.append("▲", look.face.here)
        line.append("─" * (width - marked - 1), look.face.soft)
    return [*out, line]


_MOST_ZOOM = 40
_LEAST_HEIGHT = 5
"""Rows of a drawing over time, at least."""
_PAN = 0.25


class MapRow(NamedTuple):
    """A line of the pane, with what lies in each of its columns from `margin` on."""

    text: Text
    cells: list[Owner] | None = None
    margin: int = 0


class MapPane(Pane):
    """Up and down select the ranges in turn, + and - zoom, [ and ] move the part that is seen, m turns over to the
    drawing over time and back."""

    name_of_pane: ClassVar[str] = "memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign,ctrl+up", "zoom(1)", show=False),
        Binding("minus,ctrl+down", "zoom(-1)", show=False),
        Binding("left_square_bracket,ctrl+left", "pan(-1)", show=False),
        Binding("right_square_bracket,ctrl+right", "pan(1)", show=False),
        Binding("0", "zoom(0)", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.over_time = False
        self.zoom = 0
        self.center = 0.5
        self._rows: list[MapRow] = []
        self._hovered: TensorSpan | str | None = None
        self._drawings: dict[tuple[object, ...], MapDrawing] = {}

    @property
    def count(self) -> int:
        return len(self._rows)

    def line(self, number: int) -> tuple[Text, Style | None]:
        return self._rows[number].text, None

    def show_now(self) -> None:
        self._rows = list(self._over_time() if self.over_time else self._bars())
        super().show_now()
        self.border_title = "memory over program order" if self.over_time else "memory now"
        if self.zoom:
            self.border_title += f", zoom {1 << self.zoom}×"
        self.border_subtitle = self._told()

    def _bars(self) -> Iterator[MapRow]:
        home, look, width = self.home, self.home.look, self.width - 2
        chunks = home.now.chunks
        height = self.scrollable_content_region.height
        room = (height + 1) // max(len([c for c in chunks if c.extent]), 1)
        rows = min(max(room - 4, 1), 3)
        for i, chunk in enumerate(chunks):
            if i:
                yield MapRow(Text())
            yield MapRow(Text(" ") + chunk_title(chunk, home.now.at, look))
            if not chunk.extent or width < 1:
                continue
            window = window_of(chunk.extent, self.zoom, self.center)
            cells = owners(chunk, home.now.at, window, width)
            named = [owner for owner, _ in cells]
            drawn = bar(cells, chunk.backends[0], home.selected, self._hovered, home.now.at, look, rows)
            for text in drawn:
                yield MapRow(Text(" ") + text, named, 1)
            yield MapRow(Text(" ") + axis(chunk, window, width, look), named, 1)
            below = list(self._bracket(chunk, window, width))
            yield from below
            if room - rows - 4 >= _LEAST_HEIGHT:
                yield from [MapRow(Text())] * (1 - len(below))
                yield from self._drawn(chunk, room - rows - 5)

    def _bracket(self, chunk: SceneChunk, window: Window, width: int) -> Iterator[MapRow]:
        """Where the selected tensor was, or will be, if it is not there now."""
        home = self.home
        span, plan = home.now.span(home.selected), home.now.planning
        if span is None or plan is None or span.place != chunk.place or span.alive(home.now.at):
            return
        first, last = max(span.offset, window.low), min(span.offset + span.size, window.high)
        if first >= last:
            return
        left, right = window.cell(first, width), min(window.cell(last - 1, width), width - 1)
        when = "was" if span.first <= home.now.at else "will be"
        told = f"╰{'─' * max(right - left - 1, 0)}╯ {printable(span.tensor)} {when} here"
        room = max(width - left, 1)
        if len(told) > room:
            left, told = 0, f"{printable(span.tensor)} {when} at {span.offset}".rjust(min(right + 1, width))
        yield MapRow(Text(" " * (left + 1)) + Text(fitted(told, max(width - left, 1)), home.look.face.note))

    def _over_time(self) -> Iterator[MapRow]:
        home, plan = self.home, self.home.now.planning
        if plan is None or not plan.nodes:
            yield MapRow(Text("The allocator has not begun.", home.look.face.soft))
            return
        chunks = [c for c in home.now.chunks if c.extent]
        height = max(self.scrollable_content_region.height // max(len(chunks), 1) - 3, _LEAST_HEIGHT)
        for i, chunk in enumerate(chunks):
            if i:
                yield MapRow(Text())
            yield MapRow(chunk_title(chunk, home.now.at, home.look))
            yield from self._drawn(chunk, height)

    def _drawn(self, chunk: SceneChunk, height: int) -> Iterator[MapRow]:
        home, plan = self.home, self.home.now.planning
        if plan is None or not plan.nodes:
            return
        shown = window_of(len(plan.nodes) + 1, self.zoom if self.over_time else 0, self.center)
        nodes = Window(shown.low - 1, shown.high - 1)
        made = self._drawing(plan.first, chunk.place, nodes, max(self.width - MARGIN - 1, 4), height)
        hovered = self._hovered if isinstance(self._hovered, TensorSpan) else None
        drawn = draw(made, chunk.backends[0], plan.node_at(home.now.at), home.selected, hovered, home.look)
        for text, cells in zip(drawn[:-1], made.cells, strict=True):
            yield MapRow(text, list(cells), MARGIN)
        yield MapRow(drawn[-1])

    def _drawing(self, first: int, place: Place, nodes: Window, width: int, height: int) -> MapDrawing:
        key = (first, place, nodes, width, height)
        plan = self.home.now.planning
        if key not in self._drawings and plan is not None:
            if len(self._drawings) > 32:
                self._drawings.clear()
            self._drawings[key] = drawing(plan, place, nodes, width, height)
        return self._drawings[key]

    def _told(self) -> str:
        """What the pointer is on, else the selected tensor."""
        home = self.home
        if isinstance(self._hovered, str):
            return self._hovered
        span = self._hovered or home.now.span(home.selected)
        plan = home.now.planning
        if span is None or plan is None:
            return ""
        where = f"{size(span.size_at(home.now.at))} at {span.offset}"
        return fitted(
            f"{printable(span.tensor)}: {where}, {printable(when_text(plan, span, home.now.program))}", self.width - 4
        ).strip()

    def _owner(self, number: int, column: int) -> Owner:
        if not 0 <= number < len(self._rows):
            return None
        row = self._rows[number]
        cell = column - row.margin
        return row.cells[cell] if row.cells is not None and 0 <= cell < len(row.cells) else None

    def pointed(self, number: int, column: int) -> None:
        owner = self._owner(number, column)
        if isinstance(owner, TensorSpan):
            self.home.select(owner.tensor)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        offset = event.get_content_offset(self)
        self._hover(None if offset is None else self._owner(offset.y + self.scroll_offset.y, offset.x))

    def on_leave(self, event: events.Leave) -> None:
        self._hover(None)

    def _hover(self, owner: Owner) -> None:
        if owner is not self._hovered:
            self._hovered = owner
            self.show_now()

    def action_move(self, by: int) -> None:
        """Select the range before, or the next one."""
        spans = self._in_turn()
        if not spans:
            return
        names = [span.tensor for span in spans]
        selected = self.home.selected
        at = names.index(selected) + by if selected in names else 0
        self.home.select(names[min(max(at, 0), len(names) - 1)])

    def _in_turn(self) -> list[TensorSpan]:
        plan = self.home.now.planning
        if self.over_time:
            return [] if plan is None else plan.spans
        return [span for chunk in self.home.now.chunks for span in chunk.spans]

    def action_page(self, by: int) -> None:
        height = max(self.scrollable_content_region.height - 1, 1)
        self.scroll_to(y=self.scroll_offset.y + by * height, animate=False, force=True)

    def action_zoom(self, by: int) -> None:
        """Zoom in, out, or (0) show all, around the selected tensor."""
        self.zoom = min(max(self.zoom + by, 0), _MOST_ZOOM) if by else 0
        self.center = self._middle()
        self.show_now()

    def _middle(self) -> float:
        now = self.home.now
        span = now.span(self.home.selected)
        if span is None or now.planning is None:
            return self.center
        if self.over_time:
            return (span.start + 1.5) / (len(now.planning.nodes) + 1)
        return (span.offset + span.size / 2) / max(now.planning.extent.get(span.place, 1), 1)

    def action_pan(self, by: int) -> None:
        """Move the part that is seen."""
        self.center = min(max(self.center + by * _PAN / (1 << self.zoom), 0.0), 1.0)
        self.show_now()
