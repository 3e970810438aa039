"""The commands that evaluate expressions: print, ptype, x, display."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import fill
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Command, Repeat, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.session import Display
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import layout_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ggmltool.debugger.session import Session

_FORMAT = re.compile(r"/(\S*)\s*")
_LETTERS = "xduotacfszbhwgir"
_NUMBERS = re.compile(r"\d{1,9}")


def _formatted(argument: str) -> tuple[str, str]:
    """The format behind a slash and the expression. Raises CommandError for letters that are none."""
    found = _FORMAT.match(argument)
    if found is None:
        return "", argument.strip()
    for letter in found[1]:
        if letter not in _LETTERS and not letter.isdecimal() and letter != "-":
            raise CommandError(f'Undefined output format "{letter}".')
    return found[1], argument[found.end() :].strip()


def _print_format(argument: str, command: str) -> tuple[str, str]:
    fmt, expression = _formatted(argument)
    if any(letter.isdecimal() for letter in fmt):
        raise CommandError(f'Item count other than 1 is meaningless in "{command}" command.')
    if any(letter in "bhwg" for letter in fmt):
        raise CommandError(f'Size letters are meaningless in "{command}" command.')
    return fmt, expression


def _print(session: Session, argument: str) -> None:
    fmt, expression = _print_format(argument, "print")
    session.say(session.reading.printed(expression or "$", fmt, session))


def _call(session: Session, argument: str) -> None:
    if not argument:
        raise CommandError("The history is empty." if not session.reading.values else "Argument required.")
    _print(session, argument)


def _output(session: Session, argument: str) -> None:
    fmt, expression = _print_format(argument, "output")
    if not expression:
        raise CommandError("Argument required (expression to compute).")
    session.screen.write(session.reading.formatted(expression, fmt, session))


def _ptype(whole: bool) -> Callable[[Session, str], None]:
    def run(session: Session, argument: str) -> None:
        session.say(session.reading.type_of(argument or "$", session, whole))

    return run


def _examine(session: Session, argument: str) -> None:
    fmt, expression = _formatted(argument)
    session.say(session.reading.examined(expression, fmt, session))


def _display(session: Session, argument: str) -> None:
    if not argument:
        for display in session.displays:
            if display.enabled:
                show_display(session, display)
        return
    fmt, expression = _formatted(argument)
    if not expression:
        raise CommandError("Argument required (expression to compute).")
    session.displays_made += 1
    made = Display(session.displays_made, fmt, expression)
    show_display(session, made)
    session.displays.append(made)


def show_display(session: Session, display: Display, quietly: bool = False) -> None:
    """An expression that is displayed with its value, in memory where its format counts. With `quietly`, what cannot be
    read here is left out. Raises ExpressionError without."""
    fmt = f"/{display.format}" if display.format else ""
    try:
        if any(letter.isdecimal() or letter in "si" for letter in display.format):
            text = session.reading.examined(display.expression, display.format, session)
            session.say(f"{display.number}: x{fmt} {display.expression}\n{text}")
        else:
            value = session.reading.formatted(display.expression, display.format, session)
            session.say(f"{display.number}: {fmt}{' ' if fmt else ''}{display.expression} = {value}")
    except ExpressionError:
        if not quietly:
            raise


def info_display(session: Session, _: str) -> None:
    """The table of displays, as gdb prints it."""
    if not session.displays:
        session.say("There are no auto-display expressions now.")
        return
    session.say("Auto-display expressions now in effect:\nNum Enb Expression")
    for one in session.displays:
        fmt = f"/{one.format} " if one.format else ""
        session.say(f"{one.number}:   {'y' if one.enabled else 'n'}  {fmt}{one.expression}")


def undisplay(session: Session, argument: str) -> None:
    """Delete displays by their numbers; all without one. Raises CommandError for a number that is none."""
    if not argument:
        asked = "Delete all auto-display expressions? (y or n) "
        if session.displays and session.settings.confirm and not session.screen.ask(asked):
            return
        session.displays.clear()
        return
    for word in argument.split():
        found = [one for one in session.displays if str(one.number) == word]
        if not found:
            raise CommandError(f"Arguments must be display numbers; there is none of {word}.")
        session.displays.remove(found[0])


def _echo(session: Session, argument: str) -> None:
    text = argument.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")
    session.screen.write(text)


def _symbol_file(session: Session, argument: str) -> None:
    session.reading.use_structs(argument.strip())


def _structs(session: Session, prefix: str) -> Iterable[str]:
    return [name for name in layout_names() if name.startswith(prefix)]


def _complete(session: Session, prefix: str) -> Iterable[str]:
    return session.reading.complete(prefix, session)


_FORMATS = "FMT is a letter: x hexadecimal, d decimal, u unsigned, o octal, t binary, a address, c character, f float."

COMMANDS = [
    Command(
        "print",
        _print,
        Topic.DATA,
        "Print the value of an expression in C, and keep it as $1, $2 and so on.\n"
        f"Usage: print[/FMT] [EXPR]; without EXPR the last value.\n{_FORMATS}\n"
        "A tensor is a pointer called as it is (quoted, where its name is no word of C).\n"
        "Example: print *galloc->buf_tallocs[0]",
        ("p", "inspect"),
        complete=_complete,
    ),
    Command(
        "call", _call, Topic.DATA, "Print the value of an expression, as `print` does.\nExample: call 1 + 1", ("ca",)
    ),
    Command(
        "output",
        _output,
        Topic.DATA,
        "Print the value of an expression and nothing else.\nExample: output sched->n_splits",
        complete=_complete,
    ),
    Command(
        "ptype",
        _ptype(True),
        Topic.DATA,
        "Show the type of an expression, structs with their fields.\nUsage: ptype EXPR or ptype struct NAME\n"
        "Example: ptype struct ggml_tensor",
        ("pt",),
        complete=_complete,
    ),
    Command(
        "whatis",
        _ptype(False),
        Topic.DATA,
        "Show the name of the type of an expression.\nExample: whatis sched->splits",
        complete=_complete,
    ),
    Command(
        "symbol-file",
        _symbol_file,
        Topic.DATA,
        "Show structs as another ggml has them, of the same state: fields that it lacks are gone, others are zero.\n"
        "Functions that the ggml which decides lacks are <not known here>.\n"
        "Usage: symbol-file [NAME]; without NAME those of the ggml that decides. The names:\n"
        f"{fill(', '.join(layout_names()), 100)}\n"
        "Example: symbol-file 2025-01",
        complete=_structs,
    ),
    Command(
        "x",
        _examine,
        Topic.DATA,
        "Examine memory: the state of ggml, and the values of tensors.\n"
        f"Usage: x[/NFU] ADDRESS: N units of size U (b, h, w, g: 1, 2, 4, 8 bytes), in format F.\n{_FORMATS}\n"
        "A tensor stands for the address of its data. An empty line goes on behind it.\nExample: x/8fw result",
        repeat=Repeat.GO_ON,
        complete=_complete,
    ),
    Command(
        "display",
        _display,
        Topic.DATA,
        "Print an expression now and at every stop.\nUsage: display[/FMT] [EXPR]\nExample: display sched->n_splits",
        complete=_complete,
    ),
    Command(
        "undisplay",
        undisplay,
        Topic.DATA,
        "Print an expression at stops no more.\nUsage: undisplay [N...]\nExample: undisplay 1",
    ),
    Command("echo", _echo, Topic.SUPPORT, "Print a text.\nExample: echo before the split\\n"),
]
