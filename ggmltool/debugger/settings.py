"""`set` and `show`: variables of the session, and how it prints and asks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.debugger.command import Command, Topic
from ggmltool.debugger.errors import CommandError
from ggmltool.scenario.errors import nearest

if TYPE_CHECKING:
    from ggmltool.debugger.session import Session, Settings

_ASSIGNMENT = re.compile(r"\$?[A-Za-z_]\w*\s*=(?!=)")
_MOST = 1 << 20


class _Setting(NamedTuple):
    """A setting: what `show` says of it, how it is read, and how it is written."""

    says: str
    get: Callable[[Settings], str]
    set: Callable[[Settings, str], None]
    values: tuple[str, ...] = ()


def _flag(field: str, says: str) -> _Setting:
    def set_flag(settings: Settings, value: str) -> None:
        words = {"on": True, "1": True, "yes": True, "enable": True, "": True}
        words |= {"off": False, "0": False, "no": False, "disable": False}
        if value not in words:
            raise CommandError('"on" or "off" expected.')
        setattr(settings, field, words[value])

    return _Setting(says, lambda settings: "on" if getattr(settings, field) else "off", set_flag, ("on", "off"))


def _number(field: str, says: str) -> _Setting:
    def set_number(settings: Settings, value: str) -> None:
        if not value:
            raise CommandError('Argument required (integer to set it to, or "unlimited".).')
        if value == "unlimited":
            setattr(settings, field, 0)
        elif not value.isascii() or not value.isdecimal() or int(value[:9]) > _MOST:
            raise CommandError(f'Invalid number "{value}".')
        else:
            setattr(settings, field, int(value))

    def get_number(settings: Settings) -> str:
        value = getattr(settings, field)
        return "that of the terminal" if value is None else str(value) if value else "unlimited"

    return _Setting(says, get_number, set_number, ("unlimited",))


_SETTINGS = {
    "width": _number("width", "Number of characters in a line is {}."),
    "height": _number("height", "Number of lines in a page is {}."),
    "pagination": _flag("pagination", "State of pagination is {}."),
    "confirm": _flag("confirm", "Whether to confirm potentially dangerous operations is {}."),
    "listsize": _number("listsize", "Number of nodes that list shows is {}."),
    "trace-commands": _flag("trace_commands", "State of command tracing is {}."),
}


def _split(argument: str) -> tuple[str, str]:
    """The setting that an argument names, and what stands behind. Raises CommandError."""
    name, _, value = argument.partition(" ")
    if name in _SETTINGS:
        return name, value.strip()
    near = nearest(name, _SETTINGS)
    hint = f' Did you mean "{near}"?' if near else f" The settings are {', '.join(_SETTINGS)}."
    raise CommandError(f'No symbol "{name}" in current context.{hint}')


def _set(session: Session, argument: str) -> None:
    if not argument:
        _show(session, "")
        return
    word, _, rest = argument.partition(" ")
    if word in ("var", "variable"):
        _assign(session, rest.strip())
    elif argument.startswith("$") or _ASSIGNMENT.match(argument):
        _assign(session, argument)
    else:
        name, value = _split(argument)
        _SETTINGS[name].set(session.settings, value)


def _assign(session: Session, assignment: str) -> None:
    if not assignment:
        raise CommandError("Argument required (expression to compute).")
    session.reading.formatted(assignment, "", session)


def _show(session: Session, argument: str) -> None:
    if argument.split()[:1] in (["values"], ["conv"], ["convenience"]):
        for line in session.reading.kept(argument.split()[0]):
            session.say(line)
        return
    if argument.split()[:1] == ["version"]:
        from ggmltool.version import __version__

        session.say(f"ggmltool {__version__}, ggml {session.history.scenario.model.ggml}")
        return
    names = [_split(argument)[0]] if argument else list(_SETTINGS)
    for name in names:
        setting = _SETTINGS[name]
        said = setting.says.format(setting.get(session.settings))
        session.say(said if argument else f"{name}:  {said}")


def _complete(session: Session, prefix: str) -> list[str]:
    return [name for name in _SETTINGS if name.startswith(prefix)]


COMMANDS = [
    Command(
        "set",
        _set,
        Topic.SUPPORT,
        "Set a variable of the session ($name), or how it prints and asks.\n"
        f"Usage: set $NAME = EXPR, or set SETTING VALUE, of {', '.join(_SETTINGS)}\n"
        "Example: set $size = sizeof(struct ggml_tensor)",
        complete=_complete,
    ),
    Command(
        "show",
        _show,
        Topic.STATUS,
        "Show what `set` changes, `values` of print, or `convenience` variables.\nExample: show listsize",
        complete=_complete,
    ),
]
