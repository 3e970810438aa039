"""The commands about breakpoints, watchpoints and catchpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ggmltool.debugger.breakpoints import Breakpoint, Kind
from ggmltool.debugger.command import Command, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.locations import Location, complete_location, location
from ggmltool.debugger.moving import count_of
from ggmltool.debugger.stops import NAMES
from ggmltool.debugger.walk import WalkError
from ggmltool.show.text import printable

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session

_IF = re.compile(r"(?:^|\s)if(?=[\s(]|$)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 200
"""At most so many numbers of a range are looked for."""


def _break(temporary: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        where, condition = _with_condition(argument)
        place = location(session, where)
        if condition:
            _check(session, condition, place)
        for other in session.walker.breakpoints.of(Kind.BREAKPOINT):
            if other.what == place.what:
                session.say(f"Note: breakpoint {other.number} also set at {place.what}.")
        made = session.walker.breakpoints.add(
            place.what, place.places, condition=condition, temporary=temporary, function=place.function
        )
        session.say(
            f"{'Temporary breakpoint' if temporary else 'Breakpoint'} {made.number} at {printable(str(place))}."
        )

    return run


def _with_condition(argument: str) -> tuple[str, str]:
    """A location and the condition behind `if`, "" for none."""
    found = _IF.search(argument)
    if found is None:
        return argument.strip(), ""
    condition = argument[found.end() :].strip()
    if not condition:
        raise CommandError("Argument required (expression to compute).")
    return argument[: found.start()].strip(), condition


def _check(session: Session, condition: str, place: Location | Breakpoint) -> None:
    """Refuse a condition that cannot be read where it will be asked. Raises CommandError."""
    walker = session.walker
    at, phase = walker.entry(place.function, place.places[0]) if place.places else (session.seen, session.phase)
    functions = [walker.calls[number].function for number in walker.calls.at(at)]
    frame = functions.index(place.function) if place.function in functions else 0
    try:
        session.reading.truth(condition, at, frame, phase)
    except WalkError as error:
        raise CommandError(str(error)) from None


def _watch(session: Session, argument: str) -> None:
    if not argument:
        raise CommandError("Argument required (expression to compute).")
    expression, condition = _with_condition(argument)
    frame = session.selected
    at = session.seen
    call = None
    try:
        session.reading.shown(expression, at, frame, session.phase)
    except WalkError as error:
        _readable_later(session, expression, error)
    else:
        calls = session.walker.calls.at(at)
        if not _is_global(session, expression, at, len(calls) - 1):
            call = calls[frame]
    made = session.walker.breakpoints.add(expression, kind=Kind.WATCHPOINT, condition=condition)
    if call is not None:
        made.call = call
    session.say(f"Watchpoint {made.number}: {expression}")


def _is_global(session: Session, expression: str, at: int, outermost: int) -> bool:
    try:
        session.reading.shown(expression, at, outermost)
    except WalkError:
        return False
    return True


def _readable_later(session: Session, expression: str, error: WalkError) -> None:
    """What cannot be read yet may be watched if it can be read at the end of the run. Raises CommandError."""
    if session.walker.at is not None:
        raise CommandError(str(error))
    last = session.walker.last
    if not _is_global(session, expression, last, len(session.walker.calls.at(last)) - 1):
        raise CommandError(str(error))


def _catch(session: Session, argument: str) -> None:
    if argument not in ("abort", "signal SIGABRT"):
        raise CommandError("Usage: catch abort, which stops where ggml refuses to go on.")
    places = [] if session.history.error is None else [session.walker.last]
    made = session.walker.breakpoints.add("abort", places, Kind.CATCHPOINT)
    session.say(f"Catchpoint {made.number} (abort)")


def _condition(session: Session, argument: str) -> None:
    if not argument:
        raise CommandError("Argument required (breakpoint number).")
    number, _, condition = argument.partition(" ")
    one = _numbered(session, number)
    if condition.strip():
        _check(session, condition.strip(), one)
    else:
        session.say(f"Breakpoint {one.number} now unconditional.")
    one.condition = condition.strip()


def _ignore(session: Session, argument: str) -> None:
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


def _numbered(session: Session, text: str) -> Breakpoint:
    if not text.isascii() or not text.isdecimal():
        raise CommandError(f"Bad breakpoint argument: '{text}'")
    one = session.walker.breakpoints.get(int(text[:9]))
    if one is None:
        raise CommandError(f"No breakpoint number {text}.")
    return one


def _each(session: Session, argument: str) -> Iterator[Breakpoint]:
    """Those of a list like `1 3-5`, all for none. Those that are not there are told of."""
    if not argument:
        yield from session.walker.breakpoints
        return
    for number in numbers(argument):
        one = session.walker.breakpoints.get(number)
        if one is None:
            session.screen.error(f"No breakpoint number {number}.")
        else:
            yield one


def numbers(argument: str) -> Iterator[int]:
    """The numbers of a list like `1 3-5`. Raises CommandError for what is none."""
    for word in argument.split():
        found = _RANGE.fullmatch(word)
        if found is None or len(word) > 20:
            raise CommandError(f"Bad breakpoint number '{word}'")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise CommandError("inverted range")
        yield from range(first, min(last, first + _MOST) + 1)


def _delete(session: Session, argument: str) -> None:
    words = argument.split(maxsplit=1)
    if words and "breakpoints".startswith(words[0]):
        argument = words[1] if len(words) > 1 else ""
    elif words and words[0] == "display":
        from ggmltool.debugger.data import undisplay

        undisplay(session, words[1] if len(words) > 1 else "")
        return
    asked = not argument and len(session.walker.breakpoints) and session.settings.confirm
    if asked and not session.screen.ask("Delete all breakpoints? (y or n) "):
        return
    for one in list(_each(session, argument)):
        session.walker.breakpoints.delete(one.number)


def _clear(session: Session, argument: str) -> None:
    place = location(session, argument)
    gone = [
        one
        for one in session.walker.breakpoints
        if one.kind is Kind.BREAKPOINT and (one.what == place.what or (not argument and session.at in one.places))
    ]
    if not gone:
        raise CommandError(f"No breakpoint at {argument or 'this event'}.")
    session.say(f"Deleted breakpoint{'s' if len(gone) > 1 else ''} {' '.join(str(one.number) for one in gone)} ")
    for one in gone:
        session.walker.breakpoints.delete(one.number)


def _enabling(enabled: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        words = argument.split(maxsplit=1)
        if words and words[0] == "display":
            chosen = set(numbers(words[1])) if len(words) > 1 else None
            for display in session.displays:
                if chosen is None or display.number in chosen:
                    display.enabled = enabled
            return
        if words and words[0].isalpha() and "breakpoints".startswith(words[0]):
            argument = words[1] if len(words) > 1 else ""
        elif enabled and words and words[0] == "once":
            raise CommandError("Use `tbreak` for a breakpoint that stops once.")
        for one in _each(session, argument):
            one.enabled = enabled

    return run


def info_breakpoints(session: Session, argument: str, kinds: Iterable[Kind] = tuple(Kind)) -> None:
    """The table of breakpoints, as gdb prints it."""
    chosen = set(numbers(argument)) if argument else None
    shown = [
        one for one in session.walker.breakpoints if one.kind in kinds and (chosen is None or one.number in chosen)
    ]
    if not shown:
        what = "watchpoints" if kinds == (Kind.WATCHPOINT,) else "breakpoints or watchpoints"
        session.say(f"No {what}." if chosen is None else f"No breakpoint or watchpoint matching '{argument}'.")
        return
    session.say("Num     Type           Disp Enb Events  What")
    for one in shown:
        disposition = "del " if one.temporary else "keep"
        events = "" if one.kind is Kind.WATCHPOINT else str(len(one.places))
        enabled = "y" if one.enabled else "n"
        session.say(f"{one.number:<7} {one.kind.value:<14} {disposition} {enabled:<3} {events:<7} {_what(one)}")
        for line in _more(one):
            session.say(f"\t{line}")


def _what(one: Breakpoint) -> str:
    return f"in {one.function}" if one.function else printable(one.what)


def _more(one: Breakpoint) -> Iterator[str]:
    if one.condition:
        yield f"stop only if {one.condition}"
    if one.hits:
        yield f"{NAMES[one.kind].lower()} already hit {one.hits} time{'s' if one.hits != 1 else ''}"
    if one.ignore:
        yield f"ignore next {one.ignore} hits"


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

COMMANDS = [
    Command(
        "break",
        _break(False),
        Topic.BREAKPOINTS,
        "Stop at a function, a tensor, a split, a change of backend, or a place in memory.\n"
        f"Usage: break [LOCATION] [if EXPR]\n{_LOCATIONS}\nExample: break ggml_gallocr_allocate_node if buffer_id == 1",
        ("b", "br", "bre", "brea"),
        complete=complete_location,
    ),
    Command(
        "tbreak",
        _break(True),
        Topic.BREAKPOINTS,
        "Stop at a location once.\nUsage: tbreak [LOCATION] [if EXPR], as `break` takes it.\nExample: tbreak split 1",
        ("tb",),
        complete=complete_location,
    ),
    Command(
        "watch",
        _watch,
        Topic.BREAKPOINTS,
        "Stop where the value of an expression changes.\nUsage: watch EXPR [if EXPR]\n"
        "One with arguments of a function is deleted when that function returns.\nExample: watch sched->n_splits",
        complete=lambda session, prefix: session.reading.complete(prefix, session),
    ),
    Command(
        "catch",
        _catch,
        Topic.BREAKPOINTS,
        "Stop where ggml refuses to go on.\nUsage: catch abort\nExample: catch abort",
        complete=lambda session, prefix: ["abort"] if "abort".startswith(prefix) else [],
    ),
    Command(
        "condition",
        _condition,
        Topic.BREAKPOINTS,
        "Stop at a breakpoint only if an expression is true.\nUsage: condition N [EXPR]; without EXPR always.\n"
        "Example: condition 1 sched->n_splits > 2",
    ),
    Command(
        "ignore",
        _ignore,
        Topic.BREAKPOINTS,
        "Pass a breakpoint some times before it stops again.\nUsage: ignore N COUNT\nExample: ignore 1 3",
    ),
    Command(
        "delete",
        _delete,
        Topic.BREAKPOINTS,
        "Delete breakpoints by their numbers, all without one.\nUsage: delete [N...], delete display [N...]\n"
        "Example: delete 1 3-5",
        ("d", "del"),
    ),
    Command(
        "clear",
        _clear,
        Topic.BREAKPOINTS,
        "Delete the breakpoints at a location.\nUsage: clear [LOCATION]\nExample: clear split 1",
        complete=complete_location,
    ),
    Command(
        "enable",
        _enabling(True),
        Topic.BREAKPOINTS,
        "Let breakpoints stop again.\nUsage: enable [N...], enable display [N...]\nExample: enable 1",
        ("en",),
    ),
    Command(
        "disable",
        _enabling(False),
        Topic.BREAKPOINTS,
        "Keep breakpoints, but do not stop at them.\nUsage: disable [N...], disable display [N...]\nExample: disable 1",
        ("dis", "disa"),
    ),
]
