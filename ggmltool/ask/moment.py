"""Questions about the state at a moment: after one step on a fresh scheduler, or after a step of the scenario's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict, TypeVar

from ggmltool.ask.answer import Answer
from ggmltool.ask.question import Option, Question, R
from ggmltool.inspect.opened import Moment, Opened, WhatIf

if TYPE_CHECKING:
    from ggmltool.inspect.watched import Watched
    from ggmltool.show.document import StepDocument

S = TypeVar("S", bound="StepDocument")


class When(TypedDict, total=False):
    """When to look, and with which options of the scheduler; each is as the option of the commands.

    `graph` is a name, by default the first; `step` "alloc" (default) or "reserve" on a fresh scheduler; `after` the
    number of one of the scenario's own steps instead. `parallel` and `op_offload` stand in for the scenario's.
    """

    graph: str | None
    step: Literal["reserve", "alloc"]
    after: int | None
    parallel: bool | None
    op_offload: bool | None


class OfMoment(Question[R], frozen=True, kw_only=True):
    """When to look, and with which options of the scheduler."""

    graph: Annotated[str | None, Option("Name of the graph (default: the first).", "NAME", ("-g",), "graphs")] = None
    step: Annotated[
        Literal["reserve", "alloc"],
        Option("Show the state after ggml_backend_sched_reserve or ggml_backend_sched_alloc_graph."),
    ] = "alloc"
    after: Annotated[
        int | None,
        Option(
            "Show the state after step N of the scenario (numbered as in `run`), with all steps up to it on one "
            "scheduler.",
            "N",
            least=1,
        ),
    ] = None
    parallel: Annotated[
        bool | None,
        Option(
            "Plan with the four copies of pipeline parallelism, or without. Overrides the scenario.",
            # Its first name was --parallel; in llama.cpp that is -np.
            names=("--parallel/--no-parallel", "--pipeline/--no-pipeline", "pipeline"),
        ),
    ] = None
    op_offload: Annotated[
        bool | None,
        Option("Let devices offload ops whose weights are in host memory, or not. Overrides the scenario."),
    ] = None

    only_python: ClassVar[tuple[str, ...]] = ("parallel", "op_offload")

    @property
    def moment(self) -> Moment:
        """When to look."""
        return Moment(self.graph, self.step, self.after)

    @property
    def what_if(self) -> WhatIf:
        """The options that stand in for the scenario's own."""
        return WhatIf(self.parallel, self.op_offload)

    def of(self, opened: Opened) -> Opened:
        """The scenario, with the options that stand in for its own. Raises InspectError for one that it cannot have."""
        return opened.what_if(self.what_if)


def answer(at: Watched, record: S, heading: str = "") -> Answer[S]:
    """The answer about a state, with the number of the step where one was named."""
    facts = record if at.number is None else record.after_step(at.number)
    fine = at.plan.error is None and at.plan.compute_error is None
    return Answer(facts, at.title, heading or at.heading, at.plan, fine)
