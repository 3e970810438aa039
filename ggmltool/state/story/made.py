"""The calls of ggml's functions in a history: which began at what point, and inside which they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggmltool.ggml.events import TensorCopied
from ggmltool.state.story.calls import MAIN, calls_of, lasts
from ggmltool.state.story.frames import functions_at
from ggmltool.state.story.points import Announced, Point, about


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

    def __init__(self, history: Announced) -> None:
        self._made: list[Call] = []
        self.innermost: list[int] = []
        """For each point the number of the call in which it is."""
        self._read(history)
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

    def _read(self, history: Announced) -> None:
        open_calls: list[int] = []
        keys: list[object] = []
        last = len(history.points) - 1
        for at, frames in enumerate(_stacks(history)):
            same = 0
            while same < min(len(frames), len(keys)) and keys[same] == frames[same]:
                same += 1
            for number in open_calls[same:]:
                self._made[number] = self._made[number]._replace(last=at - 1)
            del open_calls[same:], keys[same:]
            for frame in frames[same:]:
                caller = open_calls[-1] if open_calls else -1
                open_calls.append(len(self._made))
                keys.append(frame)
                self._made.append(Call(frame[0], caller, len(open_calls) - 1, at, last))
            self.innermost.append(open_calls[-1])


_ON_BACKEND = {"backend", "backend_src", "backend_dst", "dev", "device", "buft", "event"}
"""Parameters of functions that are asked of one backend or buffer type after the other."""

_Key = tuple[str, *tuple[object, ...]]


def _stacks(history: Announced) -> Iterator[list[_Key]]:
    """The functions that each point is inside of, the outermost first, each with what tells its call from the next.

    Functions that are announced are one call from their beginning to their end. Others are those of one decision: what
    is called for another tensor or backend is another call.
    """
    parameters = {name: frozenset(of) for name, of in calls_of(history.release).parameters.items()}
    copied = _copies_to_come(history.points)
    for at, point in enumerate(history.points):
        entered = history.entered[at]
        event = point.event
        tensor = "" if event is None else next(iter(about(event)), "")
        backend = getattr(event, "backend", ""), getattr(event, "buft", "")
        stack: list[_Key] = []
        for function in reversed(functions_at(history, at)):
            of = parameters.get(function, frozenset())
            if function == MAIN or function in entered or lasts(history.release, function):
                stack.append((function,))
            elif "input" in of:
                stack.append((function, copied[at]))
            else:
                stack.append((function, tensor, *(backend if of & _ON_BACKEND else ())))
        yield stack


def _copies_to_come(points: Sequence[Point]) -> list[int]:
    """For each point that of the next copy, itself included."""
    out: list[int] = []
    for at in range(len(points) - 1, -1, -1):
        copies = isinstance(points[at].event, TensorCopied)
        out.append(at if copies or not out else out[-1])
    return out[::-1]
