"""ggml's own debug print of a step, as the release at hand prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.errors import InspectError
from ggmltool.views.plan.pass_prints import pass_print
from ggmltool.views.plan.sched_debug import sched_debug

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler
    from ggmltool.inspect.watched import Watched


def debug_text(at: Watched, level: int, causes: bool, number: int | None = None) -> str:
    """The print of GGML_SCHED_DEBUG at its end or, of a ggml that has such, after pass `number`.

    `at` was watched with `debug`. Raises InspectError where this ggml prints no single passes, or has no such pass.
    """
    sched = at.sched
    if sched.release.prints_passes:
        at.check_pass(number or 1)
        return _printed(sched, number, level, causes)
    if number is not None:
        could = next(release.name for release in RELEASES.values() if release.prints_passes)
        message = f"ggml {sched.release.name} prints no single passes"
        raise InspectError(f"{message}; ggml {could} can: --ggml {could}")
    there = at.is_split or at.plan.ok
    return sched_debug(sched.debug_record, level, causes, sched.release.prints_use_counts) if there else ""


def _printed(sched: AnyScheduler, number: int | None, level: int, causes: bool) -> str:
    """The print after a pass, by default the last, where the scheduler came to it."""
    shown = number or len(sched.passes) - 1
    prints = (p for p in sched.printed if p.number == shown)
    return "".join(pass_print(p, level, causes, number is not None) for p in prints)
