"""What computing takes for granted: that the tensors it reads have values, and that there is memory for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ggmltool.cli.output import note
from ggmltool.inspect.ready import check_weights, computed_graphs
from ggmltool.show.text import shortened

if TYPE_CHECKING:
    from ggmltool.ggml.bounds import Bounds
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import ScenarioSpec, Step

_NAMES_SHOWN = 3

F = TypeVar("F", bound=Callable[..., Any])


def zeros_option(command: F) -> F:
    """--zeros: compute with weights that have no values."""
    return click.option("--zeros", is_flag=True, help="Compute even if weights have no values: they are zero.")(command)


def check_run(model: ScenarioSpec, zeros: bool) -> None:
    """Refuse to do steps whose weights have no values; say which inputs are zero. Raises InspectError."""
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


def _bound_memory(ctx: click.Context, _: click.Parameter, checked: bool) -> bool:
    """What the engine takes for a node or for data is bound in the same way."""
    from ggmltool.ggml.bounds import NO_END

    ctx.meta["ggmltool.bounds.nbytes"] = None if checked else NO_END
    return checked


def bounds_asked_for() -> Bounds:
    """The bounds that the command's options set."""
    from ggmltool.ggml.bounds import Bounds

    ctx = click.get_current_context(silent=True)
    meta = ctx.meta if ctx is not None else {}
    return Bounds(
        **{name: meta[key] for name in ("operations", "nbytes") if (key := f"ggmltool.bounds.{name}") in meta}
    )


def memory_option(command: F) -> F:
    """--memory-check: refuse what does not fit into the machine's memory."""
    return click.option(
        "--memory-check/--no-memory-check",
        default=True,
        callback=_bound_memory,
        help="Stop before computing if it needs more memory than is free on this machine (default), or try.",
    )(command)
