"""`trace`: the calls that ggml makes, in order; and what happens when, for Perfetto."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ask.trace.record import Trace
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step


def trace(
    opened: Opened,
    compute: bool,
    decisions: bool,
    advance: Callable[[int], None] = lambda n: None,
    stepped: Callable[[Run, Step], object] = lambda run, step: None,
) -> Answer[Trace]:
    """What every step calls, without `compute` those that plan; with `decisions` also what ggml decided meanwhile.

    `advance` is told how many nodes more are computed, `stepped` is called after each step.
    """
    from ggmltool.ask.trace.record import trace_steps

    found = trace_steps(opened.scenario, compute, advance, stepped)
    failed = bool(found.steps and found.steps[-1].error) or found.uses_freed
    return Answer(replace(found, decisions=decisions), opened.title, fine=not failed)
