"""What computing takes for granted: that the tensors it reads have values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import note
from ggmltool.views.text import shortened

if TYPE_CHECKING:
    from ggmltool.scenario.model import Model, Step

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_SHOWN = 3


def zeros_option(command: F) -> F:
    """--zeros: compute with weights that have no values."""
    return click.option("--zeros", is_flag=True, help="Compute although weights have no values: they are zero.")(
        command
    )


def check_weights(model: Model, graphs: Iterable[str], steps: Iterable[Step], without: str) -> list[str]:
    """Refuse to compute graphs whose weights have no values; the other tensors without values, which are zero.

    `without` is how the command is told to compute nothing. Raises CliError.
    """
    from ggmltool.scenario.valueless import valueless

    graphs = list(dict.fromkeys(graphs))
    found = valueless(model, graphs, steps)
    if found.weights:
        names = shortened(found.weights, _NAMES_SHOWN)
        raise CliError(
            f"{model.source}: the weights have no values ({names}); computing would give zeros. Give them `data`: "
            f"`ggmltool capture --weights` does for a model. {without} only plans; --zeros computes with zeros"
        )
    return found.inputs


def check_run(model: Model, zeros: bool) -> None:
    """Refuse to do the steps of a scenario whose weights have no values; say which inputs are zero. Raises CliError."""
    graphs = [step.graph for step in model.steps if step.kind == "compute" and step.graph is not None]
    if zeros or not graphs:
        return
    inputs = check_weights(model, graphs, model.steps, "--no-compute")
    if inputs:
        note(f"without data, zero: {shortened(inputs, _NAMES_SHOWN)}")
