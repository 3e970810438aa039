"""The commands that evaluate expressions: print, ptype, x, display."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Commands, Repeat, Topic, split_format
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.commands import complete, type_text
from ggmltool.debugger.expressions.evaluate import evaluate
from ggmltool.debugger.session import Display
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import layout_names

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession

COMMANDS = Commands()
_LETTERS = "xduotacfszbhwgir"
_FORMATS = "FMT is a letter: x hexadecimal, d decimal, u unsigned, o octal, t binary, a address, c character, f float."


def _examined(argument: str) -> tuple[str, str]:
    """A format and an expression. Raises CommandError for letters that are none."""
    fmt, expression = split_format(argument)
    for letter in fmt:
        if letter not in _LETTERS and not letter.isdecimal() and letter != "-":
            raise CommandError(f'Undefined output format "{letter}".')
    return fmt, expression


def _printed(argument: str, command: str) -> tuple[str, str]:
    """The same. Raises CommandError for what only `x` has."""
    fmt, expression = _examined(argument)
    if any(letter.isdecimal() for letter in fmt):
        raise CommandError(f'Item count other than 1 is meaningless in "{command}" command.')
    if any(letter in "bhwg" for letter in fmt):
        raise CommandError(f'Size letters are meaningless in "{command}" command.')
    return fmt, expression


def complete_expression(session: DebugSession, prefix: str) -> Iterable[str]:
    """What an expression that begins so can go on as."""
    return complete(prefix, session.scope)


@COMMANDS.add(Topic.DATA, "p", "inspect", complete=complete_expression, formats=_FORMATS)
def print_(session: DebugSession, argument: str) -> None:
    """Print the value of an expression in C, and keep it as $1, $2 and so on.
    Usage: print[/FMT] [EXPR]; without EXPR the last value.
    {formats}
    A tensor is a pointer called as it is (quoted, where its name is no word of C).
    Example: print *galloc->buf_tallocs[0]"""
    fmt, expression = _printed(argument, "print")
    session.say(session.reading.printed(expression or "$", fmt, session.scope, session.columns))


@COMMANDS.add(Topic.DATA, "ca")
def call(session: DebugSession, argument: str) -> None:
    """Print the value of an expression, as `print` does.
    Example: call 1 + 1"""
    if not argument:
        raise CommandError("The history is empty." if not session.reading.values else "Argument required.")
    print_(session, argument)


@COMMANDS.add(Topic.DATA, complete=complete_expression)
def output(session: DebugSession, argument: str) -> None:
    """Print the value of an expression and nothing else.
    Example: output sched->n_splits"""
    fmt, expression = _printed(argument, "output")
    if not expression:
        raise CommandError("Argument required (expression to compute).")
    session.screen.write(session.value(expression, fmt))


@COMMANDS.add(Topic.DATA, "pt", complete=complete_expression)
def ptype(session: DebugSession, argument: str) -> None:
    """Show the type of an expression, structs with their fields.
    Usage: ptype EXPR or ptype struct NAME
    Example: ptype struct ggml_tensor"""
    session.say(type_text(argument or "$", session.scope))


@COMMANDS.add(Topic.DATA, complete=complete_expression)
def whatis(session: DebugSession, argument: str) -> None:
    """Show the name of the type of an expression.
    Example: whatis sched->splits"""
    session.say(f"type = {evaluate(argument or '$', session.scope).type_name()}")


def _structs(session: DebugSession, prefix: str) -> Iterable[str]:
    return [name for name in layout_names() if name.startswith(prefix)]


@COMMANDS.add(Topic.DATA, complete=_structs, names=fill(", ".join(layout_names()), 100))
def symbol_file(session: DebugSession, argument: str) -> None:
    """Show structs as another ggml has them, of the same state: fields that it lacks are gone, others are zero.
    Functions that the ggml which decides lacks are <not known here>.
    Usage: symbol-file [NAME]; without NAME those of the ggml that decides. The names:
    {names}
    Example: symbol-file 2025-01"""
    session.reading.use_structs(argument.strip())


@COMMANDS.add(Topic.DATA, repeat=Repeat.GO_ON, complete=complete_expression, formats=_FORMATS)
def x(session: DebugSession, argument: str) -> None:
    """Examine memory: the state of ggml, and the values of tensors.
    Usage: x[/NFU] ADDRESS: N units of size U (b, h, w, g: 1, 2, 4, 8 bytes), in format F.
    {formats}
    A tensor stands for the address of its data. An empty line goes on behind it.
    Example: x/8fw result"""
    fmt, expression = _examined(argument)
    session.say(session.reading.examined(expression, fmt, session.scope))


@COMMANDS.add(Topic.DATA, complete=complete_expression)
def display(session: DebugSession, argument: str) -> None:
    """Print an expression now and at every stop.
    Usage: display[/FMT] [EXPR]
    Example: display sched->n_splits"""
    if not argument:
        for one in session.displays:
            if one.enabled:
                show_display(session, one)
        return
    fmt, expression = _examined(argument)
    if not expression:
        raise CommandError("Argument required (expression to compute).")
    session.displays_made += 1
    made = Display(session.displays_made, fmt, expression)
    show_display(session, made)
    session.displays.append(made)


def show_display(session: DebugSession, display: Display, quietly: bool = False) -> None:
    """An expression that is displayed with its value, in memory where its format counts. With `quietly`, what cannot be
    read here is left out. Raises ExpressionError without."""
    fmt = f"/{display.format}" if display.format else ""
    try:
        if any(letter.isdecimal() or letter in "si" for letter in display.format):
            text = session.reading.examined(display.expression, display.format, session.scope)
            session.say(f"{display.number}: x{fmt} {display.expression}\n{text}")
        else:
            value = session.value(display.expression, display.format)
            session.say(f"{display.number}: {fmt}{' ' if fmt else ''}{display.expression} = {value}")
    except ExpressionError:
        if not quietly:
            raise


def info_display(session: DebugSession, _: str) -> None:
    """The expressions that are displayed at every stop."""
    if not session.displays:
        session.say("There are no auto-display expressions now.")
        return
    session.say("Auto-display expressions now in effect:\nNum Enb Expression")
    for one in session.displays:
        fmt = f"/{one.format} " if one.format else ""
        session.say(f"{one.number}:   {'y' if one.enabled else 'n'}  {fmt}{one.expression}")


@COMMANDS.add(Topic.DATA)
def undisplay(session: DebugSession, argument: str) -> None:
    """Print an expression at stops no more.
    Usage: undisplay [N...]
    Example: undisplay 1"""
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


@COMMANDS.add(Topic.SUPPORT)
def echo(session: DebugSession, argument: str) -> None:
    r"""Print a text.
    Example: echo before the split\n"""
    session.screen.write(argument.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\"))
