"""Walking through a history as gdb walks through a program that is recorded: forward and in reverse."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from heapq import merge
from typing import NamedTuple

from ggmltool.debugger.breakpoints import Breakpoint, Breakpoints, StopKind
from ggmltool.debugger.errors import CommandError
from ggmltool.ggml.events import AllocationStarted, Assigned, Event, InputAdded, Left, PassedOver, Refused, SplitStarted
from ggmltool.state.story.frames import Calls
from ggmltool.state.story.history import TOLD_BEFORE, History
from ggmltool.structs.declarations import ExpressionError


class StopReason(Enum):
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


class SeenPlace(NamedTuple):
    """A moment of point `at`, as History.seen has it."""

    at: int
    phase: int = 0


class Stop(NamedTuple):
    """A stop at point `at`. `entered`: in another call than it was before, whose frame is to be shown; `returned`: the
    call that is finished."""

    reason: StopReason
    at: int
    hits: tuple[Hit, ...] = ()
    entered: bool = True
    returned: int | None = None


class Evaluator:
    """Who evaluates expressions; this one knows none. The first two raise ExpressionError where one cannot be
    evaluated."""

    def truth(self, text: str, at: int, frame: int, phase: int = 0) -> bool:
        """Whether a condition is true at a moment in a frame (0: the innermost)."""
        raise ExpressionError(f'No symbol "{text}" in current context.')

    def shown(self, text: str, at: int, frame: int, phase: int = 0) -> str:
        """The value of an expression at a moment in a frame (0: the innermost), as it is printed."""
        raise ExpressionError(f'No symbol "{text}" in current context.')

    def may_change(self, text: str, at: int) -> bool:
        """Whether an expression without arguments of functions may have another value than at the point before."""
        return True


class Walker:
    """A place in a history, and the ways from it. `at` is the point, None before `run`, `phase` the moment of it. At
    the last point the run is over: `exited`, or `aborted` if ggml refused to go on. It can be walked back from there. A
    breakpoint at a function stops where that is entered, before what is decided in it. `interrupted` is asked on the
    way whether the user wants it to stop."""

    def __init__(
        self, history: History, reader: Evaluator | None = None, interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        self.history = history
        self.breakpoints = Breakpoints()
        self.calls = Calls(history)
        self.at: int | None = None
        self.phase = 0
        self._reader = Evaluator() if reader is None else reader
        self._interrupted = interrupted

    @property
    def last(self) -> int:
        """The number of the last point."""
        return len(self.history.points) - 1

    @property
    def hidden(self) -> int:
        """How many of the innermost calls of the point are still to come, or have returned."""
        return -self.phase - 1 if self.phase < 0 else self.phase

    @property
    def told(self) -> int:
        """The last point whose event has come about; -1 before the first."""
        at = -1 if self.at is None else self.at
        return at - 1 if self.phase < 0 else at

    @property
    def over(self) -> bool:
        """Whether the run is at its end."""
        return self.at == self.last and self.phase >= 0

    @property
    def exited(self) -> bool:
        """Whether it is at its end, and ggml refused nothing."""
        return self.over and self.history.error is None

    def here(self) -> int:
        """The point. Raises CommandError before `run`."""
        if self.at is None:
            raise CommandError("The program is not being run.")
        return self.at

    def run(self) -> Stop:
        """From before the first point to where something stops it, or to the end."""
        for one in self.breakpoints.values():
            one.hits = 0
        self.at, self.phase = None, 0
        return self._go(None, StopReason.EXITED, False)

    def start(self) -> Stop:
        """To the first point."""
        return self._stop(StopReason.LOCATION, SeenPlace(0))

    def goto(self, at: int) -> Stop:
        """To a point by its number. Raises CommandError for one that is not there."""
        if not 0 <= at <= self.last:
            raise CommandError(f"There is no event {at}; the history has 0 to {self.last}.")
        return self._stop(StopReason.LOCATION, SeenPlace(at))

    def continue_(self, reverse: bool = False) -> Stop:
        """To where something stops it, or to the end (in reverse: the first point)."""
        self.check(reverse)
        return self._go(None, StopReason.EXITED, reverse)

    def step(self, count: int = 1, reverse: bool = False) -> Stop:
        """`count` points on, unless something stops it before."""

        def way(at: int) -> SeenPlace:
            """The next point, which is this one where its event is still to come."""
            if reverse:
                return SeenPlace(at if self.phase > 0 else at - 1)
            return SeenPlace(at if self.phase < 0 else at + 1)

        return self._repeat(count, reverse, way)

    def next(self, count: int = 1, reverse: bool = False) -> Stop:
        """To the next point of the same call, over all calls that it makes; where it ends, to what comes after it."""
        return self._repeat(count, reverse, lambda at: self._next(at, reverse))

    def finish(self, frame: int = 0, reverse: bool = False) -> Stop:
        """To where the call of a frame (0: the innermost) returns to its caller; in reverse: to where it was made."""
        at = self.check(reverse)
        number = self.calls.at(at)[self.hidden + frame]
        call = self.calls[number]
        if call.caller < 0:
            raise CommandError('"finish" not meaningful in the outermost frame.')
        if reverse:
            return self._go(SeenPlace(call.first - 1), StopReason.FINISHED, True)
        stop = self._go(self._return_of(number), StopReason.FINISHED, False)
        return stop._replace(returned=number) if stop.reason is StopReason.FINISHED else stop

    def _return_of(self, number: int) -> SeenPlace:
        """Where a call returns: at the point that says so, or behind its last one."""
        call = self.calls[number]
        after = call.last + 1
        if after > self.last:
            return SeenPlace(after)
        if self.history.points[after].event == Left(call.function) and self.calls.innermost[after] == call.caller:
            return SeenPlace(after)
        return SeenPlace(call.last, self.calls.at(call.last).index(number) + 1)

    def until(self, reverse: bool = False) -> Stop:
        """As `next`, but out of the loop that it is in: to where another pass of the scheduler begins, or to what comes
        after the nodes of an allocator."""
        at = self.check(reverse)
        points = self.history.points
        loop = loop_of(points[at].event) if self.phase >= 0 else None
        target = self._next(at, reverse)
        call = self.calls[self.calls.innermost[at]]
        outer = self.calls[call.caller] if call.caller >= 0 else call
        while loop is not None and 0 <= target.at <= self.last:
            there = loop_of(points[target.at].event)
            if there not in (loop, None) or (there is None and not outer.first <= target.at <= outer.last):
                break
            target = self._next(target.at, reverse, target.phase)
        return self._go(target, StopReason.STEPPED, reverse)

    def advance(self, places: Sequence[int], reverse: bool = False, function: str = "") -> Stop:
        """To the nearest of the places, where the function is entered if it is one; no further than to where the
        current call is done."""
        at = self.check(reverse)
        here = SeenPlace(at, self.phase)
        call = self.calls[self.calls.at(at)[self.hidden]]
        points = before(places, at + 1) if reverse else after(places, at - 1)
        ways = (self.entry(function, point) for point in points)
        beyond = SeenPlace(-1 if reverse else self.last + 1)
        target = next((p for p in ways if (p < here if reverse else p > here)), beyond)
        if call.caller >= 0:
            target = max(target, SeenPlace(call.first - 1)) if reverse else min(target, SeenPlace(call.last + 1))
        return self._go(target, StopReason.LOCATION, reverse)

    def check(self, reverse: bool) -> int:
        """The point that it goes on from. Raises CommandError where there is nothing to go on with."""
        at = self.here()
        if self.over and not reverse:
            raise CommandError("The program is not being run.")
        return at

    def _repeat(self, count: int, reverse: bool, way: Callable[[int], SeenPlace]) -> Stop:
        began = self.check(reverse)
        frame = self.calls.at(began)[self.hidden]
        stop = Stop(StopReason.STEPPED, began)
        for _ in range(count):
            stop = self._go(way(stop.at), StopReason.STEPPED, reverse)
            if stop.reason is not StopReason.STEPPED:
                break
        return stop._replace(entered=self.calls.at(stop.at)[self.hidden] != frame)

    def _next(self, at: int, reverse: bool, phase: int | None = None) -> SeenPlace:
        """The nearest point that is not inside a call made by the one that `at` is in; where that has just been
        entered, the return of the call that it makes first."""
        phase = self.phase if phase is None else phase
        hidden = -phase - 1 if phase < 0 else phase
        if phase < 0 and not reverse:
            return self._return_of(self.calls.at(at)[hidden - 1]) if hidden else SeenPlace(at)
        number = self.calls.at(at)[hidden]
        target = at - 1 if reverse else at + 1
        while 0 <= target <= self.last:
            inner = self.calls.inside(self.calls.innermost[target], number)
            if inner is None:
                break
            target = self.calls[inner].first - 1 if reverse else self.calls[inner].last + 1
        return SeenPlace(target)

    def _go(self, target: SeenPlace | None, reason: StopReason, reverse: bool) -> Stop:
        """Run to `target` (None: to the end of the history), or to the first stop before it."""
        here = SeenPlace(-1 if self.at is None else self.at, self.phase)
        end = SeenPlace(0 if reverse else self.last)
        at_end = StopReason.EXITED if self.history.error is None else StopReason.ABORTED
        at_end = StopReason.START if reverse else at_end
        if here == end or (here > end and not reverse):
            return self._stop(at_end, end)
        goal = end if target is None else max(target, end) if reverse else min(target, end)
        stopped = self._stopped(here, goal, reverse)
        if stopped is not None:
            return stopped
        if target is None or target != goal or (goal == end and not reverse):
            reason = at_end
        return self._stop(reason, goal)

    def _stopped(self, here: SeenPlace, goal: SeenPlace, reverse: bool) -> Stop | None:
        """What stops it on the way from `here` to `goal`, or at it."""
        values = {one.number: self._shown(one, *here) for one in self.breakpoints.of(StopKind.WATCHPOINT)}
        for point in self._candidates(here.at, goal.at, reverse, bool(values)):
            if self._interrupted():
                return self._stop(StopReason.INTERRUPTED, SeenPlace(point))
            # The moments at which a breakpoint may stop it: where functions are entered, and what happened.
            functions = (one.function for one in self.breakpoints.enabled if one.function)
            phases = {0, *(self._phase(function, point) for function in functions)}
            for place in (SeenPlace(point, phase) for phase in sorted(phases, reverse=reverse)):
                if not (goal <= place < here if reverse else here < place <= goal):
                    continue
                hits = tuple(self._hits(place, values, point + 1 if reverse else point))
                if hits:
                    return self._stop(StopReason.BREAKPOINT, place, hits)
        return None

    def _candidates(self, at: int, goal: int, reverse: bool, watches: bool) -> Iterator[int]:
        """The points at which something may stop it, in the order in which they are come to, each once; `at` too, which
        has other moments."""
        if watches:
            yield from range(at, goal - 1, -1) if reverse else range(max(at, 0), goal + 1)
            return
        places = [one.places for one in self.breakpoints.enabled]
        seen = -1
        ways = [before(p, at + 1) if reverse else after(p, at - 1) for p in places]
        for point in merge(*ways, reverse=reverse):
            if point < goal if reverse else point > goal:
                return
            if point != seen:
                yield point
            seen = point

    def _phase(self, function: str, at: int) -> int:
        """The moment of a point at which a function is entered; 0 where that is the point itself, or is none."""
        for frame, number in enumerate(self.calls.at(at)) if function else ():
            call = self.calls[number]
            if call.first != at:
                break
            if call.function == function:
                told = frame == 0 and isinstance(self.history.points[at].event, TOLD_BEFORE)
                return 0 if told else -frame - 1
        return 0

    def _hits(self, place: SeenPlace, values: dict[int, str | None], changes: int) -> Iterator[Hit]:
        """What is hit at a moment; `changes` is the point whose event lies between it and the one before on the way."""
        for one in self.breakpoints.enabled:
            if self._phase(one.function, place.at) != place.phase:
                continue
            if one.kind is StopKind.WATCHPOINT:
                hit = self._changed(one, place.at, values, changes)
            else:
                is_there = next(after(one.places, place.at - 1), None) == place.at
                hit = self._if_true(one, place, Hit(one)) if is_there else None
            if hit is None or not (hit.error or hit.out_of_scope or self._counts(one)):
                continue
            if one.temporary or hit.out_of_scope:
                del self.breakpoints[one.number]
            yield hit

    def _changed(self, one: Breakpoint, at: int, values: dict[int, str | None], changes: int) -> Hit | None:
        if one.call is not None and one.call not in self.calls.at(at):
            return Hit(one, out_of_scope=True)
        if one.call is None and not self._reader.may_change(one.what, changes):
            return None
        old, new = values.get(one.number), self._shown(one, at)
        if new == old:
            return None
        values[one.number] = new
        return self._if_true(one, SeenPlace(at), Hit(one, old or _UNREADABLE, new or _UNREADABLE))

    def _if_true(self, one: Breakpoint, place: SeenPlace, hit: Hit) -> Hit | None:
        if not one.condition:
            return hit
        # The frame of the function that a breakpoint is at, where it is entered at the point; else the innermost.
        functions = [self.calls[number].function for number in self.calls.at(place.at)]
        frame = functions.index(one.function) if one.function in functions else 0
        try:
            return hit if self._reader.truth(one.condition, place.at, frame, place.phase) else None
        except ExpressionError as error:
            return hit._replace(error=str(error))

    @staticmethod
    def _counts(one: Breakpoint) -> bool:
        one.hits += 1
        if one.ignore:
            one.ignore -= 1
            return False
        return True

    def _shown(self, one: Breakpoint, at: int, phase: int = 0) -> str | None:
        if at < 0:
            return None
        calls = self.calls.at(at)
        frame = calls.index(one.call) if one.call in calls else len(calls) - 1
        try:
            return self._reader.shown(one.what, at, frame, phase)
        except ExpressionError:
            return None

    def entry(self, function: str, at: int) -> SeenPlace:
        """Where a function is entered at a point, or the point if there is no function."""
        return SeenPlace(at, self._phase(function, at))

    def _stop(self, reason: StopReason, place: SeenPlace, hits: tuple[Hit, ...] = ()) -> Stop:
        self.at, self.phase = place
        return Stop(reason, place.at, hits)


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
