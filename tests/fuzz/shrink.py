"""Makes a case smaller while it fails at the same place."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.case import Case
from tests.fuzz.workers import alone

SECONDS = 40
"""By the clock, for one case."""


class _TimeUpError(Exception):
    """What was found until now has to do."""


Fails = Callable[[Case], bool]


def smallest(case: Case, place: str) -> Case:
    """As small a case as is found in time."""
    end = time.monotonic() + SECONDS
    found = case

    def fails(smaller: Case) -> bool:
        nonlocal found
        if time.monotonic() > end:
            raise _TimeUpError
        if alone(smaller).place != place:
            return False
        found = smaller
        return True

    try:
        if isinstance(case.value, dict):
            _smaller_value(case, fails)
        elif case.name in case.files:
            _smaller_content(case, fails)
    except _TimeUpError:
        pass
    return found


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everything below a value, the outermost first."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield (*path, key)
    for key in keys:
        yield from _paths(value[key], (*path, key))


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    out = copy.deepcopy(value)
    at = out
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return out


def _smaller_value(case: Case, fails: Fails) -> None:
    progress = True
    while progress:
        progress = False
        for path in list(_paths(case.value)):
            try:
                smaller = case.with_value(_without(case.value, path))
            except (IndexError, KeyError, TypeError, ValueError):
                continue  # gone with something above it, or a value that cannot be copied
            if fails(smaller):
                case, progress = smaller, True


def _smaller_content(case: Case, fails: Fails) -> None:
    """Fewer lines, then fewer bytes: ever smaller pieces are left out."""
    content = case.files[case.name]
    for separator in (b"\n", b""):
        parts = content.split(separator) if separator else [content[i : i + 1] for i in range(len(content))]
        size = max(len(parts) // 2, 1)
        while size:
            at = 0
            while at < len(parts):
                fewer = parts[:at] + parts[at + size :]
                smaller = case.with_content(separator.join(fewer))
                if fails(smaller):
                    case, parts = smaller, fewer
                else:
                    at += size
            size //= 2
        content = separator.join(parts)
