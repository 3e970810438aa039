"""The messages of ggml-alloc.c: the linear allocator, the planner over chunks, the graph allocator, contexts."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Message

ALLOC: dict[str, Message] = {
    "tallocr_full": Message(
        (
            "%s: not enough space in the buffer to allocate %s (needed %zu, available %zu)",
            "not enough space in the buffer",
        ),
        ("ggml_tallocr_alloc",),
        "A linear allocator (ggml_tallocr) was given a tensor that does not fit into what is left of its buffer.",
        "Tensors that are put one by one into a buffer whose size was added up by hand: paddings to the alignment, the "
        "padded rows of quantized weights and the views were forgotten.",
        "allocate the whole context at once (ggml_backend_alloc_ctx_tensors), which measures first, or add up "
        "ggml_backend_buft_get_alloc_size, each rounded up to the alignment",
        "context",
    ),
    "free_blocks": Message(
        (
            'chunk->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
            'alloc->n_free_blocks < MAX_FREE_BLOCKS && "out of free blocks"',
        ),
        ("ggml_dyn_tallocr_insert_block",),
        "A chunk of a compute buffer has come apart into 256 free blocks, and one more would be needed.",
        "Graphs with very many tensors that are small and live long between others that die early: hundreds of outputs "
        "or of views kept for later, layers built in one go and used in another order.",
        "fewer tensors that live long help: flag fewer outputs, and expand the graph where a result is used",
        "check",
    ),
    "debug_tensors": Message(
        ("out of allocated_tensors", "tried to free tensor %s not found"),
        ("add_allocated_tensor", "remove_allocated_tensor"),
        "The record that the allocator keeps with GGML_ALLOCATOR_DEBUG has no room for a tensor, or never had it.",
        "Only builds with GGML_ALLOCATOR_DEBUG: more than 1024 tensors alive at once, or memory freed twice.",
        "build without GGML_ALLOCATOR_DEBUG; `allocs --trace` shows what it would print",
        "allocs --trace",
    ),
    "reserve_memory": Message(
        (
            "%s: not enough space in the buffer to allocate %zu bytes, largest block available %zu bytes",
            "graph allocation: failed to reserve memory",
        ),
        ("ggml_dyn_tallocr_alloc",),
        "The planner found no free block for a tensor in any of the 16 chunks that a buffer may have.",
        "Buffers of a device with a small maximum size, filled up by a graph that is far too large for it; or a tensor "
        "whose size has overflowed.",
        "make the batch or the context smaller, or spread the graph over more devices",
        "buffers --chunks",
    ),
    "alloc_debug_print": Message(
        ("max_size[%d] = %.2f MB: tensors: ", "%s [%d: %zx-%zx] (%.2f MB) "),
        ("ggml_dyn_tallocr_alloc",),
        "The buffer has grown to a new maximum, and these tensors lie in it then (chunk: first byte–last byte).",
        "Only builds with GGML_ALLOCATOR_DEBUG print it.",
        "nothing is wrong; `buffers` shows what lies in a buffer when it is fullest",
        "buffers",
        level="info",
    ),
    "gallocr_no_memory": Message(
        (
            "galloc != NULL",
            "galloc->bufts != NULL",
            "galloc->buffers != NULL",
            "galloc->buf_tallocs != NULL",
            "galloc->hash_set.keys != NULL",
            "galloc->hash_values != NULL",
            "galloc->node_allocs != NULL",
            "galloc->leaf_allocs != NULL",
        ),
        ("ggml_gallocr_new_n", "ggml_gallocr_reserve_n_impl", "ggml_gallocr_reserve_n"),
        "The host has no memory for a table of the graph allocator's own (not for the tensors).",
        "Graphs of millions of nodes, or a host that is out of memory already.",
        "free memory of the host, or give the allocator a smaller graph",
        "check",
    ),
    "free_extra_space": Message(
        ("parent_size >= node_size",),
        ("ggml_gallocr_free_extra_space",),
        "A node is to be computed in the memory of its source, and would need more bytes than that has.",
        "Source and node have one layout, but buffer types that count bytes in different ways: the source lies on a "
        "device without row padding, the node is on one with it and may use that memory.",
        "keep both on one device, or flag the source as output, so that it is not computed in place",
        "allocs --trace",
    ),
    "buffer_id": Message(
        ("buffer_id >= 0",),
        ("ggml_gallocr_allocate_node",),
        "The allocator is to place a tensor for which the scheduler found no backend.",
        "A leaf without memory that no node uses directly: only a view or a reshape of it is used, or nothing at all.",
        "flag it as input, or give its context a buft",
        "explain NAME",
    ),
    "realloc_buffer": Message(
        ("%s: reallocating %s buffer from size %.02f MiB to %.02f MiB",),
        ("ggml_gallocr_reserve_n_impl", "ggml_gallocr_reserve_n"),
        "A compute buffer is too small for the graph that comes next and is made anew; what was in it is gone.",
        "A graph that is larger than the one that was reserved: more tokens, a longer context, more outputs, another "
        "placement. In ggml of 2025 also the first time, from size 0.00 MiB; 0.20.2 logs it only for a buffer that had "
        "a size.",
        "reserve the largest graph first (ggml_backend_sched_reserve); where it comes at every step, graphs differ "
        "from step to step, and a debug build says in which tensor (“… is not valid”)",
        "explain realloc A B",
        level="info",
    ),
    "alloc_buffer_failed": Message(
        (
            "%s: failed to allocate %s buffer of size %zu",
            "%s: failed to allocate buffer of size %zu",
            "failed to allocate %s buffer of size %zu",
            "failed to allocate HBM buffer of size %zu",
            'data != NULL && "failed to allocate buffer"',
        ),
        (
            "ggml_gallocr_reserve_n_impl",
            "ggml_gallocr_reserve_n",
            "alloc_tensor_range",
            "ggml_backend_cpu_buffer_type_alloc_buffer",
        ),
        "A device has no memory for a whole buffer: for the weights, the KV cache, or the compute buffer.",
        "A model, a context or a ubatch that is too large for the device; or one that would fit, with memory in pieces "
        "or a maximum size of one buffer below it.",
        "make the ubatch or the context smaller, quantize the KV cache, or put fewer layers there (-ngl, -ot)",
        "buffers",
    ),
    "measure_failed": Message(
        ("ggml_gallocr_reserve_n_impl(galloc, graph, node_buffer_ids, leaf_buffer_ids, /*no_alloc =*/ true)",),
        ("ggml_gallocr_reserve_n_size",),
        "The sizes of the compute buffers were asked for, and planning them failed.",
        "The graph cannot be planned at all: the message before this one says why.",
        "read the message that comes before it",
        "plan --step reserve",
    ),
    "other_nodes": Message(
        ("%s: graph has different number of nodes", "%s: graph has different number of leafs"),
        ("ggml_gallocr_needs_realloc",),
        "The plan that was reserved has another number of nodes or leafs than this graph, so it cannot serve it.",
        "Graphs whose structure follows the batch or the position (masks, experts, outputs, a KV cache that "
        "grows); more "
        "or fewer copies between devices; and the very first graph, when nothing was reserved.",
        "reserve a graph of the same structure, or keep the structure and pad the sizes",
        "explain realloc A B",
        level="info",
    ),
    "not_valid": Message(
        ("%s: node %s is not valid", "%s: src %d (%s) of node %s is not valid"),
        ("ggml_gallocr_needs_realloc",),
        "This tensor is larger than the place that the reserved plan has for it, or the plan has none for it.",
        "The same graph with a larger batch, a longer context, or an op that needs more bytes for another shape "
        "(FLASH_ATTN_EXT on CUDA, MUL_MAT_ID on Metal).",
        "reserve the graph with the largest shapes first",
        "explain realloc A B",
        level="info",
    ),
    "auto_realloc": Message(
        ("%s: reallocating buffers automatically",),
        ("ggml_gallocr_alloc_graph",),
        "The plan does not serve the graph; with one buffer the allocator plans again by itself.",
        "One backend, and a graph that differs from the one that was reserved.",
        "reserve the largest graph first, if it happens often",
        "explain realloc A B",
        level="info",
    ),
    "multi_realloc": Message(
        ("%s: cannot reallocate multi buffer graph automatically, call reserve",),
        ("ggml_gallocr_alloc_graph",),
        "The plan does not serve the graph, and with several buffers the caller must plan again. The scheduler "
        "does so.",
        "Several backends, and a graph that differs from the one that was reserved.",
        "with the scheduler nothing; with ggml_gallocr of your own, call ggml_gallocr_reserve_n",
        "explain realloc A B",
        level="info",
    ),
    "buffer_id_range": Message(
        ("buffer_id >= 0 && buffer_id < galloc->n_buffers",),
        ("ggml_gallocr_get_buffer_size",),
        "The size of a buffer was asked for by a number that the allocator does not have.",
        "A call with the number of a backend in place of that of a buffer type, or one too many.",
        "count from 0 up to the number of buffer types that ggml_gallocr_new_n was given",
        "buffers",
    ),
    "init_tensor_failed": Message(
        ("%s: failed to initialize tensor %s",),
        ("alloc_tensor_range",),
        "A backend refused to take a tensor into its buffer (init_tensor).",
        "A tensor whose type or layout the device does not know; a split buffer with a view in it.",
        "keep the tensor in another buffer type",
        "supports",
    ),
    "no_alloc": Message(
        ("ggml_get_no_alloc(ctx) == true",),
        ("ggml_backend_alloc_ctx_tensors_from_buft", "ggml_backend_alloc_ctx_tensors_from_buft_impl"),
        "A context that holds its tensors' data itself cannot be allocated in a backend's buffer.",
        "ggml_init without no_alloc.",
        "set no_alloc = true in ggml_init_params",
        "context",
    ),
    "all_allocated": Message(
        ("%s: all tensors in the context are already allocated",),
        ("ggml_backend_alloc_ctx_tensors_from_buft", "ggml_backend_alloc_ctx_tensors_from_buft_impl"),
        "There was nothing to do: each tensor of the context has memory already, or is a view. The call returns NULL.",
        "A context that is allocated twice, or one with nothing in it.",
        "take NULL for “nothing to do” here, not for a failure",
        "context",
        level="info",
    ),
    "leftover_buffers": Message(
        ("!buffers", "!buf"),
        ("ggml_backend_alloc_ctx_tensors_from_buft_impl", "ggml_backend_alloc_ctx_tensors_from_buft_size"),
        "Sizes of a context were only to be measured, and a buffer came out: a mistake in ggml itself.",
        "No graph brings it about.",
        "report it to ggml",
    ),
}
