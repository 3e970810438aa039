"""`graph`: the graph's nodes and leafs in ggml's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ggmltool.ask.answer import Answer
from ggmltool.ask.moment import OfMoment, answer
from ggmltool.ask.question import Option

if TYPE_CHECKING:
    from ggmltool.ask.graph.record import BuiltGraph, SchedulerGraph
    from ggmltool.inspect.opened import Opened


class Graph(OfMoment["BuiltGraph | SchedulerGraph"], frozen=True, kw_only=True):
    """Print the graph as ggml_graph_print does: nodes and leafs in the order ggml_build_forward_expand finds them.

    \b
    Example:
      ggmltool graph graph.yaml
      ggmltool graph --sched graph.yaml    with the scheduler's copies
    """

    sched: Annotated[
        bool,
        Option(
            "Print the graph that the scheduler hands to the allocator, with copies and dependencies (default: as "
            "built)."
        ),
    ] = False

    in_ggmls_words = True
    raises = "StepRefused if ggml refused before it had a graph."

    def ask(self, opened: Opened) -> Answer[BuiltGraph | SchedulerGraph]:
        """The graph as it was built, or with `sched` as the scheduler left it."""
        from ggmltool.ask.graph.record import BuiltGraph, GraphTensor, SchedulerGraph
        from ggmltool.inspect.watched import graph_at, watch
        from ggmltool.show.document import head

        opened = self.of(opened)
        if not self.sched:
            name = graph_at(opened, self.moment)
            built = opened.scenario.start().build(name)
            nodes, leafs = map(GraphTensor.all, (built.nodes, built.leafs))
            return Answer(BuiltGraph(ggml=opened.model.ggml, graph=name, nodes=nodes, leafs=leafs), opened.title, name)
        at = watch(opened, self.moment)
        if not at.sched.nodes and at.plan.error is not None:
            raise at.refusal("the scheduler has no graph:\n")
        nodes, leafs = map(GraphTensor.all, (at.sched.nodes, at.sched.leafs))
        return answer(at, SchedulerGraph(**head(at.plan), nodes=nodes, leafs=leafs))
