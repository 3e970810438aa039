"""Breakpoints, watchpoints and catchpoints by their numbers, as gdb keeps them, and the points that they can be at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ggmltool.ggml import events
from ggmltool.ggml.events import SPLIT_GRAPH
from ggmltool.state.story.points import Point, about


class StopKind(Enum):
    """What stops: a place that is reached, a value that changes, or what ggml refuses."""

    BREAKPOINT = "breakpoint"
    WATCHPOINT = "watchpoint"
    CATCHPOINT = "catchpoint"


@dataclass(slots=True)
class Breakpoint:
    """One entry of the table. `what` is the place as the user names it, or the watched expression; `places` the points
    of it, in order (of a watchpoint there are none). `function` is the one whose calls it stops at, if any. `condition`
    is an expression that must be true there, "" for none; the next `ignore` times that it would stop it does not.
    `call` is the call whose arguments a watched expression needs, None for none."""

    number: int
    kind: StopKind
    what: str
    places: Sequence[int] = ()
    function: str = ""
    condition: str = ""
    enabled: bool = True
    temporary: bool = False
    ignore: int = 0
    hits: int = 0
    call: int | None = None


class Breakpoints(dict[int, Breakpoint]):
    """The table of a session, by number; none is ever given twice. `newest` was given last, 0 before the first: what
    `$bpnum` is."""

    newest = 0

    def add(
        self,
        what: str,
        places: Sequence[int] = (),
        kind: StopKind = StopKind.BREAKPOINT,
        condition: str = "",
        temporary: bool = False,
        function: str = "",
    ) -> Breakpoint:
        """A new one."""
        self.newest += 1
        self[self.newest] = new = Breakpoint(self.newest, kind, what, places, function, condition, temporary=temporary)
        return new

    @property
    def enabled(self) -> list[Breakpoint]:
        """Those that stop."""
        return [one for one in self.values() if one.enabled]

    def of(self, kind: StopKind) -> list[Breakpoint]:
        """Those of a kind that are enabled."""
        return [one for one in self.enabled if one.kind is kind]


def of_tensors(points: Sequence[Point]) -> dict[str, list[int]]:
    """For each tensor that is told of the points at which it is, in order."""
    out: dict[str, list[int]] = {}
    for at, point in enumerate(points):
        if point.event is not None:
            for tensor in dict.fromkeys(about(point.event)):
                if tensor:
                    out.setdefault(tensor, []).append(at)
    return out


def of_split(points: Sequence[Point], split: int | None) -> list[int]:
    """Where a split begins and where it is computed; None: any split."""
    return [
        at
        for at, point in enumerate(points)
        if isinstance(point.event, events.SplitStarted | events.Computed)
        and (point.event.split == split if split is not None else point.event.split >= 0)
    ]


def of_backend(points: Sequence[Point], node: str | None) -> Iterator[int]:
    """Where a tensor gets another backend than it had, in each assignment anew; None: where any tensor that has one
    gets another, and where a split begins on another backend than the split before it."""
    assigned: dict[str, str] = {}
    on = ""
    for at, point in enumerate(points):
        match point.event:
            case events.Entered(function) if function in SPLIT_GRAPH:
                assigned.clear()
                on = ""
            case events.Assigned(tensor=tensor, backend=backend):
                had = assigned.get(tensor)
                assigned[tensor] = backend
                if had != backend and (tensor == node or (node is None and had is not None)):
                    yield at
            case events.SplitStarted(backend=backend):
                if node is None and on not in ("", backend):
                    yield at
                on = backend
            case events.IdsChanged(tensor=tensor) if node in (None, tensor):
                yield at


def of_byte(points: Sequence[Point], buft: str, offset: int, chunk: int | None) -> Iterator[int]:
    """Where memory at `offset` of a chunk (None: any) of a buffer type is given, taken over or freed."""
    sizes: dict[tuple[int, int], int] = {}
    for at, point in enumerate(points):
        match point.event:
            case (
                events.Allocated(buft=b, chunk=c, offset=start, size=size)
                | events.Freed(buft=b, chunk=c, offset=start, size=size)
            ):
                if b == buft and isinstance(point.event, events.Allocated):
                    sizes[c, start] = size
            case events.Reused(buft=b, chunk=c, offset=start):
                size = sizes.get((c, start), 1) if b == buft else 0
            case _:
                continue
        if b == buft and chunk in (None, c) and start <= offset < start + size:
            yield at
