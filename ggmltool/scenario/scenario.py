"""A scenario as a value one can ask: its plans, its runs, its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from ggmltool.ggml.events import Listener
from ggmltool.ggml.op import CUSTOM_OPS
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.tensor import FLAG_OUTPUT, CustomFunction, Tensor
from ggmltool.scenario.errors import Mistake, ScenarioError, quoted
from ggmltool.scenario.run.compiled import Compiled, collector_paused
from ggmltool.scenario.run.reserving import ReservingRun
from ggmltool.scenario.run.run import Run, values_of
from ggmltool.scenario.spec import ScenarioSpec, Step, graph_called, no_tensor
from ggmltool.scenario.values import as_list
from ggmltool.scenario.versions import has_no_flags

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ggml.sched.common import OnDebug


class LoadedScenario:
    """A loaded scenario. Every call starts from its beginning: new devices, new memory, a new scheduler.

    It is planned as the release of ggml that `model.ggml` names. Several threads may use one scenario at a time.
    `on_debug` is called with the debug print of every split.
    """

    def __init__(self, model: ScenarioSpec) -> None:
        self.model = model
        self.on_debug: OnDebug | None = None

    @cached_property
    def compiled(self) -> Compiled:
        """The model with its names turned into numbers."""
        return Compiled(self.model)

    def __repr__(self) -> str:
        return f"<Scenario {self.model.name or self.model.source}>"

    def prepared(self) -> Self:
        """The scenario, ready to be planned: what is made once for all plans is made, which the first one did not wait
        for.
        """
        _ = self.compiled
        return self

    def graph_name(self, graph: str | None = None) -> str:
        """The graph's name, by default that of the first one. Raises ScenarioError for one that is not there."""
        return graph_called(self.model, graph)

    def start(self, events: Listener | None = None, debug: bool = False, values: bool = False) -> Run:
        """A run to be driven step by step, by one thread."""
        if self.model.release.reserves:
            run = ReservingRun(self.compiled, events, debug or self.on_debug is not None, values)
            run.on_debug = self.on_debug
            return run
        from ggmltool.scenario.run.measured import MeasuredRun

        return MeasuredRun(self.compiled, events, debug, values)

    def plan(self, graph: str | None = None, step: str = "alloc", events: Listener | None = None) -> Plan:
        """What the real scheduler decides for a graph, on a fresh scheduler.

        `step` is "alloc" (ggml_backend_sched_alloc_graph) or "reserve" (ggml_backend_sched_reserve); of a release that
        measures instead, also "compute" and "measure", which are the same. Where ggml would not go on, the plan's `ok`
        is false and `error` says why.
        """
        with collector_paused():
            return self._plan(self.graph_name(graph), step, events)

    def _plan_to_compute(self, graph: str | None = None, step: str = "alloc", events: Listener | None = None) -> Plan:
        """What `plan` gives, with a `compute_error` where ggml would abort when it computes what was planned, since a
        backend lacks the op that the user has assigned to it.
        """
        with collector_paused():
            return self._plan(self.graph_name(graph), step, events, computes=True)

    def _plan(self, name: str, step: str, events: Listener | None, computes: bool = False) -> Plan:
        """The plan of a run of its own, which is gone when this returns."""
        borrows = self.model.release.reserves and events is None and self.compiled.borrow()
        try:
            run = ReservingRun(self.compiled, borrows=True) if borrows else self.start(events)
            measures = not self.model.release.reserves
            if step == "alloc" or (measures and step == "compute"):
                plan = run.alloc(name)
            elif step == "reserve" or (measures and step == "measure"):
                plan = run.reserve(name)
            else:
                expected = "expected alloc, reserve, compute or measure" if measures else "expected alloc or reserve"
                raise ScenarioError(f"no step is called {quoted(step)}", self.model.source, None, expected)
            return run.as_computed(plan) if computes else plan
        finally:
            if borrows:
                self.compiled.give_back()

    def run(self, steps: Sequence[str | dict[str, Any] | Step] | None = None) -> list[dict[str, Any]]:
        """The plans of all reserve and alloc steps, in order, on one scheduler: each as `Plan.as_dict` gives it.

        `steps` default to the scenario's own. Nothing is computed; `compute` allocates where ggml would.
        """
        return [plan.as_dict() for plan in self.start().run(self.steps(steps))]

    def steps(self, steps: Iterable[str | dict[str, Any] | Step] | None = None) -> list[Step]:
        """The steps as values; by default the scenario's own. Raises ScenarioError for one that is malformed."""
        if steps is None:
            return self.model.steps
        from ggmltool.scenario.steps import StepReader

        model = self.model
        tensors = {t.id: t for t in model.tensors()}
        reader = StepReader(model.graphs, tensors, model.folder, model.release.steps)
        out: list[Step] = []
        try:
            listed = isinstance(steps, Iterable) and not isinstance(steps, str | bytes | dict)
            for step in as_list(list(steps) if listed else steps, "steps"):
                out += [step] if isinstance(step, Step) else reader.read([step])
        except Mistake as mistake:
            raise ScenarioError(mistake.message, model.source, None, mistake.expected) from None
        return out

    def compute(
        self,
        graph: str | None = None,
        outputs: Sequence[str] | None = None,
        custom: Mapping[str, CustomFunction] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Reserve, allocate, set the data, compute; the values of `outputs`.

        `custom` has a Python function for each node of map_custom1 … 3 and custom, by its id. It is called once, with
        the sources as arrays like those returned here (None for an empty slot), and returns the values of the result,
        in its shape or one that broadcasts to it.

        The default outputs are the nodes flagged output, else the last node. Arrays are 4-d, shape `ne` reversed,
        float32 for every floating and quantized type, the integer type otherwise. A node that is not flagged output is
        read right after it was computed, since ggml may put something else into its memory later. Raises GgmlError if
        ggml would not go on.
        """
        name = self.graph_name(graph)
        run = self.start(values=True)
        for step in (run.reserve, run.alloc):
            plan = step(name)
            if not plan.ok:
                raise run.failure(plan)
        nodes = {n.id: n for n in run.newest[name][0].nodes if n.op in CUSTOM_OPS}
        for id, fun in (custom or {}).items():
            if id not in nodes:
                hint = f"its nodes of custom ops are {', '.join(nodes)}" if nodes else "it has no node of a custom op"
                message = f"graph {name} has no node {id} that takes a function"
                raise ScenarioError(message, self.model.source, None, hint)
            nodes[id].fun = fun
        return self.outputs(run, name, outputs)

    def outputs(
        self, run: Run, name: str, outputs: Sequence[str] | None = None, progress: Callable[[], None] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Compute the allocated graph of `run` and read `outputs` (see `compute`); `progress` hears of every node.

        The scheduler computes the graph that it holds: `run.held`, else that called `name`. Values that rest on freed
        memory are left out.
        """
        name = run.held or name
        if name not in run.newest:
            run.build(name)
        built, table = run.newest[name]
        ids = self.compiled.graphs[name].ids
        if outputs is None:
            flagged = [n.id for n in built.nodes if n.flags & FLAG_OUTPUT]
            outputs = flagged or [n.id for n in built.nodes[-1:]]
        for id in outputs:
            if not isinstance(id, str) or id not in ids:
                raise no_tensor(self.model, id, ids, f"graph {name} has")
        kept = 0 if has_no_flags(self.model.release) else FLAG_OUTPUT
        nodes = {n.id for n in built.nodes[:-1] if not n.flags & kept}
        early = nodes.intersection(outputs)
        seen: dict[str, NDArray[Any]] = {}

        def watch(t: Tensor) -> None:
            if t.id in early and t.index not in run.freed.results:
                seen[t.id] = values_of(t)
            if progress is not None:
                progress()

        run.compute(name, watch if early or progress is not None else None)
        table = run.newest[name][1]  # where computing builds the graph, that one is meant
        late = {id: table[ids[id]] for id in outputs if id not in early}
        seen |= {id: values_of(t) for id, t in late.items() if run.rests_on(t) is None}
        return {id: seen[id] for id in outputs if id in seen}
