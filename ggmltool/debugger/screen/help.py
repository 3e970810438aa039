"""The help of the screen: its keys and its signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from ggmltool.debugger.screen.look import Look

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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "dismiss", show=False),
    ]
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
        box = VerticalScroll(Static(self._text(), markup=False))
        box.border_title = "keys and signs"
        yield box

    def _text(self) -> Text:
        face = self._look.face
        text = Text()
        for key, what in _HELP:
            if not what:
                text.append(f"{'' if not text else chr(10)}{key}\n", face.head)
            else:
                text.append(f"  {key:<14}", face.bold)
                text.append(f"{what}\n", Style() if not self._look.colored else face.plain)
        text.rstrip()
        return text
