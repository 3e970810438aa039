"""The panes that are plain lists: events, calls, the story of a tensor, and answers of the debugger."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text

from ggmltool.ask.words import words
from ggmltool.debugger.lines import event_line as line_of_event
from ggmltool.debugger.screen.bar import fitted
from ggmltool.debugger.screen.pane import Pane
from ggmltool.debugger.screen.story import Line, story
from ggmltool.ggml import events
from ggmltool.ggml.events import Event
from ggmltool.show.text import printable

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Scene

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
