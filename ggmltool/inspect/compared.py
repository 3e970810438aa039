"""A graph computed by two sides, node by node: what is asked for, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.ggml.device import Backend
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import KEY_NAMES, VIEW_OPS
from ggmltool.ggml.sched.compute import backend_graph_compute
from ggmltool.ggml.tensor import op_desc
from ggmltool.inspect.apart import Apart
from ggmltool.inspect.comparison import Compared, make_backend
from ggmltool.inspect.comparison import compare as compare_backends
from ggmltool.inspect.errors import InspectError, WrongUse
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.real_sides import VULKAN, RealSide, library_side, vulkan_side
from ggmltool.inspect.work import UNSEEN, Work
from ggmltool.scenario.devices.texts import read_devices
from ggmltool.scenario.errors import Mistake, ScenarioError, did_you_mean, quoted
from ggmltool.scenario.run.placed import broken, read_injections
from ggmltool.scenario.since import days
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec, valueless
from ggmltool.scenario.versions import lacks
from ggmltool.show.text import shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.inspect.recorded import Told

OTHER = "CUDA0"
"""What the CPU is compared with where the scenario has nothing else."""

_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ComparedNode:
    """A node that both sides computed: its `own` difference from the same inputs, and the one end to end.

    `ok`: its own difference is within the tolerance of its op and types. `not_run_by` are the backends that do not run
    the op. `through` are nodes before it whose values the other side does not tell, so that they are judged with it;
    `shown` is how many of its elements the other side tells (None: all).
    """

    index: int
    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[str, ...]
    own: Apart
    end_to_end: Apart
    tolerance: float
    ok: bool
    not_run_by: tuple[str, ...] = ()
    through: tuple[str, ...] = ()
    shown: int | None = None


@dataclass(frozen=True, slots=True)
class ComparedGraph:
    """All nodes that were compared, in the graph's order. `n_nodes` counts views too, `nbytes` is what each side took.

    `sides` are the names of the two, `engines` who computed each. `whole`: each computed the graph at once.
    `recorded`: the second side's values were read, not computed; then `untold` are the nodes that it tells no values
    of, `unknown` the names in it that the graph does not have, `ran_on` who computed a node there, as far as is known.
    `injected` has the op whose kernel was put in the place of a node's, on the second side; `made_up` the tensors
    without data that were given values, `zero` those that were not.
    """

    graph: str
    sides: tuple[str, str]
    engines: tuple[str, str]
    nodes: Sequence[ComparedNode]
    n_nodes: int
    nbytes: int
    injected: Mapping[str, str] = field(default_factory=dict)
    made_up: Sequence[str] = ()
    zero: Sequence[str] = ()
    whole: bool = False
    recorded: str = ""
    untold: Sequence[str] = ()
    unknown: Sequence[str] = ()
    ran_on: Mapping[str, str] = field(default_factory=dict)

    @property
    def over(self) -> list[ComparedNode]:
        """The nodes whose own kernels are over the tolerance; the first one is the bad one."""
        return [n for n in self.nodes if not n.ok]

    @property
    def apart(self) -> list[ComparedNode]:
        """The nodes within their tolerance that part end to end by more than it."""
        return [n for n in self.nodes if n.ok and (n.end_to_end.misplaced or n.end_to_end.nmse > n.tolerance)]


class Asked(NamedTuple):
    """What is asked for; `seed` None makes up no values; `may_lack_values`: tensors without are fine."""

    graph: str
    backends: str | None = None
    other: str | None = None
    values: Path | None = None
    eval_log: Path | None = None
    tolerance: float | None = None
    inject: tuple[str, ...] = ()
    tensor: tuple[str, ...] = ()
    seed: int | None = 1
    may_lack_values: bool = False

    def check_sides(self) -> None:
        """Raises WrongUse for options that contradict each other."""
        given = {"--with": self.other, "--values": self.values, "--eval-log": self.eval_log}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise WrongUse(f"{' and '.join(names)} both name the other side: give one of them.")
        for name, wanted in (("--inject", self.inject), ("--tensor", self.tensor)):
            if wanted and names and names[0] != "--with":
                raise WrongUse(f"{name} needs two computed sides; {names[0]} reads the other one.")

    def check(self, model: ScenarioSpec) -> None:
        """Raises InspectError for an option that this ggml does not have."""
        if self.tensor and lacks(model.release, days().test_nodes):
            message = f"ggml {model.ggml} compares every node; single nodes can be named since {days().test_nodes}"
            raise InspectError(f"{message}. Leave --tensor out")


def compared_graph(opened: Opened, asked: Asked, work: Work = UNSEEN) -> ComparedGraph:
    """Compute what is to be computed and compare. Raises InspectError, ScenarioError, GgmlError, WrongUse."""
    asked.check_sides()
    asked.check(opened.model)
    _check_nodes(opened.model, asked.graph, asked.tensor)
    path = asked.values or asked.eval_log
    if path is not None:
        return _with_recorded(opened, asked, path, work)
    return _with_computed(opened, asked, work)


def _with_computed(opened: Opened, asked: Asked, work: Work) -> ComparedGraph:
    """Both sides are computed: by two backends, or by one and the real library."""
    model = opened.model
    wrong = read_injections(asked.inject, model.graphs[asked.graph], model.source)
    real = _real_side(model, asked.other)
    specs = _two_backends(model, asked.backends) if real is None else (_one(model, asked.backends), real.spec)

    def kernels(two: tuple[Backend, Backend]) -> GraphCompute:
        compute = backend_graph_compute if real is None else real.kernels(two[1])
        return broken(compute, two[1], wrong, model.source) if wrong else compute

    n_nodes = len(model.graphs[asked.graph].nodes)
    with work.progress(f"comparing {asked.graph}", 0 if asked.tensor else n_nodes, "nodes") as advance:
        found = compare_backends(
            opened.scenario, asked.graph, specs, kernels, asked.tolerance, asked.tensor, asked.seed, advance
        )
    one, other = found.backends
    return ComparedGraph(
        asked.graph,
        (one.name, other.name if real is None else real.name),
        found.engines if real is None else (one.engine, real.engine),
        [_node(n) for n in found.nodes],
        found.n_nodes,
        found.nbytes,
        injected={id: KEY_NAMES[key].upper() for id, key in wrong.items()},
        made_up=found.made_up,
        zero=found.zero,
        whole=found.whole,
    )


def _real_side(model: ScenarioSpec, other: str | None) -> RealSide | None:
    """The side that a real ggml computes; None where both are backends of the scenario."""
    if other is None:
        return None
    return vulkan_side(model, _backend(model, "Vulkan0")) if other == VULKAN else library_side(model, _cpu(model))


class _Recorded(NamedTuple):
    """What was read of the other side: values of nodes and of inputs by id, names that the graph does not have."""

    told: Mapping[str, Told]
    inputs: Mapping[str, Callable[[], NDArray[Any]]]
    unknown: list[str]


def _with_recorded(opened: Opened, asked: Asked, path: Path, work: Work) -> ComparedGraph:
    """One side is computed, the other one read from `path`."""
    from ggmltool.inspect.recorded import compare_recorded

    model = opened.model
    other = (
        _read_files(model, asked.graph, path) if asked.values is not None else _read_log(model, asked.graph, path, work)
    )
    if not asked.may_lack_values:
        _check_inputs(model, asked.graph, set(other.inputs), path)
    backend = make_backend(model, _one(model, asked.backends))
    nodes = model.graphs[asked.graph].nodes
    with work.progress(f"comparing {asked.graph}", len(nodes), "nodes") as advance:
        found, through, shown = compare_recorded(
            opened.scenario, asked.graph, backend, backend_graph_compute, other.told, other.inputs,
            asked.tolerance, asked.seed if asked.may_lack_values else None, advance,
        )  # fmt: skip
    lacking = {id for ids in valueless(model, [asked.graph]) for id in ids}
    names = {n.node.id for n in found.nodes}
    computed = model.graphs[asked.graph].computed()
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
        untold=[n.id for n in computed if n.id not in names and n.op not in VIEW_OPS],
        unknown=other.unknown,
    )


def _read_files(model: ScenarioSpec, graph: str, path: Path) -> _Recorded:
    from ggmltool.sources.values.files import read_values

    files = read_values(path, model, graph)
    nodes = {n.id for n in model.graphs[graph].nodes}
    told = {id: read for id, read in files.values.items() if id in nodes}
    return _Recorded(told, {id: read for id, read in files.values.items() if id not in nodes}, files.unknown)


def _read_log(model: ScenarioSpec, graph: str, path: Path, work: Work) -> _Recorded:
    from ggmltool.sources.values.eval_log import read_eval_log
    from ggmltool.sources.values.log_nodes import log_nodes

    with work.progress(f"reading {path.name}", path.stat().st_size, "bytes") as advance:
        log = read_eval_log(path, advance)
    if log.left_out:
        work.note(f"{path}: it has too many elements, so only the beginning is read")
    nodes = log_nodes(log, model, graph, str(path))
    return _Recorded(nodes.samples, {}, nodes.unknown)


def _check_inputs(model: ScenarioSpec, graph: str, told: set[str], path: Path) -> None:
    """Refuse a graph with inputs that have values neither here nor on the other side. Raises InspectError."""
    missing = [id for ids in valueless(model, [graph]) for id in ids if id not in told]
    if missing:
        names = shortened(missing, _NAMES_SHOWN)
        raise InspectError(
            f"{model.source}: these tensors have values neither here nor in {path}: {names}. Give them the `data` "
            "that the other side had (for a model, `ggmltool capture --prompt` does)"
        )


def _two_backends(model: ScenarioSpec, text: str | None) -> tuple[BackendSpec, BackendSpec]:
    """The two that the option names, each of the scenario or known. Raises WrongUse."""
    if text is None:
        first = next((b.name for b in model.backends if b.profile != "CPU"), OTHER)
        text = f"{first},{_cpu(model).name}"
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2 or not all(names):
        raise WrongUse(f"--backends takes two, separated by a comma: {OTHER},CPU, not {text!r}.")
    first_spec, second_spec = (_backend(model, name) for name in names)
    return first_spec, second_spec


def _one(model: ScenarioSpec, text: str | None) -> BackendSpec:
    """The one that computes where the other side is something else. Raises WrongUse."""
    if text is not None and "," in text:
        raise WrongUse(f"--backends takes one here, since the other side is not a backend: not {text!r}.")
    return _cpu(model) if text is None else _backend(model, text.strip())


def _cpu(model: ScenarioSpec) -> BackendSpec:
    return next((b for b in model.backends if b.profile == "CPU"), None) or _backend(model, "CPU")


def _backend(model: ScenarioSpec, name: str) -> BackendSpec:
    own = {b.name: b for b in model.backends}
    if name in own:
        return own[name]
    try:
        spec = read_devices([name])[0]
    except Mistake as mistake:
        raise WrongUse(f"--backends: {mistake.message}.") from None
    if spec.profile == "custom":
        known = (*own, "CPU", "CUDA0", "Metal", "Vulkan0", "ROCm0", "SYCL0", "BLAS")
        hint = did_you_mean(name, known) or f"the scenario has {', '.join(own)}"
        raise WrongUse(f"--backends: no backend is called {name}; {hint}")
    return spec


def _check_nodes(model: ScenarioSpec, graph: str, ids: tuple[str, ...]) -> None:
    """Refuse what is no node of the graph before any work is done. Raises ScenarioError."""
    known = [n.id for n in model.graphs[graph].nodes]
    for id in ids:
        if id not in known:
            raise ScenarioError(f"graph {graph} has no node {quoted(id)}", model.source, None, did_you_mean(id, known))


def _node(n: Compared, through: tuple[str, ...] = (), shown: int | None = None) -> ComparedNode:
    t = n.node
    return ComparedNode(
        n.number,
        t.id,
        op_desc(t),
        t.type.name,
        t.ne,
        tuple(dict.fromkeys(s.id for s in t.src if s is not None and s is not t)),
        n.own,
        n.end_to_end,
        n.tolerance,
        n.ok,
        n.not_run_by,
        through,
        shown,
    )
