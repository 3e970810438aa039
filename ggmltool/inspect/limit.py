"""The limits of each release of ggml: what each is called, and what happens beyond it."""

from __future__ import annotations

from functools import cache
from typing import Literal

from msgspec import Struct, convert
from msgspec.structs import asdict

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.own_data import own_data

Kind = Literal["abort", "device", "grows", "fixed"]
"""Beyond a limit ggml aborts, or a device has no such memory; or ggml makes do (an array grows, a name is cut); or
nothing can go beyond it, since there is no way to ask for more."""


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    """`group` is the part of ggml it belongs to, `text` what is counted, `constant` ggml's name for the limit, `beyond`
    what ggml does then, in its own words where it says something."""

    group: str
    text: str
    constant: str
    kind: Kind
    beyond: str
    nbytes: bool = False


class _Otherwise(Struct, forbid_unknown_fields=True):
    """What a release has otherwise than the one it is like: limits that it lacks, and what others are in it."""

    absent: tuple[str, ...] = ()
    changed: dict[str, dict[str, str]] = {}


@cache
def limits_of(release: str) -> dict[str, Limit]:
    """The limits of the release of this name by their keys, in the order of the report."""
    like = RELEASES[release].like
    if like is None:
        return own_data(RELEASES[release], "limits.toml", dict[str, Limit]) or {}
    limits = limits_of(like.name)
    own = own_data(RELEASES[release], "limits.toml", _Otherwise)
    if own is None:
        return limits
    return {
        key: convert(asdict(limit) | own.changed.get(key, {}), Limit)
        for key, limit in limits.items()
        if key not in own.absent
    }
