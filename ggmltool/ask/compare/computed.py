"""A graph of a scenario on two backends, computed node by node on both and compared; or computed here beside what
another backend made of it, values that were written down there.

Of such values, where all elements are known, each node is computed from the other side's own inputs, and a difference
is the node's. Where only some are (as a log shows them), both sides go on with their own inputs; how far a kernel may
be off is then found by moving its inputs as far as they were seen to be off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ggmltool.ask.compare.record import (
    ComparedGraph,
    ComparedNode,
    ComparedSide,
    Deviation,
    is_exact,
    measure,
    measure_values,
    position,
    tolerance_of,
)
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, NotComputable
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph_copy import GraphCompute, compare_graph_backend, graph_copy
from ggmltool.ggml.releases.parts import copier_of
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.run.devices import make_backends, make_bufts, take_gpus
from ggmltool.scenario.run.placed import OneBackendGraph
from ggmltool.scenario.run.run import values_of
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.sources.values.files import Sample

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
        *backends, placed.graph, compared, kernels, placed.indices, placed.addresses, events, wanted, copier,
        same.before,
    )  # fmt: skip
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


SLACK = 4.0
"""How many times further off a node may be than its inputs make it when moved at random by as much as they are."""

_BLOCK = 1 << 20


Told = Callable[[], "NDArray[Any]"] | Sample
"""What the other side tells of a node: all its values (shape `ne` reversed), read when they are needed, or some."""


def compare_recorded(
    scenario: LoadedScenario,
    graph: str,
    backend: Backend,
    compute: GraphCompute,
    told: Mapping[str, Told],
    inputs: Mapping[str, Callable[[], NDArray[Any]]],
    tolerance: float | None = None,
    seed: int | None = 1,
    progress: Callable[[], None] | None = None,
) -> ComparedGraph:
    """Compare what is computed here with what the other side `told` of its nodes, by their ids.

    `inputs` are values of tensors without data. The other side is the comparison's second one. Raises GgmlError.
    """
    copier = copier_of(scenario.model.release)
    placed = OneBackendGraph(scenario.compiled, graph, backend, None, copier)
    made_up, zero = placed.allocate(seed, {id: read() for id, read in inputs.items()})
    copy = graph_copy(backend, placed.graph, placed.indices, placed.addresses, None, copier)
    if copy is None:
        raise GgmlFailed("ggml_backend_graph_copy", "failed to allocate buffer for graph copy")
    how = _Sampled if any(isinstance(t, Sample) for t in told.values()) else _Whole
    judge: _Judge = how(backend, copy.copies, compute, told)
    done: list[ComparedNode] = []
    for number, node in enumerate(placed.graph.nodes):
        found = judge.judge(node)
        if found is not None:
            allowed = tolerance_of(node) if tolerance is None else tolerance
            through, shown = judge.through.get(node.id, ()), judge.shown.get(node.id)
            done.append(ComparedNode.of(number, node, *found, allowed, (backend,), through, shown))
        if progress is not None and not node.is_view_op:
            progress()
    sides = ComparedSide(backend.name, backend.engine), ComparedSide("", "read")
    return ComparedGraph.of(scenario.model.ggml, graph, placed, sides, done, made_up, zero)


class _Judge:
    """Judges nodes in the graph's order: here is a copy that is given the other side's inputs. Behind what is in a
    tensor's memory are nodes whose values are not told."""

    def __init__(
        self, backend: Backend, copies: Mapping[Tensor, Tensor], compute: GraphCompute, told: Mapping[str, Told]
    ) -> None:
        self.backend, self.copies, self.compute, self.told = backend, copies, compute, told
        self.through: dict[str, tuple[str, ...]] = {}
        self.shown: dict[str, int] = {}
        self._behind: dict[Tensor, tuple[str, ...]] = {}

    def judge(self, node: Tensor) -> tuple[Deviation, Deviation] | None:
        """Compute a node from both inputs; how far it is off by itself and end to end, None if nothing is told."""
        raise NotImplementedError

    def untold_before(self, node: Tensor) -> tuple[str, ...]:
        """The nodes that a node's inputs come from since the last ones that were told."""
        roots = {root_of(s) for s in (*node.src, node.view_src) if s is not None and s is not node}
        return tuple(dict.fromkeys(id for root in roots for id in self._behind.get(root, ())))


class _Whole(_Judge):
    """Every node from the inputs that the other side had: the copy's tensors hold the other side's values."""

    def judge(self, node: Tensor) -> tuple[Deviation, Deviation] | None:
        copy = self.copies[node]
        self.compute(self.backend, [node])
        self.compute(self.backend, [copy])
        before = self.untold_before(node)
        read = self.told.get(node.id)
        if node.is_view_op:
            return None
        if read is None or isinstance(read, Sample):
            self._behind[root_of(node)] = (*before, node.id)
            return None
        theirs = read()
        found = measure_values(node, values_of(copy), theirs), measure_values(node, values_of(node), theirs)
        if before:
            self.through[node.id] = before
        try:
            HostArrays().put(copy, theirs)
            self._behind[root_of(node)] = ()
        except NotComputable:
            self._behind[root_of(node)] = before
        return found


class _Sampled(_Judge):
    """Every node from the inputs that this side has, and once more from inputs that are moved as far as they were seen
    to be off: what a node is off beyond that is its own.
    """

    def __init__(
        self, backend: Backend, copies: Mapping[Tensor, Tensor], compute: GraphCompute, told: Mapping[str, Told]
    ) -> None:
        import numpy as np

        super().__init__(backend, copies, compute, told)
        self._off: dict[Tensor, float] = {}
        self._random = np.random.default_rng(1)

    def judge(self, node: Tensor) -> tuple[Deviation, Deviation] | None:
        import numpy as np

        copy = self.copies[node]
        if node.is_view_op:
            return None
        self._move_inputs(node, copy)
        self.compute(self.backend, [copy])
        self.compute(self.backend, [node])
        ours, moved = values_of(node), values_of(copy)
        with np.errstate(all="ignore"):
            difference = moved.astype(np.float64) - ours.astype(np.float64)
        by_inputs = _rms(difference)
        before, sample = self.untold_before(node), self.told.get(node.id)
        if not isinstance(sample, Sample) or not sample.at.size:
            self._behind[root_of(node)] = (*before, node.id)
            self._off[root_of(node)] = by_inputs
            return None
        self._behind[root_of(node)] = ()
        if before:
            self.through[node.id] = before
        self.shown[node.id] = int(sample.at.size)
        by_inputs = max(by_inputs, _rms(difference.reshape(-1)[sample.at]))
        if any(self._off.get(root) == math.inf for root, _ in touched(node, copy)):
            by_inputs = math.inf  # it reads other rows, or other experts, than the other side
        own = _deviation(node, ours, sample, by_inputs, moved)
        end_to_end = _deviation(node, ours, sample, 0.0, ours)
        seen = _rms(ours.reshape(-1)[sample.at].astype(np.float64) - sample.values)
        if is_exact(node):
            self._off[root_of(node)] = math.inf if seen else 0.0
        else:
            self._off[root_of(node)] = max(seen, sample.rounding)
        return own, end_to_end

    def _move_inputs(self, node: Tensor, copy: Tensor) -> None:
        """Give the copy the node's inputs, each with noise of the size that it was seen to be off."""
        arrays = HostArrays()
        for one, other in touched(node, copy):
            arrays.copy(one, other)
            off = self._off.get(one, 0.0)
            if off and one.type.name in ("f32", "f16", "bf16"):
                values = values_of(one)
                arrays.put(other, values + off * self._random.standard_normal(values.shape, dtype=values.dtype))


def _rms(difference: NDArray[Any]) -> float:
    """The root of the mean square of what is finite."""
    import numpy as np

    finite = difference[np.isfinite(difference)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _deviation(node: Tensor, ours: NDArray[Any], sample: Sample, by_inputs: float, moved: NDArray[Any]) -> Deviation:
    """How far a node is from the elements that are told, beyond their rounding and beyond what its inputs do.

    The NMSE is that of these elements against their mean square or the whole tensor's, whichever is more (most of a KV
    cache is zero), or the least that a different sum means.
    """
    import numpy as np

    flat = ours.reshape(-1)
    here, there = flat[sample.at].astype(np.float64), sample.values
    fine = np.isfinite(here), np.isfinite(there)
    both = fine[0] & fine[1]
    misplaced = ~both & ~((here == there) | (np.isnan(here) & np.isnan(there)))
    error = np.where(both, np.maximum(np.abs(here - there) - sample.rounding, 0.0), 0.0)
    exact = is_exact(node)
    if exact and not np.array_equal(moved.reshape(-1)[sample.at], flat[sample.at]):
        error[:] = 0.0  # an order or a choice that its inputs decide either way
    mean = max(float(np.mean(np.square(error))) - (SLACK * by_inputs) ** 2, 0.0)
    squares = max(_rms(ours.astype(np.float64)), _rms(here)) ** 2
    total = _sum_apart(ours, sample, by_inputs, moved)
    nmse = max(mean, total) / squares if squares else (math.inf if mean or total else 0.0)
    at = int((misplaced if misplaced.any() else error).argmax())
    largest = float(error.max()) if mean or exact else 0.0
    where = values = None
    if largest or misplaced.any():
        where, values = position(int(sample.at[at]), node.ne), (float(here[at]), float(there[at]))
    not_finite = (here.size - int(fine[0].sum()), here.size - int(fine[1].sum()))
    return Deviation(nmse, largest, where, values, not_finite, int(misplaced.sum()))


def _sum_apart(ours: NDArray[Any], sample: Sample, by_inputs: float, moved: NDArray[Any]) -> float:
    """The mean square that errors have at least where the sum of all elements is off, beyond what the inputs do."""
    if sample.total is None or not math.isfinite(sample.total):
        return 0.0
    mine, theirs = _added(ours), _added(moved)
    if not math.isfinite(mine) or not math.isfinite(theirs):
        return 0.0
    n = ours.size
    explained = SLACK * (abs(mine - theirs) + by_inputs * n) + sample.rounding  # errors may all have one sign
    off = max(abs(mine - sample.total) - explained, 0.0)
    return (off / n) ** 2


def _added(values: NDArray[Any]) -> float:
    """The sum as a loop in C adds floats: in float32, in order."""
    import numpy as np

    total = np.float32(0.0)
    for part in _blocks(values.reshape(-1)):
        with np.errstate(all="ignore"):
            start = np.concatenate((total.reshape(1), part.astype(np.float32)))
            total = np.add.accumulate(start, dtype=np.float32)[-1]
    return float(total)


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (values[i : i + _BLOCK] for i in range(0, values.size, _BLOCK))
