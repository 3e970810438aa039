"""`supports`: which device could run which node, and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from ggmltool.ask.supports.record import State, SupportMatrix
    from ggmltool.inspect.opened import Opened


def supports(
    opened: Opened, graph: str | None = None, by_node: bool = False, only: State | None = None
) -> Answer[SupportMatrix]:
    """Which backend supports which node, and the reason of every no; a row for every node, or for all of a kind.

    `only` keeps the nodes to which some backend gives this answer. Raises ScenarioError for a graph that is not there.
    """
    from ggmltool.ask.supports.record import supports

    name = opened.scenario.graph_name(graph)
    found = supports(opened, name, by_node, only)
    return Answer(found, opened.title, f"graph {name}", found.plan, found.plan.ok)
