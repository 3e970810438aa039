"""The messages of the scheduler in ggml-backend.cpp."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Case, Message

_WEIGHT_COPIED = (
    "%s: warning: no backend supports op %s with a weight with buffer type %s used in tensor %s, "
    "the weight will need to be copied"
)

SCHED: dict[str, Message] = {
    "split_inputs": Message(
        ("%s: increasing split inputs capacity from %d to %d",),
        ("ggml_backend_sched_split_inputs_grow",),
        "One node alone reads more tensors of other backends than a split has room for, and the array is made larger.",
        "A node with many sources elsewhere at the end of a split that has close to 30 inputs. Older releases aborted.",
        "nothing is wrong; fewer sources on other backends mean fewer copies",
        "check",
        level="info",
    ),
    "graph_inputs": Message(
        ("%s: increasing graph inputs capacity from %d to %d",),
        ("ggml_backend_sched_graph_inputs_grow",),
        "The graph has more inputs than the pipeline's array has room for, and the array is made larger.",
        "Pipeline copies (parallel) and more than 30 tensors flagged as input. Older releases aborted.",
        "nothing is wrong; put small inputs together, if you want fewer copies",
        "check",
        level="info",
    ),
    "inputs_no_memory": Message(
        (
            "%s: failed to allocate %zu bytes",
            "failed to grow split inputs container",
            "failed to grow graph inputs container",
        ),
        ("ggml_backend_sched_split_inputs_grow", "ggml_backend_sched_graph_inputs_grow"),
        "The host has no memory for a list of inputs.",
        "A host that is out of memory already: the list itself is small.",
        "free memory of the host",
        "check",
    ),
    "weight_copied": Message(
        (_WEIGHT_COPIED,),
        ("ggml_backend_sched_backend_from_buffer",),
        "The weight lies where no backend can run the op on it, so it decides nothing and may be copied for every run.",
        "Weights on a device that lacks the op or the type. (For the op NONE it is the weight itself that is "
        "looked up: "
        "an op NONE runs everywhere, so no backend at all can use that memory.)",
        "keep the weight in memory of a backend that can run the op",
        "explain NODE",
        level="warning",
    ),
    "preallocated": Message(
        ("pre-allocated tensor (%s) in a buffer (%s) that cannot run the operation (%s)",),
        ("ggml_backend_sched_backend_id_from_cur",),
        "{tensor} has its memory already, in {buffer}, so it can run only where that memory can be used; no such "
        "backend of the scheduler runs {op}.",
        "A node that writes into a cache or state on a device that does not support the op with these types or "
        "strides; memory of a device that is not among the scheduler's.",
        "keep it in memory of a backend that can run the op, or copy it into a node there first",
        "explain NODE",
        places=(("tensor", "the tensor"), ("buffer", "its buffer"), ("op", "the op")),
        cases=(
            Case(
                "buffer",
                r"Meta\(.*",
                "{tensor} lies in a buffer of split mode tensor (Meta: one device made of several), and the scheduler "
                "has no backend that can use it.",
                "-sm tensor together with a second context that shares weights or the KV cache: a draft or MTP model, "
                "whose backends are the single devices.",
                "use -sm layer with draft and MTP models, or run without one",
                "backends",
            ),
            Case(
                "op",
                "NONE",
                "{tensor} is a leaf (NONE: a weight, a cache or an input, nothing to compute) in memory of {buffer}. "
                "Every backend runs NONE, so the op is not the matter: no backend of this scheduler can use the "
                "memory, that is, {buffer} is not among its devices.",
                "A context made for fewer devices than its tensors lie on: a draft or MTP model that shares weights "
                "or the KV cache with the main one but has devices of its own (-devd, -ngld); -dev or "
                "CUDA_VISIBLE_DEVICES without a device that -ot names.",
                "give this context the device that {buffer} belongs to (the same -dev for the main and the draft "
                "model), or keep {tensor} on a device that it has",
                "backends",
            ),
            Case(
                "op",
                "SET_ROWS",
                "{tensor} writes into the KV cache, which lies in {buffer}, and no backend that can use that memory "
                "runs SET_ROWS with these types.",
                "A type of the KV cache (-ctk, -ctv) that the device's set_rows does not have, such as one that only "
                "a fork knows; rows of another type than f32 and f16.",
                "keep it in memory of a backend that can run the op: the cache on the CPU (--no-kv-offload), or of a "
                "type that the device writes (-ctk, -ctv: f16 and q8_0 run nearly everywhere)",
                "supports",
            ),
            Case(
                "op",
                "CPY|DUP|CONT",
                "{tensor} is a copy into memory of {buffer}, and no backend that can use that memory runs {op} from "
                "this type and these strides to those.",
                "A state or cache of a recurrent model (Mamba, RWKV) on a device without this copy: f32 to a "
                "quantized type, or a source that is permuted.",
                "keep it in memory of a backend that can run the op: the cache or state on the CPU (--no-kv-offload); "
                "or cast before the copy",
                "supports",
            ),
        ),
    ),
    "sched_context": Message(
        ("%s: failed to initialize context",),
        ("ggml_backend_sched_split_graph", "sched_split_graph"),
        "The host has no memory for the scheduler's context of copies and dependencies.",
        "A very large graph_size: some hundred bytes are needed for each node.",
        "make the scheduler with a smaller graph_size",
        "check",
    ),
    "no_backend_for_node": Message(
        ("*cur_backend_id != -1", "node_backend_id != -1", "!!!!!!! %s has no backend"),
        ("ggml_backend_sched_split_graph", "sched_split_graph", "sched_print_assignments"),
        "A node is left without a backend: none of the scheduler's runs its op with these types and shapes.",
        "An op, or a combination of types, that the CPU does not have either; a graph made for another build of "
        "ggml; a "
        "custom device that is listed without the CPU behind it.",
        "leave the op in what one of them supports",
        "supports --only no",
    ),
    "no_backend_for_source": Message(
        ("src_backend_id != -1",),
        ("ggml_backend_sched_split_graph",),
        "A source of a node is left without a backend.",
        "A tensor without memory and without the flag input that is used through a view or a reshape only: the "
        "view asks "
        "its root for a backend, and no node gives the root one.",
        "give its context a buft, flag it input, or name its backend",
        "explain NAME",
    ),
    "sched_arrays": Message(
        ("sched->splits != NULL", "sched->graph.nodes != NULL", "sched->graph.leafs != NULL"),
        ("ggml_backend_sched_split_graph",),
        "The host has no memory for the scheduler's list of splits or for its own graph.",
        "A host that is out of memory already; tens of thousands of splits.",
        "free memory of the host, or place the graph so that it has fewer splits",
        "check",
    ),
    "sched_reserving": Message(
        ("%s: failed to allocate graph, reserving (backend_ids_changed = %d)",),
        ("ggml_backend_sched_alloc_splits",),
        "The reserved plan does not serve this graph; the scheduler waits for all backends and plans again. With "
        "backend_ids_changed = 1 a node or leaf is in another buffer type than in the graph before; with 0 the number "
        "of nodes or leafs differs, or a tensor is larger.",
        "Prompt and token graphs in turn, where op offload moves nodes by the batch; graphs that grow; a "
        "scheduler that "
        "was never reserved. The word “failed” is not an error here.",
        "reserve the largest graph first, and keep structure and placement alike from graph to graph",
        "explain realloc A B",
        level="info",
    ),
    "unexpected_realloc": Message(
        (
            "%s: unexpected graph reallocation (graph size = %d, nodes = %d, leafs = %d), debug_realloc = %d",
            "%s: unexpected graph reallocation (graph size = %d, nodes = %d, leafs = %d)",
        ),
        ("ggml_backend_sched_alloc_splits",),
        "GGML_SCHED_DEBUG_REALLOC is set, and the scheduler had to plan again: with 1 for a graph as large as the one "
        "before and with the same backends, with 2 for any.",
        "A tensor that is larger than in the worst case that was reserved: a small batch whose op needs more bytes, a "
        "mask or an output that is padded differently, a view that has become a tensor.",
        "reserve the graph that has the larger tensor, or unset GGML_SCHED_DEBUG_REALLOC: without it ggml just plans "
        "again. A debug build of ggml names the tensor right before (“… is not valid”); `import` counts such lines",
        "explain realloc A B",
    ),
    "alloc_splits_failed": Message(
        ("%s: failed to allocate graph",),
        ("ggml_backend_sched_alloc_splits",),
        "The graph could not be allocated, even after it was planned again.",
        "A device without memory for the compute buffer: the line before says which, and how many bytes.",
        "make the ubatch or the context smaller, or put fewer layers on that device",
        "buffers",
    ),
    "expert_range": Message(
        ("id >= 0 && id < n_expert",),
        ("ggml_backend_sched_compute_splits",),
        "The numbers of the experts that are used were read, to copy only those, and one is not an expert's.",
        "A MUL_MAT_ID whose weights lie on the host and whose ids are wrong: not computed yet, overwritten, or made "
        "for another number of experts.",
        "look at the ids tensor; it must hold 0 to n_expert - 1 when the split begins",
        "lifetime IDS",
    ),
    "n_backends": Message(
        ("n_backends > 0",),
        ("ggml_backend_sched_new",),
        "A scheduler was made without a backend.",
        "A program that found no device and did not add the CPU.",
        "the CPU is one at least",
    ),
    "too_many_backends": Message(
        (
            "n_backends <= GGML_SCHED_MAX_BACKENDS",
            "n_backends <= GGML_MAX_BACKENDS",
            "ggml_backend_registry_count < GGML_MAX_BACKENDS_REG",
        ),
        ("ggml_backend_sched_new",),
        "A scheduler takes 16 backends at most.",
        "Many GPUs, RPC servers and accelerators together with the CPU.",
        "leave out all but 16",
        "check",
    ),
    "last_is_cpu": Message(
        (
            "ggml_backend_dev_type(ggml_backend_get_device(backends[n_backends - 1])) == GGML_BACKEND_DEVICE_TYPE_CPU",
            "ggml_backend_is_cpu(backends[n_backends - 1])",
            "ggml_backend_is_cpu(backend_cpu)",
        ),
        ("ggml_backend_sched_new",),
        "The last backend of a scheduler has to be the CPU: inputs and what nobody else runs go there.",
        "Backends listed in another order, or without the CPU.",
        "list the CPU last",
        "backends",
    ),
    "own_buft": Message(
        ("ggml_backend_supports_buft(backends[b], sched->bufts[b])",),
        ("ggml_backend_sched_new",),
        "A backend was given a buffer type for its compute buffer that it cannot use.",
        "ggml_backend_sched_new with a list of buffer types that do not belong to the backends in that order.",
        "add it to supports_bufts, or give NULL for the default buffer types",
        "backends",
    ),
    "hash_too_small": Message(
        (
            "(int)sched->hash_set.size >= measure_graph->n_nodes + measure_graph->n_leafs",
            "(int)sched->hash_set.size >= graph->n_nodes + graph->n_leafs",
            "(int)sched->hash_set.size >= graph->n_nodes + GGML_MAX_SPLITS*GGML_MAX_SPLIT_INPUTS",
        ),
        ("ggml_backend_sched_reserve", "ggml_backend_sched_reserve_size", "ggml_backend_sched_alloc_graph"),
        "The graph has more nodes and leafs together than the scheduler was made for.",
        "graph_size was counted in nodes alone, and leafs (weights, inputs) count too; many layers, LoRA adapters or "
        "large batches of sequences in one graph. With 2048 there is room for 2053.",
        "give ggml_backend_sched_new a graph_size of at least nodes + leafs",
        "check",
    ),
    "is_alloc": Message(
        ("!sched->is_alloc",),
        ("ggml_backend_sched_alloc_graph",),
        "The scheduler holds an allocated graph and is to allocate another.",
        "ggml_backend_sched_alloc_graph twice, with no ggml_backend_sched_reset between.",
        "put the step `reset` before",
        "run",
    ),
    "backend_range": Message(
        ("i >= 0 && i < sched->n_backends", "backend_index >= 0 && backend_index < sched->n_backends"),
        (
            "ggml_backend_sched_get_backend",
            "ggml_backend_sched_get_buffer_type",
            "ggml_backend_sched_get_buffer_size",
            "ggml_backend_sched_set_tensor_backend",
        ),
        "A backend was named that the scheduler does not have.",
        "ggml_backend_sched_set_tensor_backend, or a question about buffers, with a backend of another scheduler.",
        "use the backends that ggml_backend_sched_new was given",
        "backends",
    ),
    "debug_print": Message(
        (
            "## SPLIT #%d: %s # %d inputs",
            "[%s (%5.5s)] ",
            "node #%3d (%10.10s): %20.20s (%5.5s) [%5.5s %8.8s] use=%d,c=%d:",
            "node #%3d (%10.10s): %20.20s (%5.5s) [%5.5s %8.8s] use=%d:",
            "node #%3d (%10.10s): %20.20s (%5.5s) [%5.5s %8.8s]:",
            " %20.20s (%5.5s) [%5.5s %8.8s]",
            ": ",
            "",
        ),
        ("ggml_backend_sched_print_assignments", "sched_print_assignments"),
        "The print of GGML_SCHED_DEBUG: a split with its inputs, then a line for each node and its sources.",
        "GGML_SCHED_DEBUG=1 prints the splits, 2 the nodes too.",
        "nothing is wrong; `splits`, `plan`, `dot` and `import` read such a log",
        "import LOG",
        level="info",
    ),
}
