"""What a program has mapped: which files lie where, and what can be run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, Protocol


class Mapping(NamedTuple):
    """A piece of address space: from the first address to the one behind the last; its rights (`r-xp`), its file."""

    start: int
    end: int
    rights: str
    file: str


class Asks(Protocol):
    """Who is asked, as `Link` is."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer."""


class Mappings:
    """All pieces, by address."""

    def __init__(self, pieces: Iterable[Mapping]) -> None:
        self._pieces = sorted(pieces)
        self._starts = [piece.start for piece in self._pieces]

    @cached_property
    def live(self) -> bool:
        """Whether these are those of a process, not of a core dump."""
        return any(piece.rights for piece in self._pieces)

    def at(self, address: int) -> Mapping | None:
        """The piece that an address lies in."""
        i = bisect_right(self._starts, address) - 1
        return self._pieces[i] if i >= 0 and address < self._pieces[i].end else None

    def runs(self, address: int) -> bool:
        """Whether there can be a function at an address; a core dump does not tell where."""
        if not self.live:
            return address != 0
        piece = self.at(address)
        return piece is not None and "x" in piece.rights

    def file(self, address: int) -> str:
        """The file that lies at an address; "" of memory that is of none."""
        piece = self.at(address)
        return piece.file if piece is not None else ""


def mappings_of(link: Asks) -> Mappings:
    """Those of a program as it stands now."""
    return Mappings(Mapping(*piece) for piece in link.ask("mappings"))
