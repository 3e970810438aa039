"""Locations as `break` takes them: a function, a tensor, a split, a backend, a place in memory, an event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.debugger.breakpoints import of_backend, of_byte, of_split
from ggmltool.debugger.command import hint
from ggmltool.debugger.errors import CommandError
from ggmltool.show.text import count

if TYPE_CHECKING:
    from ggmltool.debugger.session import DebugSession

_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18})")
_SOURCE = re.compile(r"([\w./-]+\.(?:c|cc|cpp|cu|h|hpp|m)):[0-9]{1,9}")
_WORDS = ("split", "backend", "offset", "tensor", "function")


class Location(NamedTuple):
    """A place: what it is called, its points, and the function if it is one."""

    what: str
    places: Sequence[int]
    function: str = ""

    def __str__(self) -> str:
        if not self.places:
            return f"{self.what}: no event of this history"
        if self.what == f"event {self.places[0]}":
            return self.what
        events = "event" if len(self.places) == 1 else f"{count(len(self.places), 'event')}, first event"
        return f"{self.what}: {events} {self.places[0]}"


def location(session: DebugSession, text: str) -> Location:
    """The place that a text means. Raises CommandError for what is none, with the nearest name."""
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    points, tensors = session.history.points, session.reading.tensors
    if not text:
        return Location(f"event {session.at}", [session.at])
    if word == "split" and (not rest or _NUMBER.fullmatch(rest)):
        return Location(text, of_split(points, int(rest, 0) if rest else None))
    if word == "backend" and not (rest and text in tensors):
        node = known_tensor(session, _unquoted(rest)) if rest else ""
        what = f"backend of {node}" if node else "changes of backend"
        return Location(what, list(of_backend(points, node or None)))
    if word == "offset" and rest:
        return _of_byte(session, rest)
    if word == "function" and rest:
        return _of_function(session, rest)
    if _NUMBER.fullmatch(text.removeprefix("*")):
        at = int(text.removeprefix("*"), 0)
        if at > session.walker.last:
            raise CommandError(f"No event {at} in the history, which has 0 to {session.walker.last}.")
        return Location(f"event {at}", [at])
    name = _unquoted(rest if word == "tensor" and rest else text)
    if (word == "tensor" and rest) or name in tensors:
        return Location(known_tensor(session, name), tensors[name])
    refuse_source(text)
    return _of_function(session, name)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def known_tensor(session: DebugSession, name: str) -> str:
    """A tensor's name. Raises CommandError for what is none, with the nearest."""
    if name not in session.reading.tensors:
        raise CommandError(f'No tensor "{name}" in the history.{hint(name, session.reading.tensors)}')
    return name


def refuse_source(text: str, instead: str = "a line is an event here: `break 24`") -> None:
    """Refuse a line of source, FILE:LINE, and say what is used here `instead`. Raises CommandError."""
    found = _SOURCE.fullmatch(text)
    if found is not None:
        raise CommandError(f"No source file named {found[1]}; {instead}.")


def _of_function(session: DebugSession, name: str) -> Location:
    starts = session.walker.calls.starts(name)
    known = session.reading.functions(session.walker.calls.functions)
    if not starts and name not in known:
        near = hint(name, chain(known, session.reading.tensors))
        raise CommandError(f'Function "{name}" not defined.{near}')
    return Location(name, starts, name)


def _of_byte(session: DebugSession, text: str) -> Location:
    *name, last = text.split()
    chunk = None
    if len(name) > 1 and _NUMBER.fullmatch(name[-1]) and _NUMBER.fullmatch(last):
        chunk, last = int(last, 0), name.pop()
    buft = _unquoted(" ".join(name))
    if not buft or not _NUMBER.fullmatch(last):
        raise CommandError("Usage: break offset BUFFER OFFSET [CHUNK], as in `break offset CPU 0x1000`.")
    known = session.reading.bufts
    if buft not in known:
        raise CommandError(f'No compute buffer "{buft}" in the history; there are {", ".join(known) or "none"}.')
    offset = int(last, 0)
    what = f"{buft} {offset:#x}" + ("" if chunk is None else f" of chunk {chunk}")
    return Location(what, list(of_byte(session.history.points, buft, offset, chunk)))


def complete_location(session: DebugSession, prefix: str) -> list[str]:
    """The functions, tensors and words that a location may begin with."""
    words = chain(_WORDS, session.walker.calls.functions, session.reading.tensors)
    return [word for word in words if word.startswith(prefix)]
