"""Many small cases in few items: what pytest does for each item takes longer than most of the cases.

A batch checks all of its cases, whatever fails among them, and names each that does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
Test = Callable[..., None]


def each(cases: Iterable[Case], check: Callable[[Case], object], name: Callable[[Case], str] = str) -> None:
    """Checks every case. Raises AssertionError with the name and the message of each that fails."""
    failed: list[str] = []
    first: BaseException | None = None
    n = 0
    for case in cases:
        n += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            first = first or error
            failed.append(f"{name(case)}: {type(error).__name__}: {error}")
    if first is not None:
        raise AssertionError("\n".join((f"{len(failed)} of {n} fail:", *failed))) from first
    assert n, "there are no cases"


def by_key(cases: Iterable[Case], key: Callable[[Case], Hashable]) -> dict[str, list[Case]]:
    """The cases in groups, each named by its key."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(str(key(case)), []).append(case)
    return groups


def in_batches(
    names: str, cases: Iterable[Any], by: Callable[[Any], Hashable] = lambda _: "all", ids: Callable[[Any], str] = str
) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize(names, cases)`, but an item checks all cases of one key.

    Fixtures are those of the item: cases that write files or patch anything need items of their own.
    """
    arguments = [name.strip() for name in names.split(",")]
    groups = by_key(cases, by)

    def decorate(test: Test) -> Test:
        def batched(batch: list[Any], **fixtures: Any) -> None:
            def check(case: Any) -> None:
                values = (case,) if len(arguments) == 1 else case
                test(**dict(zip(arguments, values, strict=True)), **fixtures)

            each(batch, check, ids)

        kept = [p for p in inspect.signature(test).parameters.values() if p.name not in arguments]
        first = inspect.Parameter("batch", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        batched.__signature__ = inspect.Signature([first, *kept])  # type: ignore[attr-defined]
        batched.__name__, batched.__doc__ = test.__name__, test.__doc__
        batched.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
        return pytest.mark.parametrize("batch", list(groups.values()), ids=list(groups))(batched)

    return decorate
