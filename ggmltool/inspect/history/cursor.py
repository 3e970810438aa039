"""Walking through a history: the state at a point, made of the changes up to it, in both directions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ggmltool.inspect.history.cells import Cells, Key, Value
from ggmltool.inspect.history.shadow import GONE, Changes

MAX_CHECKPOINTS = 24
"""So many whole states are kept of a history."""


class Timeline:
    """The changes of each point of a history, both ways, and checkpoints: whole states, evenly apart."""

    def __init__(self, changes: Sequence[Changes]) -> None:
        self.changes = changes
        self.undo: list[Changes] = []
        self.checkpoints: list[tuple[int, Cells]] = [(-1, {})]
        self.passed = [0]
        apart = sum(map(len, changes)) // MAX_CHECKPOINTS + 1
        cells: Cells = {}
        for at, here in enumerate(changes):
            self.undo.append(tuple([(key, cells.get(key, GONE)) for key, _ in here]))
            apply(cells, here)
            self.passed.append(self.passed[-1] + len(here))
            if self.passed[-1] // apart > self.passed[-2] // apart:
                self.checkpoints.append((at, dict(cells)))

    def cost(self, a: int, b: int) -> int:
        """How many changes and points are between two points."""
        return abs(self.passed[a + 1] - self.passed[b + 1]) + abs(a - b)


class Cursor:
    """A place in a history that moves: `cells` is the state at point `at`, the same mapping wherever it moves."""

    def __init__(self, timeline: Timeline, at: int = 0) -> None:
        self._timeline = timeline
        self._cells: Cells = {}
        self.at = -1
        self._instead: Changes = ()
        self.cells: Mapping[Key, Value] = MappingProxyType(self._cells)
        self.move_to(at)

    def move_to(self, at: int, but: Changes = ()) -> Mapping[Key, Value]:
        """The state at point `at`, `but` for what is otherwise at the moment that is meant. Raises IndexError if there
        is no such point."""
        timeline = self._timeline
        if not 0 <= at < len(timeline.changes):
            raise IndexError(f"the history has {len(timeline.changes)} points")
        apply(self._cells, self._instead)
        before = bisect_right(timeline.checkpoints, at, key=lambda checkpoint: checkpoint[0]) - 1
        start, state = timeline.checkpoints[before]
        # A change takes about eight times as long as a cell of a state that is copied.
        if timeline.cost(start, at) + len(state) // 8 < timeline.cost(self.at, at):
            self._cells.clear()
            self._cells.update(state)
            self.at = start
        for i in range(self.at + 1, at + 1):
            apply(self._cells, timeline.changes[i])
        for i in range(self.at, at, -1):
            apply(self._cells, timeline.undo[i])
        self.at = at
        self._instead = tuple([(key, self._cells.get(key, GONE)) for key, _ in but])
        apply(self._cells, but)
        return self.cells


def apply(cells: Cells, changes: Changes) -> None:
    """Make the changes in a state."""
    for key, value in changes:
        if value is GONE:
            cells.pop(key, None)
        else:
            cells[key] = value
