"""The commands that move: run, continue, step, next, finish, until, each also in reverse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Command, Repeat, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.locations import complete_location, location
from ggmltool.debugger.stops import frame_text, show_stop
from ggmltool.debugger.walk import Stop

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session


def count_of(session: Session, argument: str, otherwise: int = 1) -> int:
    """A number that an argument says, as an expression. Raises CommandError for none, and for what is too large."""
    if not argument:
        return otherwise
    number = session.reading.integer(argument, session)
    if abs(number) > 1 << 31:
        raise CommandError(f"Numeric constant too large: {argument}.")
    return number


def _run(session: Session, argument: str) -> None:
    if not _begin_again(session):
        return
    session.say(f"Starting program: {session.title}{' ' + argument if argument else ''}")
    show_stop(session, session.walker.run())


def _begin_again(session: Session) -> bool:
    """Whether to begin; asked where it is on its way."""
    if session.walker.at is None or session.walker.over:
        return True
    asked = "The program being debugged has been started already.\nStart it from the beginning? (y or n) "
    if session.settings.confirm and not session.screen.ask(asked):
        session.say("Program not restarted.")
        return False
    return True


def _start(session: Session, _: str) -> None:
    if _begin_again(session):
        session.say(f"Starting program: {session.title}\n")
        show_stop(session, session.walker.start())


def _goto(session: Session, argument: str) -> None:
    if not argument:
        raise CommandError("Argument required (the number of an event).")
    show_stop(session, session.walker.goto(count_of(session, argument)))


def _continue(reverse: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        crossings = count_of(session, argument)
        session.walker.check(reverse)
        if crossings > 1:
            _ignore_next(session, crossings - 1)
        session.say("Continuing.")
        show_stop(session, session.walker.continue_(reverse))

    return run


def _ignore_next(session: Session, crossings: int) -> None:
    """`continue N`: the breakpoint that it stands at is to be passed N-1 times."""
    at = session.at
    here = next((one for one in session.walker.breakpoints if at in one.places), None)
    if here is None:
        raise CommandError("Not stopped at any breakpoint; argument ignored.")
    here.ignore = crossings
    session.say(f"Will ignore next {crossings} crossings of breakpoint {here.number}.")


def _stepping(way: Callable[[Session, int, bool], Stop], reverse: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        show_stop(session, way(session, max(count_of(session, argument), 1), reverse))

    return run


def _finish(reverse: bool) -> Callable[[Session, str], None]:
    def run(session: Session, _: str) -> None:
        session.walker.here()
        frames = session.frames()
        if session.frame == len(frames) - 1:
            raise CommandError('"finish" not meaningful in the outermost frame.')
        way = "back to call of" if reverse else "till exit from"
        way = f"Run {way} "
        session.say(way + frame_text(session, session.frame, before=len(way)))
        show_stop(session, session.walker.finish(session.frame, reverse))

    return run


def _until(reverse: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        if argument:
            place = location(session, argument)
            show_stop(session, session.walker.advance(place.places, reverse, function=place.function))
        else:
            show_stop(session, session.walker.until(reverse))

    return run


def _advance(session: Session, argument: str) -> None:
    if not argument:
        raise CommandError("Argument required (a location).")
    place = location(session, argument)
    show_stop(session, session.walker.advance(place.places, function=place.function))


def _step(session: Session, count: int, reverse: bool) -> Stop:
    return session.walker.step(count, reverse)


def _next(session: Session, count: int, reverse: bool) -> Stop:
    return session.walker.next(count, reverse)


_COUNT = "With N, N times, or until it stops for another reason."
_STEP = "Go on to the next event, into the functions that are called."
_NEXT = "Go on to the next event of the same call, over the functions that it calls."
_FINISH = "Go on until the call of the selected frame is done."
_UNTIL = "Go on as `next` does, but out of the loop: to the next pass of the scheduler, or past the last node."
_CONTINUE = "Go on until something stops it, or to the end."


def _both(
    name: str,
    make: Callable[[bool], Callable[[Session, str], None]],
    help: tuple[str, str],
    usage: str,
    aliases: Sequence[str],
    reverse_aliases: Sequence[str],
) -> list[Command]:
    """A command and its reverse."""
    forward, back = help
    run = [Command(name, make(False), Topic.RUNNING, f"{forward}\n{usage}", aliases, Repeat.YES)]
    reverse = f"reverse-{name}"
    return [*run, Command(reverse, make(True), Topic.RUNNING, f"{back}\n{usage}", reverse_aliases, Repeat.YES)]


COMMANDS = [
    Command(
        "run",
        _run,
        Topic.RUNNING,
        "Do the scenario's steps from the beginning, until something stops it.\nExample: break result, then run",
        ("r",),
    ),
    Command("start", _start, Topic.RUNNING, "Begin the run, and stop at the first event.\nExample: start"),
    Command(
        "goto",
        _goto,
        Topic.RUNNING,
        "Go to an event by its number, forward or back.\nUsage: goto N\nExample: goto 24",
        complete=None,
    ),
    *_both(
        "continue",
        _continue,
        (_CONTINUE, "Go back until something stops it, or to the first event."),
        "Usage: continue [N]; with N, the breakpoint that it stands at is passed N-1 times.",
        ("c", "fg"),
        ("rc",),
    ),
    *_both(
        "step",
        lambda reverse: _stepping(_step, reverse),
        (_STEP, "Go back to the event before, into the functions that were called."),
        f"Usage: step [N]\n{_COUNT}",
        ("s",),
        ("rs",),
    ),
    *_both(
        "next",
        lambda reverse: _stepping(_next, reverse),
        (_NEXT, "Go back to the event before in the same call, over the functions that it called."),
        f"Usage: next [N]\n{_COUNT}",
        ("n",),
        ("rn",),
    ),
    *_both(
        "finish",
        _finish,
        (_FINISH, "Go back to where the call of the selected frame was made."),
        "Usage: finish",
        ("fin",),
        (),
    ),
    *_both(
        "until",
        _until,
        (_UNTIL, "Go back as `reverse-next` does, but out of the loop."),
        "Usage: until [LOCATION]; with a location (`help break`), to it, or to where the current call is done.",
        ("u",),
        (),
    ),
    Command(
        "advance",
        _advance,
        Topic.RUNNING,
        "Go on to a location (`help break`), or to where the current call is done.\nExample: advance split 2",
        complete=complete_location,
    ),
]
