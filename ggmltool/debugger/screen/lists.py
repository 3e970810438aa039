"""The panes that are lists: events, calls, a tensor in detail, answers of the debugger, the graph in program order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from ggmltool.ask.words import words
from ggmltool.debugger.lines import event_line as line_of_event
from ggmltool.debugger.screen.bar import fitted
from ggmltool.debugger.screen.pane import Pane
from ggmltool.debugger.screen.story import Line, story
from ggmltool.ggml import events
from ggmltool.ggml.events import Event
from ggmltool.show.text import count, printable, shortened, size

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Now, Scene, SceneTensor
    from ggmltool.ggml.state import SplitState

INDENT = 2
_DEEPEST = 12
"""Columns of indentation at most: what is said needs the room."""


def event_text(event: Event) -> str:
    """What happened and why, in one line, with its names made safe to print."""
    match event:
        case events.Left(function):
            return printable(f"{function} is done")
        case events.PassedOver(tensor, _, cause, _, backend):
            on = f" for {backend}" if backend else ""
            return printable(f"{tensor} not by {cause}{on}: {words(event)}")
        case events.Entered(function, detail):
            return printable(f"{function}({detail})")
        case _:
            return printable(line_of_event(event))


def event_line(scene: Scene, look: Look, at: int) -> Text:
    """The line of a point: indented by how many calls are open, a sign in front."""
    point = scene.history.points[at]
    event = point.event
    if event is None:
        title = printable(scene.step_title(point.step))
        if at == scene.last and scene.error:
            return Text(f"✗ {title}: ggml refuses: {printable(scene.error)}", look.face.bad)
        return Text(f"■ {title} is done" if point.ends else f"▣ {title}", look.face.bold)
    depth = scene.depth(at) - isinstance(event, events.Entered)
    sign, style = _sign(event, look)
    line = Text(" " * min(INDENT * depth, _DEEPEST))
    line.append(f"{sign} ", style)
    quiet = isinstance(event, (events.PassedOver, events.Left))
    strong = isinstance(event, (events.Entered, events.AllocationStarted, events.SplitStarted, events.Computed))
    line.append(event_text(event), look.face.soft if quiet else look.face.bold if strong else look.face.plain)
    return line


def _sign(event: Event, look: Look) -> tuple[str, Style]:
    face = look.face
    match event:
        case events.Entered():
            return "┌", face.soft
        case events.Left():
            return "└", face.soft
        case events.Assigned(backend=backend):
            return "→", look.ink(backend)
        case events.SplitStarted(backend=backend) | events.Computed(backend=backend):
            return "━", look.ink(backend)
        case events.PassedOver() | events.NotReused():
            return "·", face.soft
        case events.Refused():
            return "✗", face.bad
        case events.Allocated():
            return "+", face.good
        case events.Freed():
            return "-", face.bad
        case events.Reused():
            return "=", face.good
        case events.AllocationStarted():
            return "▸", face.note
        case events.TensorCopied():
            return "»", face.note
        case _:
            return " ", face.soft


class EventPane(Pane):
    """Every point of the history with what happened and why; the cursor is where one is."""

    name_of_pane: ClassVar[str] = "events"

    @property
    def count(self) -> int:
        return len(self.home.scene.history.points)

    def show_now(self) -> None:
        super().show_now()
        self.cursor = self.home.now.at
        calls = [printable(text) for text in self.home.scene.frames(self.home.now.at)]
        self.border_subtitle = fitted(" < ".join(calls), max(self.width - 4, 1)).strip() if calls else ""
        self.keep_in_sight(self.cursor)

    def chosen(self, number: int) -> None:
        self.home.goto(number)

    def key(self, number: int) -> Hashable:
        home = self.home
        at = home.now.at
        return number, (number > at) - (number < at), home.scene.stops_at(number), home.is_hit(number)

    def line(self, number: int) -> tuple[Text, Style | None]:
        home, face = self.home, self.home.look.face
        is_here = number == home.now.at
        digits = len(str(self.count))
        line = Text("▶" if is_here else "●" if home.scene.stops_at(number) else " ", face.here if is_here else face.bad)
        line.append(f"{number:>{digits}} ", face.hit if home.is_hit(number) else face.soft)
        line.append_text(event_line(home.scene, home.look, number))
        if number > home.now.at:
            line.stylize(Style(dim=True))
        line.truncate(self.width, overflow="ellipsis")
        return line, face.cursor if is_here else None


class CallPane(Pane):
    """The calls that are open, the innermost first."""

    name_of_pane: ClassVar[str] = "calls"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._frames: list[tuple[str, str]] = []

    @property
    def count(self) -> int:
        return len(self._frames)

    @property
    def function(self) -> str:
        """The function that the cursor is on."""
        return self._frames[self.cursor][0] if self._frames else ""

    def show_now(self) -> None:
        frames = self.home.scene.calls(self.home.now.at)
        if frames != self._frames:
            self._frames, self.cursor = frames, 0
        super().show_now()

    def line(self, number: int) -> tuple[Text, Style | None]:
        face = self.home.look.face
        function, arguments = self._frames[number]
        line = Text(f"#{number:<2} ", face.soft)
        line.append(printable(function), face.bold)
        line.append(f" ({printable(arguments)})", face.plain)
        line.truncate(self.width, overflow="ellipsis")
        return line, face.cursor if number == self.cursor and self.has_focus else None


class LinesPane(Pane):
    """Text that is wrapped to the width; a line may name a tensor, which a click selects."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._lines: list[tuple[Text, str]] = []

    @property
    def count(self) -> int:
        return len(self._lines)

    def wrapped(self, lines: list[Line]) -> None:
        """Show these lines."""
        self._lines = [(text, line.tensor) for line in lines for text in self._wrap(line)]
        super().show_now()

    def _wrap(self, line: Line) -> list[Text]:
        width = self.width - 1
        first, *rest = line.text.wrap(self.home.console, max(width, 8)) or [Text()]
        if not rest:
            return [first]
        cut = len(first.plain)
        behind = line.text[cut:]
        behind = behind[len(behind.plain) - len(behind.plain.lstrip()) :]
        hang = Text(" " * line.hang)
        return [first, *(hang + text for text in behind.wrap(self.home.console, max(width - line.hang, 8)))]

    def line(self, number: int) -> tuple[Text, Style | None]:
        text, _ = self._lines[number]
        text.no_wrap = True
        return text, self.home.look.face.cursor if number == self.cursor and self.has_focus else None

    def pointed(self, number: int, column: int) -> None:
        tensor = self._lines[number][1]
        if tensor:
            self.home.select(tensor)


class StoryPane(LinesPane):
    """The selected tensor. Enter or a click on a line goes to the tensor that it names."""

    name_of_pane: ClassVar[str] = "details"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._shown: tuple[object, ...] = ()
        self._tensor = ""

    def show_now(self) -> None:
        home = self.home
        key = (home.now.at, home.selected, self.width, home.look)
        if key != self._shown:
            if home.selected != self._tensor:
                self.scroll_to(y=0, animate=False, force=True)
                self.cursor = 0
            self._shown, self._tensor = key, home.selected
            self.wrapped(story(home.now, home.selected, home.look))
        self.border_title = f"details {printable(home.selected)}".rstrip()

    def key_enter(self) -> None:
        if self._lines:
            self.pointed(self.cursor, 0)


class AnswerPane(LinesPane):
    """What the debugger answered."""

    name_of_pane: ClassVar[str] = "answer"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.told: list[Line] = []

    def show_now(self) -> None:
        self.wrapped(self.told)


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
