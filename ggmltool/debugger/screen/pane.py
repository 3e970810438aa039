"""A pane: a list of lines of which only those in sight are made, with a cursor; and the app, as panes know it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from ggmltool.debugger.screen.scene import is_in
from ggmltool.state.story.points import about

if TYPE_CHECKING:
    from rich.console import Console

    from ggmltool.debugger.screen.look import Look
    from ggmltool.debugger.screen.scene import Now, Scene


_MOST_STRIPS = 2000


def strip_of(text: Text, width: int, below: Style, console: Console) -> Strip:
    """A line of exactly so many cells, with a style below those of the text."""
    style = below + text.style if isinstance(text.style, Style) else below
    return Strip(Text.assemble(text).render(console)).adjust_cell_length(width, style).apply_style(style)


class Pane(ScrollView, can_focus=True):
    """Lines by their numbers. A subclass says how many there are (`count`) and what each is (`line`); what happens when
    the cursor comes to one (`chosen`)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "app.step(-1)", show=False),
        Binding("right", "app.step(1)", show=False),
        Binding("home", "app.edge(False)", show=False),
        Binding("end", "app.edge(True)", show=False),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("tab", "app.next_pane(1)", show=False),
        Binding("shift+tab", "app.next_pane(-1)", show=False),
    ]
    DEFAULT_CSS = """
    Pane {
        border: round $panel;
        border-title-align: left;
        border-title-color: $foreground;
        border-subtitle-color: $foreground 70%;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        overflow-x: hidden;
        overflow-y: auto;
    }
    Pane:focus { border: round $accent; }
    """
    name_of_pane: ClassVar[str] = ""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self._strips: dict[tuple[Hashable, int, Look], Strip] = {}
        self.border_title = self.name_of_pane

    @property
    def home(self) -> ScreenApp:
        """The app, with what is shown now."""
        return home_of(self)

    @property
    def width(self) -> int:
        """The columns of a line."""
        return max(self.scrollable_content_region.width, 1)

    @property
    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def line(self, number: int) -> tuple[Text, Style | None]:
        """A line, and the style that lies below it, None for the pane's own."""
        raise NotImplementedError

    def key(self, number: int) -> Hashable:
        """All that a line depends on, so that it need not be made again; None: it is made each time."""
        return None

    def chosen(self, number: int) -> None:
        """The cursor was put on a line."""

    def show_now(self) -> None:
        """Something else is to be shown: a point, a tensor, a size."""
        room = self.scrollable_content_region.height  # less than that is as good, and a change costs a new layout
        self.virtual_size = Size(self.width, max(self.count, room))
        self.cursor = min(self.cursor, max(self.count - 1, 0))
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self.show_now()

    def render_line(self, y: int) -> Strip:
        base = self.home.look.base
        number = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if number >= self.count:
            return Strip.blank(width, base)
        key = self.key(number)
        made_as = (key, width, self.home.look)
        strip = None if key is None else self._strips.get(made_as)
        if strip is None:
            text, below = self.line(number)
            strip = strip_of(text, width, base if below is None else base + below, self.home.console)
            if len(self._strips) >= _MOST_STRIPS:
                self._strips.clear()
            if key is not None:
                self._strips[made_as] = strip
        return strip

    def keep_in_sight(self, number: int) -> None:
        """Scroll so that a line is seen, in the middle if it was out of sight."""
        height = self.scrollable_content_region.height
        top = self.scroll_offset.y
        if top <= number < top + height:
            return
        far = not top - height <= number < top + 2 * height
        aim = number - height // 2 if far else number if number < top else number - height + 1
        self.scroll_to(y=min(max(aim, 0), max(self.count - height, 0)), animate=False, force=True)

    def action_move(self, by: int) -> None:
        """Move the cursor."""
        if self.count:
            self.cursor = min(max(self.cursor + by, 0), self.count - 1)
            self.keep_in_sight(self.cursor)
            self.refresh()
            self.chosen(self.cursor)

    def action_page(self, by: int) -> None:
        """Move the cursor by what is in sight."""
        self.action_move(by * max(self.scrollable_content_region.height - 1, 1))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        number = offset.y + self.scroll_offset.y
        if number < self.count:
            self.cursor = number
            self.refresh()
            self.pointed(number, offset.x)

    def pointed(self, number: int, column: int) -> None:
        """A line was clicked."""
        self.chosen(number)


class ScreenApp(App[None]):
    """What is shown: `scene.walker` is where one is, `selected` a tensor, `look` how things are shown. `execute`
    answers a command of the debugger in lines of so many columns; without it there are none. `told` is what stands in
    the last line, `tab` the number of the pane in front, `hits` the points that were found, `found` the tensors."""

    def __init__(self, scene: Scene, look: Look, execute: Callable[[str, int], str] | None) -> None:
        super().__init__(ansi_color=not look.colored or None)
        self.scene = scene
        self.look = look
        self.execute = execute
        self.selected = ""
        self.hits: list[int] = []
        self.found: Collection[str] = frozenset()
        self.told = ""
        self.tab = 0
        if scene.walker.at is None:
            scene.walker.goto(0)
        self.follow()

    @property
    def now(self) -> Now:
        """The state that is shown."""
        return self.scene.now(self.scene.walker.here())

    @property
    def here(self) -> Sequence[str]:
        """The tensors that the event is about."""
        event = self.now.point.event
        return () if event is None else about(event)[:1]

    @property
    def stops(self) -> frozenset[str]:
        """What breakpoints stand at, as the user named it."""
        return frozenset(one.what for one in self.scene.walker.breakpoints.enabled)

    @property
    def panes(self) -> list[Pane]:
        """The panes, in the order of their numbers."""
        return list(self.query("#body Pane").results(Pane))

    def is_hit(self, at: int) -> bool:
        """Whether a point was found."""
        return is_in(self.hits, at)

    def show(self) -> None:
        """Draw everything that depends on the point and the selected tensor."""
        for pane in self.query(Pane):
            if pane.display:
                pane.show_now()
        self.query("Title, Tabs, Scrubber, Hints").refresh()

    def tell(self, text: str) -> None:
        """Say something in the last line, until the next key."""
        self.told = text
        self.query("Hints").refresh()

    def goto(self, at: int) -> None:
        """Go to a point; what its event is about is selected."""
        self.scene.walker.goto(min(max(at, 0), self.scene.last))
        self.follow()
        self.told = ""
        self.show()

    def follow(self) -> None:
        """Select what the event is about, if it is about a tensor."""
        here = self.here
        if here and here[0]:
            self.selected = here[0]
        elif not self.selected and self.now.program.members:
            self.selected = self.now.program.members[0].label

    def select(self, tensor: str) -> None:
        """Select a tensor."""
        self.selected = tensor
        self.told = ""
        self.show()

    def action_pane(self, number: int) -> None:
        """The focus to a pane, which is shown if it was not."""
        self.tab = number
        self.bring_to_front()
        self.panes[number].focus()
        self.call_after_refresh(self.show)

    def bring_to_front(self) -> None:
        """The pane of the chosen tab is in front."""
        for i, pane in enumerate(self.panes):
            pane.set_class(i == self.tab, "front")


def home_of(widget: Widget) -> ScreenApp:
    """The app that a widget is in."""
    return cast("ScreenApp", widget.app)
