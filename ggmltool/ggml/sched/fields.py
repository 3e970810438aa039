"""The plain fields of struct ggml_backend_sched, as a debugger shows them."""

from __future__ import annotations

from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.scheduler import Scheduler

Fields = dict[str, int | bool]
"""Values by their expressions behind `sched->`."""


def sched_fields(s: Scheduler) -> Fields:
    """Flags, counts, splits and sizes of a scheduler that reserves; of an older one what it has of them."""
    if "reserve" not in s.release.steps:
        return _measuring(s)
    fields: Fields = {
        "is_reset": s.is_reset, "is_alloc": s.is_alloc, "n_backends": len(s.backends), "hash_set.size": s.hash_size,
        "graph.size": s.own_size, "graph.n_nodes": len(s.nodes), "graph.n_leafs": len(s.leafs),
    }  # fmt: skip
    for i, split in enumerate(s.splits[: s.n_splits]):
        fields[f"splits[{i}].backend_id"] = split.backend_id
        fields |= _split(i, split)
    return fields | {
        "n_splits": s.n_splits, "splits_capacity": len(s.splits), "n_copies": s.n_copies, "cur_copy": s.cur_copy,
        "n_graph_inputs": len(s.graph_inputs) if s.n_copies > 1 else 0, "context_buffer_size": s.arena.size,
    }  # fmt: skip


def _measuring(s: Scheduler) -> Fields:
    """A split of a scheduler that measures has an allocator in place of a number."""
    fields: Fields = {"is_reset": s.is_reset, "n_backends": len(s.backends), "hash_set.size": s.hash_size}
    for i, split in enumerate(s.splits[: s.n_splits]):
        fields |= _split(i, split)
    return fields | {"n_splits": s.n_splits}


def _split(i: int, split: Split) -> Fields:
    ends = {"i_start": split.i_start, "i_end": split.i_end, "n_inputs": len(split.inputs)}
    return {f"splits[{i}].{name}": value for name, value in ends.items()}


def backend_ids(s: Scheduler) -> tuple[list[int], list[int]]:
    """node_backend_ids and prev_node_backend_ids, as far as the scheduler's own graph has nodes."""
    n = len(s.nodes)
    return s.node_ids[:n], [*s.prev_node_ids[:n], *[0] * (n - len(s.prev_node_ids))]
