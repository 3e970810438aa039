"""What ggml's messages mean: each text of its allocator and scheduler is known, and found however it comes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.cli.main import COMMANDS
from ggmltool.ggml.messages import messages, remedy
from ggmltool.inspect.messages import match
from ggmltool.inspect.messages.conditions import required
from ggmltool.inspect.messages.match import ASSERTION, explained, find, find_all, nearest
from tests.batches import each, in_batches

MESSAGES = messages()
ENGINE = Path(__file__).parents[2] / "ggmltool" / "ggml"
SOURCE = json.loads((Path(__file__).parent / "messages_0_20_2.json").read_text())
TEXTS = [tuple(row) for row in SOURCE["texts"]]
"""Every GGML_ASSERT, GGML_ABORT and log call of ggml-alloc.c and ggml-backend.cpp: file, function, kind, text."""
BEFORE = [tuple(row) for row in json.loads((Path(__file__).parent / "messages_before.json").read_text())["texts"]]
"""Texts of allocator and scheduler in the ggml of January 2024 and of 2025: era, kind, text."""
WORDS = {"%s": "blk.0_x", "%zu": "4096", "%d": "7", "%5.5s": "CPU", "%8.8s": "1.dst", "%zx": "ff"}


def keys_of(text: str) -> set[str]:
    return {key for key, m in MESSAGES.items() if text in m.texts}


def printed(function: str, kind: str, text: str) -> str:
    """The text as a program of today prints it."""
    if kind == "assert":
        return f"/src/ggml/src/ggml-backend.cpp:1234: GGML_ASSERT({text}) failed"
    filled = re.sub(r"%[-0-9.]*(?:zu|zx|[sdf])", lambda m: WORDS.get(m[0], "12.00"), text.replace("%s: ", "", 1))
    head = f"{function}: " if text.startswith("%s: ") else ""
    place = "ggml-alloc.c:99: " if kind == "abort" else "0.00.123.456 W "
    return place + head + filled


def test_the_list_is_of_this_release() -> None:
    assert SOURCE["ggml"] == "0.20.2"
    assert len(TEXTS) > 200
    assert {file for file, *_ in TEXTS} == {"ggml-alloc.c", "ggml-backend.cpp"}


@in_batches("row", TEXTS)
def test_every_text_of_allocator_and_backends_has_an_entry_and_is_found(row: tuple[str, str, str, str]) -> None:
    _, function, kind, text = row
    assert keys_of(text)
    if sum(c.isalnum() for c in re.sub(r"%[-0-9.]*(?:z[ux]|\w)", "", text)) < 3:
        return  # a piece of a longer print
    found = find(printed(function, kind, text))
    assert found is not None
    assert text in MESSAGES[found.key].texts


@in_batches("row", BEFORE)
def test_texts_of_older_releases_are_found(row: tuple[str, str, str]) -> None:
    _, kind, text = row
    filled = re.sub(r"%[-0-9.]*(?:z[ux]|lu|\w)", "7", text)
    found = find(f"GGML_ASSERT: /src/ggml-backend.c:1204: {text}" if kind == "assert" else filled)
    assert found is not None
    assert found.score == 1


@in_batches("key", [k for k, m in MESSAGES.items() if not m.era])
def test_functions_are_those_that_print_it(key: str) -> None:
    message = MESSAGES[key]
    theirs = {function for _, function, _, text in TEXTS if text and text in message.texts}
    if theirs and len(theirs) <= 4:
        assert theirs <= set(message.functions)


def test_no_text_means_two_things_in_one_file() -> None:
    texts = [(text, file) for m in MESSAGES.values() for text in m.texts for file in m.files or ("",)]
    assert len(texts) == len(set(texts))


def filled(text: str) -> str:
    """A text as a program prints it, without the function in front."""
    return re.sub(r"%[-0-9.]*(?:z[ux]|lu|\w)", lambda m: WORDS.get(m[0], "12"), text.removeprefix("%s: "))


KNOWN = [
    (key, text)
    for key, m in MESSAGES.items()
    for text in m.texts
    if sum(c.isalnum() for c in match.FILLED.sub("", text)) >= 3
]


@in_batches("row", KNOWN)
def test_every_message_finds_itself(row: tuple[str, str]) -> None:
    """S8."""
    key, text = row
    files = MESSAGES[key].files
    found = find(f"{files[0]}:12: {filled(text)}" if files else filled(text))
    assert found is not None
    assert (found.key, found.score) == (key, 1)


@in_batches("row", KNOWN)
def test_a_message_with_one_word_replaced_is_not_taken_for_it(row: tuple[str, str]) -> None:
    """S8: “failed to create ggml context” was taken for “failed to create the MoE cache context”."""
    _, text = row
    words = re.findall(r"\w{3,}", re.sub(r"%[-0-9.]*(?:z[ux]|lu|\w)", "", text.removeprefix("%s: ")))
    for word in words:
        other = re.sub(rf"\b{re.escape(word)}\b", "teapot", filled(text), count=1)
        found = find(other)
        if found is None or found.key == ASSERTION:
            continue
        said = match._plain(found.text.removeprefix("%s: "))
        assert all(match._plain(piece).strip() in match._plain(other) for piece in match.FILLED.split(said)), (
            f"{other!r} was taken for {found.text!r}"
        )


@pytest.mark.parametrize(
    "text",
    [
        "Unsupported Media Type",
        "UNSUPPORTED_OPTIONS",
        "op is not supported (",
        "Unsupported device",
        "failed to create the window",
        "Flash Attention",
    ],
)
def test_what_is_like_a_message_in_sound_only_is_not_taken_for_it(text: str) -> None:
    """S8: texts that stand in llama.cpp's libraries and say something else."""
    assert find(text) is None


@in_batches("key", MESSAGES)
def test_every_entry_says_what_it_means_what_brings_it_about_and_what_to_do(key: str) -> None:
    m = MESSAGES[key]
    assert m.means.endswith((".", ")"))
    assert m.shapes.endswith((".", ")"))
    assert m.remedy
    assert not m.remedy.endswith(".")
    assert remedy(key) == m.remedy
    assert m.functions
    assert not m.ask or m.ask.split()[0] in COMMANDS
    assert m.era in ("", "2024", "2025", "0.20.2")
    assert m.program in ("ggml", "llama.cpp", "PyTorch")


CONDITION = re.compile(r'^!?\(*!?[\w"][\w\->\[\]().]*\s*(==|!=|<=|>=|<|>|%|&)\s|^!?ggml_(is|can|are)_\w+\(')
"""What looks like a condition in C, wherever it stands in the engine: many are handed on by functions of ours."""


def literal(node: ast.AST) -> str | None:
    """A text in the source, with `x` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in node.values)
    return None


def is_whole(text: str) -> bool:
    """Whether a condition is no piece of one that is put together."""
    return (
        text.count("(") == text.count(")")
        and not text.startswith(("GGML_ASSERT(", "assert("))
        and "-> a.type[" not in text  # a shape rule of a constructor
        and (not text.rstrip().endswith(("==", "||", "&&")))
    )


def refusals() -> Iterator[tuple[str, str]]:
    """Every condition and message with which the engine refuses, as the kind of it and the text."""
    for path in sorted(ENGINE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                # `require(holds, condition, …)`, which a `requirer` of a function's assertions makes.
                is_required = called.lstrip("_").startswith("require") and len(node.args) > 2
                kind = "GgmlAssert" if is_required else called.rpartition(".")[2]
                place = {"GgmlAssert": 1, "GgmlAbort": 1, "LineAssert": 3}.get(kind)
                text = literal(node.args[place]) if place is not None and len(node.args) > place else None
                if text is not None:
                    yield kind, text
            else:
                text = literal(node)
                if text is not None and len(text) < 300 and CONDITION.search(text) and is_whole(text):
                    yield "condition", text


@cache
def all_refusals() -> list[tuple[str, str]]:
    return sorted(set(refusals()))


def test_the_walk_finds_the_refusals_of_the_engine() -> None:
    found = all_refusals()
    assert len(found) > 400
    assert ("GgmlAssert", "ggml_can_mul_mat(a, b)") in found
    assert ("condition", "ggml_can_mul_mat(k, q)") in found
    assert {kind for kind, _ in found} == {"GgmlAssert", "GgmlAbort", "LineAssert", "condition"}


def test_every_refusal_of_the_engine_is_known() -> None:
    """U15: whatever `plan` or `run` stops with, `explain error` knows."""
    each(all_refusals(), lambda refusal: check_is_known(*refusal))


def check_is_known(kind: str, text: str) -> None:
    found = find(text if kind == "GgmlAbort" else f"/src/ggml/src/ggml.c:123: GGML_ASSERT({text}) failed")
    assert found is not None
    told = explained(found).told
    assert told.means
    assert told.remedy
    assert "{" not in "".join(told)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pre-allocated tensor (cache_k_l0 (view)) in a buffer (Vulkan0) that cannot run the operation (SET_ROWS)",
         "preallocated"),
        ("pre-allocated tensor in a buffer that cannot run the operation", "preallocated"),
        ("cannot run the operation", "preallocated"),
        ("tensor buffer not set", "buffer_not_set"),
        ("GGML_ASSERT: ggml-backend.c:204: buf != NULL && \"tensor buffer not set\"", "buffer_not_set"),
        ("tensor bufer not set", "buffer_not_set"),
        ("tensor not allocated", "not_allocated"),
        ("unexpected graph reallocation", "unexpected_realloc"),
        ("0.01.123.4 D ggml_gallocr_needs_realloc: src 1 (KQ_mask) of node KQ (view) is not valid", "not_valid"),
        ("GGML_ASSERT(cgraph->n_nodes < cgraph->size) failed", "cgraph_full"),
        ("ggml.c:6210: GGML_ASSERT(sched->hash_set.size >= graph->n_nodes + graph->n_leafs)", "hash_too_small"),
        ("hash_set.size >= graph->n_nodes", "hash_too_small"),
        ("out of free blocks", "free_blocks"),
        ("GGML_ASSERT: ggml-alloc.c:114: !\"not enough space in the buffer\"", "old_not_enough_space"),
        ("ggml_tallocr_alloc: not enough space in the buffer (needed 2048, largest block available 512)",
         "old_not_enough_space"),
        ("ggml_tallocr_alloc: not enough space in the buffer to allocate w (needed 512, available 0)", "tallocr_full"),
        ("GGML_ASSERT(n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS) failed", "old_graph_inputs"),
        ("ggml_gallocr_reserve_n: reallocating CUDA0 buffer from size 0.00 MiB to 12.00 MiB", "realloc_buffer"),
        ("allocating 14000.00 MiB on device 0: cudaMalloc failed: out of memory", "cuda_out_of_memory"),
        ("cudaMalloc failed: out of memory", "cuda_out_of_memory"),
        ("!!!!!!! n136 has backend CUDA0, view_src n100 has backend CUDA1", "old_checks"),
        ("fatal error", "hash_full"),
        ("CUDA error: out of memory", "cuda_error"),
        ("[52509] 0.02.396.005 E CUDA error: out of memory", "cuda_error"),
        ("ggml_vulkan: Device memory allocation of size 1073741824 failed.", "vulkan_no_memory"),
        ("0.01.2 E graph_reserve: failed to allocate compute buffers", "compute_buffers_failed"),
        ("llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers",
         "compute_buffers_failed"),
        ("llama_context: compute buffer allocation failed, retrying without pipeline parallelism",
         "retry_without_pipeline"),
        ("\x1b[32m0.00.664.044 I \x1b[0msched_reserve: graph splits = 58 (with bs=512), 2 (with bs=1)", "graph_size"),
        ("sched_reserve: graph: nodes = 730, splits = 1", "graph_size"),
        ("sched_reserve: graph: nodes = 195, splits = 3, input objects = 4, input tensors = 9", "graph_size"),
        ("sched_reserve: graph (pp bs=64, tg bs=1): nodes = 9, splits = 3 / 2, input objects = 4, input tensors = 9",
         "graph_size"),
        ("sched_graph_realloc: graph reallocation: nodes = 195 (changed = 0), splits = 3, n_same = 1, n_diff = 0",
         "graph_reallocation"),
        ("llama_perf_context_print:   graph reallocs =          1    /     0        (same size) / (changed size)",
         "graph_reallocation"),
        ("llama_new_context_with_model: pipeline parallelism enabled (n_copies=4)", "pipeline_enabled"),
        ("tensor 'a' (q8_0) (and 0 others) cannot be used with preferred buffer type CUDA_Host, using CPU instead",
         "not_preferred"),
        ("llama_params_fit: cannot fulfill margin of 1024 MiB on all devices, need to use 97337 MiB less in total",
         "fit_short"),
        ("common_params_fit_impl: projected to use 24770 MiB of device memory vs. 7627 MiB of free device memory",
         "fit_report"),
        ("failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort",
         "fit_failed"),
        ("| memory breakdown [MiB] | total   free     self   model   context   compute    unaccounted |", "breakdown"),
        ("llm_load_tensors:        CPU buffer size =  1640.62 MiB", "buffer_size"),
        ("llama_model_load: error loading model: unable to allocate CUDA0 buffer", "weights_no_memory"),
        ("ggml_cuda_compute_forward: MUL_MAT failed", "cuda_op_failed"),
        ("node #  1 (       ADD):                 sum1 (   0K) [  CPU         ] use=1,c=1:", "debug_print"),
        ("failed to create ggml context", "context_memory"),
        ("error loading model: tensor 'w' data is not within the file bounds, model is corrupted or incomplete",
         "unknown_model"),
        ("llama_model_load: error loading model: illegal split file idx: 1", "load_failed"),
        ("vk::Device::allocateMemory: ErrorOutOfHostMemory", "vulkan_host_memory"),
        ("GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed", "batch_too_large"),
        ("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "no_device"),
        ("error: Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)", "metal_command_buffer"),
        ("Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "sycl_failed"),
        ("gguf_init_from_reader: failed to initialize ggml context for storing tensors", "context_memory"),
        ("/x/ggml/src/ggml-impl.h:318: fatal error", "hash_full"),
        ("/x/ggml/src/ggml-cpu/ops.cpp:571: fatal error", "kernel_fatal"),
        ("/x/ggml/src/ggml-cuda/mmq.cu:77: fatal error", "device_fatal"),
        ("llama_init_from_model: quantized V cache requires flash_attn to be enabled", "v_cache_flash_attn"),
        ("quantized V cache requires flash_attn", "v_cache_flash_attn"),
        ("failed to initialize the context: quantized V cache was requested, but this requires Flash Attention",
         "v_cache_flash_attn"),
        ("/x/ggml-rpc.cpp:782: Remote RPC server crashed or returned malformed response", "rpc_died"),
        ("/x/ggml-rpc.cpp:764: GGML_ASSERT(status) failed", "rpc_died"),
        ("what():  vk::Queue::submit: ErrorDeviceLost", "vulkan_lost"),
        ("terminate called after throwing an instance of 'vk::DeviceLostError'", "vulkan_lost"),
        ("warmup: WARNING: the CLIP graph uses unsupported operators by the backend", "clip_unsupported"),
        ("llama_params_fit is not implemented for SPLIT_MODE_TENSOR, abort", "fit_split_mode"),
        ("srv    load_model: cache_reuse is not supported by this context, it will be disabled", "cannot_shift"),
        ("cache_reuse is not supported", "cannot_shift"),
        ("CUDA out of memory", "cuda_memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "cuda_memory"),
        ("ggml-blas.cpp:253: ggml_backend_blas_graph_compute: unsupported op ADD", "host_op_unsupported"),
        ("ggml-blas.cpp:253: unsupported op", "host_op_unsupported"),
        ("ggml-metal-ops.cpp:202: ggml_metal_op_encode_impl: error: unsupported op 'ROPE'", "op_unsupported"),
    ],
)  # fmt: skip
def test_a_text_is_found_with_its_prefix_its_names_and_its_slips(text: str, key: str) -> None:
    found = find(text)
    assert found is not None
    assert found.key == key


def told(text: str) -> str:
    """All that is said of a text."""
    found = find(text)
    assert found is not None
    said = explained(found)
    return "\n".join((said.title, *said.told))


def test_what_printf_filled_in_is_shown() -> None:
    """U8."""
    said = told("0.1 E pre-allocated tensor (cache_k_l58) in a buffer (Vulkan0) that cannot run the operation (ROPE)")
    assert said.startswith(
        "pre-allocated tensor (cache_k_l58) in a buffer (Vulkan0) that cannot run the operation (ROPE)\n"
        "cache_k_l58 is pre-allocated"
    )
    assert "%s" not in said
    assert "(…) in a buffer (…)" in told("cannot run the operation")
    assert "The tensor is pre-allocated" in told("cannot run the operation")


@pytest.mark.parametrize(
    ("buffer", "op", "says", "never"),
    [
        ("CUDA3", "NONE", "CUDA3 is not among its devices", "set_rows"),
        ("Meta()", "NONE", "split mode tensor", "-devd"),
        ("CUDA0", "SET_ROWS", "-ctk", "-devd"),
        ("ROCm0", "CPY", "Mamba", "-devd"),
        ("CUDA0", "SSM_SCAN", "no such backend of the scheduler supports SSM_SCAN", "-ctk"),
    ],
)
def test_the_advice_is_of_the_case_at_hand(buffer: str, op: str, says: str, never: str) -> None:
    """U8: the threads llama.cpp#24366, #24492, #27692 (NONE), turbo-tan#38 (SET_ROWS)."""
    said = told(
        f"ggml-backend.cpp:930: pre-allocated tensor (x) in a buffer ({buffer}) that cannot run the operation ({op})"
    )
    assert says in said
    assert never not in said


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("ret.axis != GGML_BACKEND_SPLIT_AXIS_UNKNOWN", "could not split"),
        ("split_state.ne[j] * tensor->src[i]->ne[src_ss[i].axis] == sum * tensor->ne[split_state.axis]",
         "could not split"),
        ("split_state.n_segments == 1", "could not split"),
        ("split_states_equal(src_ss[0], src_ss[1])", "could not split"),
        ("size == ggml_nbytes(tensor)", "read or written"),
        ("offset_j == chunk_size_full", "read or written"),
    ],
)  # fmt: skip
def test_assertions_of_split_mode_tensor_are_told_as_such(condition: str, says: str) -> None:
    """U5: llama.cpp#21876, #22307, #22793, #22817, #25829, #27116."""
    said = told(f"[41235] /x/ggml/src/ggml-backend-meta.cpp:535: GGML_ASSERT({condition}) failed")
    assert says in said
    assert condition in said
    assert "-sm layer" in said
    assert "GGML_ASSERT" not in told("/x/ggml/src/ggml-backend-meta.cpp:595: fatal error")


def test_a_frame_of_a_backtrace_is_no_assertion() -> None:
    assert find("#5  ggml_backend_meta_graph_compute () at /x/ggml-backend-meta.cpp:1985") is None


OUT_OF_MEMORY = """0.02.396.005 E CUDA error: out of memory
0.02.396.006 E   current device: 2, in function alloc at /x/ggml/src/ggml-cuda/ggml-cuda.cu:445
0.02.396.006 E   cuMemCreate(&handle, reserve_size, &prop, 0)
/x/ggml/src/ggml-cuda/ggml-cuda.cu:73: CUDA error
"""
LAUNCH_FAILURE = """CUDA error: unspecified launch failure
  current device: 0, in function ggml_backend_cuda_synchronize at /x/ggml-cuda.cu:2444
  cudaStreamSynchronize(cuda_ctx->stream())
"""


def test_the_lines_that_cuda_prints_are_read_as_one() -> None:
    """ik_llama.cpp#687, llama.cpp#22107: memory that ran out while running is in no plan; llama.cpp#12798."""
    said = told(OUT_OF_MEMORY)
    assert "runtime pool" in said
    assert "No plan has these" in said
    said = told(LAUNCH_FAILURE)
    assert "at the next call that waits (ggml_backend_cuda_synchronize)" in said
    assert "CUDA_LAUNCH_BLOCKING=1" in said
    assert "-ot exp=CPU" in said


def test_where_the_program_died_comes_first_then_the_first_error() -> None:
    load = """llama_context: pipeline parallelism enabled (n_copies=4)
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12710.31 MiB on device 0: cudaMalloc failed: out of memory
ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 13327728640
graph_reserve: failed to allocate compute buffers
llama_context: compute buffer allocation failed, retrying without pipeline parallelism
"""
    found = find_all(load)
    assert [(m.key, m.line) for m in found] == [
        ("cuda_out_of_memory", 2), ("alloc_buffer_failed", 3), ("compute_buffers_failed", 4),
        ("retry_without_pipeline", 5), ("pipeline_enabled", 1),
    ]  # fmt: skip
    assert "of 12710.31 MiB" in explained(found[0]).told.means
    assert "Device 0" in explained(found[0]).told.means
    assert find_all(load + OUT_OF_MEMORY)[0].key == "cuda_error"


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("ggml_can_mul_mat(a, b)",
         "a and b must have the same ne[0], and ne[2] and ne[3] of b must be multiples of a's"),
        ("!ggml_is_transposed(a)", "a must not be transposed"),
        ("a->ne[2] == b->ne[0]", "ne[2] of a must be equal to ne[0] of b"),
        ("q->ne[2] % k->ne[2] == 0", "ne[2] of q must be a multiple of ne[2] of k"),
        ("src1->type == GGML_TYPE_F32", "src1's type must be f32"),
        ("nb00 == sizeof(float)",
         "the elements of each row of source 0 must lie side by side (not transposed or permuted in ne[0])"),
        ("ggml_is_matrix(c) && (a->ne[0] == c->ne[0])",
         "c must be a matrix: ne[2] and ne[3] are 1; ne[0] of a must be equal to ne[0] of c"),
        ("mask->type == GGML_TYPE_F16 || mask->type == GGML_TYPE_F32",
         "mask's type must be f16, or mask's type must be f32"),
        ("n_tasks > 0", "n_tasks must be more than 0"),
        ("mask", "mask must be given"),
        ("a->flags & GGML_TENSOR_FLAG_PARAM", "a->flags must have the bit GGML_TENSOR_FLAG_PARAM"),
    ],
)  # fmt: skip
def test_a_condition_is_read(condition: str, words: str) -> None:
    """U15: `GGML_ASSERT(ggml_can_mul_mat(a, b)) failed` is known."""
    read = required(condition)
    assert read is not None
    assert read.words == words
    found = find(f"GGML_ASSERT({condition}) failed")
    assert found is not None
    if found.key == ASSERTION:
        assert words in explained(found).told.means


@pytest.mark.parametrize("condition", ["", "&&", "a b", "x ==", "== 1", "((", "a < b < c", "f(g(x))"])
def test_what_is_no_condition_is_not_read(condition: str) -> None:
    assert required(condition) is None


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("ggml.c:3234: ", "cannot be built"),
        ("/x/ggml/src/ggml-cpu/ops.cpp:512: ", "The CPU came to compute"),
        ("/x/ggml/src/ggml-cuda/mmq.cu:77: ", "A kernel of the device"),
        ("/x/src/llama-graph.cpp:9: ", "The program stopped itself"),
        ("/x/ggml/src/ggml-backend-meta.cpp:535: ", "-sm tensor"),
        ("", "cannot be built"),
    ],
)
def test_who_asserts_is_told_by_the_file(place: str, says: str) -> None:
    assert says in told(f"{place}GGML_ASSERT(a->ne[0] == b->ne[0]) failed")


def test_the_limit_of_split_inputs_is_not_told_as_repaired() -> None:
    """U7."""
    said = told("GGML_ASSERT(n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS) failed")
    assert "A hard-coded limit: 10, then 30 (Sept 2025); grows since Aug 2026." in said
    words = [text for m in MESSAGES.values() for text in (m.means, m.shapes, m.remedy)]
    assert not any("fixed then" in text for text in words)


@pytest.mark.parametrize("key", [key for key, message in MESSAGES.items() if message.places])
def test_every_case_can_be_told_with_its_values_and_without(key: str) -> None:
    message = MESSAGES[key]
    names = set(message.places)
    assert {place for case in message.cases for place in case.when} <= names
    for values in ({}, dict.fromkeys(names, "{x}")):
        assert all(message.told(values)[:3])


@pytest.mark.parametrize("key", [key for key, message in MESSAGES.items() if message.fills])
def test_what_a_text_fills_in_is_named_as_often(key: str) -> None:
    message = MESSAGES[key]
    for text, names in message.fills.items():
        assert text in message.texts
        assert set(names) <= message.places.keys()
        filled = len(match.FILLED.findall(text.removeprefix("%s: ")))
        assert len(names) in (0, filled)


@pytest.mark.parametrize(
    ("text", "says", "never"),
    [
        ("tensor 'w' (q8_0) cannot be used with preferred buffer type CUDA_Host, using CPU instead",
         "w should be in CUDA_Host, the first choice", "lie in CPU"),
        ("tensor 'w' (q8_0) (and 3 others) cannot be used with preferred buffer type CUDA_Host, using CPU instead",
         "so it is in CPU.", "lie in 3"),
        ("cudaMalloc failed: out of memory", "no memory for one whole buffer of some MiB", "buffer of out of memory"),
        ("sched_reserve: reserve took 12.50 ms, sched copies = 4", "a graph of some tokens", "12.50 tokens"),
    ],
)  # fmt: skip
def test_a_text_that_fills_in_less_is_told_with_what_it_does(text: str, says: str, never: str) -> None:
    said = told(text)
    assert says in said
    assert never not in said


def test_of_a_whole_log_the_line_that_says_most_is_found() -> None:
    log = (
        "llama_context: constructing\nmain: hello\nggml-backend.cpp:931: pre-allocated tensor (a) in a buffer (G) that "
    )
    log += "cannot run the operation (CPY)\nAborted (core dumped)\n"
    found = find(log)
    assert found is not None
    assert found.key == "preallocated"


@pytest.mark.parametrize("text", ["hello world", "blah", "segmentation fault", "x" * 9999, "?", "false start"])
def test_what_is_like_nothing_is_not_found_and_nothing_is_called_near(text: str) -> None:
    """U15."""
    assert find(text) is None
    assert nearest(text) == []


def test_a_long_log_is_read_in_no_time() -> None:
    import time

    log = "\n".join(f"node #{i:3} (   MUL_MAT):  kq-{i} (   1K) [CUDA0] use=1: word {i}" for i in range(100_000))
    started = time.process_time()
    find(log)
    assert time.process_time() - started < 10


@given(
    pieces=st.lists(st.text("ab ", max_size=2), min_size=1, max_size=4),
    line=st.text("ab ", max_size=20),
    most=st.integers(0, 4),
)
def test_pieces_in_order_are_what_a_pattern_finds_without_its_backtracking(
    pieces: list[str], line: str, most: int
) -> None:
    pattern = f".{{0,{most}}}?".join(map(re.escape, pieces))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match, "_FILLED_IN", most)
        assert match._in_order(pieces, line) == (re.search(pattern, line) is not None)
