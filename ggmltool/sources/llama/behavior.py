"""Which release of ggml a library behaves as: told by the version it names, and by the functions that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ggmltool.ggml.releases.release import Library, Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.sources.llama.errors import LlamaUnavailable
from ggmltool.sources.llama.packages import REMEDY, numbers

BEFORE = (0, 28)
"""No ggml from this version on is known."""


class Change(NamedTuple):
    """What llama.cpp does otherwise since `build`, the first that is known to; `version` is that of its ggml."""

    build: int
    version: str
    says: str


CHANGES = (
    Change(10566, "0.21.0", "an event after every split"),
    Change(10635, "0.22.0", "CLAMP computed in place"),
    Change(10724, "0.22.0", "tensors that a device keeps longer"),
    Change(10816, "0.23.0", "only some ops with an alloc size above their bytes"),
    Change(10917, "0.23.0", "splits of more than 30 inputs"),
    Change(11117, "0.24.0", "a failure to reserve that is told"),
    Change(11334, "0.25.3", "pipeline copies of inputs made last, in the order of the leafs"),
    Change(11548, "0.26.0", "weights in host memory copied last, and used experts by a callback"),
)
"""What plans and traces depend on."""


class Behavior(NamedTuple):
    """The release that a library is planned as; `note` says where it may do otherwise ("": nowhere that is known)."""

    release: Release
    note: str = ""


def behavior_of(version: str, build: int, exports: Callable[[str], bool]) -> Behavior:
    """How a library behaves: `version` is its ggml's, `build` llama.cpp's (0: unknown), `exports` asks for a function.

    Raises LlamaUnavailable for a ggml that is later than all that are known.
    """
    if numbers(version)[:2] >= BEFORE:
        bound = ".".join(map(str, BEFORE))
        raise LlamaUnavailable(f"its ggml is {version}; ggmltool knows those before {bound}. {REMEDY}")
    later: list[tuple[Release, Library]] = []
    for release in RELEASES.values():
        library = release.library
        if library is None:
            continue
        known = numbers(library.version)
        if numbers(version) >= known and all(map(exports, library.exports)):
            if not later or numbers(version) == known:
                return Behavior(release)
            break
        later.append((release, library))
    else:
        oldest = later[-1][0]
        return Behavior(oldest, f"ggml {version} is older than {oldest.name}; its graphs are planned as by that")
    return _between(*later[-1], version, build)


def _between(release: Release, library: Library, version: str, build: int) -> Behavior:
    """A library that is older than this release, and later than the one before it."""
    changed = [
        change.says
        for change in CHANGES
        if numbers(change.version) <= numbers(library.version)
        and (build < change.build if build else numbers(change.version) >= numbers(version))
    ]
    return Behavior(
        release,
        f"ggml {version} lies between two releases that ggmltool knows; its graphs are planned as by {release.name}, "
        f"which does more: {'; '.join(changed)}",
    )
