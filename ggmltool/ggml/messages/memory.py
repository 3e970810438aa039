"""The messages of backends, buffers, tensors' data, copies and graph copies in ggml-backend.cpp."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Message

_ACCESS = (
    "ggml_backend_tensor_set",
    "ggml_backend_tensor_get",
    "ggml_backend_tensor_set_async",
    "ggml_backend_tensor_get_async",
    "ggml_backend_tensor_set_2d",
    "ggml_backend_tensor_get_2d",
    "ggml_backend_tensor_set_2d_async",
    "ggml_backend_tensor_get_2d_async",
    "ggml_backend_tensor_memset",
)

_INSIDE = (
    "(char *) addr + ggml_backend_buffer_get_alloc_size(buffer, tensor) <= "
    "(char *) ggml_backend_buffer_get_base(buffer) + ggml_backend_buffer_get_size(buffer)"
)

MEMORY: dict[str, Message] = {
    "null_handle": Message(
        (
            "buft",
            "buffer",
            "backend",
            "backend_dst",
            "tensor",
            "device",
            "reg",
            "sched",
            "event",
            "graph",
            "sizes",
            "src",
            "src != NULL",
            "test_nodes",
            "ctx->buffers != NULL",
        ),
        (
            "ggml_backend_buffer_get_base",
            "ggml_backend_buffer_get_size",
            "ggml_backend_buft_alloc_buffer",
            "ggml_backend_dev_init",
            "ggml_backend_sched_reserve",
            "ggml_backend_tensor_set",
        ),
        "A function was called with NULL in place of a backend, device, buffer, buffer type, scheduler or tensor.",
        "A call before it that failed and returned NULL: a device that is not there, a buffer for which there was no "
        "memory. `GGML_ASSERT(buffer)` is also what a tensor without elements in a chunk of its own gives.",
        "look at what the call before returned",
        "run",
    ),
    "base_null": Message(
        ('base != NULL && "backend buffer base cannot be NULL"', "iface.get_base != NULL"),
        ("ggml_backend_buffer_get_base", "ggml_backend_buffer_init"),
        "A backend's buffer has no base address.",
        "A backend under construction whose get_base returns NULL for memory that is there.",
        "return an address that is not NULL, even where the host cannot read it",
        "backends --interface",
    ),
    "buffer_not_set": Message(
        ('buf != NULL && "tensor buffer not set"', 'tensor->buffer != NULL && "tensor buffer not set"'),
        _ACCESS,
        "A tensor is to be written or read that lies in no buffer.",
        "A tensor that the graph does not reach, so that the scheduler gave it no memory; a leaf that nobody uses; a "
        "result that was made but not expanded into the graph; a view of something without memory; a write before the "
        "graph was allocated.",
        "allocate its graph first, let a node of the graph use it, or give its context a buft of its own",
        "tensor NAME",
    ),
    "not_allocated": Message(
        ('tensor->data != NULL && "tensor not allocated"',),
        _ACCESS,
        "A tensor is to be written or read that has a buffer, but no address in it.",
        "A tensor without bytes of its own; a view whose source was not there when it was initialized; in ggml of 2024 "
        "every tensor without memory.",
        "allocate its graph or its context first",
        "tensor NAME",
    ),
    "out_of_bounds": Message(
        (
            'offset + size <= ggml_nbytes(tensor) && "tensor write out of bounds"',
            'offset + size <= ggml_nbytes(tensor) && "tensor read out of bounds"',
            'offset + (n_copies-1)*stride_tensor + size <= ggml_nbytes(tensor) && "tensor write out of bounds"',
            'offset + (n_copies-1)*stride_tensor + size <= ggml_nbytes(tensor) && "tensor read out of bounds"',
        ),
        _ACCESS,
        "More bytes are to be written or read than the tensor has from that offset on.",
        "Elements counted as bytes, data of another type (f32 for a tensor of f16), a batch that is larger than the "
        "tensor, a row of a quantized type counted in elements.",
        "use ggml_nbytes(tensor) for the whole tensor",
        "tensor NAME",
    ),
    "no_memset": Message(
        ('buf->iface.memset_tensor != NULL && "memset not implemented by backend buffer"',),
        ("ggml_backend_tensor_memset",),
        "This kind of buffer cannot fill a tensor with a value.",
        "ggml_backend_tensor_memset on a device without memset_tensor.",
        "write zeros with ggml_backend_tensor_set",
        "backends --interface",
    ),
    "no_function": Message(
        (
            "backend->iface.graph_plan_create != NULL",
            "backend->iface.graph_plan_free != NULL",
            "backend->iface.graph_plan_compute != NULL",
            "backend->iface.event_record != NULL",
            "backend->iface.event_wait != NULL",
            "event->device->iface.event_synchronize",
        ),
        (
            "ggml_backend_graph_plan_create",
            "ggml_backend_graph_plan_compute",
            "ggml_backend_event_record",
            "ggml_backend_event_wait",
            "ggml_backend_event_synchronize",
        ),
        "A backend was asked for a function that it does not have.",
        "Graph plans on a device without them, or events where the device's caps say that it has none.",
        "ask ggml_backend_dev_get_props for what the device can do",
        "backends --interface",
    ),
    "other_layouts": Message(
        ('ggml_are_same_layout(src, dst) && "cannot copy tensors with different layouts"',),
        ("ggml_backend_tensor_copy", "ggml_backend_tensor_copy_async"),
        "Bytes are copied between backends only from a tensor to one of the same type, ne and nb.",
        "A transposed or permuted source and a contiguous destination; extents of 1 with other strides count as well.",
        "make the source contiguous first (cont), or copy with a node (cpy)",
        "tensor --strides NAME",
    ),
    "slow_copy": Message(
        ("%s: warning: slow copy from %s to %s",),
        ("ggml_backend_tensor_copy",),
        "Neither device can copy to the other, so the bytes go through memory of the host.",
        "Two devices of different kinds, or of one kind without access to each other. Only debug builds say so.",
        "nothing is wrong; fewer splits between the two mean fewer such copies",
        "splits --bytes",
        level="info",
    ),
    "multi_buffer": Message(
        ("ggml_backend_buffer_is_multi_buffer(buffer)",),
        ("ggml_backend_multi_buffer_set_usage",),
        "A function for several buffers in one was called with a plain one.",
        "No graph brings it about.",
        "report it to ggml",
    ),
    "view_again": Message(
        ("tensor->buffer == NULL", "tensor->data == NULL"),
        ("ggml_backend_view_init", "ggml_backend_tensor_alloc"),
        "A tensor is to be given memory, and has some.",
        "A context or a tensor that is allocated twice; a tensor of a graph that was allocated before and is used in "
        "another one without ggml_backend_sched_reset; or, for the first of the two, tensors without elements.",
        "allocate it once, or build the graph anew after ggml_backend_sched_reset",
        "tensor NAME",
    ),
    "view_of_nothing": Message(
        ("tensor->view_src != NULL", "tensor->view_src == NULL"),
        ("ggml_backend_view_init", "ggml_backend_tensor_alloc"),
        "A view was allocated as if it were none, or the other way round.",
        "Calls of ggml_backend_tensor_alloc for each tensor of a context, views among them.",
        "give views to ggml_backend_view_init, all others to ggml_backend_tensor_alloc",
        "tensor NAME",
    ),
    "view_of_unallocated": Message(
        ("tensor->view_src->buffer != NULL", "tensor->view_src->data != NULL"),
        ("ggml_backend_view_init",),
        "A view is to be given its address, and what it looks at has none.",
        "A view of a tensor of another context or graph that was not allocated before; a view of a tensor "
        "without bytes.",
        "allocate what it looks at first: give its context a buft, and list it before the context of the view",
        "tensor NAME",
    ),
    "alloc_outside": Message(
        (
            "addr >= ggml_backend_buffer_get_base(buffer)",
            f"ggml_backend_buffer_is_meta(buffer) || {_INSIDE}",
            _INSIDE.replace("(char *) ", "(char *)"),
        ),
        ("ggml_backend_tensor_alloc",),
        "A tensor would lie outside of its buffer.",
        "An address computed by hand; a device whose tensors take more bytes (padded rows, flash attention) than were "
        "counted; a plan that was made for other shapes.",
        "count with ggml_backend_buft_get_alloc_size",
        "buffers",
    ),
    "copy_unallocated": Message(
        ('src->data && "graph must be allocated"',),
        ("graph_copy_dup_tensor",),
        "A graph is copied to another backend only when all its tensors have memory.",
        "ggml_backend_graph_copy, or a comparison of two backends, on a graph that was only built.",
        "allocate the graph first",
    ),
    "copy_no_memory": Message(
        (
            "status == GGML_STATUS_SUCCESS",
            "%s: failed to allocate context for graph copy",
            "%s: failed to allocate buffer for graph copy",
            "failed to allocate context for graph copy",
            "failed to allocate buffer for graph copy",
        ),
        ("ggml_backend_graph_copy", "graph_copy_init_tensor"),
        "There is no memory for a copy of the whole graph with all its tensors.",
        "A comparison of two backends: every tensor exists twice, none in the memory of another.",
        "copy a part of the graph, or a smaller one",
    ),
    "compare_nothing": Message(
        ("verified",),
        ("ggml_backend_compare_graph_backend",),
        "None of the nodes that were to be compared is in the graph.",
        "test_nodes of another graph, or of the graph before it was copied.",
        "name nodes of the graph that is compared",
    ),
    "unaligned": Message(
        ('(uintptr_t)ptr % TENSOR_ALIGNMENT == 0 && "buffer pointer must be aligned"',),
        ("ggml_backend_cpu_buffer_from_ptr",),
        "Memory of the caller's becomes a buffer only at an address that is a multiple of 32.",
        "Memory of malloc, or of a file mapped with an offset.",
        "get it from ggml_aligned_malloc, or map the file from its beginning",
    ),
}
