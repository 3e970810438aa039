"""The debugger on a whole screen: the panes, the keys, and what is shown now."""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from ggmltool.debugger.breakpoints import of_tensors
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.screen.bottom import HelpScreen, Hints, Scrubber, Tabs, Title
from ggmltool.debugger.screen.lists import AnswerPane, CallPane, EventPane, GraphPane, StoryPane
from ggmltool.debugger.screen.look import Look
from ggmltool.debugger.screen.map_pane import MapPane
from ggmltool.debugger.screen.pane import Pane, ScreenApp
from ggmltool.debugger.screen.prompt import PromptLine, find, target
from ggmltool.debugger.screen.scene import Scene
from ggmltool.debugger.screen.story import Line
from ggmltool.debugger.walk import Stop, StopReason
from ggmltool.ggml.events import Entered, Left
from ggmltool.show.text import count, printable

if TYPE_CHECKING:
    from ggmltool.debugger.walk import Walker
    from ggmltool.inspect.opened import Opened

_WIDE, _MEDIUM = (150, 36), (100, 28)
"""Columns and rows from which on all panes have room, and all but the calls; below, one pane and the events."""
_LOW = 16
"""Rows below which the events stand behind the pane in front."""

CSS = """
Screen { layout: vertical; overflow: hidden; }
#body { height: 1fr; layout: grid; grid-gutter: 0; }
.wide #body { grid-size: 3 3; grid-columns: 10fr 13fr 9fr; grid-rows: 5fr 5fr 8; }
.wide #graph, .wide #story { row-span: 3; }
.medium #body { grid-size: 2 3; grid-columns: 5fr 6fr; grid-rows: 4fr 4fr 3fr; }
.medium #graph { row-span: 3; }
.medium #calls { display: none; }
.small #body { layout: vertical; }
.small #body Pane { display: none; height: 1fr; }
.small #body Pane.front { display: block; }
.small #body #events { display: block; height: 7; }
.small #body #events.front { height: 1fr; }
.behind #body #events { display: none; }
.behind #body #events.front { display: block; }
.answering.small #body #events { display: none; }
.answering.small #body #events.front { display: block; }
.small Tabs { display: block; }
#answer { display: none; height: 40%; }
#answer.open { display: block; }
"""


def classes_of(width: int, height: int, zoomed: bool) -> frozenset[str]:
    """What the screen is with so many columns and rows, or with one pane `zoomed`: the classes of its style."""
    wide, medium = (width >= least[0] and height >= least[1] for least in (_WIDE, _MEDIUM))
    if medium and not zoomed:
        return frozenset({"wide" if wide else "medium"})
    return frozenset({"small", "behind"} if height < _LOW or zoomed else {"small"})


class DebuggerApp(ScreenApp):
    """A scene on the screen. `left`: the user left by a command. After it, `scene.walker` is where the user left it."""

    CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False, priority=False),
        Binding("question_mark,f1", "help", show=False),
        Binding("n", "next(1)", show=False),
        Binding("p", "next(-1)", show=False),
        Binding("N", "mark('split_marks', 1)", show=False),
        Binding("P", "mark('split_marks', -1)", show=False),
        Binding("s", "mark('step_marks', 1)", show=False),
        Binding("S", "mark('step_marks', -1)", show=False),
        # At once, before the keys behind it in a burst have found a pane.
        Binding("slash", "ask('/')", show=False, priority=True),
        Binding("colon", "ask(':')", show=False, priority=True),
        Binding("g", "ask('g')", show=False, priority=True),
        Binding("b", "toggle_breakpoint", show=False),
        Binding("c", "resume(False)", show=False),
        Binding("r", "resume(True)", show=False),
        Binding("m", "turn_map", show=False),
        Binding("t", "theme", show=False),
        Binding("z", "zoom_pane", show=False),
        Binding("escape", "dismiss", show=False),
        *(Binding(str(i), f"pane({i - 1})", show=False) for i in range(1, 6)),
    ]
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#graph"

    def __init__(
        self,
        scene: Scene,
        execute: Callable[[str, int], str] | None = None,
        dark: bool = True,
        colored: bool = True,
        left: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(scene, Look(scene.backends, dark, colored), execute)
        self.left = left
        self._ground()
        self.zoomed = False
        self._word = ""

    def _ground(self) -> None:
        theme = self.look.theme
        self.register_theme(theme)
        self.theme = theme.name

    def compose(self) -> ComposeResult:
        yield Title()
        yield Tabs()
        with Container(id="body"):
            yield GraphPane("graph")
            yield MapPane("map")
            yield StoryPane("story")
            yield EventPane("events")
            yield CallPane("calls")
        yield AnswerPane("answer")
        yield Hints()
        yield PromptLine(id="prompt")
        yield Scrubber()

    def on_mount(self) -> None:
        self._arrange(self.size.width, self.size.height)
        if self.scene.error:
            self.tell(f"ggml refused to go on: {self.scene.error}")

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size.width, event.size.height)

    def _arrange(self, width: int, height: int) -> None:
        self.screen.remove_class("wide", "medium", "small", "behind")
        self.screen.add_class(*classes_of(width, height, self.zoomed))
        self.bring_to_front()
        self.call_after_refresh(self.show)

    def action_step(self, by: int) -> None:
        """The next event, or the one before."""
        self.goto(self.now.at + by)

    def action_edge(self, last: bool) -> None:
        """The first point, or the last."""
        self.goto(self.scene.last if last else 0)

    def action_next(self, by: int) -> None:
        """The next hit of what was found, else the next node."""
        if not self.hits:
            self.action_mark("node_marks", by)
            return
        self._to_mark(self.hits, by, "hit")
        self._tell_hit()

    def _tell_hit(self) -> None:
        place = bisect_right(self.hits, self.now.at)
        self.tell(f"{self._word}: {place} of {count(len(self.hits), 'event')}; n and p go on, Esc ends")

    def action_mark(self, marks: str, by: int) -> None:
        """The next point where another node, split or step begins, or the one before."""
        what = marks.removesuffix("_marks")
        self._to_mark(getattr(self.scene.timeline, marks), by, what)

    def _to_mark(self, marks: Sequence[int], by: int, what: str) -> None:
        at = self.now.at
        place = bisect_right(marks, at) if by > 0 else bisect_left(marks, at) - 1
        if 0 <= place < len(marks):
            self.goto(marks[place])
        else:
            self.tell(f"There is no {'next' if by > 0 else 'earlier'} {what}.")

    def action_resume(self, reverse: bool) -> None:
        """Continue to the next breakpoint, or back to the one before."""
        try:
            stop = self.scene.walker.continue_(reverse)
        except CommandError:
            stop = Stop(StopReason.EXITED, self.scene.last)
        self.follow()
        self.show()
        self.tell(self.scene.stop_text(stop))

    def action_toggle_breakpoint(self) -> None:
        """A breakpoint at the selected tensor, or at the function where one is chosen; a second time it is gone."""
        focused, event = self.focused, self.now.point.event
        what = focused.function if isinstance(focused, CallPane) else ""
        if isinstance(focused, EventPane) and isinstance(event, Entered | Left):
            what = event.function
        if what:
            places = self.scene.walker.calls.starts(what)
        else:
            what, places = self.selected, of_tensors(self.scene.history.points).get(self.selected, [])
        told = self.scene.toggle(what, places)
        self.show()
        self.tell(told)

    def action_next_pane(self, by: int) -> None:
        """The focus to the next pane that has room."""
        if self.screen.has_class("small"):
            self.action_pane((self.tab + by) % len(self.panes))
            return
        there = [i for i, pane in enumerate(self.panes) if pane.display]
        at = next((n for n, i in enumerate(there) if self.panes[i].has_focus), 0)
        self.action_pane(there[(at + by) % len(there)])

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if isinstance(event.widget, Pane) and event.widget in self.panes:
            self.tab = self.panes.index(event.widget)

    def action_zoom_pane(self) -> None:
        """One pane alone, or all of them again."""
        self.zoomed = not self.zoomed
        self._arrange(self.size.width, self.size.height)

    def action_turn_map(self) -> None:
        """The map now, or over program order."""
        pane = self.query_one(MapPane)
        pane.over_time = not pane.over_time
        pane.zoom = 0
        if not pane.display:
            self.action_pane(1)
        pane.show_now()

    def action_theme(self) -> None:
        """Dark or light."""
        self.look = Look(self.scene.backends, not self.look.dark, self.look.colored)
        self._ground()
        self.show()

    def action_help(self) -> None:
        """All keys."""
        self.push_screen(HelpScreen(self.look))

    def action_dismiss(self) -> None:
        """Close the answer, end the search."""
        self.query_one(AnswerPane).remove_class("open")
        self.screen.remove_class("answering")
        self.hits, self.found, self._word, self.told = [], frozenset(), "", ""
        self.show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What opens the prompt is text there, and nothing on the page of keys."""
        return action != "ask" or not (len(self.screen_stack) > 1 or self.query_one(PromptLine).has_class("open"))

    def action_ask(self, kind: str) -> None:
        """Ask for a word to find, a place to go to, or a command."""
        if kind == ":" and self.execute is None:
            return
        self.query_one(PromptLine).ask(kind)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        prompt = self.query_one(PromptLine)
        kind, text = prompt.kind, message.value.strip()
        prompt.close()
        if not text:
            return
        match kind:
            case "/":
                self._find(text)
            case "g":
                try:
                    self.goto(target(self.scene, self.now.at, text))
                except CommandError as error:
                    self.tell(str(error))
            case _:
                self._command(text)

    def _find(self, word: str) -> None:
        self.hits = find(self.scene, word)
        self._word = word
        needle = word.casefold()
        members = self.now.program.members
        names = [m.label for m in members if needle in m.label.casefold() or needle in m.op.casefold()]
        self.found = frozenset(names)
        if self.hits:
            place = bisect_left(self.hits, self.now.at)
            self.goto(self.hits[place if place < len(self.hits) else 0])
            self._tell_hit()
        elif names:
            self.selected = names[0]
            self.show()
            self.tell(f"{word}: {count(len(names), 'tensor')}, and no event")
        else:
            self.show()
            self.tell(f"Nothing is called {word}.")

    def _command(self, line: str) -> None:
        answer = self.query_one(AnswerPane)
        told = "" if self.execute is None else self.execute(line, max(self.size.width - 4, 20))
        if self.scene.walker.at is None:
            self.scene.walker.goto(0)
        if self.left():
            self.exit()
            return
        self.follow()
        face = self.look.face
        lines = [Line(Text(f"{printable(line)}", face.soft))]
        lines += [Line(Text.from_ansi(row, style=face.plain)) for row in told.splitlines()]
        answer.told = lines
        answer.set_class(bool(told.strip()), "open")
        self.screen.set_class(bool(told.strip()), "answering")
        self.call_after_refresh(self.show)


def show(
    opened: Opened,
    walker: Walker,
    execute: Callable[[str, int], str] | None = None,
    dark: bool = True,
    colored: bool = True,
    left: Callable[[], bool] = lambda: False,
) -> None:
    """Walk through the history of a scenario from where the walker is, and leave it where the user quits. `execute`
    gives the answer of a command, in lines of so many columns; after it `left` says whether the user wants to quit."""
    scene = Scene(opened, walker.history, walker)
    gc.freeze()  # the history stays: looking through it again and again would stop the screen
    try:
        DebuggerApp(scene, execute, dark, colored, left).run()
    finally:
        gc.unfreeze()
