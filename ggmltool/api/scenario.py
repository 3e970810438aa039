"""A scenario with a method for each command: what `ggmltool.load` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from ggmltool.api.sources import read
from ggmltool.ask.allocs import Allocs
from ggmltool.ask.buffers import Buffers
from ggmltool.ask.check import Check
from ggmltool.ask.checked import checked_methods
from ggmltool.ask.context import ContextQuestion
from ggmltool.ask.graph import Graph
from ggmltool.ask.hash import Hash
from ggmltool.ask.lifetime import Lifetime
from ggmltool.ask.moment import OfMoment, When
from ggmltool.ask.place import PlaceQuestion
from ggmltool.ask.plan import PlanQuestion
from ggmltool.ask.question import described, method
from ggmltool.ask.splits import Splits
from ggmltool.ask.sweep import SweepQuestion
from ggmltool.ask.tensor import TensorQuestion
from ggmltool.ask.trace import TraceQuestion
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.opened import Opened, WhatIf
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.api.report import Report
    from ggmltool.ask.answer import Answer
    from ggmltool.ask.backends.record import MadeBackends
    from ggmltool.ask.compare.record import ComparedGraph
    from ggmltool.ask.diff.plans import PlanDiff
    from ggmltool.ask.explain.node import ExplainedNode
    from ggmltool.ask.explain.realloc import ExplainedRealloc
    from ggmltool.ask.explain.split import ExplainedSplit
    from ggmltool.ask.run.record import NextToken
    from ggmltool.ask.supports.record import State, SupportMatrix
    from ggmltool.ask.sweep.record import SweepShown
    from ggmltool.ask.verify.record import Verification
    from ggmltool.ggml.events import Listener
    from ggmltool.scenario.spec import ScenarioSpec
    from ggmltool.show.svg import Svg
    from ggmltool.state.story.history import History


def _plan_html(plan: Plan) -> str:
    from ggmltool.ask.plan.html import plan_html

    return plan_html(plan)


Plan.html = _plan_html


@checked_methods
class Scenario(LoadedScenario):
    """A loaded scenario, with a method for each command that takes one. Every call starts from the beginning.
    Several threads may use one at a time.

    Methods that look at a moment take its options by name (see `When`): `graph`, `step="reserve"`, `after=3`,
    `parallel=True`, `op_offload=False`. They raise ScenarioError for a graph that is not there and InspectError for
    anything else that is asked for and is not; StepRefused, an InspectError, is ggml's refusal where nothing can be
    shown without a plan. Where something can, it is shown, `ok` is false, and `plan.error` says why.
    """

    def __init__(self, model: ScenarioSpec, argument: str = "", ggml: str | None = None) -> None:
        super().__init__(model)
        options = "" if ggml is None else f"--ggml {ggml}"
        self.opened = Opened(self, argument or model.source, options)

    def plan(
        self,
        graph: str | None = None,
        step: str = "alloc",
        events: Listener | None = None,
        *,
        after: int | None = None,
        parallel: bool | None = None,
        op_offload: bool | None = None,
    ) -> Plan:
        """What the scheduler and the allocator decide for a graph, on a fresh scheduler, or with `after` once the
        scenario's own steps are done up to that number. `events` hears every decision.

        Where ggml would not go on, the plan's `ok` is false and `error` says why; where it would abort when it computes
        the plan, `compute_error` does. Raises ScenarioError and
        InspectError for a graph, a step or an option that is not there.
        """
        if after is None and parallel is None and op_offload is None:
            return self._plan_to_compute(graph, step, events)
        if after is None:
            opened = self.opened.what_if(WhatIf(parallel, op_offload))
            return opened.scenario._plan_to_compute(graph, step, events)
        if events is not None:
            raise InspectError("events are heard of a fresh scheduler; scenario.start(events) hears those of all steps")
        at = PlanQuestion(graph=graph, step=step, after=after, parallel=parallel, op_offload=op_offload)  # type: ignore[arg-type]
        return at.ask(self.opened).facts.plan

    def next_token(self, values: Mapping[str, NDArray[Any]] | None = None) -> NextToken | None:
        """The likeliest tokens after a captured prompt, by the `values` that `compute` gave (None: computed here).

        None if there are no logits among them. Raises GgmlError as `compute` does.
        """
        from ggmltool.ask.run.record import next_token

        return next_token(self.model, self.compute() if values is None else values)

    splits = method(Splits)

    def sched_debug(
        self, level: int = 2, *, causes: bool = True, after_pass: int | None = None, **when: Unpack[When]
    ) -> str:
        """What ggml itself prints with GGML_SCHED_DEBUG at this level; `after_pass` of a release that prints passes.

        Raises InspectError if this ggml has no such pass or prints none, StepRefused if there is no scheduler.
        """
        from ggmltool.ask.splits.sched_debug import debug_text

        at: OfMoment[Any] = OfMoment(**when)
        return debug_text(at.of(self.opened), at.moment, level, causes, after_pass)[1]

    buffers = method(Buffers)

    def memory_map(self, **when: Unpack[When]) -> Svg:
        """The compute buffers over time as an SVG drawing, which a notebook shows.

        Raises as `plan` does.
        """
        from ggmltool.ask.buffers.svg import map_svg
        from ggmltool.inspect.built import graph_numbers

        answer = self.buffers(**when)
        plan = answer.facts.plan
        return map_svg(plan, answer.facts.memory, answer.title, graph_numbers(self.opened.scenario, plan.graph))

    allocs = method(Allocs)
    hash = method(Hash)
    lifetime = method(Lifetime)

    limits = method(Check, "limits")

    context = method(ContextQuestion)
    tensor = method(TensorQuestion)

    @overload
    def explain(self, what: str, other: None = None, **when: Unpack[When]) -> Answer[ExplainedNode]: ...

    @overload
    def explain(self, what: int, other: None = None, **when: Unpack[When]) -> Answer[ExplainedSplit]: ...

    @overload
    def explain(
        self, what: tuple[str | None, str | None], other: LoadedScenario | None = None, **when: Unpack[When]
    ) -> Answer[ExplainedRealloc]: ...

    def explain(
        self, what: str | int | tuple[str | None, str | None], other: LoadedScenario | None = None, **when: Unpack[When]
    ) -> Answer[ExplainedNode | ExplainedSplit | ExplainedRealloc]:
        """Why a node is on its backend (its id), why a split begins (its number), or whether the memory planned for
        one graph serves another (both names); the second graph can be one of the scenario `other`.

        Raises InspectError for a node or a split that is not there, StepRefused where ggml fails on a graph.
        """
        from ggmltool.ask.explain import ExplainNode, ExplainSplit, realloc_of
        from ggmltool.ask.explain.realloc import Side

        if isinstance(what, str):
            return ExplainNode(what, **when).ask(self.opened)
        if isinstance(what, int):
            return ExplainSplit(what, **when).ask(self.opened)
        whose = self if other is None else _own(other)
        at: OfMoment[Any] = OfMoment(**when)
        opened = at.of(self.opened)
        sides = []
        for of, graph in zip((opened, opened if whose is self else at.of(whose.opened)), what, strict=True):
            name = of.scenario.graph_name(graph)
            sides.append(Side(of, name, name if whose is self else f"{of.title}:{name}"))
        return realloc_of(sides[0], sides[1], opened.title if whose is self else "two scenarios")

    trace = method(TraceQuestion, "trace")

    def record(self, path: str | Path | None = None, *, compute: bool = False, zeros: bool = False) -> History:
        """Every decision of the scenario's steps, and the state at each: `load("moe").record().cells(30)`.

        They are the steps that plan, with `compute` all. With a `path` the record is written there too, and
        `open_record` reads it. Raises InspectError for weights without values, unless `zeros`, and for a path that
        cannot be written.
        """
        from ggmltool.api.reference import record

        return record(self.opened, path, compute, zeros)

    def backends(self) -> Answer[MadeBackends]:
        """The scenario's backends: devices, memory, capabilities and buffer types."""
        from ggmltool.ask.backends import backends

        return backends(self.model, self.opened.title)

    def supports(
        self, graph: str | None = None, *, by: Literal["op", "node"] = "op", only: State | None = None
    ) -> Answer[SupportMatrix]:
        """Which backend supports which node, and the reason of every no; the rows are the nodes.

        `by` "node" shows a row for every node; `only` "yes", "no", "copy" or "offload" keeps those to which some
        backend says so. Raises ScenarioError for a graph that is not there.
        """
        from ggmltool.ask.supports import Supports

        return Supports(graph=graph, by=by, only=only).ask(self.opened)

    graph = method(Graph)

    def dot(
        self,
        *,
        style: Literal["ggml", "ggmltool"] = "ggmltool",
        around: str | None = None,
        radius: int = 2,
        split: int | None = None,
        fold: bool = False,
        overview: bool = False,
        **when: Unpack[When],
    ) -> str:
        """The graph as text for Graphviz: `graphviz.Source(scenario.dot(fold=True))` draws it in a notebook.

        Raises InspectError for a part that is not there, or options that exclude each other.
        """
        from ggmltool.ask.dot import Dot

        asked = Dot(style=style, around=around, radius=radius, split=split, fold=fold, overview=overview, **when)
        return asked.draw(self.opened, style).text

    def report(
        self, other: LoadedScenario | str | Path | None = None, *, other_graph: str | None = None, **when: Unpack[When]
    ) -> Report:
        """The page that explains a graph: `load("moe").report().save("moe.html")`.

        With `other`, a scenario (loaded, or as `load` takes one), or `other_graph`, a second plan stands beside it, and
        the first node where the two part is marked. Raises InspectError for a step that is not there.
        """
        from ggmltool.api.report import Report
        from ggmltool.ask.report.build import report
        from ggmltool.ask.report.compare import compared

        at: OfMoment[Any] = OfMoment(**when)
        one = at.of(self.opened), at.moment
        if other is None and other_graph is None:
            return Report(report(*one))
        theirs = at.of(self.opened if other is None else _own(other).opened)
        return Report(compared(one, (theirs, at.moment._replace(graph=other_graph or at.graph))))

    def diff(
        self,
        other: LoadedScenario | str | Path | Answer[Any] | None = None,
        *,
        other_graph: str | None = None,
        only: Sequence[str] | None = None,
        **when: Unpack[When],
    ) -> Answer[PlanDiff]:
        """What differs between this plan and that of `other`: a scenario (loaded, or as `load` takes one), a graph of a
        log (`import_log("llama.log", graph=2)`), or this scenario.

        `graph` names the graph of both, `other_graph` that of the other where it is another one. Without `other` and
        `other_graph`, this scenario without and with the options `parallel` and `op_offload` is compared. `only` are
        parts: nodes, splits, copies, buffers, sizes, contexts. Two releases of ggml are compared as
        `load(file, ggml="2024-01").diff(load(file))`.

        Raises InspectError if there is nothing to compare, or no such part.
        """
        from ggmltool.ask.answer import Answer
        from ggmltool.ask.diff import Diff
        from ggmltool.ask.diff.side import Titles, log_side, scenario_side

        asked = Diff(only=only, **when)
        mine, moment = asked.of(self.opened), asked.moment
        if isinstance(other, Answer):
            from ggmltool.sources.sched_log.records import LogGraph

            if not isinstance(other.facts, LogGraph):
                raise InspectError("name a graph of the log: import_log(path, graph=1)")
            titles = Titles(mine.title, f"{other.heading} of {other.title}")
            return asked.between(scenario_side(mine, moment), log_side(other.facts), titles)
        theirs = asked.of((self if other is None else _own(other)).opened)
        there = moment if other_graph is None else moment._replace(graph=other_graph)
        if other_graph is None and (other is None or other is self):
            if not str(asked.what_if):
                raise InspectError("name another scenario, another graph or an option: diff(parallel=True)")
            mine = self.opened.what_if(asked.what_if.opposite)
        titles = Titles(mine.title, theirs.title)
        if mine.title == theirs.title:
            titles = Titles(*(f"{mine.title}:{at.graph or ''}".rstrip(":") for at in (moment, there)))
        return asked.between(scenario_side(mine, moment), scenario_side(theirs, there), titles)

    def compare(
        self,
        graph: str | None = None,
        *,
        backends: str | Sequence[str] | None = None,
        library: bool = False,
        vulkan: bool = False,
        values: str | Path | None = None,
        eval_log: str | Path | None = None,
        tolerance: float | None = None,
        inject: Sequence[str] = (),
        tensor: Sequence[str] = (),
        seed: int | None = None,
        zeros: bool = False,
    ) -> Answer[ComparedGraph]:
        """A graph computed by two sides, node by node: `facts.over` are the nodes whose own kernel is off.

        The sides are two `backends` (by default the scenario's first and its CPU), or with `library` the real ggml's
        CPU, with `vulkan` its Vulkan backend on a device of this machine, or `values` (a folder of npy files, a GGUF
        file) or an `eval_log` that another program wrote. The other options are those of `ggmltool compare`. Raises
        InspectError for sides that cannot be compared, weights without values (unless `zeros`, or a `seed` makes some
        up) or a missing library, and GgmlError as `compute`.
        """
        from ggmltool.ask.compare import Compare

        if library and vulkan:
            raise InspectError("library and vulkan exclude each other; choose one")
        asked = Compare(
            graph=graph,
            backends=backends,
            real="library" if library else "vulkan" if vulkan else None,
            values=None if values is None else Path(values),
            eval_log=None if eval_log is None else Path(eval_log),
            tolerance=tolerance,
            inject=inject,
            tensor=tensor,
            seed=seed,
            zeros=zeros,
        )
        return asked.ask(self.opened)

    def verify(self, *, values: bool | None = None, vulkan: bool = False) -> Answer[Verification]:
        """What differs from the real ggml, which does the same steps; `values` None: computed where data is given.

        With `vulkan` the Vulkan device of this machine answers for the scenario's. Needs the extra `oracle`. Raises
        InspectError if the library is missing or cannot run the scenario.
        """
        from ggmltool.ask.verify import Verify

        return Verify(values=values, real="vulkan" if vulkan else "library").ask(self.opened)

    place = method(PlaceQuestion)

    @described(PlaceQuestion)
    def placed(self, *args: Any, **kwargs: Any) -> Scenario:
        """The scenario as `place` puts it, for all other methods. Raises InspectError as that does."""
        return Scenario(self.place(*args, **kwargs).facts.model, self.opened.argument)

    @described(SweepQuestion)
    def sweep(self, n_gpu_layers: str | None = None, *others: LoadedScenario, **kwargs: Any) -> Answer[SweepShown]:
        """A captured model placed in many ways, and the largest that fits: `facts.best()`.

        The rows are the placements. `n_gpu_layers` and `n_cpu_moe` are ranges, "0..33" or "8,16,all"; each
        `tensor_split` and `override_tensor` is for another placement; `others` are captures of the same model with
        other options. Raises InspectError for options that cannot be, or for too many placements.
        """
        asked = SweepQuestion(n_gpu_layers=n_gpu_layers, **kwargs)
        return asked.ask(self.opened, *(_own(other).opened for other in others))


def _own(other: LoadedScenario | str | Path) -> Scenario:
    """Another scenario, as one that has these methods."""
    if isinstance(other, Scenario):
        return other
    if isinstance(other, LoadedScenario):
        return Scenario(other.model)
    return Scenario(*read(other))
