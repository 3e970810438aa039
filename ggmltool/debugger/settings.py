"""`set` and `show`: variables of the session, and how it prints and asks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ggmltool.debugger.command import Commands, Topic, hint
from ggmltool.debugger.errors import CommandError

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession

COMMANDS = Commands()
_ASSIGNMENT = re.compile(r"\$?[A-Za-z_]\w*\s*=(?!=)")
_MOST = 1 << 20
_FLAGS = {
    **dict.fromkeys(("on", "1", "yes", "enable", ""), True),
    **dict.fromkeys(("off", "0", "no", "disable"), False),
}
_SETTINGS = {
    "width": "Number of characters in a line is {}.",
    "height": "Number of lines in a page is {}.",
    "pagination": "State of pagination is {}.",
    "confirm": "Whether to confirm potentially dangerous operations is {}.",
    "listsize": "Number of nodes that list shows is {}.",
    "trace-commands": "State of command tracing is {}.",
}
"""What `show` says of each; what is no number is on or off."""
_NUMBERS = ("width", "height", "listsize")


def _split(argument: str) -> tuple[str, str]:
    """The setting that an argument names, and what stands behind. Raises CommandError."""
    name, _, value = argument.partition(" ")
    if name in _SETTINGS:
        return name, value.strip()
    more = hint(name, _SETTINGS) or f" The settings are {', '.join(_SETTINGS)}."
    raise CommandError(f'No symbol "{name}" in current context.{more}')


def _read(name: str, value: str) -> int | bool:
    """A value of a setting; 0 is no limit. Raises CommandError."""
    if name not in _NUMBERS:
        if value not in _FLAGS:
            raise CommandError('"on" or "off" expected.')
        return _FLAGS[value]
    if not value:
        raise CommandError('Argument required (integer to set it to, or "unlimited".).')
    if value == "unlimited":
        return 0
    if not value.isascii() or not value.isdecimal() or int(value[:9]) > _MOST:
        raise CommandError(f'Invalid number "{value}".')
    return int(value)


def _complete(session: DebugSession, prefix: str) -> list[str]:
    return [name for name in _SETTINGS if name.startswith(prefix)]


@COMMANDS.add(Topic.SUPPORT, complete=_complete, settings=", ".join(_SETTINGS))
def set_(session: DebugSession, argument: str) -> None:
    """Set a variable of the session ($name), or how it prints and asks.
    Usage: set $NAME = EXPR, or set SETTING VALUE, of {settings}
    Example: set $size = sizeof(struct ggml_tensor)"""
    if not argument:
        show(session, "")
        return
    word, _, rest = argument.partition(" ")
    is_named = word in ("var", "variable")
    if is_named or argument.startswith("$") or _ASSIGNMENT.match(argument):
        assignment = rest.strip() if is_named else argument
        if not assignment:
            raise CommandError("Argument required (expression to compute).")
        session.value(assignment)
    else:
        name, value = _split(argument)
        setattr(session.settings, name.replace("-", "_"), _read(name, value))


@COMMANDS.add(Topic.STATUS, complete=_complete)
def show(session: DebugSession, argument: str) -> None:
    """Show what `set` changes, `values` of print, or `convenience` variables.
    Example: show listsize"""
    word = argument.partition(" ")[0]
    if word in ("values", "conv", "convenience"):
        for line in session.reading.kept(word):
            session.say(line)
        return
    if word == "version":
        from ggmltool.version import __version__

        session.say(f"ggmltool {__version__}, ggml {session.history.scenario.model.ggml}")
        return
    for name in [_split(argument)[0]] if argument else _SETTINGS:
        value = getattr(session.settings, name.replace("-", "_"))
        if name in _NUMBERS:
            said = "that of the terminal" if value is None else str(value) if value else "unlimited"
        else:
            said = "on" if value else "off"
        said = _SETTINGS[name].format(said)
        session.say(said if argument else f"{name}:  {said}")
