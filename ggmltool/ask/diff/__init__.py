"""`diff`: two plans side by side, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.diff.plans import PlanDiff
    from ggmltool.ask.diff.side import DiffSide, Titles

PARTS_OF_LOGS = ("nodes", "splits", "copies")
"""What a log can tell."""


def diff(
    a: DiffSide, b: DiffSide, titles: Titles, parts: Sequence[str] | None = None, brief: bool = False
) -> Answer[PlanDiff]:
    """What differs between two plans in the `parts` (None: all that both have); `brief` is a line.

    Raises InspectError for a part that there is not.
    """
    from ggmltool.ask.diff.plans import PARTS, plan_diff
    from ggmltool.ask.diff.rules import rules_of

    wrong = next((part for part in parts or () if part not in PARTS), None)
    if wrong is not None:
        raise InspectError(f"{wrong!r} is nothing to compare; the parts are {', '.join(PARTS)}")
    compared = tuple(PARTS) if parts is None else tuple(parts)
    if a.is_log or b.is_log:
        compared = tuple(part for part in compared if part in PARTS_OF_LOGS)
    found = plan_diff(a, b)
    found = replace(found, rules=() if brief else rules_of(found), titles=titles, parts=compared, brief=brief)
    return Answer(found, " and ".join(titles), fine=not found.differing)
