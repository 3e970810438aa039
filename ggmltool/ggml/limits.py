"""The limits of each release of ggml: what each is called, and what happens beyond it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["abort", "device", "grows", "fixed"]
"""Beyond a limit ggml aborts, or a device has no such memory; or ggml makes do (an array grows, a name is cut); or
nothing can go beyond it, since there is no way to ask for more."""


class Limit(NamedTuple):
    """`group` is the part of ggml it belongs to, `text` what is counted, `constant` ggml's name for the limit, `beyond`
    what ggml does then, in its own words where it says something."""

    group: str
    text: str
    constant: str
    kind: Kind
    beyond: str
    nbytes: bool = False


_FULL_SET = 'GGML_ABORT("fatal error") in ggml_hash_find_or_insert'
_NO_BUFFER = "the device refuses: failed to allocate buffer"

LIMITS: dict[str, Limit] = {
    "backends": Limit(
        "scheduler", "backends", "GGML_SCHED_MAX_BACKENDS", "abort",
        "GGML_ASSERT(n_backends <= GGML_SCHED_MAX_BACKENDS)",
    ),
    "copies": Limit(
        "scheduler", "pipeline copies", "GGML_SCHED_MAX_COPIES", "fixed", "parallel makes this many, never more",
    ),
    "sched_tensors": Limit(
        "scheduler", "hash set: nodes + leafs", "sched->hash_set.size", "abort",
        "GGML_ASSERT((int)sched->hash_set.size >= graph->n_nodes + graph->n_leafs): the set is made for graph_size "
        "tensors, rounded up to a prime (2048: 2053), though the leafs go into it too",
    ),
    "sched_slots": Limit("scheduler", "hash set: slots", "sched->hash_set.size", "abort", _FULL_SET),
    "sched_context": Limit(
        "scheduler", "context", "sched->context_buffer_size", "abort",
        "GGML_ASSERT(obj_new) in ggml_new_tensor_impl", True,
    ),
    "splits": Limit(
        "scheduler", "splits", "graph_size", "grows",
        "sched->splits grows on, but the scheduler's context was made for graph_size splits",
    ),
    "split_inputs": Limit(
        "scheduler", "inputs of a split", "GGML_SCHED_MAX_SPLIT_INPUTS", "grows",
        "the next node begins a new split; a node that alone needs more makes the array grow: increasing split inputs "
        "capacity from 30 to 60",
    ),
    "graph_inputs": Limit(
        "scheduler", "graph inputs", "GGML_SCHED_MAX_SPLIT_INPUTS", "grows",
        "the array grows: increasing graph inputs capacity from 30 to 60",
    ),
    "sched_nodes": Limit(
        "scheduler", "own graph: nodes", "nodes_size", "abort", "no check: ggml writes beyond node_backend_ids",
    ),
    "sched_leafs": Limit(
        "scheduler", "own graph: leafs", "nodes_size", "abort", "no check: ggml writes beyond leaf_backend_ids",
    ),
    "cgraph_nodes": Limit(
        "graph", "nodes", "cgraph->size", "abort", "GGML_ASSERT(cgraph->n_nodes < cgraph->size)",
    ),
    "cgraph_leafs": Limit(
        "graph", "leafs", "cgraph->size", "abort", "GGML_ASSERT(cgraph->n_leafs < cgraph->size)",
    ),
    "cgraph_slots": Limit(
        "graph", "hash set: slots", "cgraph->visited_hash_set.size", "abort",
        "GGML_ASSERT(node_hash_pos != GGML_HASHSET_FULL)",
    ),
    "gallocr_slots": Limit("allocator", "hash set: slots", "galloc->hash_set.size", "abort", _FULL_SET),
    "chunks": Limit(
        "allocator", "chunks of a buffer", "GGML_VBUFFER_MAX_CHUNKS", "abort",
        'the last chunk takes what is left, whatever its size; then GGML_ABORT("graph allocation: failed to reserve '
        'memory")',
    ),
    "free_blocks": Limit(
        "allocator", "free blocks of a chunk", "MAX_FREE_BLOCKS", "abort",
        'GGML_ASSERT(chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks")',
    ),
    "name": Limit("tensors", "bytes of a name", "GGML_MAX_NAME - 1", "grows", "the name is cut to 63 bytes"),
    "dims": Limit(
        "tensors", "dimensions", "GGML_MAX_DIMS", "fixed", "GGML_ASSERT(n_dims >= 1 && n_dims <= GGML_MAX_DIMS)",
    ),
    "src": Limit("tensors", "sources of a node", "GGML_MAX_SRC", "fixed", "GGML_ASSERT(n_args < GGML_MAX_SRC)"),
    "op_params": Limit(
        "tensors", "op_params", "GGML_MAX_OP_PARAMS", "fixed", "assert(params_size <= GGML_MAX_OP_PARAMS)", True,
    ),
    "buffer_size": Limit("memory", "size of a buffer", "max_size", "device", _NO_BUFFER, True),
    "device_memory": Limit("memory", "memory of a device", "memory", "device", _NO_BUFFER, True),
    "measured": Limit(
        "memory", "measured memory of a backend", "ggml_backend_buffer_get_size", "abort",
        'GGML_ASSERT(!"not enough space in the buffer") in ggml_tallocr_alloc: buffers are as large as what was '
        "measured, and never grow", True,
    ),
}  # fmt: skip
"""Every limit of today's ggml by its key, in the order of the report."""

_MARCH_2025: dict[str, Limit | None] = {
    "split_inputs": LIMITS["split_inputs"]._replace(
        kind="abort",
        beyond="a node that comes when all are taken begins a new split; one that needs more than are left is "
        "GGML_ASSERT(n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS)",
    ),
    "graph_inputs": LIMITS["graph_inputs"]._replace(
        kind="abort", beyond="GGML_ASSERT(n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS)"
    ),
    "cgraph_slots": LIMITS["cgraph_slots"]._replace(beyond='GGML_ABORT("fatal error") in ggml_hash_insert'),
    "chunks": None,
    "free_blocks": LIMITS["free_blocks"]._replace(
        text="free blocks of a buffer",
        beyond='GGML_ASSERT(alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks")',
    ),
}

_FULL_TABLE = "GGML_ASSERT(i != GGML_HASHTABLE_FULL)"

_JANUARY_2024: dict[str, Limit | None] = {
    "backends": LIMITS["backends"]._replace(
        constant="GGML_MAX_BACKENDS", beyond="GGML_ASSERT(n_backends <= GGML_MAX_BACKENDS)"
    ),
    "copies": None,
    "sched_tensors": LIMITS["sched_tensors"]._replace(
        text="hash set: nodes + copies",
        beyond="GGML_ASSERT((int)sched->hash_set.size >= graph->n_nodes + GGML_MAX_SPLITS*GGML_MAX_SPLIT_INPUTS): the "
        "set is made for graph_size nodes and as many copies as there can be; measuring does not ask",
    ),
    "sched_slots": LIMITS["sched_slots"]._replace(beyond=f"{_FULL_TABLE} in ggml_hash_find_or_insert"),
    "sched_context": LIMITS["sched_context"]._replace(
        constant="sizeof(sched->context_buffer)",
        beyond="assert(false) in ggml_new_object; a release build writes to the address NULL",
    ),
    "splits": LIMITS["splits"]._replace(
        constant="GGML_MAX_SPLITS", kind="abort", beyond="GGML_ASSERT(cur_split < GGML_MAX_SPLITS)"
    ),
    "split_inputs": LIMITS["split_inputs"]._replace(
        constant="GGML_MAX_SPLIT_INPUTS", kind="abort", beyond="GGML_ASSERT(n_inputs < GGML_MAX_SPLIT_INPUTS)"
    ),
    "graph_inputs": None,
    "sched_nodes": None,
    "sched_leafs": None,
    "cgraph_slots": LIMITS["cgraph_slots"]._replace(
        constant="cgraph->visited_hash_table.size", beyond=f"{_FULL_TABLE} in ggml_hash_insert"
    ),
    "gallocr_slots": None,
    "chunks": None,
    "free_blocks": LIMITS["free_blocks"]._replace(
        text="free blocks of a buffer",
        beyond='GGML_ASSERT(alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks")',
    ),
    "buffer_size": None,
}

_OTHERWISE = {"2025-03": _MARCH_2025, "2024-01": _JANUARY_2024}
"""What other releases have otherwise, None for a limit that they do not have."""


def limits_of(release: str) -> dict[str, Limit]:
    """The limits of the release of this name, in the order of the report."""
    other = _OTHERWISE.get(release, {})
    changed = {key: other.get(key, limit) for key, limit in LIMITS.items()}
    return {key: limit for key, limit in changed.items() if limit is not None}
