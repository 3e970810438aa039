"""The state of the scheduler of January 2024 after a step as a Plan."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, PlanError, SplitPlan
from ggmltool.ggml.releases.january_2024.scheduler import MeasuredScheduler
from ggmltool.ggml.tensor import Tensor, op_desc, root_of

Memory = tuple[str | None, str | None, int | None, int | None]


def plan_of(
    s: MeasuredScheduler,
    graph: CGraph,
    name: str,
    step: str,
    log: Sequence[str] = (),
    ggml: str = "2024-01",
    error: PlanError | None = None,
) -> Plan:
    """The plan after `step` ("measure" or "compute") of the graph called `name`.

    With `error`, what stood when ggml refused to go on after it had split the graph. Memory is where the bytes are:
    the buffer type of a tensor's root, or the name of the scheduler's own memory.
    """
    ids, names, causes = s.assigned, s.names, s.assigned_causes
    splits = s.splits[: s.n_splits]
    split_of = [k for k, sp in enumerate(splits) for _ in range(sp.i_start, sp.i_end)]
    return Plan(
        graph=name,
        step=step,
        ok=error is None,
        backends=tuple(zip(names, s.memory_names, strict=True)),
        splits=tuple(
            SplitPlan(i, _name(s, sp.backend_id) or "NULL", sp.i_start, sp.i_end, tuple(t.label for t in sp.inputs))
            for i, sp in enumerate(splits)
        ),
        nodes=tuple(
            NodePlan(
                i,
                t.id,
                t.name,
                Op(t.op).name,
                op_desc(t),
                t.type.name,
                t.ne,
                t.nb,
                _name(s, ids[t.index]),
                causes[t.index] or "",
                split_of[i],
                graph.use_count(t),
                tuple([None if x is None else x.label for x in t.src]),
                *memory_of(t),
                alloc_size(t),
            )
            for i, t in enumerate(graph.nodes[: len(split_of)])
        ),
        leafs=tuple(LeafPlan(i, t.id, _name(s, ids[t.index]), *memory_of(t)) for i, t in enumerate(graph.leafs)),
        copies=tuple(
            CopyPlan(copy.name, t.label, names[b], 0, *_without_usage(memory_of(copy))) for t, b, copy in copies_of(s)
        ),
        buffer_sizes=tuple((n, s.get_buffer_size(b)) for b, n in enumerate(names)),
        log=tuple(log),
        error=error,
        ggml=ggml,
        debug_log=tuple(s.debug_lines),
        tallocs=s.planned if error is None else (),
        measured=tuple(zip(names, s.measured, strict=True)) if s.measured and step == "measure" else (),
        inplace=tuple(n.id for n in graph.nodes if n.index in s.gallocr.inplace) if error is None else (),
    )


def memory_of(t: Tensor) -> Memory:
    """Where the bytes of a tensor are: the name of the memory, its usage, chunk, and the offset from its base."""
    buffer = root_of(t).buffer
    if buffer is None or not t.data:
        return None, None, None, None
    return buffer.name, USAGE_NAMES[buffer.usage], buffer.chunk, t.data - buffer.base


def alloc_size(t: Tensor) -> int | None:
    """The bytes a tensor takes in its buffer type, before alignment; None for views and what has no memory."""
    if t.buffer is None or t.view_src is not None:
        return None
    return t.buffer.buft.get_alloc_size(t)


def copies_of(s: MeasuredScheduler) -> list[tuple[Tensor, int, Tensor]]:
    """Every copy once, in the order of the first split that has it: what it copies, its backend, and the copy."""
    out = []
    seen: set[int] = set()
    for sp in s.splits[: s.n_splits]:
        for t in sp.inputs:
            of = s.made_copies[t.index]
            made = of[sp.backend_id] if of is not None else None
            for copy in made or ():
                if copy.index not in seen:
                    seen.add(copy.index)
                    out.append((t, sp.backend_id, copy))
    return out


def _without_usage(memory: Memory) -> tuple[str | None, int | None, int | None]:
    buffer, _, chunk, offset = memory
    return buffer, chunk, offset


def _name(s: MeasuredScheduler, b: int) -> str | None:
    return s.names[b] if b >= 0 else None
