"""The scheduler's state after a step as a Plan."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import KEY_NAMES, Op
from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, PlanError, SplitPlan
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import VERSION

Memory = tuple[str | None, str | None, int | None, int | None]
_NO_MEMORY: Memory = (None, None, None, None)
_OP_NAMES = tuple(op.name for op in Op)
_OP_DESCS = tuple(name.upper() for name in KEY_NAMES)


def _memory(t: Tensor) -> Memory:
    """Buffer type, usage, chunk, offset from the chunk's base."""
    buffer = t.buffer
    if buffer is None:
        return _NO_MEMORY
    return buffer.buft.name, USAGE_NAMES[buffer.usage], buffer.chunk, t.data - buffer.base


def plan_of(
    s: Scheduler, graph: CGraph, name: str, step: str, log: Sequence[str] = (), error: PlanError | None = None
) -> Plan:
    """The plan after `step` ("reserve" or "alloc") of the graph called `name`.

    With `error`, what stood when ggml refused to go on after it had split the graph.
    """
    ids, names = s.assigned, s.names
    splits = s.splits[: s.n_splits]
    return Plan(
        graph=name,
        step=step,
        ok=error is None,
        backends=_backends(s),
        splits=tuple(
            SplitPlan(i, names[sp.backend_id], sp.i_start, sp.i_end, tuple(t.label for t in sp.inputs))
            for i, sp in enumerate(splits)
        ),
        nodes=_nodes(s, graph),
        leafs=tuple(
            LeafPlan(i, t.id, names[ids[t.index]] if ids[t.index] != -1 else None, *_memory(t))
            for i, t in enumerate(graph.leafs)
        ),
        copies=_copies(s),
        buffer_sizes=tuple((n, s.get_buffer_size(b)) for b, n in enumerate(names)),
        log=tuple(log),
        error=error,
        ggml=s.release.name,
        debug_log=None if s.debug_lines is None else tuple(s.debug_lines),
    )


def failed_plan(
    error: GgmlError,
    name: str | None,
    step: str,
    backends: Sequence[tuple[str, str]],
    log: Sequence[str] = (),
    ggml: str = VERSION,
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


def _backends(s: Scheduler) -> tuple[tuple[str, str], ...]:
    return tuple((b.name, b.device.buft.name) for b in s.backends)


def _nodes(s: Scheduler, graph: CGraph) -> tuple[NodePlan, ...]:
    ids, causes, names = s.assigned, s.assigned_causes, s.names
    use_counts = graph.use_counts
    bufts = s.bufts
    hn_ids = s.gallocr.hash_nodes.buffer_id
    out: list[NodePlan] = []
    for k, sp in enumerate(s.splits[: s.n_splits]):
        for i in range(sp.i_start, sp.i_end):
            t = graph.nodes[i]
            index = t.index
            b = ids[index]
            buffer = t.buffer
            if t.view_src is not None:
                size = None
            elif buffer is None and index >= len(hn_ids):
                size = None  # the allocator never came to this graph
            else:
                buft = buffer.buft if buffer is not None else bufts[hn_ids[index]]
                size = t.nbytes if buft.plain else buft.get_alloc_size(t)
            if buffer is None:
                buft_name = usage = chunk = offset = None
            else:
                buft_name, usage, chunk, offset = _memory(t)
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
                    buft_name,
                    usage,
                    chunk,
                    offset,
                    size,
                )
            )
    return tuple(out)


def _copies(s: Scheduler) -> tuple[CopyPlan, ...]:
    """Pipeline copies of graph inputs (the input itself among them), then those of the splits' inputs, in order."""
    wanted = [(t, s.assigned[t.index]) for t in s.graph_inputs] if s.n_copies > 1 else []
    wanted += [(t, sp.backend_id) for sp in s.splits[: s.n_splits] for t in sp.inputs]
    out: list[CopyPlan] = []
    for t, b in wanted:
        of = s.made_copies[t.index]
        made = of[b] if of is not None else None
        for c, copy in enumerate(made or ()):
            buffer, _, chunk, offset = _memory(copy)
            out.append(CopyPlan(copy.name, t.label, s.names[b], c, buffer, chunk, offset))
    return tuple(out)
