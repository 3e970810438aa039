"""Walking through a history as gdb walks through a program that is recorded: forward and in reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from heapq import merge
from typing import NamedTuple, Protocol

from ggmltool.debugger.breakpoints import Breakpoint, Breakpoints, Kind
from ggmltool.debugger.calls import Calls, after, before
from ggmltool.ggml.events import AllocationStarted, Assigned, Event, InputAdded, PassedOver, Refused, SplitStarted
from ggmltool.inspect.history.history import History


class WalkError(Exception):
    """What cannot be done from here, in gdb's words."""


class Reason(Enum):
    """Why it stopped."""

    STEPPED = "end stepping range"
    BREAKPOINT = "breakpoint hit"
    FINISHED = "function finished"
    LOCATION = "location reached"
    START = "no history before"
    EXITED = "exited"
    ABORTED = "aborted"
    INTERRUPTED = "interrupted"


class Hit(NamedTuple):
    """A breakpoint that stopped it. A watchpoint's values are as they were printed before and after; `error` is what
    went wrong in its condition; `out_of_scope`: the expression cannot be read any more, and the watchpoint is gone."""

    breakpoint: Breakpoint
    old: str = ""
    new: str = ""
    error: str = ""
    out_of_scope: bool = False


class Stop(NamedTuple):
    """A stop at point `at`. `entered`: in another call than it was before, whose frame is to be shown."""

    reason: Reason
    at: int
    hits: tuple[Hit, ...] = ()
    entered: bool = True


class Reader(Protocol):
    """Who evaluates expressions. Both raise WalkError where they cannot be evaluated at that point."""

    def truth(self, text: str, at: int, frame: int) -> bool:
        """Whether a condition is true at a point in a frame (0: the innermost)."""

    def shown(self, text: str, at: int, frame: int) -> str:
        """The value of an expression at a point in a frame (0: the innermost), as it is printed."""

    def may_change(self, text: str, at: int) -> bool:
        """Whether an expression without arguments of functions may have another value than at the point before."""


class _Nothing:
    """A reader who knows no expression."""

    def truth(self, text: str, at: int, frame: int) -> bool:
        raise WalkError(f'No symbol "{text}" in current context.')

    def shown(self, text: str, at: int, frame: int) -> str:
        raise WalkError(f'No symbol "{text}" in current context.')

    def may_change(self, text: str, at: int) -> bool:
        return True


class Walker:
    """A place in a history, and the ways from it. `at` is the point, None before `run`.

    At the last point the run is over: `exited`, or `aborted` if ggml refused to go on. It can be walked back from
    there. `hidden` is how many of the innermost calls of the point are still to come: a breakpoint at a function stops
    where that begins. `interrupted` is asked on the way whether the user wants it to stop.
    """

    def __init__(
        self,
        history: History,
        breakpoints: Breakpoints | None = None,
        reader: Reader | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self.history = history
        self.breakpoints = Breakpoints() if breakpoints is None else breakpoints
        self.calls = Calls(history)
        self.at: int | None = None
        self.hidden = 0
        self._reader = _Nothing() if reader is None else reader
        self._interrupted = interrupted

    @property
    def last(self) -> int:
        """The number of the last point."""
        return len(self.history.points) - 1

    @property
    def over(self) -> bool:
        """Whether the run is at its end."""
        return self.at == self.last

    @property
    def exited(self) -> bool:
        """Whether it is at its end, and ggml refused nothing."""
        return self.over and self.history.error is None

    def here(self) -> int:
        """The point. Raises WalkError before `run`."""
        if self.at is None:
            raise WalkError("The program is not being run.")
        return self.at

    def run(self) -> Stop:
        """From before the first point to where something stops it, or to the end."""
        for one in self.breakpoints:
            one.hits = 0
        return self._go(-1, None, Reason.EXITED, False)

    def start(self) -> Stop:
        """To the first point."""
        return self._stop(Reason.LOCATION, 0, ())

    def goto(self, at: int) -> Stop:
        """To a point by its number. Raises WalkError for one that is not there."""
        if not 0 <= at <= self.last:
            raise WalkError(f"There is no event {at}; the history has 0 to {self.last}.")
        return self._stop(Reason.LOCATION, at, ())

    def continue_(self, reverse: bool = False) -> Stop:
        """To where something stops it, or to the end (in reverse: the first point)."""
        return self._go(self.check(reverse), None, Reason.EXITED, reverse)

    def step(self, count: int = 1, reverse: bool = False) -> Stop:
        """`count` points on, unless something stops it before."""
        return self._repeat(count, reverse, lambda at: at - 1 if reverse else at + 1)

    def next(self, count: int = 1, reverse: bool = False) -> Stop:
        """To the next point of the same call, over all calls that it makes; where it ends, to what comes after it."""
        return self._repeat(count, reverse, lambda at: self._next(at, reverse))

    def finish(self, frame: int = 0, reverse: bool = False) -> Stop:
        """To where the call of a frame (0: the innermost) is done; in reverse: to where it was made."""
        at = self.check(reverse)
        call = self.calls[self.calls.at(at)[self.hidden + frame]]
        if call.caller < 0:
            raise WalkError('"finish" not meaningful in the outermost frame.')
        return self._go(at, call.first - 1 if reverse else call.last + 1, Reason.FINISHED, reverse)

    def until(self, reverse: bool = False) -> Stop:
        """As `next`, but out of the loop that it is in: to where another pass of the scheduler begins, or to what comes
        after the nodes of an allocator."""
        at = self.check(reverse)
        loop = loop_of(self.history.points[at].event)
        target = self._next(at, reverse)
        while loop is not None and 0 <= target <= self.last and self._loop_at(target) in (loop, None):
            if self._loop_at(target) is None and not self._within(target, at):
                break
            target = self._next(target, reverse)
        return self._go(at, target, Reason.STEPPED, reverse)

    def advance(self, places: list[int], reverse: bool = False, leave: bool = True) -> Stop:
        """To the nearest of the places; with `leave` no further than to where the current call is done."""
        at = self.check(reverse)
        call = self.calls[self.calls.innermost[at]]
        target = next(before(places, at) if reverse else after(places, at), -1 if reverse else self.last + 1)
        if leave and call.caller >= 0:
            target = max(target, call.first - 1) if reverse else min(target, call.last + 1)
        return self._go(at, target, Reason.LOCATION, reverse)

    def _loop_at(self, at: int) -> str | None:
        return loop_of(self.history.points[at].event)

    def _within(self, target: int, at: int) -> bool:
        """Whether a point is still in the call that another one is in."""
        call = self.calls[self.calls.innermost[at]]
        outer = self.calls[call.caller] if call.caller >= 0 else call
        return outer.first <= target <= outer.last

    def check(self, reverse: bool) -> int:
        """The point that it goes on from. Raises WalkError where there is nothing to go on with."""
        at = self.here()
        if at == self.last and not reverse:
            raise WalkError("The program is not being run.")
        return at

    def _repeat(self, count: int, reverse: bool, way: Callable[[int], int]) -> Stop:
        began = self.check(reverse)
        stop = Stop(Reason.STEPPED, began)
        for _ in range(count):
            stop = self._go(stop.at, way(stop.at), Reason.STEPPED, reverse)
            if stop.reason is not Reason.STEPPED:
                break
        return stop._replace(entered=self.calls.innermost[stop.at] != self.calls.innermost[began])

    def _next(self, at: int, reverse: bool) -> int:
        """The nearest point that is not inside a call made by the one that `at` is in."""
        number = self.calls.at(at)[self.hidden if at == self.at else 0]
        target = at - 1 if reverse else at + 1
        while 0 <= target <= self.last:
            inner = self.calls.inside(self.calls.innermost[target], number)
            if inner is None:
                break
            target = self.calls[inner].first - 1 if reverse else self.calls[inner].last + 1
        return target

    def _go(self, at: int, target: int | None, reason: Reason, reverse: bool) -> Stop:
        """From `at` to `target` (None: as far as it goes), or to what stops it on the way."""
        end = 0 if reverse else self.last
        if at == end:
            return self._stop(Reason.START if reverse else self._end(), at, ())
        goal = end if target is None else max(target, 0) if reverse else min(target, self.last)
        stopped = self._stopped(at, goal, reverse)
        if stopped is not None:
            return stopped
        if target is None or target != goal or (goal == self.last and not reverse):
            reason = Reason.START if reverse else self._end()
        return self._stop(reason, goal, ())

    def _end(self) -> Reason:
        return Reason.EXITED if self.history.error is None else Reason.ABORTED

    def _stopped(self, at: int, goal: int, reverse: bool) -> Stop | None:
        """What stops it on the way from `at` to `goal`, or at it."""
        values = {one.number: self._shown(one, at) for one in self.breakpoints.of(Kind.WATCHPOINT)}
        for point in self._candidates(at, goal, reverse, bool(values)):
            if self._interrupted():
                return self._stop(Reason.INTERRUPTED, point, ())
            hits = tuple(self._hits(point, values, point + 1 if reverse else point))
            if hits:
                return self._stop(Reason.BREAKPOINT, point, hits)
        return None

    def _candidates(self, at: int, goal: int, reverse: bool, watches: bool) -> Iterator[int]:
        """The points at which something may stop it, in the order in which they are come to, each once."""
        if watches:
            yield from range(at - 1, goal - 1, -1) if reverse else range(at + 1, goal + 1)
            return
        places = [one.places for one in self.breakpoints if one.enabled]
        seen = at
        ways = [before(p, at) if reverse else after(p, at) for p in places]
        for point in merge(*ways, reverse=reverse):
            if point < goal if reverse else point > goal:
                return
            if point != seen:
                yield point
            seen = point

    def _hits(self, at: int, values: dict[int, str | None], changes: int) -> Iterator[Hit]:
        """What is hit at a point; `changes` is the point whose event lies between it and the one before on the way."""
        for one in self.breakpoints:
            if not one.enabled:
                continue
            hit = self._changed(one, at, values, changes) if one.kind is Kind.WATCHPOINT else self._reached(one, at)
            if hit is None or not (hit.error or hit.out_of_scope or self._counts(one)):
                continue
            if one.temporary or hit.out_of_scope:
                self.breakpoints.delete(one.number)
            yield hit

    def _reached(self, one: Breakpoint, at: int) -> Hit | None:
        if next(after(one.places, at - 1), None) != at:
            return None
        return self._if_true(one, at, Hit(one))

    def _changed(self, one: Breakpoint, at: int, values: dict[int, str | None], changes: int) -> Hit | None:
        if one.call is not None and one.call not in self.calls.at(at):
            return Hit(one, out_of_scope=True)
        if one.call is None and not self._reader.may_change(one.what, changes):
            return None
        old, new = values.get(one.number), self._shown(one, at)
        if new == old:
            return None
        values[one.number] = new
        return self._if_true(one, at, Hit(one, old or _UNREADABLE, new or _UNREADABLE))

    def _if_true(self, one: Breakpoint, at: int, hit: Hit) -> Hit | None:
        try:
            return hit if not one.condition or self._reader.truth(one.condition, at, self._frame(one, at)) else None
        except WalkError as error:
            return hit._replace(error=str(error))

    @staticmethod
    def _counts(one: Breakpoint) -> bool:
        """Count a hit; whether it stops."""
        one.hits += 1
        if one.ignore:
            one.ignore -= 1
            return False
        return True

    def _shown(self, one: Breakpoint, at: int) -> str | None:
        if at < 0:
            return None
        calls = self.calls.at(at)
        frame = calls.index(one.call) if one.call in calls else len(calls) - 1
        try:
            return self._reader.shown(one.what, at, frame)
        except WalkError:
            return None

    def _frame(self, one: Breakpoint, at: int) -> int:
        """The frame of the function that a breakpoint is at, where it is entered at a point; else the innermost."""
        functions = [self.calls[number].function for number in self.calls.at(at)]
        return functions.index(one.function) if one.function in functions else 0

    def _stop(self, reason: Reason, at: int, hits: tuple[Hit, ...]) -> Stop:
        self.at = at
        self.hidden = min([self._frame(hit.breakpoint, at) for hit in hits], default=0)
        return Stop(reason, at, hits)


_UNREADABLE = "<unreadable>"


def loop_of(event: Event | None) -> str | None:
    """The loop of ggml that an event is in: a pass of the scheduler, or the nodes of an allocator; None for neither."""
    match event:
        case Assigned(rule=rule) | PassedOver(rule=rule) | Refused(rule=rule):
            return f"pass {rule}"
        case SplitStarted() | InputAdded():
            return "pass 5"
        case AllocationStarted():
            return "allocation"
        case _:
            return None
