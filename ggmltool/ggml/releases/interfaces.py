"""The function tables of ggml's backends: which functions there are, which ones a backend leaves NULL, and which ones a
backend of one's own has to implement ."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from ggmltool.data import load
from ggmltool.ggml.releases.table import RELEASES, own_data


class Need(StrEnum):
    """Whether a function has to be there."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    WITH_EVENTS = "with events"
    WITH_CAP = "with its cap"


class Outcome(StrEnum):
    """What comes of a call where the function is NULL."""

    CRASH = "crash"
    ASSERT = "assert"
    FINE = "fine"


class TableFunction(NamedTuple):
    """A field of a function table: the function's name, None for NULL, and what ggml does in place of a NULL."""

    field: str
    function: str | None
    if_null: str


class FunctionTable(NamedTuple):
    """A function table: its struct, what ggml's source calls it, its fields in order."""

    kind: str
    instance: str
    functions: tuple[TableFunction, ...]


class Duty(NamedTuple):
    """A function of a table: whether it has to be there, what it does, and what ggml does where it is NULL."""

    field: str
    need: Need
    does: str
    outcome: Outcome
    if_null: str


class _Own(Struct, forbid_unknown_fields=True):
    """What a function is to a backend of one's own."""

    need: Need
    outcome: Outcome
    if_null: str


class _Doing(Struct, forbid_unknown_fields=True):
    """What a function does, and what ggml does where it is NULL; "" where every backend of ggml's has it.

    `since` is the day since when there is the function, "" for longer than ggml 0.20.2.
    """

    does: str
    since: str = ""
    if_null: str = ""
    own: _Own | None = None


class _Table(Struct, forbid_unknown_fields=True):
    """`prefix` begins the names of the functions, `null` are the ones that a backend does not have, `named` those whose
    name does not follow the field's."""

    instance: str
    prefix: str
    null: frozenset[str] = frozenset()
    named: dict[str, str] = {}


class _Backend(Struct, forbid_unknown_fields=True):
    """The tables of a backend; the last two are those of its default buffer type and of that type's buffers."""

    like: str = ""
    backend: _Table | None = None
    device: _Table | None = None
    buffer_type: _Table | None = None
    buffer: _Table | None = None


class _Release(Struct, forbid_unknown_fields=True):
    """`structs` has the fields of each struct, `if_null` what ggml did if it was not what it does today; without
    `structs`, what is missing of a backend is as in the release before. `null` are functions that no backend has.
    """

    backends: dict[str, _Backend] = {}
    null: frozenset[str] = frozenset()
    structs: dict[str, tuple[str, ...]] = {}
    if_null: dict[str, str] = {}

    def table(self, backend: str, part: str) -> _Table | None:
        """One table of a backend: older ones have none of a device."""
        tables = self.backends[backend]
        own: _Table | None = getattr(tables, part)
        return self.table(tables.like, part) if own is None and tables.like else own


_STRUCTS = {
    "backend": "ggml_backend_i",
    "device": "ggml_backend_device_i",
    "buffer_type": "ggml_backend_buffer_type_i",
    "buffer": "ggml_backend_buffer_i",
}
"""The struct of each part of a backend, from the backend to the buffer."""


@cache
def _functions() -> dict[str, dict[str, _Doing]]:
    """The functions of each struct in order, those of the registry before those of a backend's parts."""
    return load("functions.toml", dict[str, dict[str, _Doing]])


@cache
def _release(name: str) -> _Release:
    """The tables of a release; what it does not say is as in the one that it is like."""
    own = own_data(RELEASES[name], "interfaces.toml", _Release) or _Release()
    like = RELEASES[name].like
    if like is None:
        return own
    before = _release(like.name)
    if own.structs:
        return own
    backends = {name: _changed(backend, own.backends.get(name)) for name, backend in before.backends.items()}
    return _Release(backends, before.null | own.null, before.structs, before.if_null | own.if_null)


def _changed(before: _Backend, own: _Backend | None) -> _Backend:
    """The tables of a backend, those that are new in place of those before."""
    return before if own is None else replace(before, **{k: v for k, v in asdict(own).items() if v})


def tables_of(profile: str, release: str) -> tuple[FunctionTable, ...] | None:
    """The tables of a kind of device in a release, None if they are not known."""
    known = _release(release)
    if profile not in known.backends:
        return None
    there = _there(release)
    tables = ((kind, known.table(profile, part)) for part, kind in _STRUCTS.items())
    return tuple(_table(kind, table, known, there) for kind, table in tables if table is not None)


def _there(release: str) -> dict[str, dict[str, _Doing]]:
    """The functions that a release has."""
    date = RELEASES[release].date
    return {
        kind: {field: doing for field, doing in table.items() if doing.since <= date}
        for kind, table in _functions().items()
    }


def _table(kind: str, table: _Table, of: _Release, there: dict[str, dict[str, _Doing]]) -> FunctionTable:
    fields = of.structs.get(kind) or there[kind]
    return FunctionTable(kind, table.instance, tuple(_function(kind, field, table, of) for field in fields))


def _function(kind: str, field: str, table: _Table, of: _Release) -> TableFunction:
    name = None if field in table.null or field in of.null else table.named.get(field, table.prefix + field)
    doing = _functions()[kind].get(field)
    return TableFunction(field, name, of.if_null.get(field, doing.if_null if doing is not None else ""))


def duties_of(release: str) -> dict[str, tuple[Duty, ...]] | None:
    """The duties of a backend of one's own, unless the release's tables have other functions than are told of."""
    return None if _release(release).structs else duties(release)


def duties(release: str) -> dict[str, tuple[Duty, ...]]:
    """What a backend of one's own has to implement: every function of every table, from the registry to the buffer."""
    return {kind: tuple(_duty(name, of) for name, of in table.items()) for kind, table in _there(release).items()}


def _duty(name: str, of: _Doing) -> Duty:
    if of.own is not None:
        return Duty(name, of.own.need, of.does, of.own.outcome, of.own.if_null)
    if of.if_null:
        return Duty(name, Need.OPTIONAL, of.does, Outcome.FINE, of.if_null)
    return Duty(name, Need.REQUIRED, of.does, Outcome.CRASH, "a crash: it is called without a check")
