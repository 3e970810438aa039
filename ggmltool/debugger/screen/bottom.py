"""What lies at the top and at the bottom of the screen: the title, the tabs, the scrubber, hints; and the help."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from ggmltool.debugger.screen.bar import fitted
from ggmltool.debugger.screen.pane import ScreenApp, home_of, strip_of
from ggmltool.ggml.events import SPLIT_GRAPH
from ggmltool.show.text import printable

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look


class Lines(Widget):
    """A widget of few lines that are made anew each time."""

    def made(self, y: int, width: int) -> Text:
        """A line."""
        raise NotImplementedError

    @property
    def home(self) -> ScreenApp:
        """The app, with what is shown now."""
        return home_of(self)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return strip_of(self.made(y, width), width, self.home.look.base, self.home.console)


class Title(Lines):
    """The scenario, the step, and where one is."""

    DEFAULT_CSS = "Title { height: 1; }"

    def made(self, y: int, width: int) -> Text:
        home, face = self.home, self.home.look.face
        now, scene = home.now, home.scene
        step = printable(scene.step_title(now.point.step))
        right = f" {step}  event {now.at} of {scene.last} "
        call = next(iter(scene.frames(now.at)), "").partition(" ")[0]
        where = f" in {call} " if call and width >= 100 else ""
        room = max(width - cell_len(right) - cell_len(where), 1)
        line = Text(fitted(f" {printable(scene.opened.title)}", room), face.bold)
        line.append(where, face.soft)
        line.append(right, face.here)
        return line


class Tabs(Lines):
    """The panes by their numbers, where only one has room."""

    DEFAULT_CSS = "Tabs { height: 1; display: none; }"

    def _titles(self) -> list[str]:
        return [f" {i} {title} " for i, title in enumerate((pane.name_of_pane for pane in self.home.panes), 1)]

    def made(self, y: int, width: int) -> Text:
        line = Text()
        for i, title in enumerate(self._titles()):
            line.append(title, Style(reverse=True) if i == self.home.tab else self.home.look.face.soft)
            line.append(" ")
        return line

    def on_click(self, event: events.Click) -> None:
        left = 0
        for i, title in enumerate(self._titles()):
            if left <= event.x < left + len(title):
                self.home.action_pane(i)
            left += len(title) + 1


class Scrubber(Lines):
    """The history from left to right: its steps and functions, and where one is. A click goes there."""

    DEFAULT_CSS = "Scrubber { height: 2; }"

    def _column(self, at: int, width: int) -> int:
        return at * (width - 1) // max(self.home.scene.last, 1)

    def made(self, y: int, width: int) -> Text:
        return self._labels(width) if y == 0 else self._slider(width)

    def _labels(self, width: int) -> Text:
        scene, face = self.home.scene, self.home.look.face
        line = Text()
        marks = scene.timeline.step_marks
        for i, mark in enumerate(marks):
            left = self._column(mark, width)
            right = self._column(marks[i + 1], width) if i + 1 < len(marks) else width
            if right <= left:
                continue
            line.append(" " * max(left - cell_len(line.plain), 0))
            title = printable(scene.step_title(scene.history.points[mark].step))
            here = mark <= self.home.now.at < (marks[i + 1] if i + 1 < len(marks) else scene.last + 1)
            line.append(fitted("│" + title, right - left), face.bold if here else face.soft)
        return line

    def _slider(self, width: int) -> Text:
        """A line that is thick where the scheduler works and double where the allocator does."""
        home, face = self.home, self.home.look.face
        kinds = ["─"] * width
        for function, first, last in home.scene.timeline.work:
            fill = "━" if function in SPLIT_GRAPH else "═"
            left, right = self._column(first, width), self._column(last, width)
            kinds[left : right + 1] = fill * (right - left + 1)
        for at in home.scene.marked:
            kinds[self._column(at, width)] = "●"
        place = self._column(home.now.at, width)
        line = Text("".join(kinds[:place]), face.note)
        line.append("◆", face.here)
        line.append("".join(kinds[place + 1 :]), face.soft)
        return line

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.capture_mouse()
        self._go(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if event.button:
            self._go(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self.release_mouse()

    def _go(self, column: int) -> None:
        width, last = self.size.width, self.home.scene.last
        column = min(max(column, 0), width - 1)
        at = min(max((column * last + (width - 2) // 2) // max(width - 1, 1), 0), last)
        if at != self.home.now.at:
            self.home.goto(at)


class Hints(Lines):
    """The keys, or what there is to say."""

    DEFAULT_CSS = "Hints { height: 1; }"
    KEYS = (
        ("←→", "step"),
        ("n N", "node, split"),
        ("/", "find"),
        ("b", "break"),
        ("c r", "continue"),
        ("?", "help"),
        ("q", "quit"),
        ("Tab", "pane"),
        ("g", "go"),
        (":", "command"),
        ("m", "map"),
        ("t", "theme"),
        ("z", "zoom pane"),
    )

    def made(self, y: int, width: int) -> Text:
        home, face = self.home, self.home.look.face
        if home.told:
            return Text(fitted(f" {printable(home.told)}", width), face.note)
        line = Text()
        for key, what in self.KEYS:
            if key == ":" and home.execute is None:
                continue
            part = Text.assemble((f" {key}", face.bold), (f" {what} ", face.soft))
            if cell_len(line.plain) + cell_len(part.plain) > width:
                break
            line.append_text(part)
        return line


_HELP = (
    ("Go", ""),
    ("← →", "the event before, the next one"),
    ("n p", "the next node, the one before (after / the next hit)"),
    ("N P", "the next split, the one before"),
    ("s S", "the next step of the scenario, the one before"),
    ("Home End", "the first event, the last one"),
    ("g", "go to an event, a split or a tensor"),
    ("/", "find a tensor, an op, a function or a kind of event"),
    ("b", "a breakpoint at the tensor (in events, calls: the function)"),
    ("c r", "continue to a breakpoint, in reverse to one before"),
    (":", "a command of the debugger: p EXPR, info splits, bt, …"),
    ("click", "on the line at the bottom: go there"),
    ("Look", ""),
    ("Tab 1-5", "the next pane, a pane by its number"),
    ("↑ ↓ PgUp PgDn", "move in the pane: a tensor, a range, an event"),
    ("Enter", "in details: the tensor that the line names"),
    ("m", "memory now, or over program order"),
    ("+ - 0 [ ]", "in memory: zoom in, out, show all, move"),
    ("z", "this pane alone, or all"),
    ("t", "dark or light"),
    ("Esc", "close what is open, end a search"),
    ("q", "quit"),
    ("Signs", ""),
    ("▶ ●", "the event is about it; a breakpoint is at it"),
    ("■ □ ○", "it has memory now; it had; it will have"),
    ("▣ v", "it has memory of a context; it is a view"),
    ("░ ·", "free memory; memory that was not used yet"),
    ("▲", "the highest byte ever used; the node that the allocator is at"),
    ("┆", "several tensors in one cell: zoom in"),
)


class HelpScreen(ModalScreen[None]):
    """Any of these keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,f1,enter", "dismiss", show=False)]
    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll { width: 78; max-width: 100%; height: auto; max-height: 100%; border: round $accent;
        padding: 0 1; }
    HelpScreen Static { height: auto; }
    """

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look

    def compose(self) -> ComposeResult:
        face, text = self._look.face, Text()
        for key, what in _HELP:
            if not what:
                text.append(f"{'' if not text else chr(10)}{key}\n", face.head)
            else:
                text.append(f"  {key:<14}", face.bold)
                text.append(f"{what}\n", Style() if not self._look.colored else face.plain)
        text.rstrip()
        box = VerticalScroll(Static(text, markup=False))
        box.border_title = "keys and signs"
        yield box
