"""What was said of tensors in the assignment of backends that a point is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.events import SPLIT_GRAPH, Assigned, Entered, Left, PassedOver, Refused
from ggmltool.inspect.history.points import Point
from ggmltool.inspect.reasons import Said


def said_until(points: Sequence[Point], at: int) -> Iterator[tuple[int, Said]]:
    """All of it up to point `at`, the newest first, each with its point: while the graph is split, and what the program
    itself assigned before that."""
    is_entered = is_said = False
    for number in range(at, -1, -1):
        match points[number].event:
            case None if is_entered:
                return
            case Entered(function) if function in SPLIT_GRAPH:
                is_entered = True
            case Left(function) if function in SPLIT_GRAPH and (is_entered or is_said):
                return
            case (Assigned() | PassedOver() | Refused()) as event if event.rule == 0 or not is_entered:
                is_said = True
                yield number, event
            case _:
                pass
