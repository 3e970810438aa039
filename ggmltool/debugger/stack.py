"""The commands about the call stack: bt, frame, up, down, and what `info` says of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Command, Repeat, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.moving import count_of
from ggmltool.debugger.stops import arguments_of, frame_text, point_of, source_text

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session


def _backtrace(session: Session, argument: str) -> None:
    words = argument.split()
    full = bool(words) and words[0] in ("full", "-full")
    words = words[1:] if full else words
    total = len(session.frames())
    shown = range(total)
    if words:
        most = count_of(session, " ".join(words))
        shown = range(min(most, total)) if most >= 0 else range(max(total + most, 0), total)
    for number in shown:
        session.say(frame_text(session, number))
        if full:
            _locals(session, number, "        ")
    if shown and shown[-1] < total - 1:
        session.say("(More stack frames follow...)")


def _locals(session: Session, number: int, indent: str) -> None:
    """The local variables of a frame."""
    found = session.reading.locals(session.at, session.walker.hidden + number, session.phase)
    for name, value in found:
        session.say(f"{indent}{name} = {value}")
    if not found:
        session.say(f"{indent}No locals.")


def show_frame(session: Session) -> None:
    """The selected frame, and the line of the event that it is at."""
    session.say(frame_text(session, session.frame))
    session.say(source_text(session, session.frame))


def _frame(session: Session, argument: str) -> None:
    words = argument.split()
    if words[:1] == ["function"] and len(words) == 2:
        names = [session.walker.calls[number].function for number in session.frames()]
        if words[1] not in names:
            raise CommandError(f'No frame for function "{words[1]}".')
        level = names.index(words[1])
    else:
        level = count_of(session, " ".join(words[1:] if words[:1] == ["level"] else words), session.frame)
    if not 0 <= level < len(session.frames()):
        raise CommandError(f"No frame at level {level}.")
    session.frame = level
    session.listing = None
    show_frame(session)


def _moving(direction: int) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        by = count_of(session, argument) * direction
        outermost = len(session.frames()) - 1
        if by > 0 and session.frame == outermost:
            raise CommandError("Initial frame selected; you can't go up.")
        if by < 0 and session.frame == 0:
            raise CommandError("Bottom (innermost) frame selected; you can't go down.")
        session.frame = min(max(session.frame + by, 0), outermost)
        session.listing = None
        show_frame(session)

    return run


def info_frame(session: Session, _: str) -> None:
    """Where the selected frame begins and ends, and who called it."""
    calls = session.frames()
    call = session.walker.calls[calls[session.frame]]
    session.say(f"Stack level {session.frame}, frame of {call.function}, at event {point_of(session, session.frame)}:")
    if session.frame + 1 < len(calls):
        session.say(f" called by {session.walker.calls[calls[session.frame + 1]].function}")
    if session.frame:
        session.say(f" caller of {session.walker.calls[calls[session.frame - 1]].function}")
    session.say(f" from event {call.first} to event {call.last}")
    arguments = ", ".join(f"{name}={value}" for name, value in arguments_of(session, session.frame))
    if arguments:
        session.say(f" Args: {arguments}")


def info_args(session: Session, _: str) -> None:
    """The arguments of the selected frame."""
    found = arguments_of(session, _checked(session))
    for name, value in found:
        session.say(f"{name} = {value}")
    if not found:
        session.say("No arguments.")


def info_locals(session: Session, _: str) -> None:
    """The local variables of the selected frame."""
    _locals(session, _checked(session), "")


def _checked(session: Session) -> int:
    if session.walker.at is None or session.walker.exited:
        raise CommandError("No frame selected.")
    return session.frame


COMMANDS = [
    Command(
        "backtrace",
        _backtrace,
        Topic.STACK,
        "Show the calls of ggml's functions that it is inside of.\n"
        "Usage: backtrace [full] [N]; the innermost N of them, the outermost for -N, with local variables for full.\n"
        "Example: bt 2",
        ("bt", "where"),
        Repeat.YES,
    ),
    Command(
        "frame",
        _frame,
        Topic.STACK,
        "Select a frame by its number, and show it.\nUsage: frame [N], frame function NAME\nExample: frame 1",
        ("f",),
        Repeat.YES,
    ),
    Command(
        "up",
        _moving(1),
        Topic.STACK,
        "Select the frame that called this one.\nUsage: up [N]\nExample: up",
        repeat=Repeat.YES,
    ),
    Command(
        "down",
        _moving(-1),
        Topic.STACK,
        "Select the frame that this one called.\nUsage: down [N]\nExample: down",
        ("dow",),
        Repeat.YES,
    ),
]
