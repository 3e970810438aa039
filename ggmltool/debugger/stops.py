"""What is printed where it stops: the reason, the frame, and the line of the point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ggmltool.debugger.breakpoints import Kind
from ggmltool.debugger.lines import line_of, step_name
from ggmltool.debugger.walk import Hit, Reason, Stop
from ggmltool.show.text import ggml_error, printable
from ggmltool.state.story.arguments import Argument, Pointer

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session

NAMES = {Kind.BREAKPOINT: "Breakpoint", Kind.WATCHPOINT: "Watchpoint", Kind.CATCHPOINT: "Catchpoint"}
_TYPE = re.compile(r"^\((?:[\w ]+\**|[\w ]+\(\*\).*?)\) (?=0x)")


def show_stop(session: Session, stop: Stop) -> None:
    """All that a stop prints, and what is displayed there."""
    session.frame = 0
    session.listing = None
    if stop.reason is Reason.EXITED:
        session.say(f"[Inferior 1 ({session.title}) exited normally]")
        return
    if stop.reason is Reason.START:
        session.say("\nNo more reverse-execution history.")
    elif stop.reason is Reason.INTERRUPTED:
        session.say("\nProgram received signal SIGINT, Interrupt.")
    elif stop.reason is Reason.ABORTED and not stop.hits:
        session.say(ggml_error(session.history.error or {}))
        session.say("\nProgram received signal SIGABRT, Aborted.")
    before = _hits(session, stop.hits)
    if stop.entered or before:
        session.say(before + frame_text(session, 0, numbered=False, before=len(before)))
    session.say(source_text(session, 0))
    if stop.returned is not None:
        _show_returned(session)
    show_displays(session)


def _hits(session: Session, hits: tuple[Hit, ...]) -> str:
    """Say what was hit; what stands before the frame."""
    for hit in hits:
        one = hit.breakpoint
        if hit.out_of_scope:
            session.say(f"\nWatchpoint {one.number} deleted because the program has left the block in")
            session.say("which its expression is valid.")
        elif one.kind is Kind.WATCHPOINT:
            session.say(f"\nWatchpoint {one.number}: {one.what}")
            session.say(f"\nOld value = {hit.old}\nNew value = {hit.new}")
        if hit.error:
            session.say(f"Error in testing condition for breakpoint {one.number}:\n{hit.error}")
    named = [
        ("Temporary breakpoint" if h.breakpoint.temporary else NAMES[h.breakpoint.kind], h.breakpoint)
        for h in hits
        if h.breakpoint.kind is not Kind.WATCHPOINT
    ]
    if any(one.kind is Kind.CATCHPOINT for _, one in named) and session.walker.over:
        session.say(ggml_error(session.history.error or {}))
    if not named:
        return ""
    session.say("")
    return "".join(f"{name} {one.number}, " for name, one in named)


def _show_returned(session: Session) -> None:
    """What the function that is finished has returned, if it returns anything."""
    if (value := session.reading.returned(session)) is not None:
        session.say(f"Value returned is {value}")


def show_displays(session: Session) -> None:
    """Each expression that is displayed, as far as it can be read here."""
    from ggmltool.debugger.data import show_display

    for display in session.displays:
        if display.enabled:
            show_display(session, display, quietly=True)


def frame_text(session: Session, number: int, numbered: bool = True, before: int = 0) -> str:
    """A frame: its number, its function with the arguments, and the event that it is at. `before` columns of its first
    line are taken."""
    calls = session.frames()
    call = session.walker.calls[calls[number]]
    head = f"#{number:<2} " if numbered else ""
    arguments = [f"{name}={value}" for name, value in arguments_of(session, number)]
    *first, last = [f"{argument}, " for argument in arguments[:-1]] + [f"{arguments[-1] if arguments else ''}) "]
    pieces = [f"{head}{call.function} (", *first, last, f"at {_where(session, number)}"]
    return _wrapped([printable(piece) for piece in pieces], before, session.style.width)


def _wrapped(pieces: Sequence[str], taken: int, width: int) -> str:
    """Pieces in lines of at most `width` columns, as far as a piece has room, of which `taken` are gone already."""
    lines = [pieces[0]]
    for piece in pieces[1:]:
        if cell_len(lines[-1] + piece.rstrip()) + (taken if len(lines) == 1 else 0) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("    ")
        lines[-1] += piece
    return "\n".join(lines)


def _where(session: Session, number: int) -> str:
    at = point_of(session, number)
    if number == len(session.frames()) - 1:
        return f"{session.title}, {step_name(session.history, session.history.points[at].step)}"
    return f"event {at}"


def point_of(session: Session, number: int) -> int:
    """The event that a frame is at: where it called the next one."""
    if number == 0:
        return session.at
    return session.walker.calls[session.frames()[number - 1]].first


def source_text(session: Session, number: int) -> str:
    """The line of the event that a frame is at, behind its number."""
    at = point_of(session, number)
    return f"{at}\t{moment_line(session, at)}"


def moment_line(session: Session, at: int) -> str:
    """The line of an event, or that a function has been entered in which it is to come about."""
    if at <= session.walker.told:
        return line_of(session.history, at)
    return f"{session.walker.calls[session.frames()[0]].function}() is entered"


def arguments_of(session: Session, number: int) -> list[tuple[str, str]]:
    """The arguments of a frame as gdb prints them there: pointers without their types."""
    number += session.walker.hidden
    values = dict(session.reading.arguments(session.at, number, session.phase))
    told = session.history.stack(session.at, session.phase < 0)[number].arguments
    return [(name, _TYPE.sub("", values[name]) + _named(session, value)) for name, value in told]


def _named(session: Session, value: Argument) -> str:
    """What an argument points to, as people call it."""
    if not isinstance(value, Pointer) or value.kind not in ("tensor", "backend", "graph"):
        return ""
    if value.kind == "backend" and isinstance(value.index, int):
        return f" <{session.history.backends[value.index].name}>"
    name = session.names.tensor(value.index) if isinstance(value.index, int) else value.index
    return f" <{name}>"
