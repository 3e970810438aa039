"""The two sides that `compare` is asked for, and what comes of them, as its view takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ggmltool.cli.errors import CliError
from ggmltool.cli.output import note
from ggmltool.cli.progress import progress
from ggmltool.ggml.device import Backend
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import KEY_NAMES, VIEW_OPS
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.ggml.tensor import op_desc
from ggmltool.ggml.version import VERSION
from ggmltool.inspect.apart import Apart
from ggmltool.inspect.comparison import Compared, make_backend
from ggmltool.inspect.comparison import compare as compare_backends
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.backends import read_devices
from ggmltool.scenario.errors import Mistake, ScenarioError, did_you_mean, nearest
from ggmltool.scenario.injected import broken, read_injections
from ggmltool.scenario.model import BackendSpec, Model
from ggmltool.scenario.valueless import valueless
from ggmltool.views.compute.compare import ComparedGraph, ComparedNode, Off
from ggmltool.views.text import shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.inspect.recorded import Told

OTHER = "CUDA0"
"""What the CPU is compared with where the scenario has nothing else."""

LIBRARY = "library"

_NAMES_SHOWN = 4


class Asked(NamedTuple):
    """What the command line asks for; `seed` None makes up no values; `may_lack_values`: tensors without are fine."""

    graph: str
    backends: str | None
    other: str | None
    values: Path | None
    eval_log: Path | None
    tolerance: float | None
    inject: tuple[str, ...]
    tensor: tuple[str, ...]
    seed: int | None
    may_lack_values: bool


def compared_graph(opened: Opened, asked: Asked) -> ComparedGraph:
    """Compute what is to be computed and compare. Raises CliError, ScenarioError, GgmlError, UsageError."""
    _check_nodes(opened.model, asked.graph, asked.tensor)
    path = asked.values or asked.eval_log
    if path is not None:
        return _with_recorded(opened, asked, path)
    return _with_computed(opened, asked)


def _with_computed(opened: Opened, asked: Asked) -> ComparedGraph:
    """Both sides are computed: by two backends, or by one and the real library."""
    model = opened.model
    wrong = read_injections(asked.inject, model.graphs[asked.graph], model.source)
    specs = _two_backends(model, asked.backends) if asked.other is None else (_one(model, asked.backends), _cpu(model))

    def kernels(two: tuple[Backend, Backend]) -> GraphCompute:
        compute = backend_graph_compute if asked.other is None else _of_library(two[1])
        return broken(compute, two[1], wrong, model.source) if wrong else compute

    n_nodes = len(model.graphs[asked.graph].nodes)
    with progress(f"comparing {asked.graph}", 0 if asked.tensor else n_nodes, "nodes") as advance:
        found = compare_backends(
            opened.scenario, asked.graph, specs, kernels, asked.tolerance, asked.tensor, asked.seed, advance
        )
    one, other = found.backends
    return ComparedGraph(
        asked.graph,
        (one.name, other.name if asked.other is None else LIBRARY),
        found.engines if asked.other is None else (one.engine, f"ggml {VERSION}"),
        [_node(n) for n in found.nodes],
        found.n_nodes,
        found.nbytes,
        injected={id: KEY_NAMES[key].upper() for id, key in wrong.items()},
        made_up=found.made_up,
        zero=found.zero,
        whole=found.whole,
    )


def _of_library(backend: Backend) -> GraphCompute:
    """The real library's kernels. Raises CliError where it is missing."""
    from ggmltool.oracle import OracleUnavailable
    from ggmltool.oracle.kernels import library_kernels

    try:
        return library_kernels(backend, backend_graph_compute)
    except OracleUnavailable as missing:
        raise CliError(str(missing)) from None


class _Recorded(NamedTuple):
    """What was read of the other side: values of nodes and of inputs by id, names that the graph does not have."""

    told: Mapping[str, Told]
    inputs: Mapping[str, Callable[[], NDArray[Any]]]
    unknown: list[str]


def _with_recorded(opened: Opened, asked: Asked, path: Path) -> ComparedGraph:
    """One side is computed, the other one read from `path`."""
    from ggmltool.inspect.recorded import compare_recorded

    model = opened.model
    other = _read_files(model, asked.graph, path) if asked.values is not None else _read_log(model, asked.graph, path)
    if not asked.may_lack_values:
        _check_inputs(model, asked.graph, set(other.inputs), path)
    backend = make_backend(model, _one(model, asked.backends))
    nodes = model.graphs[asked.graph].nodes
    with progress(f"comparing {asked.graph}", len(nodes), "nodes") as advance:
        found, through, shown = compare_recorded(
            opened.scenario, asked.graph, backend, backend_graph_compute, other.told, other.inputs,
            asked.tolerance, asked.seed if asked.may_lack_values else None, advance,
        )  # fmt: skip
    lacking = {id for ids in valueless(model, [asked.graph]) for id in ids}
    names = {n.node.id for n in found.nodes}
    return ComparedGraph(
        asked.graph,
        (backend.name, path.name or str(path)),
        (backend.engine, "read"),
        [_node(n, through.get(n.node.id, ()), shown.get(n.node.id)) for n in found.nodes],
        found.n_nodes,
        found.nbytes,
        made_up=[id for id in found.made_up if id in lacking],
        zero=[id for id in found.zero if id in lacking],
        recorded="values" if asked.values is not None else "log",
        untold=[n.id for n in nodes if n.id not in names and n.op not in VIEW_OPS],
        unknown=other.unknown,
    )


def _read_files(model: Model, graph: str, path: Path) -> _Recorded:
    from ggmltool.sources.values.files import read_values

    files = read_values(path, model, graph)
    nodes = {n.id for n in model.graphs[graph].nodes}
    told = {id: read for id, read in files.values.items() if id in nodes}
    return _Recorded(told, {id: read for id, read in files.values.items() if id not in nodes}, files.unknown)


def _read_log(model: Model, graph: str, path: Path) -> _Recorded:
    from ggmltool.sources.values.eval_log import read_eval_log
    from ggmltool.sources.values.log_nodes import log_nodes

    with progress(f"reading {path.name}", path.stat().st_size, "bytes") as advance:
        log = read_eval_log(path, advance)
    if log.left_out:
        note(f"{path}: it has too many elements, so only the beginning is read")
    nodes = log_nodes(log, model, graph, str(path))
    return _Recorded(nodes.samples, {}, nodes.unknown)


def _check_inputs(model: Model, graph: str, told: set[str], path: Path) -> None:
    """Refuse a graph with inputs that have values neither here nor on the other side. Raises CliError."""
    missing = [id for ids in valueless(model, [graph]) for id in ids if id not in told]
    if missing:
        names = shortened(missing, _NAMES_SHOWN)
        raise CliError(
            f"{model.source}: these tensors have values neither here nor in {path}: {names}. Give them the `data` "
            "that the other side had (for a model, `ggmltool capture --prompt` does)"
        )


def _two_backends(model: Model, text: str | None) -> tuple[BackendSpec, BackendSpec]:
    """The two that the option names, each of the scenario or known. Raises UsageError."""
    if text is None:
        first = next((b.name for b in model.backends if b.profile != "CPU"), OTHER)
        text = f"{first},{_cpu(model).name}"
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or not all(names):
        raise click.UsageError(f"--backends takes two, separated by a comma: {OTHER},CPU, not {text!r}.")
    first_spec, second_spec = (_backend(model, name) for name in names)
    return first_spec, second_spec


def _one(model: Model, text: str | None) -> BackendSpec:
    """The one that computes where the other side is something else. Raises UsageError."""
    if text is not None and "," in text:
        raise click.UsageError(f"--backends takes one here, since the other side is not a backend: not {text!r}.")
    return _cpu(model) if text is None else _backend(model, text.strip())


def _cpu(model: Model) -> BackendSpec:
    return next((b for b in model.backends if b.profile == "CPU"), None) or _backend(model, "CPU")


def _backend(model: Model, name: str) -> BackendSpec:
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


def _check_nodes(model: Model, graph: str, ids: tuple[str, ...]) -> None:
    """Refuse what is no node of the graph before any work is done. Raises ScenarioError."""
    known = [n.id for n in model.graphs[graph].nodes]
    for id in ids:
        if id not in known:
            near = nearest(id, known)
            hint = f"did you mean {near}?" if near else ""
            raise ScenarioError(f"graph {graph} has no node {id}", model.source, None, hint)


def _node(n: Compared, through: tuple[str, ...] = (), shown: int | None = None) -> ComparedNode:
    t = n.node
    return ComparedNode(
        n.number,
        t.id,
        op_desc(t),
        t.type.name,
        t.ne,
        tuple(dict.fromkeys(s.id for s in t.src if s is not None and s is not t)),
        _off(n.own),
        _off(n.end_to_end),
        n.tolerance,
        n.ok,
        n.not_run_by,
        through,
        shown,
    )


def _off(apart: Apart) -> Off:
    return Off(apart.nmse, apart.largest, apart.at, apart.values, apart.not_finite, apart.misplaced)
