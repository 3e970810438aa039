"""The call stack: bt, frame, up, down, what `info` says of a frame, and what is printed where it stops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ggmltool.debugger.breakpoints import StopKind
from ggmltool.debugger.command import Commands, Repeat, Topic
from ggmltool.debugger.data import show_display
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.lines import line_of, step_name
from ggmltool.debugger.walk import Hit, Stop, StopReason
from ggmltool.show.text import ggml_error, printable
from ggmltool.state.story.arguments import Argument, ArgumentPointer

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession

COMMANDS = Commands()
NAMES = {StopKind.BREAKPOINT: "Breakpoint", StopKind.WATCHPOINT: "Watchpoint", StopKind.CATCHPOINT: "Catchpoint"}
_TYPE = re.compile(r"^\((?:[\w ]+\**|[\w ]+\(\*\).*?)\) (?=0x)")


def count_of(session: DebugSession, argument: str, otherwise: int = 1) -> int:
    """A number that an argument says, as an expression. Raises CommandError for none, and for what is too large."""
    if not argument:
        return otherwise
    number = evaluate(argument, session.scope).integer()
    if abs(number) > 1 << 31:
        raise CommandError(f"Numeric constant too large: {argument}.")
    return number


def show_stop(session: DebugSession, stop: Stop) -> None:
    """All that a stop prints, and what is displayed there."""
    session.frame = 0
    session.listing = None
    if stop.reason is StopReason.EXITED:
        session.say(f"[Inferior 1 ({session.title}) exited normally]")
        return
    if stop.reason is StopReason.START:
        session.say("\nNo more reverse-execution history.")
    elif stop.reason is StopReason.INTERRUPTED:
        session.say("\nProgram received signal SIGINT, Interrupt.")
    elif stop.reason is StopReason.ABORTED and not stop.hits:
        session.say(ggml_error(session.history.error or {}))
        session.say("\nProgram received signal SIGABRT, Aborted.")
    before = _hits(session, stop.hits)
    if stop.entered or before:
        session.say(before + frame_text(session, 0, numbered=False, before=len(before)))
    session.say(_source_text(session, 0))
    if stop.returned is not None and (value := session.reading.returned(session.scope, session.columns)) is not None:
        session.say(f"Value returned is {value}")
    for display in session.displays:
        if display.enabled:
            show_display(session, display, quietly=True)


def _hits(session: DebugSession, hits: tuple[Hit, ...]) -> str:
    """Say what was hit; what stands before the frame."""
    for hit in hits:
        one = hit.breakpoint
        if hit.out_of_scope:
            session.say(f"\nWatchpoint {one.number} deleted because the program has left the block in")
            session.say("which its expression is valid.")
        elif one.kind is StopKind.WATCHPOINT:
            session.say(f"\nWatchpoint {one.number}: {one.what}")
            session.say(f"\nOld value = {hit.old}\nNew value = {hit.new}")
        if hit.error:
            session.say(f"Error in testing condition for breakpoint {one.number}:\n{hit.error}")
    named = [hit.breakpoint for hit in hits if hit.breakpoint.kind is not StopKind.WATCHPOINT]
    if any(one.kind is StopKind.CATCHPOINT for one in named) and session.walker.over:
        session.say(ggml_error(session.history.error or {}))
    if not named:
        return ""
    session.say("")
    return "".join(f"{'Temporary breakpoint' if one.temporary else NAMES[one.kind]} {one.number}, " for one in named)


def frame_text(session: DebugSession, number: int, numbered: bool = True, before: int = 0) -> str:
    """A frame: its number, its function with the arguments, and the event that it is at. `before` columns of its first
    line are taken."""
    call = session.walker.calls[session.frames()[number]]
    at = point_of(session, number)
    where = f"event {at}"
    if number == len(session.frames()) - 1:
        where = f"{session.title}, {step_name(session.history, session.history.points[at].step)}"
    head = f"#{number:<2} " if numbered else ""
    arguments = [f"{name}={value}" for name, value in arguments_of(session, number)]
    *first, last = [f"{argument}, " for argument in arguments[:-1]] + [f"{arguments[-1] if arguments else ''}) "]
    pieces = [f"{head}{call.function} (", *first, last, f"at {where}"]
    return _wrapped([printable(piece) for piece in pieces], before, session.style.width)


def _wrapped(pieces: Sequence[str], taken: int, width: int) -> str:
    """Pieces in lines of at most `width` columns, unless a piece is longer; of the first `taken` are gone already."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if cell_len(lines[-1] + piece.rstrip()) + (taken if len(lines) == 1 else 0) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += piece
    return "\n".join(lines)


def point_of(session: DebugSession, number: int) -> int:
    """The event that a frame is at: where it called the next one."""
    return session.at if number == 0 else session.walker.calls[session.frames()[number - 1]].first


def _source_text(session: DebugSession, number: int) -> str:
    at = point_of(session, number)
    return f"{at}\t{moment_line(session, at)}"


def moment_line(session: DebugSession, at: int) -> str:
    """The line of an event, or that a function has been entered in which it is to come about."""
    if at <= session.walker.told:
        return line_of(session.history, at)
    return f"{session.walker.calls[session.frames()[0]].function}() is entered"


def arguments_of(session: DebugSession, number: int) -> list[tuple[str, str]]:
    """The arguments of a frame as gdb prints them there: pointers without their types."""
    number += session.walker.hidden
    values = dict(session.reading.arguments(session.at, number, session.phase))
    told = session.history.stack(session.at, session.phase < 0)[number].arguments
    return [(name, _TYPE.sub("", values[name]) + _named(session, value)) for name, value in told]


def _named(session: DebugSession, value: Argument) -> str:
    if not isinstance(value, ArgumentPointer) or value.kind not in ("tensor", "backend", "graph"):
        return ""
    if value.kind == "backend" and isinstance(value.index, int):
        return f" <{session.history.backends[value.index].name}>"
    return f" <{session.names.tensor(value.index) if isinstance(value.index, int) else value.index}>"


@COMMANDS.add(Topic.STACK, "bt", "where", repeat=Repeat.YES)
def backtrace(session: DebugSession, argument: str) -> None:
    """Show the calls of ggml's functions that it is inside of.
    Usage: backtrace [full] [N]; the innermost N of them, the outermost for -N, with local variables for full.
    Example: bt 2"""
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


def _locals(session: DebugSession, number: int, indent: str) -> None:
    found = session.reading.locals(session.at, session.walker.hidden + number, session.phase)
    for name, value in found:
        session.say(f"{indent}{name} = {value}")
    if not found:
        session.say(f"{indent}No locals.")


def _select(session: DebugSession, number: int) -> None:
    session.frame = number
    session.listing = None
    session.say(frame_text(session, number))
    session.say(_source_text(session, number))


@COMMANDS.add(Topic.STACK, "f", repeat=Repeat.YES)
def frame(session: DebugSession, argument: str) -> None:
    """Select a frame by its number, and show it.
    Usage: frame [N], frame function NAME
    Example: frame 1"""
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
    _select(session, level)


@COMMANDS.add(Topic.STACK, repeat=Repeat.YES)
def up(session: DebugSession, argument: str) -> None:
    """Select the frame that called this one.
    Usage: up [N]
    Example: up"""
    _move(session, count_of(session, argument))


@COMMANDS.add(Topic.STACK, "dow", repeat=Repeat.YES)
def down(session: DebugSession, argument: str) -> None:
    """Select the frame that this one called.
    Usage: down [N]
    Example: down"""
    _move(session, -count_of(session, argument))


def _move(session: DebugSession, by: int) -> None:
    outermost = len(session.frames()) - 1
    if by > 0 and session.frame == outermost:
        raise CommandError("Initial frame selected; you can't go up.")
    if by < 0 and session.frame == 0:
        raise CommandError("Bottom (innermost) frame selected; you can't go down.")
    _select(session, min(max(session.frame + by, 0), outermost))


def info_frame(session: DebugSession, _: str) -> None:
    """The selected frame: who called it, from which event to which."""
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


def info_args(session: DebugSession, _: str) -> None:
    """The arguments of the selected frame."""
    found = arguments_of(session, _selected(session))
    for name, value in found:
        session.say(f"{name} = {value}")
    if not found:
        session.say("No arguments.")


def info_locals(session: DebugSession, _: str) -> None:
    """The local variables of the selected frame."""
    _locals(session, _selected(session), "")


def _selected(session: DebugSession) -> int:
    if session.walker.at is None or session.walker.exited:
        raise CommandError("No frame selected.")
    return session.frame
