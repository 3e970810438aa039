"""`run`: the steps of a scenario, done one by one, the values that come out, and the nodes that are watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET

from ggmltool.ask.answer import Answer
from ggmltool.ask.plan.record import PlanDocument
from ggmltool.ask.question import Option, Question
from ggmltool.ask.run.record import (
    BackendTime,
    GraphTimes,
    NextToken,
    RunDocument,
    StepReport,
    WatchedNode,
    WatchedRow,
    computed_nodes,
    next_token,
    values_if_known,
    watched_node,
)
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.inspect.built import output_ids
from ggmltool.inspect.opened import UNSEEN, Opened
from ggmltool.inspect.ready import check_run, tell_of_undone
from ggmltool.inspect.use_after_free import FreedMemoryUse, uses_after_free
from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.versions import days, lacks
from ggmltool.show.document import Error
from ggmltool.show.text import count, shortened
from ggmltool.state.errors import InspectError, WrongUse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.ggml.tensor import Tensor
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step

_UNDONE = {"compute": "not computed", "set": "not written"}
"""What a step does without --compute."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A run: its plans, what each step did, the values by id (None: they rest on freed memory), ggml's error where it
    ended with one, what used freed memory, what a captured prompt's logits say; and where they were asked for the nodes
    that were watched, and the times of backends."""

    opened: Opened
    plans: Sequence[Plan]
    reports: Sequence[StepReport]
    values: dict[str, NDArray[Any] | None]
    error: dict[str, Any] | None
    freed: Sequence[FreedMemoryUse]
    next_token: NextToken | None
    watched: Sequence[WatchedRow] | None
    times: Sequence[GraphTimes] | None

    view = "ran"

    def document(self) -> RunDocument:
        """The plans of all reserve and alloc steps, and the values as nested lists."""
        from ggmltool.show.values import nested

        return RunDocument(
            ggml=self.opened.model.ggml,
            ok=self.error is None and not self.freed,
            plans=[PlanDocument.of(plan) for plan in self.plans],
            outputs={id: None if values is None else nested(values) for id, values in self.values.items()},
            watched=UNSET if self.watched is None else list(self.watched),
            next_token=self.next_token or UNSET,
            times=UNSET if self.times is None else list(self.times),
            use_after_free=list(self.freed) or UNSET,
            error=UNSET if self.error is None else Error(**self.error),
        )


class RunQuestion(Question["Ran"], frozen=True, kw_only=True):
    """Run the steps of a scenario, compute on the simulated devices, and show the outputs.

    Weights (contexts with `usage: weights`) must have values; otherwise nothing is computed, unless --zeros is given.
    Other tensors without data are zero, and are named.

    The outputs are the nodes flagged output, else the last node. For a captured prompt, the likeliest next tokens are
    shown, too, with their text. With --json: the plans of all reserve and alloc steps, and the outputs as nested lists.

    --watch and --dump see nodes as ggml's eval callback does (ggml_backend_sched_set_eval_callback): each split is
    computed in parts that end with a wanted node. A file has the name of its node, with everything but letters, digits
    and ._-~ escaped as in a URL; manifest.json says what is in each. Values are float32, as arrays of shape ne
    reversed; integers keep their type.

    \b
    Example:
      ggmltool run -t q -t k --json model.yaml
      ggmltool run --watch 'attn_*' --dump tensors model.yaml
      ggmltool run --ggml 2024-01 --times model.yaml
    """

    tensor: Annotated[
        Sequence[str],
        Option("Show this tensor instead of the outputs; may be given more than once.", "ID", ("-t",), "tensors"),
    ] = ()
    watch: Annotated[
        Sequence[str],
        Option(
            "Show this node, or all that match a glob (`'ffn_*'`), as soon as it is computed. May be given more than "
            "once.",
            "NODE",
            complete="nodes",
        ),
    ] = ()
    dump: Annotated[
        Path | None,
        Option("Write every node, or those of --watch, to .npy files in this folder; --force overwrites.", "DIR"),
    ] = None
    compute: Annotated[bool, Option("Compute (default), or only plan and allocate.")] = True
    times: Annotated[bool, Option("Show the time each backend spent on copies and on computing (ggml 2024-01).")] = (
        False
    )
    zeros: Annotated[bool, Option("Compute even if weights have no values: they are zero.")] = False

    bounds = ("memory", "operations")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.watch or self.dump is not None) and not self.compute:
            raise WrongUse("--watch and --dump need computed nodes; leave out --no-compute.")
        if self.times and not self.compute:
            raise WrongUse("--times needs computed nodes; leave out --no-compute.")

    def ask(self, opened: Opened) -> Answer[Ran]:
        """Do the steps. Raises InspectError, ScenarioError and GgmlError."""
        steps = RunSteps(opened, self)
        steps.check()
        return steps.do()


class RunSteps:
    """The steps under way. Nodes that are asked for are given to `show`, and to `dump`, which gets all that compute
    something where none are named; with `quiet` it is not told how far the work is."""

    def __init__(
        self,
        opened: Opened,
        asked: RunQuestion,
        show: Callable[[WatchedNode, NDArray[Any] | None], None] | None = None,
        dump: Callable[[WatchedNode, NDArray[Any]], None] | None = None,
        quiet: bool = False,
    ) -> None:
        self.opened, self.asked, self.show, self.dump = opened, asked, show, dump
        self.progress = UNSEEN.progress if quiet else opened.work.progress
        model = opened.model
        if (asked.watch or dump is not None) and lacks(model.release, days().eval_callback):
            raise InspectError(
                f"ggml {model.ggml} has no eval callback; it came on {days().eval_callback}, which --watch and --dump "
                "need; -t shows tensors"
            )
        self.run: Run = opened.scenario.start(opened.listener(None), values=asked.compute)
        self.computed = [(i, s.graph) for i, s in enumerate(model.steps, 1) if s.kind == "compute" and s.graph]
        self.wanted = {graph: self._wanted(graph) for _, graph in self.computed}
        self.reports: list[StepReport] = []
        self.values: dict[str, NDArray[Any] | None] = {}
        self.error: dict[str, Any] | None = None
        self.times: list[GraphTimes] = []
        self.watched: list[WatchedRow] = []

    def _wanted(self, graph: str) -> set[str]:
        """The nodes of a graph that are watched or dumped."""
        if self.asked.watch:
            nodes = self.opened.model.graphs[graph].nodes
            return {n.id for n in nodes if any(_matches(n.id, pattern) for pattern in self.asked.watch)}
        return computed_nodes(self.opened.model, graph) if self.dump is not None else set()

    def check(self) -> None:
        """Refuse what is not there before any work is done. Raises ScenarioError and InspectError."""
        model = self.opened.model
        known = [id for graph in self.opened.scenario.compiled.graphs.values() for id in graph.ids]
        for id in self.asked.tensor:
            if id not in known:
                raise ScenarioError(f"no tensor is called {quoted(id)}", model.source, None, did_you_mean(id, known))
        if self.asked.times and not model.release.keeps_times:
            did = next(release.name for release in RELEASES.values() if release.keeps_times)
            raise InspectError(f"ggml {model.ggml} keeps no times per backend; ggml {did} does: --ggml {did}")
        known = list(dict.fromkeys(n.id for _, graph in self.computed for n in model.graphs[graph].nodes))
        for pattern in self.asked.watch:
            if not any(_matches(id, pattern) for id in known):
                hint = did_you_mean(pattern, known)
                if any(t.id == pattern for t in model.tensors()):
                    hint = f"{pattern} is never computed; `run -t {pattern}` shows it"
                raise ScenarioError(f"no computed node is called {quoted(pattern)}", model.source, None, hint)
        if self.asked.compute:
            check_run(self.opened, self.asked.zeros, "plan()")

    def do(self) -> Answer[Ran]:
        """All steps, up to one that ggml refuses."""
        for number, step in enumerate(self.opened.model.steps, 1):
            n_freed = len(uses_after_free(self.run))
            report = self._do(step, number)
            uses = uses_after_free(self.run)[n_freed:]
            # What rests on freed memory has no value, now or from before.
            rests = {id for use in uses for id in use.results}
            self.values.update(dict.fromkeys(self._shown(step, rests)))
            self.reports.append(report._replace(number=number, uses_freed=bool(uses)))
            if report.plan is not None:
                self.opened.logged(report.plan.log)
            if report.failure:
                self.error = dict(report.failure)
                break
        known = {id: values for id, values in self.values.items() if values is not None}
        ran = Ran(
            self.opened, self.run.plans, self.reports, self.values, self.error, uses_after_free(self.run),
            next_token(self.opened.model, known) if known else None,
            self.watched if self.asked.watch else None,
            self.times if self.asked.times else None,
        )  # fmt: skip
        return Answer(ran, self.opened.title, fine=not (self.error or ran.freed))

    def _do(self, step: Step, number: int) -> StepReport:
        compute, said = self.asked.compute, str(step)
        try:
            if step.kind == "get" and not compute:
                for id in step.tensors:
                    self.run.check_get(id)
                return StepReport(said, "not read")
            if step.kind == "compute" and step.graph is not None and compute:
                return StepReport(said, self._compute(step.graph, number))
        except GgmlError as error:
            return StepReport(said, error=tuple(error.as_dict().items()))
        done = self.run.step(step, number)
        if isinstance(done, Plan):
            undone = tell_of_undone(self.run, step, self.opened.work)
            return StepReport(said, undone, done) if done.step == step.kind else StepReport(said, error=done.error)
        if isinstance(done, dict):
            self.values.update(done)
            return StepReport(said, f"read {count(len(done), 'tensor')}")
        return StepReport(said, "done" if compute else _UNDONE.get(step.kind, "done"))

    def _shown(self, step: Step, ids: set[str]) -> list[str]:
        """Those of some tensors whose values are shown after a step, or were before."""
        if not ids:
            return []
        asked: Sequence[str] = step.tensors or self.asked.tensor
        if not asked and step.graph is not None:
            asked = output_ids(self.opened.scenario, self.run.held or step.graph)
        return [id for id in (*self.values, *asked) if id in ids]

    def _compute(self, named: str, number: int) -> str:
        """Compute the graph that the scheduler holds, its outputs or those asked for that it has; what was done."""
        run, scenario = self.run, self.opened.scenario
        run.number = number
        graph = run.held or named
        if self.show is not None or self.dump is not None:
            run.set_eval_callback(lambda t, ask: self._ask_or_take(t, ask, number, graph))
        if copies := run.old_copies(named):
            them = f"{count(len(copies), 'copy')} of the first time ({shortened(copies, 4)})"
            self.opened.work.note(
                f"Step {number}, compute {named}, splits a build of the graph that was split before: its sources are "
                f"{them}. Nothing is copied into them now, and other tensors may use their memory. Build the graph "
                f"anew after a reset (`alloc {named}`), or leave out the reset."
            )
        wanted = [id for id in self.asked.tensor if id in scenario.compiled.graphs[graph].ids]
        n_nodes = len(self.opened.model.graphs[graph].nodes)
        with self.progress(f"computing {graph}", n_nodes, "nodes") as advance:
            values = scenario.outputs(run, graph, wanted if self.asked.tensor else None, advance)
        if self.opened.model.release.keeps_times:
            times = tuple(BackendTime(*t) for t in run.times)
            self.times.append(GraphTimes(graph, run.start().n_splits, times))
        self.values.update(values)
        held = f": the scheduler holds {graph}" if graph != named else ""
        return f"computed {', '.join(values) or 'nothing'}{held}"

    def _ask_or_take(self, t: Tensor, ask: bool, number: int, graph: str) -> bool:
        """ggml's eval callback."""
        if ask:
            return t.id in self.wanted[graph]
        node, values = watched_node(self.run, t, graph, number), values_if_known(self.run, t)
        if self.dump is not None and values is not None:
            self.dump(node, values)
        if self.asked.watch:
            self.watched.append(WatchedRow.of(node, values))
            if self.show is not None:
                self.show(node, values)
        return True


def _matches(id: str, pattern: str) -> bool:
    return id == pattern or fnmatchcase(id, pattern)
