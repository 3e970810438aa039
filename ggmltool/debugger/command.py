"""What a command of the prompt is, and how a line finds it: by its name, an alias, or so much of it as is unique."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ggmltool.debugger.errors import CommandError
from ggmltool.scenario.errors import nearest

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session

Run = Callable[["Session", str], None]
Completer = Callable[["Session", str], Iterable[str]]


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
class Command:
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


def find(word: str, commands: Iterable[Command], kind: str = "") -> Command:
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
    near = nearest(word, table)
    hint = f' Did you mean "{near}"?' if near else ""
    raise CommandError(f'Undefined {kind}command: "{word}".  Try "help{" " + kind.strip() if kind else ""}".{hint}')
