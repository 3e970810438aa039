"""A graph of a scenario on two backends, computed node by node on both and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ggmltool.ask.compare.record import ComparedGraph, ComparedNode, ComparedSide
from ggmltool.ask.compare.tolerance import Deviation, measure, measure_values, tolerance_of
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph_copy import GraphCompute, compare_graph_backend
from ggmltool.ggml.releases.parts import copier_of
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.run.devices import make_backends, make_bufts, take_gpus
from ggmltool.scenario.run.placed import OneBackendGraph
from ggmltool.scenario.run.run import values_of
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


def compare_backends(
    scenario: LoadedScenario,
    graph: str,
    specs: tuple[BackendSpec, BackendSpec],
    compute: Callable[[tuple[Backend, Backend]], GraphCompute],
    tolerance: float | None = None,
    tests: Sequence[str] = (),
    seed: int | None = 1,
    progress: Callable[[], None] | None = None,
    events: Listener | None = None,
) -> ComparedGraph:
    """ggml_backend_compare_graph_backend of a scenario's graph: all of it on the first backend, copied to the second.

    Every tensor is pre-allocated, as in ggml's test-backend-ops. Besides, the second backend computes every node from
    the first one's inputs, which tells a wrong kernel from one that was given wrong inputs. `compute` gives the source
    of the kernels for the two backends; `tolerance` stands in for that of every node; with `tests` the graph is
    computed as a whole and only these nodes are compared. `seed` is that of the values made up for tensors without data
    (None: they are zero). Raises GgmlError.
    """
    backends = _backends(scenario.model, specs)
    copier = copier_of(scenario.model.release)
    placed = OneBackendGraph(scenario.compiled, graph, backends[0], events, copier)
    made_up, zero = placed.allocate(seed)
    done: list[ComparedNode] = []
    kernels = compute(backends)
    same = SameInputs(backends[1], kernels)

    def compared(number: int, a: Tensor, b: Tensor) -> bool:
        end_to_end = measure(a, b)
        own = same.judge(a, end_to_end)
        allowed = tolerance_of(a) if tolerance is None else tolerance
        done.append(ComparedNode.of(number, a, own, end_to_end, allowed, backends))
        if progress is not None:
            progress()
        return True

    wanted = [t for t in placed.graph.nodes if t.id in tests]
    ok = compare_graph_backend(
        *backends,
        placed.graph,
        compared,
        kernels,
        placed.indices,
        placed.addresses,
        events,
        wanted,
        copier,
        same.before,
    )
    if not ok:
        raise GgmlFailed("ggml_backend_graph_copy", "failed to allocate buffer for graph copy")
    one, other = (ComparedSide(b.name, b.engine) for b in backends)
    return ComparedGraph.of(scenario.model.ggml, graph, placed, (one, other), done, made_up, zero, bool(tests))


class SameInputs:
    """Computes nodes of a graph's copy from the inputs of the original, where these are not the same already."""

    def __init__(self, backend: Backend, compute: GraphCompute) -> None:
        self.backend = backend
        self.compute = compute
        self._differing: set[Tensor] = set()
        self._values: NDArray[Any] | None = None

    def before(self, a: Tensor, b: Tensor) -> None:
        """Keep what the copy `b` of a node makes of the inputs of `a`; the copy's own inputs stay as they are."""
        pairs = [(one, other) for one, other in touched(a, b) if one in self._differing]
        self._values = None
        if pairs:
            arrays = HostArrays()
            kept = [(other, arrays.get_bytes(other)) for _, other in pairs]
            for one, other in pairs:
                arrays.copy(one, other)
            self.compute(self.backend, [b])
            self._values = values_of(b)
            for other, content in kept:
                arrays.set_bytes(other, content)

    def judge(self, a: Tensor, end_to_end: Deviation) -> Deviation:
        """How far the values are apart that both made of the inputs of `a`, now that it is computed."""
        if end_to_end.largest_error or end_to_end.misplaced:
            self._differing.add(root_of(a))
        values, self._values = self._values, None
        return end_to_end if values is None else measure_values(a, values_of(a), values)


def touched(a: Tensor, b: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The tensors with their own memory that a node reads or writes a part of, each with its copy."""
    pairs = {root_of(s): root_of(c) for s, c in zip(a.src, b.src, strict=False) if s is not None and c is not None}
    if a.view_src is not None:
        pairs[root_of(a)] = root_of(b)
    return [(one, other) for one, other in pairs.items() if one is not a]


def make_backend(model: ScenarioSpec, spec: BackendSpec) -> Backend:
    """A backend by itself, with what it is in the model."""
    return _backends(model, (spec, spec))[0]


def _backends(model: ScenarioSpec, specs: tuple[BackendSpec, BackendSpec]) -> tuple[Backend, Backend]:
    """The two backends, each with what it is in the model; the same one twice is two streams of one device."""
    named = {spec.name: spec for spec in (*specs, *model.backends)}
    model = replace(model, backends=list(named.values()))
    bufts = make_bufts(model)
    made = {b.name: b for b in make_backends(model, bufts)}
    used = [made[spec.name] for spec in specs]
    take_gpus(model, dict.fromkeys(used), bufts.values())
    first, second = (made[spec.name] for spec in specs)
    return first, Backend(second.name, second.device) if first is second else second
