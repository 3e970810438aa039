"""Plans and what the scheduler did for them: splits, copies, passes, supports, the graph and its drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.api.look import Look
from ggmltool.ask.answer import Answer
from ggmltool.state.errors import InspectError

if TYPE_CHECKING:
    from ggmltool.ask.trace.record import Trace
    from ggmltool.inspect.opened import Opened


def dot(look: Look, style: str, around: str | None, radius: int, split: int | None, fold: bool, overview: bool) -> str:
    from ggmltool.ask.dot.folded import fold_dot
    from ggmltool.ask.dot.overview import overview_dot
    from ggmltool.ask.dot.splits import ggml_dot, split_dot
    from ggmltool.inspect.built import built_graph, near, part_of
    from ggmltool.inspect.watched import graph_at

    if style not in ("ggml", "ggmltool"):
        raise InspectError(f'no style of drawing is called {style!r}; they are "ggmltool" and "ggml"')
    if style == "ggml":
        if split is not None or fold or overview:
            raise InspectError(
                'split, fold and overview are for style="ggmltool"; ggml draws every node, and no splits'
            )
        name = graph_at(look.opened, look.moment)
        tensors = look.opened.tensors(name)
        nodes, leafs = built_graph(look.opened.scenario, name, tensors)
        return ggml_dot(nodes, leafs, tensors, near([t.id for t in (*nodes, *leafs)], tensors, around, radius))
    if (split is not None) + (around is not None) + fold + overview > 1:
        raise InspectError("split, around, fold and overview are different drawings; choose one")
    at = look.watch()
    if at.plan.error is not None and not at.plan.splits:
        raise at.refusal("there is no plan to draw:\n")
    tensors = look.tensors(at)
    if fold or overview:
        return (fold_dot if fold else overview_dot)(at.plan, tensors, at.title)
    return split_dot(at.plan, tensors, at.title, part_of(at.plan, tensors, around, radius, split))


def trace(opened: Opened, compute: bool, decisions: bool, zeros: bool) -> Answer[Trace]:
    from ggmltool.ask.trace import trace as ask_trace
    from ggmltool.inspect.ready import check_weights, computed_graphs

    graphs = computed_graphs(opened.model)
    if compute and not zeros and graphs:
        check_weights(opened.model, graphs, opened.model.steps, "trace(compute=False)")
    return ask_trace(opened, compute, decisions)
