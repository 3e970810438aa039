"""The commands that move: run, continue, step, next, finish, until, each also in reverse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.debugger.command import Commands, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.locations import complete_location, location
from ggmltool.debugger.stack import count_of, frame_text, show_stop

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession

COMMANDS = Commands()


def _begins_again(session: DebugSession) -> bool:
    """Whether to begin; asked where it is on its way."""
    if session.walker.at is None or session.walker.over:
        return True
    asked = "The program being debugged has been started already.\nStart it from the beginning? (y or n) "
    if session.settings.confirm and not session.screen.ask(asked):
        session.say("Program not restarted.")
        return False
    return True


@COMMANDS.add(Topic.RUNNING, "r")
def run(session: DebugSession, argument: str) -> None:
    """Do the scenario's steps from the beginning, until something stops it.
    Example: break result, then run"""
    if _begins_again(session):
        session.say(f"Starting program: {session.title}{' ' + argument if argument else ''}")
        show_stop(session, session.walker.run())


@COMMANDS.add(Topic.RUNNING)
def start(session: DebugSession, _: str) -> None:
    """Begin the run, and stop at the first event.
    Example: start"""
    if _begins_again(session):
        session.say(f"Starting program: {session.title}\n")
        show_stop(session, session.walker.start())


@COMMANDS.add(Topic.RUNNING)
def goto(session: DebugSession, argument: str) -> None:
    """Go to an event by its number, forward or back.
    Usage: goto N
    Example: goto 24"""
    if not argument:
        raise CommandError("Argument required (the number of an event).")
    show_stop(session, session.walker.goto(count_of(session, argument)))


@COMMANDS.both("Go back until something stops it, or to the first event.", ("c", "fg"), ("rc",))
def continue_(session: DebugSession, argument: str, reverse: bool) -> None:
    """Go on until something stops it, or to the end.
    Usage: continue [N]; with N, the breakpoint that it stands at is passed N-1 times."""
    crossings = count_of(session, argument) - 1
    session.walker.check(reverse)
    if crossings > 0:
        here = next((one for one in session.walker.breakpoints.values() if session.at in one.places), None)
        if here is None:
            raise CommandError("Not stopped at any breakpoint; argument ignored.")
        here.ignore = crossings
        session.say(f"Will ignore next {crossings} crossings of breakpoint {here.number}.")
    session.say("Continuing.")
    show_stop(session, session.walker.continue_(reverse))


@COMMANDS.both("Go back to the event before, into the functions that were called.", ("s",), ("rs",))
def step(session: DebugSession, argument: str, reverse: bool) -> None:
    """Go on to the next event, into the functions that are called.
    Usage: step [N]
    With N, N times, or until it stops for another reason."""
    show_stop(session, session.walker.step(max(count_of(session, argument), 1), reverse))


@COMMANDS.both("Go back to the event before in the same call, over the functions that it called.", ("n",), ("rn",))
def next_(session: DebugSession, argument: str, reverse: bool) -> None:
    """Go on to the next event of the same call, over the functions that it calls.
    Usage: next [N]
    With N, N times, or until it stops for another reason."""
    show_stop(session, session.walker.next(max(count_of(session, argument), 1), reverse))


@COMMANDS.both("Go back to where the call of the selected frame was made.", ("fin",))
def finish(session: DebugSession, _: str, reverse: bool) -> None:
    """Go on until the call of the selected frame is done.
    Usage: finish"""
    session.walker.here()
    if session.frame == len(session.frames()) - 1:
        raise CommandError('"finish" not meaningful in the outermost frame.')
    way = f"Run {'back to call of' if reverse else 'till exit from'} "
    session.say(way + frame_text(session, session.frame, before=len(way)))
    show_stop(session, session.walker.finish(session.frame, reverse))


@COMMANDS.both("Go back as `reverse-next` does, but out of the loop.", ("u",))
def until(session: DebugSession, argument: str, reverse: bool) -> None:
    """Go on as `next` does, but out of the loop: to the next pass of the scheduler, or past the last node.
    Usage: until [LOCATION]; with a location (`help break`), to it, or to where the current call is done."""
    if argument:
        _advance(session, argument, reverse)
    else:
        show_stop(session, session.walker.until(reverse))


@COMMANDS.add(Topic.RUNNING, complete=complete_location)
def advance(session: DebugSession, argument: str) -> None:
    """Go on to a location (`help break`), or to where the current call is done.
    Example: advance split 2"""
    if not argument:
        raise CommandError("Argument required (a location).")
    _advance(session, argument, False)


def _advance(session: DebugSession, argument: str, reverse: bool) -> None:
    place = location(session, argument)
    show_stop(session, session.walker.advance(place.places, reverse, function=place.function))
