"""From an exception to a message and an exit status: the one place where errors are printed.

0 fine · 1 ggml would have failed · 2 wrong use, a bad file · 3 a mistake in ggmltool itself · 130 interrupted
"""

from __future__ import annotations

import io
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click

from ggmltool.cli.command import Settings

PROG_NAME = "ggmltool"
COMPLETE_VAR = "_GGMLTOOL_COMPLETE"

_EXCERPT = re.compile(r" *\d* \| ")
"""How a line of a file begins that a message shows."""
_USUAL = 80
"""Columns of a terminal that does not say."""
_LONGEST = 2000
"""Characters that a line of a message may have."""

FINE, GGML_FAILED, WRONG_USE, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 130


class CliError(click.ClickException):
    """A message for the user of a command, with the exit status of wrong use; the message names the remedy."""

    def __init__(self, message: str, status: int = WRONG_USE) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def wrong_use() -> Iterator[None]:
    """What contradicts itself is wrong use of the command."""
    from ggmltool.state.errors import WrongUse

    try:
        yield
    except WrongUse as error:
        raise click.UsageError(error.message) from None


@contextmanager
def value_of(option: str) -> Iterator[None]:
    """A wrong value of this option is wrong use."""
    from ggmltool.state.errors import InspectError

    try:
        yield
    except InspectError as error:
        raise click.BadParameter(error.message, param_hint=f"'{option}'") from None


def run_and_report(command: click.Command, args: Sequence[str] | None) -> int:
    """Run `command`; print what goes wrong on standard error; the exit status."""
    settings = Settings()
    _reopen_streams()
    status = _reported(command, sys.argv[1:] if args is None else list(args), settings)
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would be tried again at exit, which has a status of its own for that.
        sys.stdout = _to_nowhere(sys.stdout)
        if not isinstance(error, BrokenPipeError) and status == FINE:
            say(f"Error: {cannot_write(error)}")
            return WRONG_USE
    return status


def cannot_write(error: OSError, name: str = "output") -> str:
    """What is wrong with standard output, or standard error."""
    slow = "it does not wait (O_NONBLOCK), and its reader is slower than the output; the rest is lost"
    what = slow if isinstance(error, BlockingIOError) else error.strerror or str(error)
    return f"cannot write to standard {name}: {what}"


def _reported(command: click.Command, args: list[str], settings: Settings) -> int:
    try:
        return _run(command, args, settings)
    except BrokenPipeError:
        sys.stdout = _to_nowhere(sys.stdout)
        return FINE
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    except Exception as error:
        if settings.traceback:
            import traceback

            say(_short(traceback.format_exc()).removesuffix("\n"))
        message, status = describe(error)
        say(_short(message))
        return status


def _run(command: click.Command, args: list[str], settings: Settings) -> int:
    """What click.Command.main does, without its own ways to print errors and to leave."""
    complete = os.environ.get(COMPLETE_VAR)
    if complete:
        from click.shell_completion import shell_complete

        return shell_complete(command, {"obj": settings}, PROG_NAME, COMPLETE_VAR, complete)
    try:
        with command.make_context(PROG_NAME, args, obj=settings) as ctx:
            status = command.invoke(ctx)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    return status if isinstance(status, int) else FINE


def say(message: str) -> None:
    """Print on standard error, without what would steer a terminal; on a terminal in lines of its width. Where standard
    error cannot be written, nothing more is said there.
    """
    from ggmltool.show.text import harmless

    text = harmless(message)
    try:
        click.echo(in_lines(text, _columns()) if sys.stderr.isatty() else text, err=True)
    except OSError:
        sys.stderr = _to_nowhere(sys.stderr)


def _columns() -> int:
    """The columns of the terminal that standard error is, which standard output need not be."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL
    except (OSError, ValueError):
        return _USUAL


def in_lines(text: str, width: int) -> str:
    """Lines wrapped at spaces, further in where they go on; a line of a file with its caret stays as it is."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    if len(line) <= width or _EXCERPT.match(line):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(), max(width, 20), initial_indent=indent, subsequent_indent=f"{indent}  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _short(message: str) -> str:
    """The message with no line of a whole file's length."""
    return "\n".join(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…" for line in message.split("\n"))


def _reopen_streams() -> None:
    """Where the shell closed standard output or standard error (`>&-`), write to nowhere instead; read nothing."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        # Without a buffer (PYTHONUNBUFFERED) Python takes a short write for a whole one.
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        whole = io.BufferedWriter(sys.stdout.detach())
        # The size of the terminal is asked of sys.__stdout__.
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(whole, encoding, errors, line_buffering=True)  # type: ignore[misc]


def describe(error: Exception) -> tuple[str, int]:
    """What to print for an exception, and the exit status it means."""
    if isinstance(error, click.UsageError):
        return _usage(error), WRONG_USE
    if isinstance(error, click.ClickException):
        status = error.status if isinstance(error, CliError) else WRONG_USE
        return f"Error: {error.format_message()}", status

    from ggmltool.ggml.errors import GgmlError
    from ggmltool.scenario.errors import ScenarioError
    from ggmltool.show.text import ggml_error, scenario_error
    from ggmltool.state.errors import InspectError, StepRefused

    if isinstance(error, ScenarioError):
        place = (error.place.line, error.place.column) if error.place else None
        return scenario_error(error.source, place, error.message, error.expected, error.line_text), WRONG_USE
    if isinstance(error, InspectError):
        message = error.lead + ggml_error(error.error) if isinstance(error, StepRefused) else error.message
        return f"Error: {message}", GGML_FAILED if error.refused else WRONG_USE
    if isinstance(error, GgmlError):
        return ggml_error(error.as_dict(), error.where), GGML_FAILED
    if isinstance(error, BlockingIOError):
        return f"Error: {cannot_write(error)}", WRONG_USE
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename is not None else ""
        return f"Error: {name}{error.strerror or error}", WRONG_USE
    if isinstance(error, MemoryError):
        return "Error: out of memory", WRONG_USE
    return (
        f"Error: internal error: {type(error).__name__}: {error}\nThis is a bug in ggmltool. Please report it with "
        "the output of the same command and --traceback."
    ), INTERNAL


def _usage(error: click.UsageError) -> str:
    lines = []
    if error.ctx is not None:
        lines.append(error.ctx.get_usage())
        lines.append(f"Try '{error.ctx.command_path} --help' for help.")
        lines.append("")
    return "\n".join([*lines, f"Error: {error.format_message()}{_nearest(error)}{_from_the_environment(error)}"])


def _nearest(error: click.UsageError) -> str:
    """Which of an option's values is near the one that it does not have; click lists them all."""
    param = getattr(error, "param", None)
    wrong = re.match(r"'(.*)' is not one of ", error.message)
    if wrong is None or param is None or not isinstance(param.type, click.Choice):
        return ""
    return suggestion(wrong[1], map(str, param.type.choices))


def suggestion(name: str, valid: Iterable[str]) -> str:
    """A sentence that names the nearest of `valid`, with a leading space; empty if nothing is near."""
    from ggmltool.scenario.errors import nearest

    near = nearest(name, valid)
    return f" Did you mean {near!r}?" if near is not None else ""


def _from_the_environment(error: click.UsageError) -> str:
    """Which variable holds the wrong value of an option that does not stand on the line."""
    ctx, param = error.ctx, getattr(error, "param", None)
    if ctx is None or not isinstance(param, click.Option) or param.name is None:
        return ""
    if ctx.get_parameter_source(param.name) is not click.core.ParameterSource.ENVIRONMENT:
        return ""
    return f" It comes from {variable_of(param, ctx)} in the environment."


def variable_of(param: click.Option, ctx: click.Context) -> str:
    """The variable in the environment that click reads for an option, "" if none."""
    if param.envvar:
        return param.envvar if isinstance(param.envvar, str) else param.envvar[0]
    return f"{ctx.auto_envvar_prefix}_{(param.name or '').upper()}" if ctx.auto_envvar_prefix else ""


def _to_nowhere(stream: TextIO) -> TextIO:
    """Redirect a stream that can no longer be written to the null device; buffered and later output is dropped."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return stream
    except (OSError, ValueError):
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
