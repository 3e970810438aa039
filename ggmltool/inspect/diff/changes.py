"""What changed in ggml's scheduler and allocator between the releases that the engine has: each rule with its day."""

from __future__ import annotations

from functools import cache
from typing import Literal

from msgspec import Struct

from ggmltool.data import load

Area = Literal["assignment", "splits", "copies", "memory"]


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule that changed. `since` is the day its commit `commit` of ggml was written, as in ggml's history; where that
    is not known, the day of `build`, the first known one of llama.cpp that has it.

    `before` and `now` are the rule in a sentence each, `area` is what it decides.
    """

    key: str
    since: str
    area: Area
    before: str
    now: str
    commit: str = ""
    build: str = ""


@cache
def changes() -> tuple[Change, ...]:
    """Every change, in the order of their days."""
    return load("changes.toml", dict[Literal["changes"], tuple[Change, ...]])["changes"]


def changes_between(older: str, newer: str) -> tuple[Change, ...]:
    """What changed after the day `older` up to the day `newer` (YYYY-MM-DD), in the order of days."""
    return tuple(change for change in changes() if older < change.since <= newer)
