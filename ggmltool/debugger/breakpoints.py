"""Breakpoints, watchpoints and catchpoints, by their numbers, as gdb keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What stops: a place that is reached, a value that changes, or what ggml refuses."""

    BREAKPOINT = "breakpoint"
    WATCHPOINT = "watchpoint"
    CATCHPOINT = "catchpoint"


@dataclass(slots=True)
class Breakpoint:
    """One entry of the table.

    `what` is the place as the user names it, or the watched expression; `places` the points of it, in order (of a
    watchpoint there are none). `function` is the one whose calls it stops at, if any. `condition` is an expression that
    must be true there, "" for none; the next `ignore` times that it would stop it does not. `call` is the call whose
    arguments a watched expression needs, None for none.
    """

    number: int
    kind: Kind
    what: str
    places: Sequence[int] = ()
    function: str = ""
    condition: str = ""
    enabled: bool = True
    temporary: bool = False
    ignore: int = 0
    hits: int = 0
    call: int | None = None


class Breakpoints:
    """The table of a session. Numbers are never given twice."""

    def __init__(self) -> None:
        self._by_number: dict[int, Breakpoint] = {}
        self._made = 0

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(list(self._by_number.values()))

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def newest(self) -> int:
        """The number that was given last, 0 before the first: what `$bpnum` is."""
        return self._made

    def get(self, number: int) -> Breakpoint | None:
        """The breakpoint of this number, None if there is none (any more)."""
        return self._by_number.get(number)

    def add(
        self,
        what: str,
        places: Sequence[int] = (),
        kind: Kind = Kind.BREAKPOINT,
        condition: str = "",
        temporary: bool = False,
        function: str = "",
    ) -> Breakpoint:
        """A new one."""
        self._made += 1
        new = Breakpoint(self._made, kind, what, places, function, condition, temporary=temporary)
        self._by_number[new.number] = new
        return new

    def delete(self, number: int) -> bool:
        """Whether there was one of this number, which is gone now."""
        return self._by_number.pop(number, None) is not None

    def clear(self) -> None:
        """Delete all."""
        self._by_number.clear()

    def of(self, kind: Kind) -> Iterable[Breakpoint]:
        """Those of a kind that are enabled."""
        return [one for one in self if one.kind is kind and one.enabled]
