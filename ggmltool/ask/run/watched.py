"""What ggml's eval callback sees of a node that was just computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.op import VIEW_OPS
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.scenario.run.run import Run, values_of
from ggmltool.scenario.spec import ScenarioSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WatchedNode(NamedTuple):
    """A node that was just computed. `src` are its sources as (name, type, ne); `step` is the scenario's, from 1."""

    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[tuple[str, str, tuple[int, ...]], ...]
    backend: str
    graph: str
    step: int


def computed_nodes(model: ScenarioSpec, graph: str) -> set[str]:
    """The nodes of a graph that compute something: all but views."""
    return {n.id for n in model.graphs[graph].nodes if n.op not in VIEW_OPS}


def watched_node(run: Run, t: Tensor, graph: str, step: int) -> WatchedNode:
    """A node of the graph that `step` computes, with the backend that computed it."""
    sched = run.start()
    return WatchedNode(
        t.id,
        op_desc(t),
        t.type.name,
        t.ne,
        tuple((s.label, s.type.name, s.ne) for s in t.src if s is not None),
        sched.names[sched.ids[t.index]],
        graph,
        step,
    )


def values_if_known(run: Run, t: Tensor) -> NDArray[Any] | None:
    """The values of a node just computed; None if the type cannot be read here, or if they rest on freed memory."""
    if t.index in run.freed.results:
        return None
    try:
        return values_of(t)
    except NotComputable:
        return None


ENDS = 3
"""First and last elements in JSON."""


class Summary(NamedTuple):
    """The values of a tensor in numbers; min, max and mean are those of the finite ones, None without any."""

    min: float | None
    max: float | None
    mean: float | None
    nan: int
    inf: int


def summary_of(values: NDArray[Any]) -> Summary:
    """Least, greatest and mean value, and how many are NaN or infinite."""
    import numpy as np

    if values.dtype.kind != "f":
        finite, nan, inf = values.reshape(-1), 0, 0
    else:
        nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        finite = values[np.isfinite(values)] if nan or inf else values.reshape(-1)
    if not finite.size:
        return Summary(None, None, None, nan, inf)
    return Summary(float(finite.min()), float(finite.max()), float(finite.mean(dtype=np.float64)), nan, inf)
