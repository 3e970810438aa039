"""A session of the debugger: a history that is walked through, the frame that is looked at, what was asked so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.reading import Reading
from ggmltool.debugger.tables import Names
from ggmltool.debugger.terminal import NO_WIDTH, Terminal
from ggmltool.debugger.walk import Walker
from ggmltool.show.table import Style
from ggmltool.state.story.history import History


@dataclass(slots=True)
class DebugSettings:
    """What `set` changes. `width` and `height` are None for those of the terminal, 0 for no limit."""

    width: int | None = None
    height: int | None = None
    pagination: bool = True
    confirm: bool = True
    listsize: int = 10
    trace_commands: bool = False


@dataclass(slots=True)
class Display:
    """An expression that is shown at every stop, and how."""

    number: int
    format: str
    expression: str
    enabled: bool = True


@dataclass(slots=True)
class Listing:
    """What `list` showed last: nodes `first` to `end` (without it) of a graph."""

    graph: str
    first: int
    end: int


class DebugSession:
    """The state of a session. `title` is what the program is called."""

    def __init__(self, history: History, title: str, screen: Terminal) -> None:
        self.history = history
        self.title = title
        self.screen = screen
        self.settings = DebugSettings()
        self.reading = Reading(history)
        self.walker = Walker(history, reader=self.reading, interrupted=screen.interrupted)
        self.frame = 0
        self.displays: list[Display] = []
        self.displays_made = 0
        self.listing: Listing | None = None
        self.left = False
        self._state: tuple[tuple[int, int], Mapping[Any, Any]] | None = None

    @property
    def style(self) -> Style:
        """How tables may be written."""
        return self.screen.style(self.settings.width)

    def say(self, text: str) -> None:
        """Print a line, or several."""
        self.screen.write(text + "\n")

    @property
    def at(self) -> int:
        """The point. Raises CommandError before `run`."""
        return self.walker.here()

    @property
    def told(self) -> int:
        """The last point whose event has come about. Raises CommandError before `run`."""
        return min(self.walker.told, self.at)

    @property
    def seen(self) -> int:
        """The point whose state is shown: before `run` the first."""
        return self.walker.at or 0

    @property
    def phase(self) -> int:
        """The moment of that point, as History.seen has it."""
        return self.walker.phase

    @property
    def selected(self) -> int:
        """The number of the selected frame in the stack of the point."""
        return self.walker.hidden + self.frame

    @property
    def columns(self) -> int | None:
        """The columns that values may take, None for all."""
        width = self.style.width
        return width if width < NO_WIDTH else None

    @property
    def scope(self) -> Scope:
        """Where expressions are evaluated: the selected frame at the moment."""
        return self.reading.scope(self.seen, self.selected, self.phase)

    def value(self, text: str, fmt: str = "") -> str:
        """The value of an expression. Raises ExpressionError."""
        return formatted(evaluate(text, self.scope), fmt, self.columns)

    @property
    def cells(self) -> Mapping[Any, Any]:
        """The state at the point. Raises CommandError before `run`."""
        moment = self.at, self.phase
        if self._state is None or self._state[0] != moment:
            self._state = moment, self.history.cells(*moment)
        return self._state[1]

    @property
    def names(self) -> Names:
        """What backends, buffers and tensors are called there. Raises CommandError before `run`."""
        backends = self.history.backends
        return Names.of(self.cells, [b.name for b in backends], [b.memory for b in backends])

    def graph(self) -> tuple[str, tuple[int, ...]]:
        """The graph of the step that it is in, or the newest one, and its nodes. Raises CommandError if none was built
        yet."""
        built: list[str] = [key[1] for key in self.cells if key[0] == "cgraph" and key[2] == "nodes"]
        if not built:
            raise CommandError("No graph is built yet.")
        graph = self.history.graph(self.at)
        chosen = graph if graph in built else built[-1]
        nodes: tuple[int, ...] = self.cells["cgraph", chosen, "nodes"]
        return chosen, nodes

    def frames(self) -> list[int]:
        """The calls on the stack, innermost first. Raises CommandError if there is none."""
        if self.walker.at is None or self.walker.exited:
            raise CommandError("No stack.")
        return self.walker.calls.at(self.walker.at)[self.walker.hidden :]
