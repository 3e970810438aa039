"""What ggml says where a kernel of the CPU, or the op itself, does not go on."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Message

_PLACES = (("dst", "the result's type"), ("src0", "source 0's"), ("src1", "source 1's"))

KERNELS: dict[str, Message] = {
    "binary_types": Message(
        (
            "binary_op: unsupported types: dst: %s, src0: %s, src1: %s",
            "unsupported type for ggml_compute_forward_add_id: %s",
            "fatal error - sgd is F32 only",
        ),
        ("binary_op", "ggml_compute_forward_add_id", "ggml_compute_forward_opt_step_sgd"),
        "The CPU has no kernel for these types together.",
        "ADD, SUB, MUL or DIV of types other than f32, f16 and bf16 (a quantized bias, i32), or two that do not go "
        "together.",
        "`cast` the sources to f32 before the op",
        "supports",
        places=_PLACES,
    ),
    "op_mode": Message(
        ("invalid sort order", "invalid tri type", "unsupported upscale mode", "division by zero"),
        ("ggml_compute_forward_argsort_f32", "ggml_compute_forward_upscale_f32", "ggml_group_norm"),
        "A parameter of the op has a value that there is no code for.",
        "op_params of a graph that another version of ggml wrote, or numbers that are not members of the op's enum; "
        "for “division by zero” as many channels as 0.",
        "give a value that the op knows: `ggmltool ops NAME` lists them",
        "ops",
    ),
    "not_adapted": Message(
        ("TODO: adapt to ggml_flash_attn_ext() changes",),
        ("ggml_flash_attn_back",),
        "ggml cannot build the gradient of flash attention: its author left it for later.",
        "Training with flash attention on.",
        "train without flash attention",
        "ops flash_attn_back",
    ),
    "unreachable": Message(
        ('!"statement should not be reached"', "statement should not be reached"),
        ("ggml_backend_sched_split_graph", "ggml_compute_forward"),
        "ggml came to a place that its authors held to be impossible.",
        "A tensor whose op, type or view is not what ggml made it: written to after it was built, or by another "
        "version.",
        "build the tensors with ggml's own functions, and report it to ggml",
        "graph",
    ),
    "no_copy": Message(
        ("no copy of %s for backend %s",),
        ("ggml_backend_sched_split_graph",),
        "A split reads {tensor} on another backend, and the scheduler has made no copy of it there; ggml would follow "
        "a pointer that is NULL. (ggmltool says so in its place.)",
        "A graph that was changed between two calls of the scheduler.",
        "build the graph anew after ggml_backend_sched_reset",
        "splits --bytes",
        places=(("tensor", "a tensor"), ("backend", "")),
    ),
}
