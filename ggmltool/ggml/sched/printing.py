"""ggml_backend_sched_print_assignments, of a scheduler as it is now, as records."""

from __future__ import annotations

from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import DebugNode, DebugSource, DebugSplit
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor, op_desc


def debug_of(s: AnyScheduler, graph: CGraph) -> tuple[DebugSplit, ...]:
    """The splits with their nodes; of a graph without nodes nothing is printed, nor a split behind its last node."""
    return tuple(
        DebugSplit(
            k,
            s.names[sp.backend_id] if sp.backend_id >= 0 else "NULL",
            tuple((t.name, t.nbytes) for t in sp.inputs),
            node_lines(s, graph, sp.i_start, sp.i_end),
        )
        for k, sp in enumerate(s.splits[: s.n_splits])
        if sp.i_start < graph.n_nodes
    )


def node_lines(s: AnyScheduler, graph: CGraph, start: int, end: int) -> tuple[DebugNode, ...]:
    """The lines of the nodes `[start, end)`; view ops have none."""
    ids, causes, names = s.ids, s.causes, s.names

    def backend(t: Tensor) -> str | None:
        b = ids[t.index]
        return names[b] if b != -1 else None

    return tuple(
        DebugNode(
            i,
            op_desc(n) if s.release.prints_functions else Op(n.op).name,
            n.name,
            n.nbytes,
            backend(n),
            causes[n.index] or "",
            graph.use_count(n),
            bool(n.flags & FLAG_COMPUTE),
            tuple(DebugSource(t.name, t.nbytes, backend(t), causes[t.index] or "") for t in s.sources(n)),
        )
        for i, n in enumerate(graph.nodes[start:end], start)
        if not n.is_view_op
    )
