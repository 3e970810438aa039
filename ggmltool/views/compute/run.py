"""A run of a scenario, step by step, in brief."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.views.errors import ggml_error
from ggmltool.views.plan.splits import input_bytes
from ggmltool.views.table import Cell, Head, Row, Style, heading, render_lines, render_table
from ggmltool.views.text import count, size


class StepReport(NamedTuple):
    """One step: what it is called, what it did (the plan of a reserve or alloc), or the error that ended the run.

    `number` counts all steps of the scenario from 1, those that were left out too.
    """

    step: str
    did: str = ""
    plan: Plan | None = None
    error: tuple[tuple[str, str | None], ...] | None = None
    number: int = 1

    @property
    def failure(self) -> tuple[tuple[str, str | None], ...] | None:
        """Why ggml refused this step, if it did."""
        return self.error or (self.plan.error if self.plan is not None else None)


def steps_view(steps: Sequence[StepReport], backends: Sequence[str], tensors: Tensors, title: str, style: Style) -> str:
    """One row per step, and ggml's error where the run ended with one."""
    columns = [
        Head("", right=True),
        Head("step", cut=True),
        Head("splits", right=True),
        Head("inputs copied", right=True, drop=2),
        Head("bytes", right=True, drop=3),
        *[Head(name, right=True, drop=1) for name in backends],
        Head("", cut=True),
    ]
    rows = [_row(step, backends, tensors) for step in steps]
    text = heading(title, [count(len(steps), "step")], style) + "\n" + render_table(columns, rows, style)
    errors = [error for step in steps if (error := step.failure)]
    if errors:
        text += "\n" + render_lines([ggml_error(dict(errors[0]))], style)
    return text


def _row(step: StepReport, backends: Sequence[str], tensors: Tensors) -> Row:
    said = Cell("ggml refuses", "bold red") if step.failure else Cell(step.did)
    plan = step.plan
    if plan is None or not plan.ok:
        return [str(step.number), step.step, "", "", "", *[""] * len(backends), said]
    copies = sum(len(split.inputs) for split in plan.splits)
    copied = sum(input_bytes(split, tensors) for split in plan.splits)
    sizes = dict(plan.buffer_sizes)
    return [
        str(step.number),
        step.step,
        str(len(plan.splits)),
        str(copies),
        size(copied) if copies else "",
        *[size(sizes.get(name, 0)) for name in backends],
        said,
    ]
