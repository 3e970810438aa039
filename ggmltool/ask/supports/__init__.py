"""`supports`: which device could run which node, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from ggmltool.ask.answer import Answer
from ggmltool.ask.question import Option, Question

if TYPE_CHECKING:
    from ggmltool.ask.supports.record import SupportMatrix
    from ggmltool.inspect.opened import Opened


class Supports(Question["SupportMatrix"], frozen=True, kw_only=True):
    """Show which backend supports which node of a graph, and the reason for every no.

    \b
    The answers, as the scheduler gets them before it begins:
      yes      it supports the op, and can use all memory that is already allocated
      copy     it supports the op after sources are copied, such as weights elsewhere
      offload  the same, and it offloads the op: the batch makes the copy worth it
      no       it does not support the op (supports_op), or cannot use the memory
               that the node has (supports_buft); the reasons are below the table

    \b
    Example:
      ggmltool supports model.yaml
      ggmltool supports --by node --only no model.yaml
    """

    graph: Annotated[str | None, Option("Name of the graph (default: the first).", "NAME", ("-g",), "graphs")] = None
    by: Annotated[
        Literal["op", "node"],
        Option("Show a row for all nodes with the same op, types and answers, or a row for every node."),
    ] = "op"
    only: Annotated[
        Literal["yes", "no", "copy", "offload"] | None,
        Option("Show only nodes to which some backend gives this answer."),
    ] = None

    def ask(self, opened: Opened) -> Answer[SupportMatrix]:
        """The answers of every backend. Raises ScenarioError for a graph that is not there."""
        from ggmltool.ask.supports.record import supports

        name = opened.scenario.graph_name(self.graph)
        found = supports(opened, name, self.by == "node", self.only)
        opened.logged(found.plan.log)
        return Answer(found, opened.title, f"graph {name}", found.plan, found.plan.ok)
