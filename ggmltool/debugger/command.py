"""What a command of the prompt is, and how a line finds it: by its name, an alias, or so much of it as is unique."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import cleandoc
from typing import TYPE_CHECKING

from ggmltool.debugger.errors import CommandError
from ggmltool.scenario.errors import nearest

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession


def hint(name: str, valid: Iterable[str]) -> str:
    """The nearest valid name, behind what is said of one that is none; "" where none is near."""
    near = nearest(name, valid)
    return f' Did you mean "{near}"?' if near else ""


_FORMAT = re.compile(r"/(\S*)\s*")
Run = Callable[["DebugSession", str], None]
Completer = Callable[["DebugSession", str], Iterable[str]]


class Repeat(Enum):
    """What an empty line after a command does: nothing, the same again, or the command alone, which goes on."""

    NO = "no"
    YES = "yes"
    GO_ON = "go on"


class Topic(Enum):
    """The classes of commands, as `help` lists them."""

    RUNNING = "Running the scenario, forward and back"
    BREAKPOINTS = "Making it stop at certain points"
    STACK = "Examining the stack"
    DATA = "Examining the state"
    STATUS = "Status inquiries"
    SUPPORT = "Support facilities"


@dataclass(frozen=True, slots=True)
class DebuggerCommand:
    """A command. `help` begins with a sentence that says what it does; below it stand its forms and an example."""

    name: str
    run: Run
    topic: Topic
    help: str
    aliases: Sequence[str] = ()
    repeat: Repeat = Repeat.NO
    complete: Completer | None = None

    @property
    def summary(self) -> str:
        """The first sentence of its help."""
        return self.help.partition("\n")[0]


class Commands(list[DebuggerCommand]):
    """The commands of a module: functions by their names, whose docstrings are the help, with these words put in."""

    def add(
        self, topic: Topic, *aliases: str, repeat: Repeat = Repeat.NO, complete: Completer | None = None, **words: str
    ) -> Callable[[Run], Run]:
        """Make a command of a function."""

        def made(run: Run) -> Run:
            self.append(DebuggerCommand(_name(run), run, topic, _help(run).format(**words), aliases, repeat, complete))
            return run

        return made

    def both(
        self, back: str, aliases: Sequence[str] = (), back_aliases: Sequence[str] = ()
    ) -> Callable[[Callable[[DebugSession, str, bool], None]], None]:
        """Make a command of a function, and another that does it in reverse: what `back` says."""

        def made(run: Callable[[DebugSession, str, bool], None]) -> None:
            name, (forward, _, forms) = _name(run), _help(run).partition("\n")
            for prefix, said, others in (("", forward, aliases), ("reverse-", back, back_aliases)):
                way = _way(run, bool(prefix))
                self.append(DebuggerCommand(prefix + name, way, Topic.RUNNING, f"{said}\n{forms}", others, Repeat.YES))

        return made


def _way(run: Callable[[DebugSession, str, bool], None], reverse: bool) -> Run:
    return lambda session, argument: run(session, argument, reverse)


def _name(run: Callable[..., None]) -> str:
    return run.__name__.rstrip("_").replace("_", "-")


def _help(run: Callable[..., None]) -> str:
    return cleandoc(run.__doc__ or "")


def split_format(argument: str) -> tuple[str, str]:
    """The format behind a slash, "" for none, and the expression."""
    found = _FORMAT.match(argument)
    return ("", argument.strip()) if found is None else (found[1], argument[found.end() :].strip())


def find(word: str, commands: Iterable[DebuggerCommand], kind: str = "") -> DebuggerCommand:
    """The command that a word means. Raises CommandError if none or several begin with it; `kind` ("info ") is what
    stands before it."""
    table = {name: command for command in commands for name in (command.name, *command.aliases)}
    if word in table:
        return table[word]
    meant = {table[name].name: table[name] for name in table if name.startswith(word)}
    if len(meant) == 1:
        return next(iter(meant.values()))
    if meant:
        raise CommandError(f'Ambiguous {kind}command "{word}": {", ".join(sorted(meant))}.')
    more = f" {kind.strip()}" if kind else ""
    raise CommandError(f'Undefined {kind}command: "{word}".  Try "help{more}".{hint(word, table)}')
