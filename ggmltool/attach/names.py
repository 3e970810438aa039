"""What backends and buffer types of a program are called in a scenario: printable, bounded, each name once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ggmltool.attach.state import Snapshot

MAX_NAME = 200
"""Characters of a name that a program gives, at most."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names by address: of backends in the scheduler's order, and of buffer types. `own` are the buffer types that are
    called as their backend is: the scenario's backend has them without saying so."""

    backends: tuple[str, ...]
    bufts: dict[int, str]
    own: frozenset[int]

    def backend(self, index: int) -> str | None:
        """The name of a backend by its number; None for none."""
        return self.backends[index] if 0 <= index < len(self.backends) else None


def names_of(snapshot: Snapshot) -> Names:
    """The names of all backends and buffer types that a snapshot has."""
    taken: set[str] = set()
    backends = tuple(unique(b.name, f"backend {i}", taken) for i, b in enumerate(snapshot.backends))
    bufts: dict[int, str] = {}
    # A backend's default buffer type of the same name is its own.
    for name, backend, address in zip(backends, snapshot.backends, snapshot.sched.bufts, strict=True):
        buft = snapshot.bufts.get(address)
        if buft is not None and address not in bufts and backend.name is not None and buft.name == backend.name:
            bufts[address] = name
    taken = {*bufts.values()}
    for address in (*snapshot.sched.bufts, *sorted(snapshot.bufts)):
        if address not in bufts:
            buft = snapshot.bufts.get(address)
            bufts[address] = unique(buft.name if buft else None, "memory", taken)
    own = (
        a for name, a in zip(backends, snapshot.sched.bufts, strict=True) if bufts[a] == name and a in snapshot.bufts
    )
    return Names(backends, bufts, frozenset(own))


def unique(name: str | None, otherwise: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is from now on."""
    given = clean(name or "") or otherwise
    free, n = given, 0
    while free in taken:
        n += 1
        free = f"{given}~{n}"
    taken.add(free)
    return free


def clean(text: str) -> str:
    """A program's text as a scenario can have it."""
    return "".join(c if c.isprintable() else "?" for c in text[:MAX_NAME])


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first of some names."""
    all_names = list(names)
    more = f", and {len(all_names) - most} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more
