"""What ggml_backend_sched_print_assignments would print, as records (a view turns them into ggml's text)."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.sched.state import SchedulerState
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor, op_desc


class DebugSource(NamedTuple):
    """A source of a node as the debug print shows it; `backend` is None where ggml prints NULL."""

    name: str
    nbytes: int
    backend: str | None
    cause: str


class DebugNode(NamedTuple):
    """A node line. View ops have none."""

    index: int  # type: ignore[assignment]
    op_desc: str
    name: str
    nbytes: int
    backend: str | None
    cause: str
    use_count: int
    compute: bool
    sources: tuple[DebugSource, ...]


class DebugSplit(NamedTuple):
    """A split header, with the node lines that follow it; `inputs` are (name, bytes)."""

    id: int
    backend: str
    inputs: tuple[tuple[str, int], ...]
    nodes: tuple[DebugNode, ...]


def _op_name(t: Tensor) -> str:
    """ggml_op_name: UNARY and GLU for all their functions."""
    return Op(t.op).name


SchedDebug = tuple[DebugSplit, ...]


def debug_of(s: SchedulerState, graph: CGraph) -> SchedDebug:
    """ggml_backend_sched_print_assignments, as records; of a graph without nodes it prints nothing."""
    ids, causes, names = s.ids, s.causes, s.names
    described = op_desc if s.release.prints_functions else _op_name

    def backend(t: Tensor) -> str | None:
        b = ids[t.index]
        return names[b] if b != -1 else None

    out: list[DebugSplit] = []
    for k, sp in enumerate(s.splits[: s.n_splits] if graph.nodes else ()):
        lines: list[DebugNode] = []
        for i in range(sp.i_start, sp.i_end):
            n = graph.nodes[i]
            if n.is_view_op:
                continue
            sources = tuple(
                DebugSource(t.name, t.nbytes, backend(t), causes[t.index] or "") for t in n.src if t is not None
            )
            lines.append(
                DebugNode(
                    i,
                    described(n),
                    n.name,
                    n.nbytes,
                    backend(n),
                    causes[n.index] or "",
                    graph.use_count(n),
                    bool(n.flags & FLAG_COMPUTE),
                    sources,
                )
            )
        inputs = tuple((t.name, t.nbytes) for t in sp.inputs)
        out.append(DebugSplit(k, names[sp.backend_id], inputs, tuple(lines)))
    return tuple(out)
