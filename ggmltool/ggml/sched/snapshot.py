"""The scheduler's state after a step as a Plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import KEY_NAMES, Op
from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, PlanError, SplitPlan
from ggmltool.ggml.sched.common import AnyScheduler, Places
from ggmltool.ggml.tensor import Tensor

_OP_NAMES = tuple(op.name for op in Op)
_OP_DESCS = tuple(name.upper() for name in KEY_NAMES)


def plan_of(
    s: AnyScheduler, graph: CGraph, name: str, step: str, log: Sequence[str] = (), error: PlanError | None = None
) -> Plan:
    """The plan after `step` ("reserve", "alloc", "measure" or "compute") of the graph called `name`.

    With `error`, what stood when ggml refused to go on after it had split the graph.
    """
    names = s.names
    place = s.places()
    inplace = s.gallocr.inplace
    return Plan(
        graph=name,
        step=step,
        ok=error is None,
        backends=tuple(zip(names, s.memory_names, strict=True)),
        splits=tuple(
            SplitPlan(i, _backend(s, sp.backend_id) or "NULL", sp.i_start, sp.i_end, tuple(t.label for t in sp.inputs))
            for i, sp in enumerate(s.splits[: s.n_splits])
        ),
        nodes=_nodes(s, graph, place),
        leafs=_leafs(s, graph, place),
        copies=tuple(_copies(s, place)),
        buffer_sizes=tuple((n, s.get_buffer_size(b)) for b, n in enumerate(names)),
        log=tuple(log),
        error=error,
        ggml=s.release.name,
        debug_log=None if s.debug_lines is None else tuple(s.debug_lines),
        tallocs=s.planned if error is None else (),
        measured=tuple(zip(names, s.measured, strict=True)) if s.measured and step == "measure" else (),
        inplace=tuple(n.id for n in graph.nodes if n.index in inplace) if inplace and error is None else (),
    )


def failed_plan(
    error: GgmlError,
    name: str | None,
    step: str,
    backends: Sequence[tuple[str, str]],
    log: Sequence[str] = (),
    ggml: str = "",
    debug_log: Sequence[str] | None = None,
) -> Plan:
    """The plan of a step that this ggml would not survive."""
    return Plan(
        graph=name,
        step=step,
        ok=False,
        backends=tuple(backends),
        log=tuple(log),
        error=tuple(error.as_dict().items()),
        ggml=ggml,
        debug_log=None if debug_log is None else tuple(debug_log),
    )


def _backend(s: AnyScheduler, b: int) -> str | None:
    return s.names[b] if b >= 0 else None


def _nodes(s: AnyScheduler, graph: CGraph, place: Places) -> tuple[NodePlan, ...]:
    ids, causes, names = s.assigned, s.assigned_causes, s.names
    use_counts = graph.use_counts
    out: list[NodePlan] = []
    for k, sp in enumerate(s.splits[: s.n_splits]):
        for i in range(sp.i_start, sp.i_end):
            t = graph.nodes[i]
            index = t.index
            b = ids[index]
            buffer, usage, chunk, offset, size = place(t)
            out.append(
                NodePlan(
                    i,
                    t.id,
                    t.name,
                    _OP_NAMES[t.op],
                    _OP_DESCS[t.key],
                    t.type.name,
                    t.ne,
                    t.nb,
                    names[b] if b != -1 else None,
                    causes[index],
                    k,
                    use_counts[index],
                    # Tensor.label, written out: a call per source of every node would be felt.
                    tuple([None if x is None else x.id or x.name for x in t.src]),
                    buffer,
                    usage,
                    chunk,
                    offset,
                    size,
                )
            )
    return tuple(out)


def _leafs(s: AnyScheduler, graph: CGraph, place: Places) -> tuple[LeafPlan, ...]:
    ids = s.assigned
    out: list[LeafPlan] = []
    for i, t in enumerate(graph.leafs):
        buffer, usage, chunk, offset, _ = place(t, False)
        out.append(LeafPlan(i, t.id, _backend(s, ids[t.index]), buffer, usage, chunk, offset))
    return tuple(out)


def copies_of(s: AnyScheduler) -> Iterator[tuple[Tensor, int, int, Tensor]]:
    """Every copy once: what it copies, its backend, the pipeline copy that it is, and the copy.

    First those of graph inputs (the input itself among them), then those of the splits' inputs, in order.
    """
    wanted = [(t, s.assigned[t.index]) for t in s.graph_inputs] if s.n_copies > 1 else []
    wanted += [(t, sp.backend_id) for sp in s.splits[: s.n_splits] for t in sp.inputs]
    for t, b in dict.fromkeys(wanted):
        of = s.made_copies[t.index]
        made = of[b] if of is not None else None
        for c, copy in enumerate(made or ()):
            yield t, b, c, copy


def _copies(s: AnyScheduler, place: Places) -> Iterator[CopyPlan]:
    for t, b, c, copy in copies_of(s):
        buffer, _, chunk, offset, _ = place(copy, False)
        yield CopyPlan(copy.name, t.label, s.names[b], c, buffer, chunk, offset)
