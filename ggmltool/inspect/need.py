"""The memory that computing takes, estimated before any is taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import VIEW_OPS
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.scenario.data import GgufData
from ggmltool.scenario.run.run import MAPPED
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import ContextSpec, ScenarioSpec, TensorSpec

_FLOAT = 4


class Need(NamedTuple):
    """Bytes that computing takes: of the contexts, of compute buffers, and what kernels convert on the way, at most.

    A graph's values as floats are what is converted: weights as float32, and results before they are stored.
    """

    contexts: int
    buffers: int
    converted: int

    @property
    def total(self) -> int:
        return sum(self)


def need_of_run(scenario: Scenario, graphs: Iterable[str], free: int) -> Need:
    """What it takes to compute the graphs by their plans; a bound without planning where that is less than `free`.

    Where ggml fails on a graph, nothing of it is computed.
    """
    model = scenario.model
    names = list(dict.fromkeys(graphs))
    contexts = sum(map(_in_context, model.contexts))
    converted = max((_converted(model, name) for name in names), default=0)
    bound = sum(_nbytes(n) for name in names for n in model.graphs[name].nodes if n.view_src is None)
    rough = Need(contexts, bound, converted)
    if rough.total < free:
        return rough
    plans = [scenario.plan(name) for name in names]
    if not all(plan.ok for plan in plans):
        return Need(sum(_in_context(c) for c in model.contexts if c.buft is not None), 0, 0)
    sizes = [dict(plan.buffer_sizes) for plan in plans]
    backends = {backend for found in sizes for backend in found}
    return Need(contexts, sum(max(found.get(b, 0) for found in sizes) for b in backends), converted)


def _in_context(context: ContextSpec) -> int:
    return sum(_nbytes(t) for t in context.tensors if t.view_src is None and not _mapped(t))


def need_of_compare(scenario: Scenario, graph: str) -> Need:
    """What it takes to compute a graph on two sides, where every tensor is pre-allocated on both."""
    model = scenario.model
    nodes = model.graphs[graph].nodes
    contexts = sum(_nbytes(t) for t in model.tensors() if t.view_src is None)
    buffers = sum(_nbytes(n) for n in nodes if n.view_src is None)
    return Need(2 * contexts, 2 * buffers, 2 * _converted(model, graph))


def _converted(model: ScenarioSpec, graph: str) -> int:
    """The most that one node has as floats besides what lies in buffers."""
    known = {t.id: t for t in (*model.tensors(), *model.graphs[graph].nodes)}
    largest = 0
    for n in model.graphs[graph].nodes:
        if n.op not in VIEW_OPS:
            sources = (known[s] for s in n.src if s is not None)
            largest = max(largest, _elements(n) * _FLOAT + sum(_as_floats(s) for s in sources))
    return largest


def _as_floats(t: TensorSpec) -> int:
    return 0 if t.type is F32 else _elements(t) * _FLOAT


def _elements(t: TensorSpec) -> int:
    return t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3]


def _nbytes(t: TensorSpec) -> int:
    return nbytes_of(t.type, t.ne, t.nb)


def _mapped(t: TensorSpec) -> bool:
    """Whether a tensor stays in its file."""
    return isinstance(t.data, GgufData) and _nbytes(t) >= MAPPED
