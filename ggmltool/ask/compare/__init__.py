"""`compare`: a graph computed by two sides, node by node, and the first kernel that is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct, structs

from ggmltool.ask.answer import Answer
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.ready import check_memory, check_weights
from ggmltool.inspect.work import UNSEEN, Work
from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.since import days
from ggmltool.scenario.spec import ScenarioSpec, valueless
from ggmltool.scenario.versions import lacks
from ggmltool.show.text import shortened
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.compare.record import ComparedGraph, WorstNodes
    from ggmltool.ask.compare.recorded import Told
    from ggmltool.ggml.device import Backend
    from ggmltool.ggml.graph_copy import GraphCompute

_NAMES_SHOWN = 4


class Compare(Struct, frozen=True, kw_only=True):
    """What is asked for: a graph, by two `backends` or by one and a `real` ggml, or beside what was read from `values`
    or an `eval_log`; its `worst` nodes are shown. With `zeros`, tensors without data are zero; with a `seed`, weights
    get random values, too.
    """

    graph: str | None = None
    backends: str | Sequence[str] | None = None
    real: Literal["library", "vulkan"] | None = None
    values: Path | None = None
    eval_log: Path | None = None
    tolerance: float | None = None
    inject: Sequence[str] = ()
    tensor: Sequence[str] = ()
    seed: int | None = None
    zeros: bool = False
    worst: int = 10

    def __post_init__(self) -> None:
        """Raises WrongUse for options that contradict each other."""
        given = {"--with": self.real, "--values": self.values, "--eval-log": self.eval_log}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise WrongUse(f"{' and '.join(names)} both name the other side: give one of them.")
        for name, wanted in (("--inject", self.inject), ("--tensor", self.tensor)):
            if wanted and names and names[0] != "--with":
                raise WrongUse(f"{name} needs two computed sides; {names[0]} reads the other one.")

    def ask(
        self, opened: Opened, work: Work = UNSEEN, checks_memory: bool = False, instead: str = "plan()"
    ) -> Answer[WorstNodes]:
        """Compute what is to be computed and compare. `instead` only plans.

        Raises InspectError, ScenarioError, GgmlError, WrongUse.
        """
        model = opened.model
        graph = opened.scenario.graph_name(self.graph)
        if self.tensor and lacks(model.release, days().test_nodes):
            message = f"ggml {model.ggml} compares every node; single nodes can be named since {days().test_nodes}"
            raise InspectError(f"{message}. Leave --tensor out")
        lacks_values = self.zeros or self.seed is not None
        path = self.values or self.eval_log
        if not lacks_values and path is None:
            check_weights(model, [graph], (), instead)
        if checks_memory:
            check_memory(opened, graph)
        known = [n.id for n in model.graphs[graph].nodes]
        for id in self.tensor:
            if id not in known:
                raise ScenarioError(
                    f"graph {graph} has no node {quoted(id)}", model.source, None, did_you_mean(id, known)
                )
        if path is None:
            found = self._with_computed(opened, graph, work)
        else:
            found = self._with_recorded(opened, graph, path, lacks_values, work)
        return self.answer(found, opened.title)

    def answer(self, found: ComparedGraph, title: str) -> Answer[WorstNodes]:
        """What was found, as it is shown."""
        from ggmltool.ask.compare.record import WorstNodes

        return Answer(
            WorstNodes(**structs.asdict(found), worst=self.worst), title, f"graph {found.graph}", fine=found.ok
        )

    @property
    def _backends(self) -> str | None:
        return self.backends if isinstance(self.backends, str | None) else ",".join(self.backends)

    @property
    def _seed(self) -> int | None:
        """That of random values; None for zeros."""
        return None if self.zeros else 1 if self.seed is None else self.seed

    def _with_computed(self, opened: Opened, graph: str, work: Work) -> ComparedGraph:
        """Both sides are computed: by two backends, or by one and the real library."""
        from ggmltool.ask.compare.computed import compare_backends
        from ggmltool.ask.compare.record import ComparedSide
        from ggmltool.ask.compare.sides import one_backend, real_side, two_backends
        from ggmltool.ggml.op import KEY_NAMES
        from ggmltool.ggml.sched.compute import backend_graph_compute
        from ggmltool.scenario.run.placed import broken, read_injections

        model = opened.model
        wrong = read_injections(tuple(self.inject), model.graphs[graph], model.source)
        real = real_side(model, self.real)
        specs = two_backends(model, self._backends) if real is None else (one_backend(model, self._backends), real.spec)

        def kernels(two: tuple[Backend, Backend]) -> GraphCompute:
            compute = backend_graph_compute if real is None else real.kernels(two[1])
            return broken(compute, two[1], wrong, model.source) if wrong else compute

        n_nodes = 0 if self.tensor else len(model.graphs[graph].nodes)
        with work.progress(f"comparing {graph}", n_nodes, "nodes") as advance:
            found = compare_backends(
                opened.scenario, graph, specs, kernels, self.tolerance, self.tensor, self._seed, advance
            )
        if real is not None:
            found = structs.replace(found, backends=(found.backends[0], ComparedSide(real.name, real.engine)))
        return structs.replace(found, injected={id: KEY_NAMES[key].upper() for id, key in wrong.items()})

    def _with_recorded(self, opened: Opened, graph: str, path: Path, lacks_values: bool, work: Work) -> ComparedGraph:
        """One side is computed, the other one read from `path`."""
        from ggmltool.ask.compare.computed import make_backend
        from ggmltool.ask.compare.record import ComparedSide
        from ggmltool.ask.compare.recorded import compare_recorded
        from ggmltool.ask.compare.sides import one_backend
        from ggmltool.ggml.op import VIEW_OPS
        from ggmltool.ggml.sched.compute import backend_graph_compute

        model = opened.model
        other = _read_files(model, graph, path) if self.values is not None else _read_log(model, graph, path, work)
        if not lacks_values:
            _check_inputs(model, graph, set(other.inputs), path)
        backend = make_backend(model, one_backend(model, self._backends))
        with work.progress(f"comparing {graph}", len(model.graphs[graph].nodes), "nodes") as advance:
            found = compare_recorded(
                opened.scenario, graph, backend, backend_graph_compute, other.told, other.inputs,
                self.tolerance, self._seed if lacks_values else None, advance,
            )  # fmt: skip
        lacking = {id for ids in valueless(model, [graph]) for id in ids}
        names = {n.id for n in found.nodes}
        return structs.replace(
            found,
            backends=(found.backends[0], ComparedSide(path.name or str(path), "read")),
            made_up=[id for id in found.made_up if id in lacking],
            zero=[id for id in found.zero if id in lacking],
            recorded="values" if self.values is not None else "log",
            untold=[n.id for n in model.graphs[graph].computed() if n.id not in names and n.op not in VIEW_OPS],
            unknown=other.unknown,
        )


class _Recorded(NamedTuple):
    """What was read of the other side: values of nodes and of inputs by id, names that the graph does not have."""

    told: Mapping[str, Told]
    inputs: Mapping[str, Callable[[], NDArray[Any]]]
    unknown: list[str]


def _read_files(model: ScenarioSpec, graph: str, path: Path) -> _Recorded:
    from ggmltool.sources.values.files import read_values

    files = read_values(path, model, graph)
    nodes = {n.id for n in model.graphs[graph].nodes}
    told = {id: read for id, read in files.values.items() if id in nodes}
    return _Recorded(told, {id: read for id, read in files.values.items() if id not in nodes}, files.unknown)


def _read_log(model: ScenarioSpec, graph: str, path: Path, work: Work) -> _Recorded:
    from ggmltool.sources.values.files import log_nodes, read_eval_log

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
