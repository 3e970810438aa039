"""A graph of a scenario on two backends, computed node by node on both and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ggmltool.ggml.buffer import AddressSpace
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, NotComputable
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import Copier, GraphCompute, compare_graph_backend
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.compiled import NONE, Compiled, CompiledTensor
from ggmltool.scenario.data import INTEGER_BITS, Data, UniformData
from ggmltool.scenario.engine import make_backends, make_bufts
from ggmltool.scenario.gpus import take_gpus
from ggmltool.scenario.measure import Apart, measure, tolerance_of
from ggmltool.scenario.model import BackendSpec, Model, TensorSpec
from ggmltool.scenario.releases import PARTS
from ggmltool.scenario.scenario import Scenario


class Compared(NamedTuple):
    """A node that was computed on both backends, the `number`th of its graph.

    `apart` is how the values differ, `tolerance` the NMSE that is allowed, `begins` that the node is over it although
    all its sources, which were compared too, are within theirs. `not_run_by` names the backends that do not run the
    op, whose part another's kernel did.
    """

    number: int
    node: Tensor
    apart: Apart
    tolerance: float
    begins: bool
    not_run_by: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the values agree."""
        return self.apart.within(self.tolerance)


@dataclass(slots=True)
class Comparison:
    """What came of comparing: the two backends, who computed on each, every node that was compared, and the bytes that
    each side took.

    `made_up` are the tensors without data that were given values, `zero` those that were not; `n_nodes` counts views
    too.
    """

    backends: tuple[Backend, Backend]
    engines: tuple[str, str]
    nodes: list[Compared]
    n_nodes: int
    nbytes: int
    made_up: list[str]
    zero: list[str]

    @property
    def over(self) -> list[Compared]:
        """The nodes over their tolerance, in the graph's order; the first of them is the bad one."""
        return [n for n in self.nodes if not n.ok]


def compare(
    scenario: Scenario,
    graph: str,
    specs: tuple[BackendSpec, BackendSpec],
    compute: Callable[[tuple[Backend, Backend]], GraphCompute],
    tolerance: float | None = None,
    tests: Sequence[str] = (),
    seed: int = 1,
    progress: Callable[[], None] | None = None,
    events: Listener | None = None,
) -> Comparison:
    """ggml_backend_compare_graph_backend of a scenario's graph: all of it on the first backend, copied to the second.

    Every tensor has memory of its own, as in ggml's test-backend-ops. `compute` gives the source of the kernels for
    the two backends; `tolerance` stands in for that of every node; with `tests` the graph is computed as a whole and
    only these nodes are compared. `seed` is that of the values made up for tensors without data. Raises GgmlError.
    """
    backends = _backends(scenario.model, specs)
    copier = PARTS[scenario.model.ggml].copier()
    placed = PlacedGraph(scenario.compiled, graph, backends[0], events, copier)
    not_run = {n: tuple(b.name for b in backends if not b.device.supports_op(n)) for n in placed.graph.nodes}
    made_up, zero = placed.allocate(seed)
    allowed = _tolerances(placed.graph, tolerance)
    done: list[Compared] = []
    bad: set[Tensor] = set()

    def compared(number: int, a: Tensor, b: Tensor) -> bool:
        apart = measure(a, b)
        over = not apart.within(allowed[a])
        sources = {s.view_src or s for s in a.src if s is not None and s is not a}
        done.append(Compared(number, a, apart, allowed[a], over and not tests and bad.isdisjoint(sources), not_run[a]))
        if over:
            bad.add(a.view_src or a)
        if progress is not None:
            progress()
        return True

    wanted = [t for t in placed.graph.nodes if t.id in tests]
    ok = compare_graph_backend(
        *backends, placed.graph, compared, compute(backends), placed.indices, placed.addresses, events, wanted, copier
    )
    if not ok:
        raise GgmlFailed("ggml_backend_graph_copy", "failed to allocate buffer for graph copy")
    nbytes = sum(t.nbytes for t in placed.context.tensors if t.view_src is None)
    engines = backends[0].engine, backends[1].engine
    return Comparison(backends, engines, done, placed.graph.n_nodes, nbytes, made_up, zero)


def _backends(model: Model, specs: tuple[BackendSpec, BackendSpec]) -> tuple[Backend, Backend]:
    """The two backends, each with what it is in the model; the same one twice is two streams of one device."""
    named = {spec.name: spec for spec in (*specs, *model.backends)}
    model = replace(model, backends=list(named.values()))
    bufts = make_bufts(model)
    made = {b.name: b for b in make_backends(model, bufts)}
    used = [made[spec.name] for spec in specs]
    take_gpus(model, dict.fromkeys(used), bufts.values())
    first, second = (made[spec.name] for spec in specs)
    return first, Backend(second.name, second.device) if first is second else second


def _tolerances(graph: CGraph, given: float | None) -> dict[Tensor, float]:
    """The NMSE that each node may have: its op's own, and no less than that of its sources."""
    out: dict[Tensor, float] = {}
    for n in graph.nodes:
        sources = [out[s] for s in n.src if s in out]
        out[n] = given if given is not None else max([tolerance_of(n), *sources])
    return out


class PlacedGraph:
    """A graph with the tensors it needs, and no others, in one context that is allocated on one backend.

    `copier` is what copies graphs in the release.
    """

    def __init__(
        self,
        compiled: Compiled,
        name: str,
        backend: Backend,
        events: Listener | None,
        copier: type[Copier] = Copier,
    ) -> None:
        self.backend = backend
        self.copier = copier
        self.events = events
        self.indices = IndexSpace()
        self.addresses = AddressSpace()
        self.context = Context(indices=self.indices, name="compare")
        spec = compiled.graphs[name]
        tensors = [*(t for context in compiled.contexts for t in context), *spec.nodes]
        self._specs: list[TensorSpec] = list(compiled.model.tensors())
        needed = _needed(tensors, spec.expand)
        self._made = {at: self.context.add(tensors[at].proto.clone(0)) for at in needed}
        for at, t in self._made.items():
            ct = tensors[at]
            t.src = [None if s == NONE else self._made[s] for s in ct.src]
            if ct.view_src != NONE:
                t.view_src = self._made[ct.view_src]
        self.graph = CGraph(compiled.cgraph_size, self.indices.top)
        for e in spec.expand:
            self.graph.build_forward_expand(self._made[e])

    def allocate(self, seed: int | None) -> tuple[list[str], list[str]]:
        """Give the tensors memory and values; the ids of those without data: which got values, and which are zero.

        The values are random ones from -1 to 1, made with `seed` (None: all are zero). Integers are zero, since they
        may be indices, and so are types that cannot be quantized here.
        """
        self.copier.alloc_ctx_tensors(self.context, self.backend.device.buft, self.addresses)
        made_up, zero = [], []
        for at, t in self._made.items():
            if at >= len(self._specs) or t.view_src is not None or t.buffer is None or not t.nbytes:
                continue
            data = self._specs[at].data
            if data is not None:
                self._set(t, data)
            elif seed is not None and self._make_up(t, seed + at):
                made_up.append(t.id)
            else:
                zero.append(t.id)
        return made_up, zero

    def _make_up(self, t: Tensor, seed: int) -> bool:
        if t.type.name in INTEGER_BITS:
            return False
        try:
            self._set(t, UniformData(seed))
        except NotComputable:
            return False
        return True

    def _set(self, t: Tensor, data: Data) -> None:
        from ggmltool.ggml.transfer import tensor_set

        tensor_set(t, data.raw(t.type, t.ne, t.nb), 0, t.nbytes, self.events)


def _needed(tensors: Sequence[CompiledTensor], expand: Sequence[int]) -> list[int]:
    """Which of a graph's tensors it uses, as sources or as what its views see, in their order."""
    seen: set[int] = set()
    todo = list(expand)
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            ct = tensors[at]
            todo += [s for s in (*ct.src, ct.view_src) if s != NONE]
    return sorted(seen)
