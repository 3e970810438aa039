"""The line at the bottom in which one types what to find, where to go, or a command; and what is found there."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from ggmltool.debugger.breakpoints import of_split, of_tensors
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.screen.pane import home_of
from ggmltool.ggml.events import Entered, Left
from ggmltool.scenario.errors import nearest, quoted
from ggmltool.state.story.points import about

if TYPE_CHECKING:
    from ggmltool.debugger.screen.scene import Scene

_ASKED = {
    "/": "find: a tensor, an op, a function, a kind of event",
    "g": "go to: an event's number, +10, -10, split 1, a tensor, start, end",
    ":": "a command of the debugger: p EXPR, info splits, bt, …",
}


class PromptLine(Input):
    """Up and down bring back what was typed before; Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
        Binding("tab,shift+tab", "nothing", show=False),
    ]
    DEFAULT_CSS = """
    PromptLine, PromptLine:focus { display: none; height: 1; border: none; padding: 0 1; }
    PromptLine.open, PromptLine.open:focus { display: block; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id, select_on_focus=False)
        self.kind = "/"
        self._typed: dict[str, list[str]] = {kind: [] for kind in _ASKED}
        self._back = 0

    def ask(self, kind: str) -> None:
        """Open it for what is asked for."""
        self.kind = kind
        self.value = ""
        self.placeholder = _ASKED[kind]
        self._back = 0
        self.add_class("open")
        self.app.query_one("Hints").display = False
        self.screen.set_focus(self)

    def close(self) -> None:
        """Close it, and remember what was typed."""
        typed = self._typed[self.kind]
        if self.value.strip() and typed[-1:] != [self.value]:
            typed.append(self.value)
        self.remove_class("open")
        self.app.query_one("Hints").display = True
        home_of(self).action_pane(home_of(self).tab)

    def action_close(self) -> None:
        """Close it without an answer."""
        self.value = ""
        self.close()

    def action_recall(self, by: int) -> None:
        """What was typed before."""
        typed = self._typed[self.kind]
        self._back = min(max(self._back - by, 0), len(typed))
        self.value = typed[-self._back] if self._back else ""
        self.cursor_position = len(self.value)

    def action_nothing(self) -> None:
        """The focus stays."""


def target(scene: Scene, at: int, text: str) -> int:
    """The point that is meant by a number, `+10`, `split 1`, `start`, `end` or a tensor's name. Raises CommandError."""
    if text in ("start", "end"):
        return 0 if text == "start" else scene.last
    if found := re.fullmatch(r"([+-]?)(\d{1,12})", text):
        number = int(found[2])
        if not found[1] and number > scene.last:
            raise CommandError(f"There is no event {number}; the history has 0 to {scene.last}.")
        return at + number if found[1] == "+" else at - number if found[1] == "-" else number
    points = scene.history.points
    if found := re.fullmatch(r"split\s+#?(\d{1,9})", text):
        places = of_split(points, int(found[1]))
        missing = f"There is no split {found[1]}."
    else:
        tensors = of_tensors(points)
        places = tensors.get(text, [])
        near = nearest(text, tensors)
        missing = f"Nothing happens to {quoted(text)}" + (f"; did you mean {quoted(near)}?" if near else ".")
    if not places:
        raise CommandError(missing)
    return next((place for place in places if place > at), places[0])


def find(scene: Scene, word: str) -> list[int]:
    """The points whose tensors (their names, their ops), function, kind, rule or backend have the word, in order; the
    case does not matter. A tensor of exactly this name is meant alone."""
    needle = word.casefold()
    exact = {m.label for program in scene.programs() for m in program.members if m.label.casefold() == needle}
    ops = {m.label: m.op for program in scene.programs() for m in program.members}

    @cache
    def is_meant(tensor: str) -> bool:
        return tensor in exact if exact else needle in tensor.casefold() or needle in ops.get(tensor, "").casefold()

    out = []
    for at, point in enumerate(scene.history.points):
        event = point.event
        if event is None:
            if needle in scene.step_title(point.step).casefold():
                out.append(at)
        elif any(map(is_meant, about(event))):
            out.append(at)
        elif not exact:
            words = [type(event).__name__, getattr(event, "cause", ""), getattr(event, "backend", "")]
            words = [event.function] if isinstance(event, Entered | Left) else words
            out += [at] if any(needle in word.casefold() for word in words) else []
    return out
