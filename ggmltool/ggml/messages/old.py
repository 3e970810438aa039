"""Messages of the ggml of 2024 and 2025 that 0.20.2 no longer has."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Message

OLD: dict[str, Message] = {
    "old_not_enough_space": Message(
        (
            "%s: not enough space in the buffer (needed %zu, largest block available %zu)",
            '!"not enough space in the buffer"',
            'false && "not enough space in the buffer"',
        ),
        ("ggml_tallocr_alloc",),
        "A graph needs more compute memory than was measured: buffers did not grow then.",
        "A graph that is larger than the one given to ggml_backend_sched_init_measure. (On the CPU up to 64 bytes of "
        "slack hid it.)",
        "measure with the largest graph, or use a newer ggml, which makes the buffer anew",
        "buffers",
        "2024",
    ),
    "old_no_allocr": Message(
        ("node_allocr != NULL", "src_allocr != NULL"),
        ("sched_split_graph", "ggml_backend_sched_split_graph"),
        "A node, or a source, is left without a backend.",
        "A graph in which nothing has a weight, memory of its own or a backend that the user named; a view of an input "
        "that comes before its first user. Inputs gave no backend then.",
        "name a backend for one node (ggml_backend_sched_set_node_backend), or use a newer ggml",
        "explain NODE",
        "2024",
    ),
    "old_split_limits": Message(
        ("cur_split < GGML_MAX_SPLITS", "n_inputs < GGML_MAX_SPLIT_INPUTS"),
        ("sched_split_graph", "ggml_backend_sched_split_graph"),
        "The graph falls into more than 256 splits, or a split has more than 16 inputs; both were hard-coded limits.",
        "Weights that alternate between devices, or an op in every layer that a device lacks.",
        "place whole layers on one device, or use a newer ggml: splits grow, and a new one begins at 30 inputs",
        "splits",
        "2024",
    ),
    "old_max_splits": Message(
        ("i_split < GGML_SCHED_MAX_SPLITS",),
        ("ggml_backend_sched_split_graph",),
        "The graph falls into more than 2048 splits. A hard-coded limit until August 2024, and until May 2026 in "
        "ik_llama.cpp; the array grows since.",
        "A model with very many layers and few of them on a GPU: each op that is offloaded, and each op that a device "
        "does not support, begins a split. A large batch offloads more.",
        "use a newer build; put whole layers on one device (-ngl), or switch op offload off (--no-op-offload)",
        "splits",
        "2024",
    ),
    "old_graph_inputs": Message(
        (
            "n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            "sched->n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            "n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            "split->n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
        ),
        ("ggml_backend_sched_split_graph",),
        "A split or a graph has more inputs than there is room for. A hard-coded limit: 10, then 30 (Sept 2025); grows "
        "since Aug 2026.",
        "One node with many sources on other backends (experts, multimodal inputs), or many inputs with pipeline "
        "copies.",
        "put inputs together into one tensor, or use a newer ggml, where the array grows",
        "check",
        "2025",
    ),
    "old_measure_once": Message(
        ("ggml_tallocr_is_measure(sched->tallocs[0])",),
        ("ggml_backend_sched_init_measure",),
        "The scheduler was measured a second time; that could be done once.",
        "ggml_backend_sched_init_measure for two graphs on one scheduler.",
        "measure the largest graph only, or use ggml_backend_sched_reserve of a newer ggml",
        "buffers",
        "2024",
    ),
    "old_view_null": Message(
        ("view->view_src != NULL && view->view_src->data != NULL", "view->view_src != NULL"),
        ("init_view", "ggml_gallocr_init_tensor"),
        "A view is to be given its address, and what it looks at has none.",
        "A view whose root is on another backend, or was never allocated.",
        "allocate the root first",
        "tensor NAME",
        "2024",
    ),
    "old_buft_unsupported": Message(
        ('false && "tensor buffer type not supported by any backend"', "false"),
        ("sched_backend_from_buffer", "ggml_backend_sched_backend_from_buffer"),
        "No backend of the scheduler can use the memory that a tensor lies in.",
        "Weights in pinned or split memory of a device that was not given to the scheduler.",
        "give the scheduler that device, or keep the weights in memory of one that it has",
        "backends",
        "2024",
    ),
    "old_plan_misuse": Message(
        ("talloc->buffer_id >= 0",),
        ("ggml_gallocr_node_needs_realloc",),
        "A tensor had memory of its own when the graph was reserved, and has none in the graph that is allocated.",
        "A graph with more sources than the one that was reserved, or a cache that was allocated then and is not now. "
        "0.20.2 plans again.",
        "reserve a graph that has the tensor without memory, too",
        "explain realloc A B",
        "2025",
    ),
    "old_checks": Message(
        (
            "!!!!!!! %s has backend %s, view_src %s has backend %s",
            "!!!!!!! [src] %s has backend %s, view_src %s has backend %s",
            "!!!! %s has backend %s, src %d (%s) has backend %s",
        ),
        ("sched_split_graph",),
        "A debug build found a view on another backend than what it looks at, or a source that was not copied.",
        "Views that inherited the backend of their user; user assignments of views.",
        "assign the root of the view, not the view; newer releases let a view be where its root is",
        "explain NODE",
        "2024",
    ),
    "old_input_copy": Message(
        (
            "input->buffer != NULL",
            "input_cpy->buffer != NULL",
            "input_cpy->src[0] == NULL || input_cpy->src[0] == input",
        ),
        ("sched_compute_splits", "ggml_backend_sched_compute_splits"),
        "An input of a split, or its copy, has no memory when the split is to run.",
        "A graph that was not allocated, or a copy that is used again after the graph has changed.",
        "call ggml_backend_sched_reset before another graph",
        "splits --bytes",
        "2024",
    ),
    "old_debug_print": Message(
        ("PASS %d ASSIGNMENTS", "sched_compute_splits times (%d splits):", "\t%5.5s: %lu us copy, %lu us compute"),
        ("sched_split_graph", "sched_compute_splits"),
        "What a debug build printed: the backends after each pass of the scheduler, and the time of each backend.",
        "Builds of ggml with DEBUG_PASS1 to DEBUG_PASS4 or with timing switched on in the source.",
        "nothing is wrong; `splits --pass` shows the same of 0.20.2",
        "splits --pass 1",
        "2024",
        level="info",
    ),
    "old_backend_name": Message(
        ("%s: backend %s not found", "%s: registered backend %s", "i < ggml_backend_registry_count"),
        ("ggml_backend_reg_init_backend_from_str", "ggml_backend_register", "ggml_backend_reg_init_backend"),
        "The list of registered backends, and a name or number that is not in it.",
        "A build without that backend, or a name in other letters.",
        "see which backends there are",
        "backends",
        "2024",
        level="info",
    ),
    "old_test_op": Message(
        ("%s: missing test for op %s for tensor %s", "w != nullptr", "w->buffer == nullptr"),
        ("weight_buft_supported", "buft_supported"),
        "llama.cpp builds a small op to ask each device whether it can use a weight, and knows no such test for this "
        "op, or was given a weight that is missing or has memory already.",
        "A new architecture whose weights are used by an op that is not in the list.",
        "add the op to weight_buft_supported in llama.cpp",
        "supports",
        "2025",
    ),
}
