"""`ggmltool compare`: a graph on two backends, node by node, and where their values part."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import click

from ggmltool.cli.command import Command
from ggmltool.cli.options import (
    complete_nodes,
    ggml_option,
    graph_option,
    json_option,
    output_option,
    scenario_argument,
    work_option,
)
from ggmltool.cli.output import Output, progress
from ggmltool.cli.scenario import Opened, open_scenario
from ggmltool.views.compare import ComparedGraph, ComparedNode, compare_json, compare_view

if TYPE_CHECKING:
    from ggmltool.scenario.comparison import Compared, Comparison
    from ggmltool.scenario.model import BackendSpec, Model

OTHER = "CUDA0"
"""What the CPU is compared with where the scenario has nothing else."""


def _complete_injection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The nodes, each with the `=` that follows; behind it the ops."""
    node, equals, op = incomplete.rpartition("=")
    if not equals:
        return [f"{id}=" for id in complete_nodes(ctx, param, incomplete)]
    from ggmltool.ggml.op import KEY_NAMES

    return [f"{node}={name}" for name in KEY_NAMES if name.startswith(op)]


@click.command(cls=Command)
@scenario_argument
@graph_option
@click.option(
    "--backends",
    metavar="A,B",
    help="The two backends, of the scenario or known ones. Default: the scenario's first and its CPU, else CUDA0,CPU.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    metavar="NMSE",
    help="Allow every node this much. Default: 1e-7, or 5e-4 where quantized or half-precision operands are computed "
    "with, there or in a source before.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="NODE=OP",
    shell_complete=_complete_injection,
    help="Break a kernel on purpose: the second backend computes NODE by the kernel of OP. May be given again.",
)
@click.option(
    "-t",
    "--tensor",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_nodes,
    help="Compute the graph as a whole and compare only this node; may be given more than once.",
)
@click.option(
    "--worst", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="Rows of the table at most."
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="For values that are made up.")
@work_option
@ggml_option
@json_option
@output_option
def compare(
    scenario: str | None,
    graph: str | None,
    backends: str | None,
    tolerance: float | None,
    inject: tuple[str, ...],
    tensor: tuple[str, ...],
    worst: int,
    seed: int,
    json: bool,
    output: Output,
) -> int:
    """Compute a graph on two backends, node by node, and show the first node whose values differ.

    As ggml's own tests do (ggml_backend_compare_graph_backend): all tensors in the memory of the first backend, the
    graph copied to the second, then each node computed by itself on both. Each side goes on with its own values, so
    the first bad node is the one whose kernel is wrong. The error is the NMSE: the squared error by the squares of the
    first backend's values. NaN and infinities must be in the same places, integers equal.

    Floats without data are made up, from -1 to 1; integers without data are 0, and so are types that cannot be
    quantized here. Simulated devices all have the same kernels, and --inject shows what a wrong one looks like; a GPU
    of this machine has others. Exit status 1: a node is over its tolerance.

    \b
    Example:
      ggmltool compare --backends CUDA0,CPU model.yaml
      ggmltool compare --inject ffn_gate=sqr --worst 3 model.yaml
    """
    if tolerance is not None and isnan(tolerance):
        raise click.UsageError("--tolerance takes a number.")
    opened = open_scenario(scenario)
    name = opened.scenario.graph_name(graph)
    if tensor:
        _check_test_nodes(opened.model)
    result = _compared(opened, name, _two_backends(opened.model, backends), tolerance, inject, tensor, seed)
    if json:
        from ggmltool.views.json_text import json_text

        output.write(json_text(compare_json(result)))
    else:
        output.write(compare_view(result, opened.title, worst, output.style))
    return 1 if result.over else 0


def _check_test_nodes(model: Model) -> None:
    """Refuse --tensor of a ggml that compares every node. Raises CliError."""
    from ggmltool.cli.errors import CliError
    from ggmltool.scenario.versions import TEST_NODES_SINCE, lacks

    if lacks(model.release, TEST_NODES_SINCE):
        message = f"ggml {model.ggml} compares every node; single nodes can be named since {TEST_NODES_SINCE}"
        raise CliError(f"{message}. Leave --tensor out")


def _two_backends(model: Model, text: str | None) -> tuple[BackendSpec, BackendSpec]:
    """The two that the option names, each of the scenario or known. Raises UsageError."""
    if text is None:
        first = next((b.name for b in model.backends if b.profile != "CPU"), OTHER)
        cpu = next((b.name for b in model.backends if b.profile == "CPU"), "CPU")
        text = f"{first},{cpu}"
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or not all(names):
        raise click.UsageError(f"--backends takes two, separated by a comma: {OTHER},CPU, not {text!r}.")
    first_spec, second_spec = (_backend(model, name) for name in names)
    return first_spec, second_spec


def _backend(model: Model, name: str) -> BackendSpec:
    from ggmltool.scenario.backends import read_devices
    from ggmltool.scenario.errors import Mistake, did_you_mean

    own = {b.name: b for b in model.backends}
    if name in own:
        return own[name]
    try:
        spec = read_devices([name])[0]
    except Mistake as mistake:
        raise click.UsageError(f"--backends: {mistake.message}.") from None
    if spec.profile == "custom":
        known = (*own, "CPU", "CUDA0", "Metal", "Vulkan0", "ROCm0", "SYCL0", "BLAS")
        hint = did_you_mean(name, known) or f"the scenario has {', '.join(own)}"
        raise click.UsageError(f"--backends: no backend is called {name}; {hint}")
    return spec


def _compared(
    opened: Opened,
    graph: str,
    specs: tuple[BackendSpec, BackendSpec],
    tolerance: float | None,
    inject: tuple[str, ...],
    tensor: tuple[str, ...],
    seed: int,
) -> ComparedGraph:
    from ggmltool.ggml.op import KEY_NAMES
    from ggmltool.ggml.sched.compute import backend_graph_compute
    from ggmltool.scenario.comparison import compare as compare_backends
    from ggmltool.scenario.injected import broken, read_injections

    model = opened.model
    _check_nodes(model, graph, tensor)
    wrong = read_injections(inject, model.graphs[graph], model.source)
    with progress(f"comparing {graph}", 1 if tensor else len(model.graphs[graph].nodes)) as advance:
        found = compare_backends(
            opened.scenario,
            graph,
            specs,
            lambda two: broken(backend_graph_compute, two[1], wrong, model.source) if wrong else backend_graph_compute,
            tolerance,
            tensor,
            seed,
            advance,
        )
    return _graph(found, graph, {id: KEY_NAMES[key].upper() for id, key in wrong.items()})


def _check_nodes(model: Model, graph: str, ids: tuple[str, ...]) -> None:
    """Refuse what is no node of the graph before any work is done. Raises ScenarioError."""
    from ggmltool.scenario.errors import ScenarioError, nearest

    known = [n.id for n in model.graphs[graph].nodes]
    for id in ids:
        if id not in known:
            near = nearest(id, known)
            raise ScenarioError(
                f"graph {graph} has no node {id}", model.source, None, f"did you mean {near}?" if near else ""
            )


def _graph(found: Comparison, graph: str, injected: dict[str, str]) -> ComparedGraph:
    a, b = found.backends
    return ComparedGraph(
        graph,
        (a.name, b.name),
        found.engines,
        [_node(n) for n in found.nodes],
        found.n_nodes,
        found.nbytes,
        injected,
        found.made_up,
        found.zero,
    )


def _node(n: Compared) -> ComparedNode:
    from ggmltool.ggml.tensor import op_desc

    t = n.node
    return ComparedNode(
        n.number,
        t.id,
        op_desc(t),
        t.type.name,
        t.ne,
        tuple(dict.fromkeys(s.id for s in t.src if s is not None and s is not t)),
        n.apart.nmse,
        n.apart.largest,
        n.apart.at,
        n.apart.values,
        n.apart.not_finite,
        n.apart.misplaced,
        n.tolerance,
        n.ok,
        n.begins,
        n.not_run_by,
    )
