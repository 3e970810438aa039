"""The manual page ggmltool(1) in the language of man(7), from plain records of what the help says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """An option as the help shows it: `--step [reserve|alloc]`, its text, and its variable in the environment."""

    term: str
    text: str
    variable: str = ""


@dataclass(frozen=True, slots=True)
class CommandPage:
    """A command: its line of usage, its help (click's: paragraphs, those after \\b as they stand) and its options."""

    name: str
    usage: str
    help: str
    options: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Manual:
    """What the whole page is made of."""

    name: str
    version: str
    about: str
    usage: str
    closing: str
    commands: Sequence[CommandPage]
    common: Sequence[Entry]


def man_page(manual: Manual) -> str:
    """The page as roff: name, synopsis, commands, common options, environment."""
    name = manual.name
    lines = [f'.TH {name.upper()} 1 "" "{_text(name)} {_text(manual.version)}" "User Commands"', ".SH NAME"]
    lines += [f"{_text(name)} \\- {_text(manual.about)}", ".SH SYNOPSIS", f".B {_text(manual.usage)}"]
    lines += [".SH DESCRIPTION", *_paragraphs(manual.closing), ".SH COMMANDS"]
    for command in manual.commands:
        lines += [f".SS {_text(command.usage)}", *_paragraphs(command.help)]
        for option in command.options:
            lines += _entry(option)
    lines.append(".SH COMMON OPTIONS")
    for option in manual.common:
        lines += _entry(option)
    lines.append(".SH ENVIRONMENT")
    entries = [(command.name, option) for command in manual.commands for option in command.options]
    for title, option in [*((f"{name} {command}", o) for command, o in entries), *((name, o) for o in manual.common)]:
        if option.variable:
            lines += [".TP", f".B {_text(option.variable)}", _text(f"{title} {option.term}")]
    return "\n".join(lines) + "\n"


def _entry(option: Entry) -> list[str]:
    return [".TP", f".B {_text(option.term)}", _text(option.text)]


def _paragraphs(text: str) -> list[str]:
    """click's paragraphs: filled, or between .nf and .fi those that begin with \\b."""
    lines: list[str] = []
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        rows = paragraph.splitlines()
        if rows and rows[0].strip() == "\b":
            lines += [".PP", ".nf", *(_text(row) for row in rows[1:]), ".fi"]
        else:
            lines += [".PP", _text(" ".join(row.strip() for row in rows))]
    return lines


def _text(text: str) -> str:
    """Text that roff takes for text."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
