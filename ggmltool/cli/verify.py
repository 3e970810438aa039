"""`ggmltool verify`: the same scenario on the real library, and what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ggmltool.cli.command import Command
from ggmltool.cli.errors import CliError
from ggmltool.cli.options import json_option, output_option, scenario_argument, work_option
from ggmltool.cli.output import Output
from ggmltool.cli.progress import progress
from ggmltool.cli.scenario import open_scenario, refuse_older
from ggmltool.inspect.built import output_ids
from ggmltool.inspect.opened import Opened
from ggmltool.views.diff.verify import Difference, differences, differences_view, first_line_that_differs
from ggmltool.views.table import heading
from ggmltool.views.text import count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.oracle import OracleRun
    from ggmltool.scenario.model import Model, Step
    from ggmltool.scenario.run import Run

PLANNING = ("reserve", "alloc", "reset")
NMSE_F32, NMSE_OTHER = 1e-7, 5e-4
"""How far values may be off (normalized mean squared error), as in ggml's own tests: f32 throughout, or not."""


@click.command(cls=Command)
@scenario_argument
@click.option(
    "--values/--no-values",
    default=None,
    help="Compute on both and compare the outputs (default: where every tensor of the contexts has data).",
)
@work_option
@json_option
@output_option
def verify(scenario: str | None, values: bool | None, json: bool, output: Output) -> int:
    """Run the scenario on the real ggml, too, and show what differs.

    It compares all fields of the plans after every reserve and alloc step, ggml's own debug print of them, and the
    values of the outputs. Exit status 1 if anything differs.

    \b
    Example:
      ggmltool verify --no-values model.yaml
    """
    opened = open_scenario(scenario)
    refuse_older(opened, "the real library here belongs to")
    model = opened.model
    if values is None:
        values = _has_data(model)
    steps = _with_reads(opened) if values else [step for step in model.steps if step.kind in PLANNING]
    with progress("running the real ggml"):
        real = _on_the_real_library(replace(model, steps=steps))
    # The real library computes on the CPU: a GPU stands beside it only where the scenario asks for one.
    model.backends[:] = [replace(b, engine="numpy") if b.engine == "auto" else b for b in model.backends]
    run = opened.scenario.start(debug=True, values=values)
    with progress("computing here" if values else "planning here"):
        found, compared = _compare(run, steps, real)
    if json:
        from ggmltool.views.json_text import json_text

        result = {"ggmltool": 1, "kind": "verify", "same": not found, "compared": compared}
        output.write(json_text(result | {"differences": [d._asdict() for d in found]}))
    elif found:
        head = heading(opened.title, [f"{count(len(found), 'difference')} from the real ggml"], output.style)
        output.write(f"{head}\n{differences_view(found, output.style)}")
    else:
        facts = ["the real ggml does the same", *_facts(compared)]
        output.write(heading(opened.title, facts, output.style))
    return 1 if found else 0


def _has_data(model: Model) -> bool:
    """Whether every tensor that holds its own data is given some, by the contexts or by a step."""
    from ggmltool.ggml.tensor import nbytes_of

    given = {name for step in model.steps for name, _ in step.data}
    return all(
        t.data is not None or t.id in given or t.view_src is not None or nbytes_of(t.type, t.ne, t.nb) == 0
        for t in model.tensors()
    )


def _with_reads(opened: Opened) -> list[Step]:
    """The scenario's steps, with the outputs of a graph read after it was computed."""
    from ggmltool.scenario.model import Step

    steps: list[Step] = []
    for step in opened.model.steps:
        steps.append(step)
        if step.kind == "compute" and step.graph is not None:
            steps.append(Step("get", tensors=tuple(output_ids(opened.scenario, step.graph))))
    return steps


def _on_the_real_library(model: Model) -> OracleRun:
    """Run it there. Raises CliError where the library is missing or cannot do it."""
    from ggmltool import oracle

    try:
        return oracle.run(model)
    except oracle.OracleUnavailable as missing:
        raise CliError(str(missing)) from None
    except oracle.ChildError as error:
        # The child's traceback is for --traceback; its last line says what happened.
        what = str(error).strip().splitlines()[-1]
        raise CliError(f"the real library cannot run this scenario: {what}") from error


def _compare(run: Run, steps: list[Step], real: OracleRun) -> tuple[list[Difference], dict[str, int]]:
    """All differences, and how much was compared."""
    from ggmltool.views.plan.sched_debug import sched_debug

    read: list[dict[str, NDArray[Any]]] = []
    for step in steps:
        done = run.step(step)
        if isinstance(done, dict):
            read.append(done)
        if run.plans and not run.plans[-1].ok:
            break
    found: list[Difference] = []
    if len(run.plans) != len(real.plans):
        found.append(Difference("steps that planned or failed", str(len(run.plans)), str(len(real.plans))))
    for ours, theirs in zip(run.plans, real.plans, strict=False):
        found += differences(f"{ours.step} {ours.graph or ''}".rstrip(), ours.as_dict(), theirs)
    for record, text in zip(run.debug_records, real.debug, strict=False):
        ours_text = sched_debug(record, 2, causes=False).encode("utf-8", "surrogateescape")
        if (different := first_line_that_differs(ours_text, text)) is not None:
            found.append(different)
    n_values = 0
    for mine, real_values in zip(read, real.values, strict=False):
        for id, values in mine.items():
            n_values += 1
            found += _compare_values(id, values, real_values[id], _tolerance(run.model))
    compared = {"plans": len(run.plans), "nodes": sum(len(p.nodes) for p in run.plans), "outputs": n_values}
    return found, compared


def _tolerance(model: Model) -> float:
    """f32 throughout is held to more than half precision and quantized types are."""
    specs = [*model.tensors(), *(node for graph in model.graphs.values() for node in graph.nodes)]
    return NMSE_F32 if all(t.type.name in ("f32", "i8", "i16", "i32", "i64") for t in specs) else NMSE_OTHER


def _compare_values(id: str, ours: NDArray[Any], theirs: NDArray[Any], tolerance: float) -> Iterator[Difference]:
    import numpy as np

    if ours.dtype.kind != "f":
        if not np.array_equal(ours, theirs):
            yield Difference(f"values of {id}", f"{int((ours != theirs).sum())} of {ours.size} differ", "")
        return
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        yield Difference(f"values of {id}", "NaN or infinities in other places", "")
        return
    finite = np.isfinite(theirs)
    a, b = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
    error = float(((a - b) ** 2).sum()) / max(float((b**2).sum()), 1e-300)
    if error > tolerance:
        yield Difference(f"values of {id}", f"NMSE {error:.1e}", f"at most {tolerance:.0e}")


def _facts(compared: dict[str, int]) -> list[str]:
    facts = [f"{count(compared['plans'], 'plan')} with {count(compared['nodes'], 'node')}"]
    return [*facts, f"the values of {count(compared['outputs'], 'output')}"] if compared["outputs"] else facts
