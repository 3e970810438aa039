"""What computing takes for granted: that the tensors it reads have values, and that there is memory for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import note
from ggmltool.views.text import shortened, size

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened
    from ggmltool.scenario.model import Model, Step
    from ggmltool.scenario.run import Run

F = TypeVar("F", bound=Callable[..., Any])

_NAMES_SHOWN = 3


def zeros_option(command: F) -> F:
    """--zeros: compute with weights that have no values."""
    return click.option("--zeros", is_flag=True, help="Compute even if weights have no values: they are zero.")(command)


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
            f"{model.source}: the weights have no values ({names}), so the result would be zeros. Give them `data` "
            f"(for a model, `ggmltool capture --weights` does). {without} only plans; --zeros computes with zeros"
        )
    return found.inputs


def computed_graphs(model: Model) -> list[str]:
    """The graphs that the steps of a scenario compute."""
    return [step.graph for step in model.steps if step.kind == "compute" and step.graph is not None]


def check_run(model: Model, zeros: bool) -> None:
    """Refuse to do the steps of a scenario whose weights have no values; say which inputs are zero. Raises CliError."""
    graphs = computed_graphs(model)
    if zeros or not graphs:
        return
    inputs = check_weights(model, graphs, model.steps, "--no-compute")
    if inputs:
        note(f"no data, so zero: {shortened(inputs, _NAMES_SHOWN)}")


def tell_of_undone(run: Run, step: Step) -> str:
    """What a step undid of a `set` before it, for a table ("": nothing); the remedy goes to standard error."""
    if not run.undone or step.kind not in ("reserve", "alloc", "measure", "compute"):
        return ""
    names = shortened(run.undone, _NAMES_SHOWN)
    note(
        f"{step} creates {names} anew, so what `set` wrote is gone. Put `set` after the `alloc` that allocates the "
        "tensor, or the tensor into a context with a `buft`"
    )
    return f"undoes set {names}"


def _bound_memory(_: click.Context, __: click.Parameter, checked: bool) -> bool:
    """What the engine takes for a node or for data is bound in the same way."""
    from ggmltool.ggml.bounds import BOUNDS, NO_END

    BOUNDS.nbytes = None if checked else NO_END
    return checked


def memory_option(command: F) -> F:
    """--memory-check: refuse what does not fit into the machine's memory."""
    return click.option(
        "--memory-check/--no-memory-check",
        default=True,
        callback=_bound_memory,
        help="Stop before computing if it needs more memory than is free on this machine (default), or try.",
    )(command)


def check_memory(opened: Opened, compared: str | None = None) -> None:
    """Refuse to compute what needs more memory than is free: the scenario's steps, or a graph on two sides.

    Raises CliError.
    """
    from ggmltool.ggml.bounds import free_memory
    from ggmltool.inspect.need import need_of_compare, need_of_run

    free = free_memory()
    graphs = computed_graphs(opened.model)
    if free is None or not (graphs or compared):
        return
    need = (
        need_of_run(opened.scenario, graphs, free) if compared is None else need_of_compare(opened.scenario, compared)
    )
    if need.total <= free:
        return
    parts = f"tensors {size(need.contexts)}, results {size(need.buffers)}, values as floats {size(need.converted)}"
    raise CliError(
        f"computing needs about {size(need.total)} ({parts}), but only {size(free)} is free here. Use fewer tokens or "
        "a smaller context (`capture --n-tokens`, -c); --no-memory-check computes anyway"
    )
