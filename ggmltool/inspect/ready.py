"""What computing takes for granted: that the tensors it reads have values, and that there is memory for it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml import bounds
from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.op import VIEW_OPS
from ggmltool.ggml.tensor import nbytes_of
from ggmltool.scenario.data import GgufData
from ggmltool.scenario.run.run import MAPPED
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ContextSpec, ScenarioSpec, TensorSpec, valueless
from ggmltool.scenario.steps import computed_by
from ggmltool.show.text import shortened, size
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.inspect.opened import Opened, Work
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step

_FLOAT = 4


class MemoryNeed(NamedTuple):
    """Bytes that computing takes: of the contexts, of compute buffers, and what kernels convert on the way, at most.

    A graph's values as floats are what is converted: weights as float32, and results before they are stored.
    """

    contexts: int
    buffers: int
    converted: int

    @property
    def total(self) -> int:
        return sum(self)


def need_of_run(scenario: LoadedScenario, graphs: Iterable[str], free: int) -> MemoryNeed:
    """What it takes to compute the graphs by their plans; a bound without planning where that is less than `free`.

    Where ggml fails on a graph, nothing of it is computed.
    """
    model = scenario.model
    names = list(dict.fromkeys(graphs))
    contexts = sum(map(_in_context, model.contexts))
    converted = max((_converted(model, name) for name in names), default=0)
    bound = sum(_nbytes(n) for name in names for n in model.graphs[name].nodes if n.view_src is None)
    rough = MemoryNeed(contexts, bound, converted)
    if rough.total < free:
        return rough
    plans = [scenario.plan(name) for name in names]
    if not all(plan.ok for plan in plans):
        return MemoryNeed(sum(_in_context(c) for c in model.contexts if c.buft is not None), 0, 0)
    sizes = [dict(plan.buffer_sizes) for plan in plans]
    backends = {backend for found in sizes for backend in found}
    return MemoryNeed(contexts, sum(max(found.get(b, 0) for found in sizes) for b in backends), converted)


def _in_context(context: ContextSpec) -> int:
    """The bytes of tensors that do not stay in their file."""
    tensors = (t for t in context.tensors if t.view_src is None)
    return sum(n for t in tensors if (n := _nbytes(t)) < MAPPED or not isinstance(t.data, GgufData))


def need_of_compare(scenario: LoadedScenario, graph: str) -> MemoryNeed:
    """What it takes to compute a graph on two sides, where every tensor is pre-allocated on both."""
    model = scenario.model
    nodes = model.graphs[graph].nodes
    contexts = sum(_nbytes(t) for t in model.tensors() if t.view_src is None)
    buffers = sum(_nbytes(n) for n in nodes if n.view_src is None)
    return MemoryNeed(2 * contexts, 2 * buffers, 2 * _converted(model, graph))


def _converted(model: ScenarioSpec, graph: str) -> int:
    """The most that one node has as floats besides what lies in buffers."""
    known = {t.id: t for t in (*model.tensors(), *model.graphs[graph].nodes)}
    largest = 0
    for n in model.graphs[graph].nodes:
        if n.op not in VIEW_OPS:
            sources = (known[s] for s in n.src if s is not None)
            largest = max(largest, _FLOAT * (prod(n.ne) + sum(prod(s.ne) for s in sources if s.type is not F32)))
    return largest


def _nbytes(t: TensorSpec) -> int:
    return nbytes_of(t.type, t.ne, t.nb)


_NAMES_SHOWN = 3


def check_weights(model: ScenarioSpec, graphs: Iterable[str], steps: Iterable[Step], without: str) -> list[str]:
    """Refuse to compute graphs whose weights have no values; the other tensors without values, which are zero.

    `without` is how the command is told to compute nothing. Raises InspectError.
    """
    graphs = list(dict.fromkeys(graphs))
    found = valueless(model, graphs, steps)
    if found.weights:
        names = shortened(found.weights, _NAMES_SHOWN)
        raise InspectError(
            f"{model.source}: the weights have no values ({names}), so the result would be zeros. Give them `data` "
            f"(for a model, `ggmltool capture --weights` does). {without} only plans; --zeros computes with zeros"
        )
    return found.inputs


def check_run(opened: Opened, zeros: bool, method: str = "") -> None:
    """Refuse to do steps whose weights have no values, unless they are `zeros`, or that need more memory than is free;
    say which inputs are zero. `method` plans without computing, as --no-compute. Raises InspectError."""
    model, work = opened.model, opened.work
    graphs = computed_graphs(model)
    if graphs and not zeros:
        inputs = check_weights(model, graphs, model.steps, "--no-compute" if work.of_command else method)
        if inputs:
            work.note(f"no data, so zero: {shortened(inputs, _NAMES_SHOWN)}")
    if work.checks_memory:
        check_memory(opened)


def tell_of_undone(run: Run, step: Step, work: Work) -> str:
    """What a step undid of a `set` before it, for a table ("": nothing); the remedy is noted."""
    if not run.undone or step.kind not in ("reserve", "alloc", "measure", "compute"):
        return ""
    names = shortened(run.undone, _NAMES_SHOWN)
    work.note(
        f"{step} creates {names} anew, so what `set` wrote is gone. Put `set` after the `alloc` that allocates the "
        "tensor, or the tensor into a context with a `buft`"
    )
    return f"undoes set {names}"


def computed_graphs(model: ScenarioSpec) -> list[str]:
    """The graphs that the steps of a scenario compute."""
    return [graph for _, graph in computed_by(model.steps, model.release) if graph is not None]


def check_memory(opened: Opened, compared: str | None = None) -> None:
    """Refuse to compute what needs more memory than is free: the scenario's steps, or a graph on two sides.

    Raises InspectError.
    """
    free = bounds.free_memory()
    graphs = computed_graphs(opened.model)
    if free is None or not (graphs or compared):
        return
    need = (
        need_of_run(opened.scenario, graphs, free) if compared is None else need_of_compare(opened.scenario, compared)
    )
    if need.total <= free:
        return
    parts = f"tensors {size(need.contexts)}, results {size(need.buffers)}, values as floats {size(need.converted)}"
    raise InspectError(
        f"computing needs about {size(need.total)} ({parts}), but only {size(free)} is free here. Use fewer tokens or "
        "a smaller context (`capture --n-tokens`, -c); --no-memory-check computes anyway"
    )
