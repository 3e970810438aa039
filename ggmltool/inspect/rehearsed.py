"""The plan of a scheduler with a past, made again for who looks at memory: nobody heard it when it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ggmltool.inspect.memory import PlacedAt

if TYPE_CHECKING:
    from ggmltool.ggml.alloc.gallocr import Gallocr
    from ggmltool.ggml.alloc.vbuffer import TensorAlloc
    from ggmltool.ggml.sched.past import Past
    from ggmltool.ggml.sched.state import SchedulerState
    from ggmltool.inspect.record import Record
    from ggmltool.scenario.run.run import Run
    from ggmltool.scenario.spec import Step


def rehearse(run: Run, record: Record, step: Step) -> None:
    """Before the first step: reserve its graph, for the record to hear who has which bytes when, and go back to the
    past, which has the tensors where they lie. Where its plan does not serve, ggml plans anew, and that is heard.
    """
    from ggmltool.ggml.sched.past import go_on_from

    past = run.model.scheduler.past
    if past is None or step.kind != "alloc" or not record.hears_memory:
        return
    run.step(replace(step, kind="reserve"))
    run.plans.clear()
    run.debug_records.clear()
    sched = cast("SchedulerState", run.start())
    sched.gallocr.settle()
    record.put(dict(_moves(sched.gallocr, past)))
    go_on_from(past, sched)


def _moves(gallocr: Gallocr, past: Past) -> Iterator[tuple[PlacedAt, PlacedAt]]:
    """Where each tensor of the plan lies, and where the past has it; nothing if that is of another graph."""
    sizes = len(gallocr.node_allocs), len(gallocr.leaf_allocs)
    planned = len(gallocr.planned_nodes), len(gallocr.planned_leafs)
    if not sizes == planned == (len(past.nodes), len(past.leafs)):
        return
    pairs = []
    for node, (dst, srcs), (past_dst, past_srcs) in zip(
        gallocr.planned_nodes, gallocr.node_allocs, past.nodes, strict=True
    ):
        pairs.append((node, dst, past_dst))
        pairs += [(s, a, b) for s, a, b in zip(node.src, srcs, past_srcs, strict=False) if s is not None]
    pairs += zip(gallocr.planned_leafs, gallocr.leaf_allocs, past.leafs, strict=True)
    for t, now, then in pairs:
        if now.buffer_id >= 0 and now.buffer_id == then.buffer_id:
            yield _placed(gallocr, t.label, now), _placed(gallocr, t.label, then)


def _placed(gallocr: Gallocr, tensor: str, at: TensorAlloc) -> PlacedAt:
    return PlacedAt(tensor, gallocr.bufts[at.buffer_id].name, at.chunk, at.offset)
