"""The calls of ggml's functions in a history: which began at what point, and inside which they did."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggmltool.ggml.events import Entered, Left
from ggmltool.inspect.history.history import History, Point

MAIN = "main"
"""The function that all others are called from: the program that does the scenario's steps."""


class Call(NamedTuple):
    """A call of `function`, which goes on from point `first` to `last`, both included. `caller` is the number of the
    call that made it, -1 for that of `main`; `depth` how many calls it is inside of."""

    function: str
    caller: int
    depth: int
    first: int
    last: int


class Calls:
    """All calls of a history by their numbers, in the order in which they begin. Number 0 is `main`."""

    def __init__(self, history: History) -> None:
        self._made: list[Call] = []
        self.innermost: list[int] = []
        """For each point the number of the call in which it is."""
        self._read(history.points)
        self._by_function: dict[str, list[int]] = {}
        for number, call in enumerate(self._made):
            self._by_function.setdefault(call.function, []).append(number)

    def __getitem__(self, number: int) -> Call:
        return self._made[number]

    def __len__(self) -> int:
        return len(self._made)

    @property
    def functions(self) -> Sequence[str]:
        """The functions that are called, in the order of their first calls."""
        return list(self._by_function)

    def starts(self, function: str) -> list[int]:
        """The points at which the function is entered."""
        return [self._made[number].first for number in self._by_function.get(function, ())]

    def at(self, point: int) -> list[int]:
        """The calls that a point is inside of, the innermost first, `main` last."""
        return list(self.outward(self.innermost[point]))

    def outward(self, number: int) -> Iterator[int]:
        """A call, and those it was made from."""
        while number >= 0:
            yield number
            number = self._made[number].caller

    def inside(self, number: int, outer: int) -> int | None:
        """The call made by `outer` itself that `number` is, or is inside of; None if it is not inside `outer`."""
        depth = self._made[outer].depth + 1
        for one in self.outward(number):
            if self._made[one].depth == depth:
                return one if self._made[one].caller == outer else None
        return None

    def _read(self, points: Sequence[Point]) -> None:
        open_calls: list[int] = []
        for at, frames in enumerate(_stacks(points)):
            same = 0
            while same < min(len(frames), len(open_calls)) and self._made[open_calls[same]].function == frames[same]:
                same += 1
            for number in open_calls[same:]:
                self._made[number] = self._made[number]._replace(last=at - 1)
            del open_calls[same:]
            for function in frames[same:]:
                caller = open_calls[-1] if open_calls else -1
                open_calls.append(len(self._made))
                self._made.append(Call(function, caller, len(open_calls) - 1, at, len(points) - 1))
            self.innermost.append(open_calls[-1])


def _stacks(points: Sequence[Point]) -> Iterator[tuple[str, ...]]:
    """The functions that each point is inside of, the outermost first."""
    stack: list[str] = [MAIN]
    for point in points:
        match point.event:
            case Entered(function):
                stack.append(function)
            case Left() if len(stack) > 1:
                stack.pop()
        yield tuple(stack)


def after(points: Sequence[int], at: int) -> Iterator[int]:
    """Those of the points, which are in order, that come after `at`, the nearest first."""
    for i in range(bisect_right(points, at), len(points)):
        yield points[i]


def before(points: Sequence[int], at: int) -> Iterator[int]:
    """Those of the points, which are in order, that come before `at`, the nearest first."""
    i = bisect_right(points, at - 1)
    while i:
        i -= 1
        yield points[i]
