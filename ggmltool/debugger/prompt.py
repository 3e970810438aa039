"""The prompt: reads commands from a terminal, scripts and options, and does them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from ggmltool.debugger import breaking, data, info, moving, settings, stack
from ggmltool.debugger.command import Commands, DebuggerCommand, Repeat, Topic, find
from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions.commands import complete
from ggmltool.debugger.session import DebugSession
from ggmltool.debugger.terminal import Quit, Terminal, line_editing, remember
from ggmltool.inspect.opened import Opened
from ggmltool.structs.declarations import ExpressionError

COMMANDS = Commands(
    [*moving.COMMANDS, *breaking.COMMANDS, *stack.COMMANDS, *data.COMMANDS, *info.COMMANDS, *settings.COMMANDS]
)


def _names(session: DebugSession, prefix: str) -> list[str]:
    return [command.name for command in COMMANDS if command.name.startswith(prefix)]


@COMMANDS.add(Topic.SUPPORT, "h", complete=_names)
def help_(session: DebugSession, argument: str) -> None:
    """Show the commands, or one of them.
    Example: help break"""
    word, _, rest = argument.partition(" ")
    if not word:
        session.say("List of commands, by what they are for:\n")
        for topic in Topic:
            session.say(f"{topic.value}:")
            names = [f"  {c.name:<18}{c.summary}" for c in COMMANDS if c.topic is topic]
            session.say("\n".join(names) + "\n")
        session.say('Type "help" followed by a command name for its forms and an example.')
        session.say("Command name abbreviations are allowed if unambiguous.")
        return
    command = find(word, COMMANDS)
    if command.name == "info" and rest.strip():
        session.say(find(rest.strip(), info.SUBCOMMANDS, "info ").help)
        return
    session.say(", ".join((command.name, *command.aliases)))
    session.say(command.help)


@COMMANDS.add(Topic.SUPPORT, "q", "exit")
def quit_(session: DebugSession, _: str) -> None:
    """Leave the debugger.
    Usage: quit"""
    session.left = True


def parsed(line: str) -> tuple[str, str]:
    """The word of a command and its argument; what follows a slash belongs to the argument."""
    line = line.strip()
    end = next((i for i, c in enumerate(line) if not (c.isalnum() or c in "-_")), len(line))
    return line[:end], line[end:].strip()


def repeated(line: str) -> str:
    """What an empty line after this one does: "" for nothing."""
    word, argument = parsed(line)
    command = find(word, COMMANDS)
    if command.repeat is Repeat.GO_ON:
        return f"{command.name} -" if argument == "-" else command.name
    return line if command.repeat is Repeat.YES else ""


PROMPT = "(ggml) "
_DEEPEST = 16
_LARGEST = 1 << 20
"""Bytes of a script that are read."""
_LONGEST = 4096
"""Characters of a line that are read."""

WRONG = (CommandError, ExpressionError)


class PromptCommand(NamedTuple):
    """A command of the command line, or (`script`) the name of a file of them."""

    text: str
    script: bool = False


class Prompt:
    """The commands of a session, typed or read. `echo` prints each that is read, behind the prompt."""

    def __init__(self, session: DebugSession, terminal: Terminal, echo: bool = False) -> None:
        self.session = session
        self.terminal = terminal
        self.echo = echo
        self._last = ""
        self._depth = 0
        self._answered_at: int | None = None
        source = "Read commands from a file, up to one that fails.\nUsage: source FILE\nExample: source session.ggdb"
        tui = "The same on a whole screen, with a map of the memory; `q` there comes back.\nUsage: tui"
        self.commands = [
            *COMMANDS,
            DebuggerCommand("source", lambda _, file: self.source(file), Topic.SUPPORT, source),
            DebuggerCommand("tui", lambda *_: self._screen(), Topic.SUPPORT, tui),
        ]

    def do(self, line: str) -> None:
        """Do one line. Raises CommandError or ExpressionError for what cannot be done."""
        if not line.strip() or line.lstrip().startswith("#"):
            return
        if len(line) > _LONGEST:
            raise CommandError(f"The line has {len(line)} characters; at most {_LONGEST} are read.")
        word, argument = parsed(line)
        if not word:
            raise CommandError(f'Undefined command: "{line.strip()}".  Try "help".')
        command = find(word, self.commands)
        self.terminal.begin(self.session.settings.height if self.session.settings.pagination else 0)
        with self.terminal.stoppable():
            command.run(self.session, argument)

    def tried(self, line: str) -> bool:
        """Do one line and print what goes wrong; whether nothing did."""
        try:
            self.do(line)
        except WRONG as error:
            self.terminal.error(str(error))
            return False
        except Quit:
            self.terminal.error("Quit")
        return True

    def said(self, line: str) -> str:
        """What a line prints, where something else than the terminal shows it."""
        with redirect_stdout(StringIO()) as out, redirect_stderr(out):
            self.tried(line)
        return out.getvalue()

    def _screen(self) -> None:
        if not self.terminal.interactive:
            raise CommandError("Cannot enable the TUI when output is not a terminal")
        if find_spec("textual") is None:
            raise CommandError("The TUI needs Textual: pip install 'ggmltool[tui]'")
        self.show(Opened(self.session.history.scenario, self.session.title), colored=bool(self.session.style.colors))

    def show(self, opened: Opened, dark: bool = True, colored: bool = True) -> None:
        """Walk on a whole screen, where commands are taken too."""
        from ggmltool.debugger.screen.app import show

        asked, self.terminal.interactive = self.terminal.interactive, False
        try:
            show(opened, self.session.walker, self.answer, dark, colored, lambda: self.session.left)
        finally:
            self.terminal.interactive = asked
            self.session.frame = 0

    def answer(self, line: str, width: int) -> str:
        """What a line prints in so many columns, from the innermost frame if the walker was moved."""
        session = self.session
        if self._answered_at != session.walker.at:
            session.frame = 0
        before, session.settings.width = session.settings.width, width
        try:
            return self.said(line)
        finally:
            session.settings.width = before
            self._answered_at = session.walker.at

    def source(self, file: str) -> None:
        """Do the lines of a file. Raises CommandError for a file that cannot be read, and for a line that fails."""
        if not file:
            raise CommandError("source command requires file name of file to source.")
        if self._depth >= _DEEPEST:
            raise CommandError("source: the files are nested too deep.")
        self._depth += 1
        try:
            for number, line in enumerate(_lines(file), 1):
                self._read(line)
                try:
                    self.do(line)
                except WRONG as error:
                    raise CommandError(f"{file}:{number}: Error in sourced command file:\n{error}") from None
                if self.session.left:
                    return
        finally:
            self._depth -= 1

    def _read(self, line: str) -> None:
        if self.echo and line.strip():
            self.terminal.write(f"{PROMPT}{line}\n")
        elif self.session.settings.trace_commands and line.strip():
            self.terminal.write(f"+{line}\n")

    def given(self, commands: Iterable[PromptCommand]) -> bool:
        """Do the commands of the command line; whether none failed. One that fails ends its script only."""
        fine = True
        for text, script in commands:
            if not self.session.left:
                fine &= self.tried(f"source {text}") if script else self.read([text])
        return fine

    def read(self, lines: Iterable[str]) -> bool:
        """Do lines that come from elsewhere than a terminal; whether none failed."""
        fine = True
        for line in lines:
            self._read(line.rstrip("\n"))
            fine &= self.tried(line)
            if self.session.left:
                break
        return fine

    def talk(self) -> None:
        """Ask for lines until the user leaves."""
        with line_editing(self.complete):
            while not self.session.left:
                try:
                    line = input(PROMPT)
                except EOFError:
                    self.terminal.write("quit\n")
                    return
                except KeyboardInterrupt:
                    self.terminal.write("Quit\n")
                    continue
                remember(line)
                line = line if line.strip() else self._last
                try:
                    self.tried(line)
                except KeyboardInterrupt:
                    self.terminal.error("Quit")
                try:
                    self._last = repeated(line) if line.strip() else ""
                except CommandError:
                    self._last = ""

    def complete(self, line: str, begin: int) -> Sequence[str]:
        """The words that could stand in a line from column `begin` to its end."""
        text, before = line[begin:], line[:begin].strip()
        if not before and "/" not in text:
            names = [name for command in self.commands for name in (command.name, *command.aliases)]
            return _ended(sorted(name for name in dict.fromkeys(names) if name.startswith(text)))
        word, argument = parsed(line)
        command = find(word, self.commands)
        if command.complete is None:
            return []
        inside = argument[: len(argument) - len(text)] if text else argument
        if command.name in ("break", "tbreak") and " if " in f" {inside} ":
            return complete(text, self.session.scope)
        return _ended(list(command.complete(self.session, text)))


def _ended(words: Sequence[str]) -> Sequence[str]:
    """The words, and behind the only one a blank: the next word may follow."""
    return [f"{words[0]} "] if len(words) == 1 and words[0][-1:].isalnum() else words


def _lines(file: str) -> list[str]:
    path = Path(file).expanduser()
    try:
        if path.is_file() and path.stat().st_size > _LARGEST:
            raise CommandError(f"{file}: too large for a script.")
        with path.open("rb") as stream:
            return stream.read(_LARGEST).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}.") from None
