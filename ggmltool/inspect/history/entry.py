"""The state at a function's entry, before the decision that a point tells of: what that decision wrote is undone.

A point's state is the one after its event. What ggml did silently since the point before happened before the call, so
it stays: children that were counted off, entries that were cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import astuple, replace

from ggmltool.ggml.events import (
    Allocated,
    AllocationStarted,
    Assigned,
    Computed,
    Entered,
    EventCall,
    Freed,
    Grown,
    PassedOver,
    Refused,
    Reordered,
    Reused,
    Synchronized,
    TensorCopied,
    TensorWritten,
)
from ggmltool.ggml.state import HashNodeState
from ggmltool.inspect.history.shadow import GONE, Changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ggmltool.inspect.history.cells import Key, Value
    from ggmltool.inspect.history.points import AnyHistory

TOLD_BEFORE = (Entered, Grown, TensorWritten, TensorCopied, Computed, Synchronized, EventCall)
"""Events that are told before ggml does what they say: their point is the entry of their function."""
_PLACES = ("free", "max_size", "cgraph", "tensor")


def at_entry(history: AnyHistory, at: int, innermost: bool = False) -> Changes:
    """What is otherwise than at point `at` where a call begins in which its event comes about; `innermost`: the call of
    the function that decides."""
    event = history.points[at].event
    if event is None or not at or isinstance(event, TOLD_BEFORE):
        return ()
    keys = [key for key, _ in history.changes[at]]
    index = history.labels(at).get(getattr(event, "tensor", ""), -1)
    now = {key: history.state(at).get(key, GONE) for key in keys}
    before = {key: history.state(at - 1).get(key, GONE) for key in keys}
    out = [(key, before[key]) for key in keys if _wrote(event, key, index)]
    if isinstance(event, Allocated | Reused | Freed):
        cleared = isinstance(history.points[at - 1].event, AllocationStarted) and _first_turn(history, at - 1)
        out += _hash_nodes(now, {} if cleared else before)
        if innermost and isinstance(event, Allocated):
            out = [(k, replace(v, allocated=True) if k == ("hash_node", index) else v) for k, v in out]
    return tuple(out)


def _first_turn(history: AnyHistory, at: int) -> bool:
    """Whether the allocator begins at a point: it clears its table there."""
    return getattr(history.points[at].event, "at", 0) == -1


def _wrote(event: object, key: Key, index: int) -> bool:
    """Whether it is the event that wrote a cell that changed."""
    match event:
        case Allocated() | Reused() | Freed():
            return key[0] in _PLACES
        case Assigned() | PassedOver() | Refused():
            return key in (("id", index), ("cause", index))
        case Reordered():
            return key[0] == "cgraph"
    return False


def _hash_nodes(now: dict[Key, Value], before: dict[Key, Value]) -> Iterator[tuple[Key, Value]]:
    """Entries of the allocator's table with the places that they had; children and views are counted before."""
    for key, new in now.items():
        if key[0] == "hash_node" and new is not GONE:
            old = before.get(key, GONE)
            place = (0, 0, 0, False) if old is GONE else astuple(old)[2:]
            yield key, HashNodeState(new.n_children, new.n_views, *place)
