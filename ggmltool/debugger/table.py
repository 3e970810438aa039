"""All commands of the prompt, `help` and what ends a session among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.debugger import breaking, data, explaining, info, listing, moving, settings, stack
from ggmltool.debugger.command import Command, Repeat, Topic, find

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session


def _help(session: Session, argument: str) -> None:
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


def _quit(session: Session, _: str) -> None:
    session.left = True


def _names(session: Session, prefix: str) -> list[str]:
    return [command.name for command in COMMANDS if command.name.startswith(prefix)]


COMMANDS: list[Command] = [
    *moving.COMMANDS,
    *breaking.COMMANDS,
    *stack.COMMANDS,
    *data.COMMANDS,
    *listing.COMMANDS,
    *info.COMMANDS,
    *explaining.COMMANDS,
    *settings.COMMANDS,
    Command(
        "help", _help, Topic.SUPPORT, "Show the commands, or one of them.\nExample: help break", ("h",), complete=_names
    ),
    Command("quit", _quit, Topic.SUPPORT, "Leave the debugger.\nUsage: quit", ("q", "exit")),
]


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
