"""What the parameters of ops mean, in a few words, by name; where a name means something else for an op, by both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from msgspec import Struct

from ggmltool.data import load

_DIGITS = "0123456789"


class _File(Struct, forbid_unknown_fields=True):
    names: dict[str, str]
    ops: dict[str, dict[str, str]]


@cache
def _file() -> _File:
    return load("param_meanings.toml", _File)


def param_meaning(op: str, name: str) -> str:
    """What the parameter `name` of an op (its lower-case name) means, "" where its name says all there is to say."""
    file = _file()
    return _meaning(file.ops.get(op, {}), name) or _meaning(file.names, name)


def _meaning(meanings: Mapping[str, str], name: str) -> str:
    """That of the name itself, else that of all names that differ in the number at their end."""
    stem = name.rstrip(_DIGITS)
    return meanings.get(name) or meanings.get(f"{stem}#", "").replace("#", name[len(stem) :])
