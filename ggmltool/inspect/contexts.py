"""What lies where in the arenas of the contexts, and in that of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ggmltool.inspect.errors import InspectError
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.scenario.tensor_info import arenas

if TYPE_CHECKING:
    from ggmltool.ggml.context import Context
    from ggmltool.inspect.watched import Watched

Layout = tuple[tuple[str, int, int], ...]


class GraphFacts(NamedTuple):
    """What a cgraph's struct has: `size` bounds nodes and leafs. `layout` is where its arrays lie in its object: field,
    offset, bytes."""

    size: int
    n_nodes: int
    n_leafs: int
    layout: Layout


def contexts_at(at: Watched, only: str | None = None) -> tuple[list[Context], GraphFacts]:
    """The contexts at a moment, those of the graph and the scheduler last, and the graph's own facts.

    Raises InspectError if there is no context that is called `only`.
    """
    built = at.built()
    contexts = arenas(at.run, built.name, built.table)
    if only is not None:
        names = [ctx.name for ctx in contexts]
        if only not in names:
            hint = did_you_mean(only, names) or "the contexts are " + ", ".join(map(quoted, names))
            raise InspectError(f"no context is called {quoted(only)}; {hint}")
        contexts = [ctx for ctx in contexts if ctx.name == only]
    layout = at.run.model.release.graph_layout(built.graph.size)
    return contexts, GraphFacts(built.graph.size, built.graph.n_nodes, built.graph.n_leafs, layout)
