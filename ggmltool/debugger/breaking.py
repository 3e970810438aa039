"""The commands about breakpoints, watchpoints and catchpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ggmltool.debugger.breakpoints import Breakpoint, StopKind
from ggmltool.debugger.command import Commands, Topic
from ggmltool.debugger.data import complete_expression, undisplay
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.locations import Location, complete_location, location
from ggmltool.debugger.stack import NAMES, count_of
from ggmltool.show.text import printable
from ggmltool.structs.declarations import ExpressionError

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession, Display

COMMANDS = Commands()
_IF = re.compile(r"(?:^|\s)if(?=[\s(]|$)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 200
"""At most so many numbers of a range are looked for."""

_LOCATIONS = """\
Without a location it is the event that it stopped at. A location is one of these:
  FUNCTION               where a function of ggml is called
  TENSOR                 every event about a tensor
  split [N]              where a split begins, and where it is computed
  backend [TENSOR]       where a tensor gets another backend than it had; without a tensor, where any does, and where
                         a split on another backend begins
  offset BUFFER OFF [C]  where the memory there (in chunk C) is given, taken over or freed
  N                      event number N
A tensor that is called like a function is `tensor NAME`."""


@COMMANDS.add(Topic.BREAKPOINTS, "b", "br", "bre", "brea", complete=complete_location, locations=_LOCATIONS)
def break_(session: DebugSession, argument: str) -> None:
    """Stop at a function, a tensor, a split, a change of backend, or a place in memory.
    Usage: break [LOCATION] [if EXPR]
    {locations}
    Example: break ggml_gallocr_allocate_node if buffer_id == 1"""
    _set_breakpoint(session, argument, False)


@COMMANDS.add(Topic.BREAKPOINTS, "tb", complete=complete_location)
def tbreak(session: DebugSession, argument: str) -> None:
    """Stop at a location once.
    Usage: tbreak [LOCATION] [if EXPR], as `break` takes it.
    Example: tbreak split 1"""
    _set_breakpoint(session, argument, True)


def _set_breakpoint(session: DebugSession, argument: str, temporary: bool) -> None:
    where, condition = _with_condition(argument)
    place = location(session, where)
    if condition:
        _check(session, condition, place)
    for other in session.walker.breakpoints.of(StopKind.BREAKPOINT):
        if other.what == place.what:
            session.say(f"Note: breakpoint {other.number} also set at {place.what}.")
    made = session.walker.breakpoints.add(
        place.what, place.places, condition=condition, temporary=temporary, function=place.function
    )
    name = "Temporary breakpoint" if temporary else "Breakpoint"
    session.say(f"{name} {made.number} at {printable(str(place))}.")


def _with_condition(argument: str) -> tuple[str, str]:
    found = _IF.search(argument)
    if found is None:
        return argument.strip(), ""
    condition = argument[found.end() :].strip()
    if not condition:
        raise CommandError("Argument required (expression to compute).")
    return argument[: found.start()].strip(), condition


def _check(session: DebugSession, condition: str, place: Location | Breakpoint) -> None:
    """Refuse a condition that cannot be read where it will be asked. Raises ExpressionError."""
    walker = session.walker
    at, phase = walker.entry(place.function, place.places[0]) if place.places else (session.seen, session.phase)
    functions = [walker.calls[number].function for number in walker.calls.at(at)]
    frame = functions.index(place.function) if place.function in functions else 0
    session.reading.truth(condition, at, frame, phase)


@COMMANDS.add(Topic.BREAKPOINTS, complete=complete_expression)
def watch(session: DebugSession, argument: str) -> None:
    """Stop where the value of an expression changes.
    Usage: watch EXPR [if EXPR]
    One with arguments of a function is deleted when that function returns.
    Example: watch sched->n_splits"""
    if not argument:
        raise CommandError("Argument required (expression to compute).")
    expression, condition = _with_condition(argument)
    call = None
    try:
        session.reading.shown(expression, session.seen, session.selected, session.phase)
    except ExpressionError:
        # What cannot be read yet may be watched if it can be read at the end of the run.
        if session.walker.at is not None or not _is_global(session, expression, session.walker.last):
            raise
    else:
        if not _is_global(session, expression, session.seen):
            call = session.walker.calls.at(session.seen)[session.selected]
    made = session.walker.breakpoints.add(expression, kind=StopKind.WATCHPOINT, condition=condition)
    made.call = call
    session.say(f"Watchpoint {made.number}: {expression}")


def _is_global(session: DebugSession, expression: str, at: int) -> bool:
    try:
        session.reading.shown(expression, at, len(session.walker.calls.at(at)) - 1)
    except ExpressionError:
        return False
    return True


def _abort(session: DebugSession, prefix: str) -> Iterable[str]:
    return ["abort"] if "abort".startswith(prefix) else []


@COMMANDS.add(Topic.BREAKPOINTS, complete=_abort)
def catch(session: DebugSession, argument: str) -> None:
    """Stop where ggml refuses to go on.
    Usage: catch abort
    Example: catch abort"""
    if argument not in ("abort", "signal SIGABRT"):
        raise CommandError("Usage: catch abort, which stops where ggml refuses to go on.")
    places = [] if session.history.error is None else [session.walker.last]
    made = session.walker.breakpoints.add("abort", places, StopKind.CATCHPOINT)
    session.say(f"Catchpoint {made.number} (abort)")


@COMMANDS.add(Topic.BREAKPOINTS)
def condition(session: DebugSession, argument: str) -> None:
    """Stop at a breakpoint only if an expression is true.
    Usage: condition N [EXPR]; without EXPR always.
    Example: condition 1 sched->n_splits > 2"""
    if not argument:
        raise CommandError("Argument required (breakpoint number).")
    number, _, said = argument.partition(" ")
    one = _numbered(session, number)
    if said.strip():
        _check(session, said.strip(), one)
    else:
        session.say(f"Breakpoint {one.number} now unconditional.")
    one.condition = said.strip()


@COMMANDS.add(Topic.BREAKPOINTS)
def ignore(session: DebugSession, argument: str) -> None:
    """Pass a breakpoint some times before it stops again.
    Usage: ignore N COUNT
    Example: ignore 1 3"""
    number, _, times = argument.partition(" ")
    if not number:
        raise CommandError("Argument required (a breakpoint number).")
    one = _numbered(session, number)
    if not times.strip():
        raise CommandError("Second argument (specified ignore-count) is missing.")
    one.ignore = max(count_of(session, times.strip()), 0)
    crossings = "crossing" if one.ignore == 1 else f"{one.ignore} crossings"
    if one.ignore:
        session.say(f"Will ignore next {crossings} of breakpoint {one.number}.")
    else:
        session.say(f"Will stop next time breakpoint {one.number} is reached.")


def _numbered(session: DebugSession, text: str) -> Breakpoint:
    if not text.isascii() or not text.isdecimal():
        raise CommandError(f"Bad breakpoint argument: '{text}'")
    one = session.walker.breakpoints.get(int(text[:9]))
    if one is None:
        raise CommandError(f"No breakpoint number {text}.")
    return one


def _each(session: DebugSession, argument: str) -> Iterator[Breakpoint]:
    """Those of a list like `1 3-5`, all for none. Those that are not there are told of."""
    if not argument:
        yield from session.walker.breakpoints.values()
        return
    for number in _numbers(argument):
        one = session.walker.breakpoints.get(number)
        if one is None:
            session.screen.error(f"No breakpoint number {number}.")
        else:
            yield one


def _numbers(argument: str) -> Iterator[int]:
    """The numbers of a list like `1 3-5`. Raises CommandError for what is none."""
    for word in argument.split():
        found = _RANGE.fullmatch(word)
        if found is None or len(word) > 20:
            raise CommandError(f"Bad breakpoint number '{word}'")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise CommandError("inverted range")
        yield from range(first, min(last, first + _MOST) + 1)


@COMMANDS.add(Topic.BREAKPOINTS, "d", "del")
def delete(session: DebugSession, argument: str) -> None:
    """Delete breakpoints by their numbers, all without one.
    Usage: delete [N...], delete display [N...]
    Example: delete 1 3-5"""
    of_displays, argument = _subject(argument)
    if of_displays:
        undisplay(session, argument)
        return
    asked = not argument and len(session.walker.breakpoints) and session.settings.confirm
    if asked and not session.screen.ask("Delete all breakpoints? (y or n) "):
        return
    for one in list(_each(session, argument)):
        session.walker.breakpoints.pop(one.number, None)


@COMMANDS.add(Topic.BREAKPOINTS, complete=complete_location)
def clear(session: DebugSession, argument: str) -> None:
    """Delete the breakpoints at a location.
    Usage: clear [LOCATION]
    Example: clear split 1"""
    place = location(session, argument)
    all_here = [one for one in session.walker.breakpoints.values() if one.kind is StopKind.BREAKPOINT]
    gone = [one for one in all_here if one.what == place.what or (not argument and session.at in one.places)]
    if not gone:
        raise CommandError(f"No breakpoint at {argument or 'this event'}.")
    session.say(f"Deleted breakpoint{'s' if len(gone) > 1 else ''} {' '.join(str(one.number) for one in gone)} ")
    for one in gone:
        session.walker.breakpoints.pop(one.number, None)


@COMMANDS.add(Topic.BREAKPOINTS, "en")
def enable(session: DebugSession, argument: str) -> None:
    """Let breakpoints stop again.
    Usage: enable [N...], enable display [N...]
    Example: enable 1"""
    if argument.split()[:1] == ["once"]:
        raise CommandError("Use `tbreak` for a breakpoint that stops once.")
    _enable(session, argument, True)


@COMMANDS.add(Topic.BREAKPOINTS, "dis", "disa")
def disable(session: DebugSession, argument: str) -> None:
    """Keep breakpoints, but do not stop at them.
    Usage: disable [N...], disable display [N...]
    Example: disable 1"""
    _enable(session, argument, False)


def _enable(session: DebugSession, argument: str, enabled: bool) -> None:
    of_displays, argument = _subject(argument)
    if of_displays:
        chosen = set(_numbers(argument))
        some: Iterable[Breakpoint | Display] = (d for d in session.displays if not argument or d.number in chosen)
    else:
        some = _each(session, argument)
    for one in some:
        one.enabled = enabled


def _subject(argument: str) -> tuple[bool, str]:
    """Whether displays are meant, not breakpoints, and which of them."""
    word, _, rest = argument.partition(" ")
    is_said = word == "display" or (word and "breakpoints".startswith(word))
    return word == "display", rest.strip() if is_said else argument


def info_breakpoints(session: DebugSession, argument: str, kinds: Iterable[StopKind] = tuple(StopKind)) -> None:
    """Breakpoints, watchpoints and catchpoints."""
    chosen = set(_numbers(argument)) if argument else None
    table = [one for one in session.walker.breakpoints.values() if one.kind in kinds]
    shown = [one for one in table if chosen is None or one.number in chosen]
    if not shown:
        what = "watchpoints" if kinds == (StopKind.WATCHPOINT,) else "breakpoints or watchpoints"
        session.say(f"No {what}." if chosen is None else f"No breakpoint or watchpoint matching '{argument}'.")
        return
    session.say("Num     Type           Disp Enb Events  What")
    for one in shown:
        disposition = "del " if one.temporary else "keep"
        events = "" if one.kind is StopKind.WATCHPOINT else str(len(one.places))
        enabled = "y" if one.enabled else "n"
        what = f"in {one.function}" if one.function else printable(one.what)
        session.say(f"{one.number:<7} {one.kind.value:<14} {disposition} {enabled:<3} {events:<7} {what}")
        if one.condition:
            session.say(f"\tstop only if {one.condition}")
        if one.hits:
            session.say(f"\t{NAMES[one.kind].lower()} already hit {one.hits} time{'s' if one.hits != 1 else ''}")
        if one.ignore:
            session.say(f"\tignore next {one.ignore} hits")


def info_watchpoints(session: DebugSession, argument: str) -> None:
    """Watchpoints."""
    info_breakpoints(session, argument, (StopKind.WATCHPOINT,))
