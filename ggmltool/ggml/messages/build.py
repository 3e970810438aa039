"""The messages of ggml.c about contexts, tensors and graphs."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Message

BUILD: dict[str, Message] = {
    "hash_full": Message(
        ("fatal error",),
        ("ggml_hash_find_or_insert", "ggml_malloc", "ggml_calloc"),
        "ggml went no further. In ggml_hash_find_or_insert a hash set is full: the scheduler's, which holds the "
        "tensors "
        "of all graphs since the last reset, or the allocator's. In ggml_malloc the host has no memory.",
        "Several large graphs without ggml_backend_sched_reset between; a graph close to the scheduler's size "
        "with many "
        "views whose roots are not in the graph, as they take slots too.",
        "make the scheduler with a larger graph_size, and call ggml_backend_sched_reset between graphs",
        "hash --sched",
    ),
    "host_memory": Message(
        ("%s: failed to allocate %6.2f MB", "%s: %s (attempted to allocate %6.2f MB)"),
        ("ggml_malloc", "ggml_calloc", "ggml_aligned_malloc"),
        "The host has no memory for this.",
        "Contexts that hold data (no_alloc = false), or a CPU buffer of a large model.",
        "free memory of the host, or use no_alloc and a buffer of a backend",
    ),
    "zero_bytes": Message(
        (
            "Behavior may be unexpected when allocating 0 bytes for ggml_aligned_malloc!",
            "Behavior may be unexpected when allocating 0 bytes for ggml_malloc!",
            "Behavior may be unexpected when allocating 0 bytes for ggml_calloc!",
        ),
        ("ggml_aligned_malloc", "ggml_malloc", "ggml_calloc"),
        "Memory of 0 bytes was asked for.",
        "A context of size 0, or a buffer for tensors without elements.",
        "nothing is wrong, if there is nothing to hold",
        "context",
        level="info",
    ),
    "pool_full": Message(
        (
            "%s: not enough space in the context's memory pool (needed %zu, available %zu)",
            "not enough space in the context's memory pool",
            "obj_new",
            "%s: overflow detected in cur_end (%zu) + size_needed (%zu)",
            "%s: overflow detected in cur_end (%zu) + size_needed (%zu) + GGML_OBJECT_SIZE (%zu)",
        ),
        ("ggml_new_object", "ggml_new_tensor_impl"),
        "The memory pool of a context is too small for one more tensor or graph.",
        "mem_size was counted for fewer tensors (ggml_tensor_overhead each, ggml_graph_overhead for a graph), or "
        "without "
        "no_alloc for less data. In the scheduler: more copies than a graph_size has room for.",
        "give ggml_init a larger mem_size",
        "context",
    ),
    "view_too_large": Message(
        ("view_src == NULL || data_size == 0 || data_size + view_offs <= ggml_nbytes(view_src)",),
        ("ggml_new_tensor_impl",),
        "A view would reach beyond the end of what it looks at.",
        "An offset in elements in place of bytes; a view of a cache that is longer than the cache; a permuted tensor "
        "whose copy the scheduler makes by a contiguous view.",
        "keep offset + size within ggml_nbytes of the source; offsets are bytes",
        "tensor --strides NAME",
    ),
    "tensor_dims": Message(
        ("n_dims >= 1 && n_dims <= GGML_MAX_DIMS", "type >= 0 && type < GGML_TYPE_COUNT"),
        ("ggml_new_tensor_impl",),
        "A tensor has 1 to 4 dimensions, and one of ggml's types.",
        "Data of a newer file in an older ggml, or a number that is not a type.",
        "see the types that there are",
        "types",
    ),
    "cgraph_full": Message(
        (
            "cgraph->n_leafs < cgraph->size",
            "cgraph->n_nodes < cgraph->size",
            "cgraph->size > cgraph->n_nodes",
            "node_hash_pos != GGML_HASHSET_FULL",
        ),
        ("ggml_visit_parents_graph", "ggml_graph_add_node"),
        "The graph has more nodes or leafs than it was made for.",
        "ggml_new_graph makes room for 2048 nodes and 2048 leafs; large models, LoRA adapters and several steps in one "
        "graph need more.",
        "give ggml_new_graph_custom a larger size",
        "check",
    ),
    "last_node": Message(
        ("cgraph->nodes[cgraph->n_nodes - 1] == tensor",),
        ("ggml_build_forward_impl",),
        "The tensor that was to be computed did not come last in the graph.",
        "A leaf with sources of its own, or one that was changed after it was put into the graph.",
        "expand the result of an op, and change nothing in it afterwards",
        "graph",
    ),
    "graph_copy_size": Message(
        (
            "dst->size >= src->n_leafs",
            "dst->size >= src->n_nodes",
            "dst->visited_hash_set.size >= src->visited_hash_set.size",
        ),
        ("ggml_graph_cpy",),
        "A graph is copied into one that was made for fewer nodes.",
        "ggml_graph_cpy into a graph of ggml_new_graph's default size.",
        "make the destination with the source's size",
        "check",
    ),
    "graph_node_range": Message(
        ("cgraph->n_nodes + i >= 0", "i < cgraph->n_nodes"),
        ("ggml_graph_node",),
        "A node was asked for that the graph does not have; -1 is the last one.",
        "A graph that was not built yet, or a number counted with the leafs.",
        "expand the graph first; count nodes from 0",
        "graph",
    ),
}
