"""The debugger on a whole screen: the panes, the keys, and what is shown now."""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input

from ggmltool.debugger.breakpoints import of_tensors
from ggmltool.debugger.screen.bottom import HelpScreen, Hints, Scrubber, Tabs, Title
from ggmltool.debugger.screen.graph_pane import GraphPane
from ggmltool.debugger.screen.lists import AnswerPane, CallPane, EventPane, StoryPane
from ggmltool.debugger.screen.look import Look
from ggmltool.debugger.screen.map_pane import MapPane
from ggmltool.debugger.screen.pane import Pane
from ggmltool.debugger.screen.prompt import PromptLine, find, target
from ggmltool.debugger.screen.scene import Now, Scene, is_in
from ggmltool.debugger.screen.story import Line
from ggmltool.debugger.walk import Stop, StopReason, WalkError
from ggmltool.ggml.events import Entered, Left
from ggmltool.show.text import count, printable
from ggmltool.state.story.points import about

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


class DebuggerApp(App[None]):
    """A scene on the screen. `execute` answers a command of the debugger in lines of so many columns; without it there
    are none. `left`: the user left by a command. After it, `scene.walker` is where the user left it."""

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
        super().__init__(ansi_color=not colored or None)
        self.scene = scene
        self.execute = execute
        self.left = left
        self.look = Look(scene.backends, dark, colored)
        self._ground()
        self.selected = ""
        self.hits: list[int] = []
        self.found: Collection[str] = frozenset()
        self.told = ""
        self.tab = 0
        self.zoomed = False
        self._word = ""
        if scene.walker.at is None:
            scene.walker.goto(0)
        self._follow()

    def _ground(self) -> None:
        """Widgets get the colors of the ground."""
        theme = self.look.theme
        self.register_theme(theme)
        self.theme = theme.name

    @property
    def now(self) -> Now:
        """The state that is shown."""
        return self.scene.now(self.scene.walker.here())

    @property
    def takes_commands(self) -> bool:
        """Whether somebody answers commands."""
        return self.execute is not None

    @property
    def here(self) -> Sequence[str]:
        """The tensors that the event is about."""
        event = self.now.point.event
        return () if event is None else about(event)[:1]

    @property
    def stops(self) -> frozenset[str]:
        """What breakpoints stand at, as the user named it."""
        return frozenset(one.what for one in self.scene.walker.breakpoints if one.enabled)

    @property
    def marked(self) -> list[int]:
        """The points of breakpoints that are not too many to be marked."""
        return self.scene.marked

    @property
    def panes(self) -> list[Pane]:
        """The panes, in the order of their numbers."""
        return [self.query_one(f"#{name}", Pane) for name in ("graph", "map", "story", "events", "calls")]

    @property
    def titles(self) -> list[str]:
        """The names of the panes."""
        return [pane.name_of_pane for pane in self.panes]

    def is_hit(self, at: int) -> bool:
        """Whether a point was found."""
        return is_in(self.hits, at)

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
        """Put the panes where they have room."""
        self.screen.remove_class("wide", "medium", "small", "behind")
        self.screen.add_class(*classes_of(width, height, self.zoomed))
        self._front()
        self.call_after_refresh(self.show)

    def _front(self) -> None:
        """The pane of the chosen tab is in front."""
        for i, pane in enumerate(self.panes):
            pane.set_class(i == self.tab, "front")

    def show(self) -> None:
        """Draw everything that depends on the point and the selected tensor."""
        for pane in (*self.panes, self.query_one(AnswerPane)):
            if pane.display:
                pane.show_now()
        for lines in (Title, Tabs, Scrubber, Hints):
            self.query_one(lines).refresh()

    def tell(self, text: str) -> None:
        """Say something in the last line, until the next key."""
        self.told = text
        self.query_one(Hints).refresh()

    def goto(self, at: int) -> None:
        """Go to a point; what its event is about is selected."""
        self.scene.walker.goto(min(max(at, 0), self.scene.last))
        self._follow()
        self.told = ""
        self.show()

    def _follow(self) -> None:
        here = self.here
        if here and here[0]:
            self.selected = here[0]
        elif not self.selected and self.now.program.members:
            self.selected = self.now.program.members[0].label

    def on_pane_selected(self, message: Pane.Selected) -> None:
        self.selected = message.tensor
        self.told = ""
        self.show()

    def on_pane_went(self, message: Pane.Went) -> None:
        self.goto(message.at)

    def on_scrubber_moved(self, message: Scrubber.Moved) -> None:
        if message.at != self.now.at:
            self.goto(message.at)

    def on_tabs_chosen(self, message: Tabs.Chosen) -> None:
        self.action_pane(message.pane)

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
        except WalkError:
            stop = Stop(StopReason.EXITED, self.scene.last)
        self._follow()
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

    def action_pane(self, number: int) -> None:
        """The focus to a pane, which is shown if it was not."""
        self.tab = number
        self._front()
        self.panes[number].focus()
        self.call_after_refresh(self.show)

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
                except WalkError as error:
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
        self._follow()
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
