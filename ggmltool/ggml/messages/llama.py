"""What llama.cpp says while it loads a model and reserves memory for its graphs."""

from __future__ import annotations

from ggmltool.ggml.messages.message import Case, Message

_BUFFERS = (("kind", "this"), ("buft", "the buffer type"), ("mib", "so many"))

LLAMA: dict[str, Message] = {
    "compute_buffers_failed": Message(
        (
            "%s: failed to allocate compute buffers",
            "failed to allocate compute pp buffers",
            "failed to allocate compute tg buffers",
            "failed to reserve graph for %s check",
        ),
        ("graph_reserve", "llama_context::sched_reserve"),
        "llama.cpp has planned its largest graph, a whole ubatch, and a device has no memory for the compute buffer. "
        "The lines before it say which device, and how many bytes.",
        "A ubatch or a context that is too large beside weights and KV cache; no flash attention, so that KQ is kept "
        "for the whole context; logits of every token of the batch.",
        "halve -ub (the compute buffer follows it), turn flash attention on, or put fewer layers on that device",
        "place",
        program="llama.cpp",
    ),
    "retry_without_pipeline": Message(
        ("%s: compute buffer allocation failed, retrying without pipeline parallelism",),
        ("llama_context::sched_reserve", "llama_context"),
        "The compute buffers with four copies of each input did not fit; llama.cpp plans again with one copy.",
        "Two GPUs or more that hold all layers, which turns pipeline parallelism on, and less free memory than the "
        "copies take.",
        "nothing, if the second try succeeds: ubatches do not overlap then; to keep them overlapping, free the bytes "
        "that `buffers --copies` shows",
        "buffers --copies",
        level="warning",
        program="llama.cpp",
    ),
    "pipeline_enabled": Message(
        ("%s: pipeline parallelism enabled (n_copies=%d)", "%s: pipeline parallelism enabled"),
        ("llama_context",),
        "The scheduler keeps {copies} copies of each input, so that the GPUs work on different ubatches at once.",
        "Two GPUs or more that hold all layers and the KV cache (-sm layer), with asynchronous copies and events.",
        "nothing is wrong; it costs compute memory, and `place --no-parallel` shows what is saved without (llama.cpp: "
        "built with GGML_SCHED_MAX_COPIES=1)",
        "buffers --copies",
        places=(("copies", "four"),),
        level="info",
        program="llama.cpp",
    ),
    "graph_size": Message(
        (
            "%s: graph splits = %d (with bs=%d), %d (with bs=1)",
            "%s: graph splits = %d",
            "%s: graph: nodes = %d, splits = %d",
            "%s: graph nodes = %d (with bs=%d), %d (with bs=1)",
            "%s: graph nodes = %d",
        ),
        ("llama_context::sched_reserve", "llama_context"),
        "How many nodes the reserved graph has, and into how many splits the scheduler cut it: at each split the "
        "backend changes, and what the next one reads is copied. bs is the batch: a whole ubatch, and one token.",
        "Two or three splits are what a model that is all on one GPU has (the CPU looks up the embeddings). Layers on "
        "the CPU (-ngl, -ot, -ncmoe) add one or two each; many only with the large batch come from op offload.",
        "nothing is wrong; where there are more splits than layers change the device, look which op falls back",
        "splits --by op,backend LOG",
        level="info",
        program="llama.cpp",
    ),
    "not_preferred": Message(
        (
            "%s: tensor '%s' (%s) (and %zu others) cannot be used with preferred buffer type %s, using %s instead",
            "%s: tensor '%s' (%s) cannot be used with preferred buffer type %s, using %s instead",
        ),
        ("done_getting_tensors", "load_tensors"),
        "{tensor} was to lie in {wanted}, the first choice for its layer, but its op does not run from there with "
        "these types; so it lies in {used}.",
        "Embeddings and other weights of the input layer, which the CPU looks up from a mapped file (not from pinned "
        "or packed memory); weights of a type that the device's op does not take.",
        "nothing for a few small tensors; for the weights of whole layers look with `supports` at what the device "
        "lacks, and take another quantization",
        "supports",
        places=(
            ("tensor", "the tensor"),
            ("type", ""),
            ("others", ""),
            ("wanted", "the preferred buffer type"),
            ("used", "another"),
        ),
        level="info",
        program="llama.cpp",
    ),
    "weights_no_memory": Message(
        ("unable to allocate %s buffer", "unable to allocate backend buffer", "%s: error loading model: %s"),
        ("llama_model_load", "llama_model::load_tensors"),
        "The weights of a device do not fit into its memory, so the model is not loaded.",
        "More layers there than it has room for (-ngl, -ts, -ot), or other programs on the card.",
        "put fewer layers there (-ngl), move experts to the CPU (-ncmoe), or give the card less of the split (-ts)",
        "place",
        program="llama.cpp",
    ),
    "cache_no_memory": Message(
        ("failed to allocate buffer for kv cache", "failed to allocate buffer for rs cache"),
        ("llama_kv_cache", "llama_memory_recurrent"),
        "The weights are loaded, and the KV cache (or the recurrent state) does not fit beside them.",
        "A long context (-c, by default the model's own), many sequences (-np), an f16 cache, --swa-full.",
        "shorten the context (-c), quantize the cache (-ctk q8_0 -ctv q8_0), or put fewer layers there",
        "place",
        program="llama.cpp",
    ),
    "output_no_memory": Message(
        (
            "%s: failed to allocate output buffer of size %.2f MiB",
            "failed to reserve initial output buffer",
            "%s: could not reserve space for batch with %d outputs",
        ),
        ("output_reserve", "llama_context"),
        "There is no memory on the host for the logits and embeddings that a batch gives back.",
        "Logits of every token of a large batch (n_batch × vocabulary × 4 bytes), as for perplexity.",
        "ask for the logits of fewer tokens, or make the batch smaller (-b)",
        "",
        program="llama.cpp",
    ),
    "context_failed": Message(
        ("%s: failed to initialize the context: %s", "%s: failed to create context with model '%s'"),
        ("llama_init_from_model", "common_init_from_params"),
        "The model is loaded, and its context could not be made.",
        "Most often a KV cache or a compute buffer that does not fit; options that exclude each other (a quantized V "
        "cache without flash attention).",
        "read the line before it, which says what failed",
        "place",
        places=(("reason", ""),),
        program="llama.cpp",
    ),
    "buffer_size": Message(
        (
            "%s: %s compute buffer size = %.2f MiB",
            "%s: %s KV buffer size = %.2f MiB",
            "%s: %s RS buffer size = %.2f MiB",
            "%s: %s model buffer size = %.2f MiB",
            "%s: %s output buffer size = %.2f MiB",
            "%s: %s buffer size = %.2f MiB",
        ),
        ("llama_context", "llama_kv_cache", "load_tensors", "llm_load_tensors"),
        "How large a buffer is: the weights of a device (model), its KV cache, its state (RS), what graphs are "
        "computed in (compute), or the logits (output). CUDA_Host, CPU and CPU_Mapped are memory of the host.",
        "Each load. Compute buffers are those of the largest graph, reserved for a whole ubatch.",
        "nothing is wrong; `import` lists them all, and `place` foretells them",
        "import LOG",
        level="info",
        program="llama.cpp",
    ),
    "compute_size_changed": Message(
        ("%s: %s compute buffer size of %.4f MiB, does not match expectation of %.4f MiB",),
        ("~llama_context",),
        "When the program ended, a compute buffer was larger than what was reserved: a graph came that needed more.",
        "A ubatch with more outputs, another mask or more tokens than the worst case that llama.cpp reserves for.",
        "nothing, if there was memory; `explain realloc` shows which tensor is larger",
        "explain realloc A B",
        level="warning",
        program="llama.cpp",
    ),
    "other_device": Message(
        (
            "%s: layer %d is assigned to device %s but %s is assigned to device %s (usually due to missing support)",
            "%s: %s not supported, set to disabled",
            "%s: Flash Attention was auto, set to disabled",
        ),
        ("resolve_fused_ops", "llama_context"),
        "llama.cpp planned a graph with a fused op (flash attention, gated delta net) to see where it runs; that is "
        "not the device of its layer, so the op is built of plain ones instead.",
        "A device without this kernel for these head sizes or types (a quantized KV cache); a layer that lies on the "
        "CPU. Of a model with MTP or on full cards it may also be a layer that found no room.",
        "nothing, if the speed will do; `supports` says what the device lacks (head size, type of K and V)",
        "supports",
        level="warning",
        program="llama.cpp",
    ),
    "no_slot": Message(
        ("%s: failed to find a memory slot for batch of size %d", "failed to find a memory slot"),
        ("decode", "llama_decode"),
        "The KV cache has no room for the tokens of this batch: the context is full.",
        "Prompts and answers longer than -c (shared by -np sequences, if the cache is not unified).",
        "give a longer context (-c), fewer sequences (-np), or remove tokens before (context shift)",
        "",
        level="warning",
        program="llama.cpp",
    ),
    "compute_failed": Message(
        (
            "%s: failed to compute graph, compute status: %d",
            "%s: failed to decode, ret = %d",
            "%s: ggml_backend_sched_graph_compute_async failed with error %d",
        ),
        ("process_ubatch", "graph_compute", "llama_decode"),
        "A graph was planned and could not be computed. -1 is an error of a backend, -2 memory that could not be had, "
        "1 a computation that was called off.",
        "A device that ran out of memory while computing (runtime pools are in no plan), or that was lost.",
        "read the lines before it; leave more memory free on the device",
        "",
        program="llama.cpp",
    ),
    "offloaded": Message(
        ("%s: offloaded %d/%d layers to GPU",),
        ("load_tensors", "llm_load_tensors"),
        "{n} of {all} layers have their weights on GPUs; the output counts as one.",
        "Each load; -ngl says how many.",
        "nothing is wrong; `sweep` finds the largest -ngl that fits",
        "sweep",
        places=(("n", "So many"), ("all", "all")),
        cases=(
            Case(
                "n",
                "0",
                "No layer is on a GPU: the CPU computes everything but what op offload takes for large batches.",
                "-ngl 0, a build without a GPU backend, or a GPU that was not found (see the lines of device_info).",
                "check that the build has the backend and that `llama-server --list-devices` shows the card",
                "backends",
            ),
        ),
        level="info",
        program="llama.cpp",
    ),
    "overridden": Message(
        ("tensor %s (%zu MiB %s) buffer type overridden to %s", "Tensor %s buffer type overriden to %s"),
        ("llama_model_loader::create_tensor",),
        "A weight goes where -ot (or -ncmoe, -cmoe) says, not where its layer is.",
        "-ot REGEX=BUFT; the first expression that is found in the name counts.",
        "nothing is wrong; `place --tensors` shows every weight with the rule that placed it",
        "place --tensors",
        level="info",
        program="llama.cpp",
    ),
    "reserving": Message(
        (
            "%s: reserving a graph for ubatch with n_tokens = %d, n_seqs = %d, n_outputs = %d",
            "%s: worst-case: n_tokens = %d, n_seqs = %d, n_outputs = %d",
            "%s: reserve took %.2f ms, sched copies = %d",
        ),
        ("graph_reserve", "llama_context::sched_reserve"),
        "llama.cpp plans a graph of {tokens} tokens with logits of {outputs}, to make the compute buffers as large as "
        "any graph will need.",
        "Each context: a whole ubatch, one token, and a whole ubatch again.",
        "nothing is wrong; `capture --outputs` takes the number of outputs, on which the compute buffer depends",
        "buffers --step reserve",
        places=(("tokens", "some"), ("seqs", ""), ("outputs", "some")),
        level="info",
        program="llama.cpp",
    ),
    "breakdown": Message(
        (
            "memory breakdown [MiB] | total free self model context compute unaccounted |",
            "memory breakdown [MiB]",
        ),
        ("common_memory_breakdown_print", "llama_memory_breakdown_print"),
        "Memory of each device in MiB: total = free + (self = model + context + compute) + unaccounted. Self is this "
        "program's; unaccounted is what else lies there: the driver's context, runtime pools, other programs.",
        "llama.cpp prints it at the end, and for each try of --fit. There nothing is allocated yet, so unaccounted is "
        "negative by what the program would need; a number near 17592186044416 is a negative one that was printed "
        "without its sign.",
        "compare free with what self grows by; `import` shows the table with its signs",
        "import LOG",
        level="info",
        program="llama.cpp",
    ),
}
