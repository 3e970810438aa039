"""A run of a scenario, step by step, in brief."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ggmltool.ask.splits.record import input_bytes
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.table import Cell, Column, Shown, Style, Table, heading, render_lines
from ggmltool.show.text import count, ggml_error, size


class StepReport(NamedTuple):
    """One step: what it is called, what it did (the plan of a reserve or alloc), or the error that ended the run.

    `uses_freed`: it used memory that was freed. `number` counts all steps of the scenario from 1, those that were left
    out too.
    """

    step: str
    did: str = ""
    plan: Plan | None = None
    error: tuple[tuple[str, str | None], ...] | None = None
    number: int = 1
    uses_freed: bool = False

    @property
    def failure(self) -> tuple[tuple[str, str | None], ...] | None:
        """Why ggml refused this step, if it did."""
        return self.error or (self.plan.error if self.plan is not None else None)


def steps_view(steps: Sequence[StepReport], backends: Sequence[str], tensors: Tensors, title: str, style: Style) -> str:
    """One row per step, and ggml's error where the run ended with one."""
    text = heading(title, [count(len(steps), "step")], style) + "\n" + _table(backends, tensors).render(steps, style)
    errors = [error for step in steps if (error := step.failure)]
    if errors:
        text += "\n" + render_lines([ggml_error(dict(errors[0]))], style)
    return text


def _table(backends: Sequence[str], tensors: Tensors) -> Table[StepReport]:
    def planned(get: Callable[[Plan], Shown]) -> Callable[[StepReport], Shown]:
        return lambda s: get(s.plan) if s.plan is not None and s.plan.ok else None

    def copies(plan: Plan) -> int:
        return sum(len(split.inputs) for split in plan.splits)

    def copied(plan: Plan) -> str | None:
        return size(sum(input_bytes(split, tensors) for split in plan.splits)) if copies(plan) else None

    def buffer(name: str) -> Column[StepReport]:
        return Column(name, planned(lambda p: size(dict(p.buffer_sizes).get(name, 0))), right=True, drop=1)

    return Table(
        Column("", lambda s: s.number, right=True),
        Column("step", lambda s: s.step, cut=True),
        Column("splits", planned(lambda p: len(p.splits)), right=True),
        Column("inputs copied", planned(copies), right=True, drop=2),
        Column("bytes", planned(copied), right=True, drop=3),
        *map(buffer, backends),
        Column("", _outcome, cut=True),
    )


def _outcome(step: StepReport) -> Cell | str:
    if step.failure:
        return Cell("ggml fails", "bold red")
    return Cell("use after free", "bold red") if step.uses_freed else step.did
