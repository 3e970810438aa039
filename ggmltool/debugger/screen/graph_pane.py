"""The graph in program order: nodes with their backends under the splits they are in, then leafs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ggmltool.debugger.screen.bar import fitted
from ggmltool.debugger.screen.pane import Pane
from ggmltool.show.text import count, printable, shortened, size

if TYPE_CHECKING:
    from ggmltool.debugger.screen.scene import Now, SceneTensor
    from ggmltool.ggml.state import SplitState

Row = int | str | tuple[int, "SplitState"]
"""The place of a member, a heading, or a split with its number."""

_OP, _BACKEND, _CAUSE, _MEMORY = 13, 9, 7, 16
_INPUTS = 3


class GraphPane(Pane):
    """Selects the tensor that the cursor is on."""

    name_of_pane: ClassVar[str] = "graph"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._made_for: tuple[object, ...] = ()
        self._rows: list[Row] = []
        self._at: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._rows)

    def show_now(self) -> None:
        now = self.home.now
        made_for = (now.program.graph, len(now.program.members), now.splits)
        if made_for != self._made_for:
            self._made_for = made_for
            self._rows = list(_rows(now))
            members = now.program.members
            self._at = {members[row].label: i for i, row in enumerate(self._rows) if isinstance(row, int)}
        splits = f", {count(len(now.splits), 'split')}" if now.splits else ""
        self.border_title = f"graph {printable(now.program.graph)}"
        self.border_subtitle = f"{count(now.program.n_nodes, 'node')}{splits}"
        super().show_now()
        at = self._at.get(self.home.selected)
        if at is not None:
            self.cursor = at
            self.keep_in_sight(at)

    def chosen(self, number: int) -> None:
        row = self._rows[number]
        if isinstance(row, int):
            self.home.select(self.home.now.program.members[row].label)

    def key(self, number: int) -> Hashable:
        row, home = self._rows[number], self.home
        if not isinstance(row, int):
            return None
        now, member = home.now, home.now.program.members[row]
        label = member.label
        state = now.backend(member.index), now.cause(member.index), _memory(now, member)
        return label, number == self.cursor, state, label in home.here, label in home.stops, label in home.found

    def line(self, number: int) -> tuple[Text, Style | None]:
        row, look = self._rows[number], self.home.look
        if isinstance(row, str):
            return Text(f" {row} ".ljust(self.width, "─"), look.face.head), None
        if isinstance(row, tuple):
            return self._split(*row), None
        member = self.home.now.program.members[row]
        below = look.face.cursor if number == self.cursor else None
        return self._member(member), below

    def _split(self, number: int, split: SplitState) -> Text:
        now, look = self.home.now, self.home.look
        backend = now.scene.backends[split.backend_id] if split.backend_id < len(now.scene.backends) else "?"
        told = f"━━ split #{number} {printable(backend)} "
        if split.inputs:
            names = [now.label(index) for index in split.inputs]
            told += f"copies {printable(shortened(names, _INPUTS))} "
        told = fitted(told, self.width).rstrip(" ") + " "
        return Text(told + "━" * (self.width - cell_len(told)), look.ink(backend))

    def _member(self, member: SceneTensor) -> Text:
        home, now, face = self.home, self.home.now, self.home.look.face
        backend = now.backend(member.index)
        ink = home.look.ink(backend) if backend else face.soft
        is_here = member.label in home.here
        mark = "▶" if is_here else "●" if member.label in home.stops else " "
        line = Text(mark, face.here if is_here else face.bad)
        line.append("●" if is_here and member.label in home.stops else " ", face.bad)
        line.append(f"{member.number:>5} ", face.hit if member.label in home.found else face.soft)
        width = self.width - len(line.plain)
        columns: list[tuple[str, int, Style]] = []
        if width >= 60:
            columns.append((_memory(now, member), _MEMORY, ink))
        else:
            columns.append((_memory(now, member)[:1], 1, ink))
        if width >= 68:
            columns.insert(0, (now.cause(member.index), _CAUSE, face.soft))
        columns.insert(0, (backend or "–", _BACKEND, ink))
        if width >= 36:
            columns.insert(0, (member.op, _OP, face.soft))
        name = max(width - sum(w + 1 for _, w, _ in columns), 6)
        line.append(fitted(printable(member.label), name), face.bold if is_here else face.plain)
        for text, room, style in columns:
            line.append(" " + fitted(printable(text), room), style)
        return line


def _rows(now: Now) -> Iterator[Row]:
    starts = {split.i_start: (i, split) for i, split in enumerate(now.splits)}
    for place, member in enumerate(now.program.members):
        if member.is_leaf:
            break
        if member.number in starts:
            yield starts[member.number]
        yield place
    n_leafs = len(now.program.members) - now.program.n_nodes
    if n_leafs:
        yield count(n_leafs, "leaf")
        yield from range(now.program.n_nodes, len(now.program.members))


def _memory(now: Now, member: SceneTensor) -> str:
    """A sign, and while a tensor lies in a compute buffer how large it is, and where: ■ now, □ it did, ○ it will."""
    span = now.span(member.label)
    if span is not None:
        if span.alive(now.at):
            return f"■ {size(span.size_at(now.at))} @{span.offset}"
        return "□" if span.first <= now.at else "○"
    built = now.scene.built(now.program.graph).get(member.label)
    if built is not None and built.view_src is not None:
        return "v view"
    return "▣ context" if built is not None and built.buffer is not None else " "
