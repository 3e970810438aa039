"""Sessions with gdb on contexts, graphs, half-precision numbers and buffers: this debugger prints their figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "sessions"
ARENA = SAMPLES / "arena.yaml"
STARTED = ("-ex", "start", "-ex", "step 4")


class Figure(NamedTuple):
    """What seed 3 prints at a line to `command`, with … for addresses and for what the notes below tell.

    `asks` is what is typed here for a variable of a function that is over before the first point.
    """

    line: int
    command: str
    prints: str
    asks: str = ""
    nth: int = 1


TENSOR = (
    "{{type = GGML_TYPE_F32, backend = GGML_BACKEND_TYPE_CPU, buffer = …, ne = {{10, 1, 1, 1}}, "
    "nb = {{4, 40, 40, 40}}, op = GGML_OP_NONE, op_params = {{0 <repeats 16 times>}}, flags = 0, grad = 0x0, "
    "src = {{0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0}}, perf_runs = 0, perf_cycles = 0, perf_time_us = 0, "
    "view_src = 0x0, view_offs = 0, data = …, "
    'name = {name}, extra = 0x0, padding = "\\000\\000\\000\\000\\000\\000\\000"}}'
)
"""Lines 689, 988 and 1069 show x before it has a buffer; in 689 and 988 it has no name, and its data in the context."""
NAMED = TENSOR.format(name="\"x\", '\\000' <repeats 62 times>")
CGRAPH = """type = struct ggml_cgraph {
    int size;
    int n_nodes;
    int n_leafs;
    struct ggml_tensor **nodes;
    struct ggml_tensor **grads;
    struct ggml_tensor **leafs;
    struct ggml_hash_set visited_hash_table;
    enum ggml_cgraph_eval_order order;
    int perf_runs;
    int64_t perf_cycles;
    int64_t perf_time_us;
}"""
CONTEXT = """type = struct ggml_context {
    size_t mem_size;
    void *mem_buffer;
    _Bool mem_buffer_owned;
    _Bool no_alloc;
    _Bool no_alloc_save;
    int n_objects;
    struct ggml_object *objects_begin;
    struct ggml_object *objects_end;
    struct ggml_scratch scratch;
    struct ggml_scratch scratch_save;
}"""
GRAPH = [
    Figure(66, "p obj_size", "65640", "p ggml_graph_nbytes(2048, false)"),
    # In the sample the graph lies behind three tensors; `offs = 32` is the first of them, as line 201 has it.
    Figure(145, "p *(struct ggml_object*) mem_buffer",
           '{offs = …, size = 65648, next = 0x0, type = GGML_OBJECT_GRAPH, padding = "\\000\\000\\000"}', "p *$obj"),
    Figure(147, "p sizeof(struct ggml_object)", "32"),
    Figure(197, "p ctx->mem_buffer", "(void *) …"),
    Figure(199, "p obj", "(struct ggml_object *) …", "p $obj"),
    Figure(201, "p obj->offs", "32", "p ((struct ggml_object *) ctx->mem_buffer)->offs"),
    Figure(224, "ptype struct ggml_cgraph", CGRAPH),
    # The session looks before the graph's fields are written, when size and the pointers are zero.
    Figure(239, "p *cgraph",
           "{size = …, n_nodes = 0, n_leafs = 0, nodes = …, grads = 0x0, leafs = …, visited_hash_table = {size = …, "
           "keys = …}, order = GGML_CGRAPH_EVAL_ORDER_LEFT_TO_RIGHT, perf_runs = 0, perf_cycles = 0, "
           "perf_time_us = 0}"),
    Figure(250, "p sizeof(struct ggml_cgraph)", "80"),
    Figure(252, "p cgraph", "(struct ggml_cgraph *) …"),
    Figure(254, "p cgraph + 1", "(struct ggml_cgraph *) …"),
    Figure(254, "p cgraph + 1", "80", "p (char *) (cgraph + 1) - (char *) cgraph"),
    Figure(256, "p 0x7ffff6ba0080 - 0x7ffff6ba0030", "80"),
    Figure(273, "finish", "4099", "p ggml_hash_size(cgraph->size * 2)"),
    Figure(279, "p sizeof(struct ggml_tensor**)", "8"),
    Figure(281, "p size * 8", "16384", "p $size * 8"),
    Figure(284, "p leafs_ptr", "(struct ggml_tensor **) …", "p $leafs_ptr"),
    Figure(288, "p nodes_ptr", "(struct ggml_tensor **) …", "p $nodes_ptr"),
    Figure(288, "p nodes_ptr", "1", "p $nodes_ptr == (struct ggml_tensor **) (cgraph + 1)"),
    Figure(290, "p 0x7ffff6ba4080 - 0x7ffff6ba0080", "16384"),
    Figure(290, "p 0x7ffff6ba4080 - 0x7ffff6ba0080", "16384", "p (char *) $leafs_ptr - (char *) $nodes_ptr"),
    Figure(371, "p sizeof(struct ggml_tensor)", "384"),
    Figure(373, "p obj_alloc_size", "4", "p ggml_nbytes(factor)"),
    Figure(375, "p sizeof(struct ggml_tensor) + obj_alloc_size", "388",
           "p sizeof(struct ggml_tensor) + ggml_nbytes(factor)"),
    Figure(391, "p ggml_init", "{struct ggml_context *(struct ggml_init_params)} … <ggml_init>"),
    Figure(399, "list ggml.c:4188", CONTEXT, "ptype struct ggml_context"),
]  # fmt: skip
HALVES = [
    Figure(449, "ptype ii", "type = unsigned short", "ptype ggml_fp16_t"),
    Figure(451, "p sizeof(ii)", "2", "p sizeof(ggml_fp16_t)"),
    Figure(458, "p/d (1 << 16)", "65536"),
    Figure(460, "p/t (1 << 16)", "10000000000000000"),
    Figure(526, "p table_f32_f16[0]", "0"),
    Figure(529, "p table_f32_f16[1]", "5.96046448e-08"),
    Figure(532, "p table_f32_f16[2]", "1.1920929e-07"),
    Figure(535, "p table_f32_f16[3]", "1.78813934e-07"),
    Figure(545, "x table_f32_f16", "… <…table_f32_f16>:\t" + "0" * 32, "x/tw table_f32_f16"),
    Figure(548, "p table_f32_f16[1]", "5.96046448e-08", nth=2),
    Figure(550, "x/w table_f32_f16 +  1", "… <…table_f32_f16+4>:\t00110011100000000000000000000000"),
    Figure(573, "p table_f32_f16[2]", "1.1920929e-07", nth=2),
    Figure(612, "x/t table_f32_f16 + 2", "… <…table_f32_f16+8>:\t00110100000000000000000000000000"),
    Figure(616, "p table_f32_f16[3]", "1.78813934e-07", nth=2),
    Figure(619, "p/t table_f32_f16[3]", "110100010000000000000000000000"),
]  # fmt: skip
BACKEND = [
    Figure(689, "p *x", TENSOR.format(name="…'\\000' <repeats … times>")),
    Figure(698, "p ((float*) x->data)[0]", "1"),
    Figure(700, "p ((float*) x->data)[1]", "2"),
    Figure(702, "p ((float*) x->data)[2]", "3"),
    Figure(704, "p ((float*) x->data)[4]", "5"),
    Figure(706, "p ((float*) x->data)[3]", "4"),
    Figure(708, "p ((float*) x->data)[9]", "10"),
    # The view begins at the sixth element; the session's own call counts bytes where it means elements.
    Figure(735, "s", "5", "p half->view_offs / ggml_type_size(half->type)"),
    Figure(742, "p x", "(struct ggml_tensor *) …"),
    Figure(745, "p a", "(struct ggml_tensor *) …", "p half->view_src"),
    Figure(745, "p a", "1", "p half->view_src == x"),
    Figure(986, "p x", "(struct ggml_tensor *) …"),
    Figure(988, "p *x", TENSOR.format(name="…'\\000' <repeats … times>")),
    Figure(998, "p x.backend", "GGML_BACKEND_TYPE_CPU"),
    Figure(1000, "p x.buffer", "(struct ggml_backend_buffer *) 0x0", "p twice.buffer"),
    Figure(1064, "p alignment", "128", "p $alignment"),
    Figure(1066, "p max_size", "18446744073709551615", "p ggml_backend_buft_get_max_size($buft)"),
    Figure(1069, "p *first", NAMED, "p *x"),
    Figure(1094, "p t->data", "(void *) 0x0", "p twice->data"),
    Figure(1096, "p t->view_src", "(struct ggml_tensor *) 0x0", "p twice->view_src"),
    Figure(1099, "p this_size", "128",
           "p (ggml_backend_buft_get_alloc_size($buft, x) + $alignment - 1) / $alignment * $alignment"),
    Figure(1150, "p *ctx", '… "CUDA0"', "p ggml_backend_buffer_name(x->buffer)"),
    Figure(1150, "p *ctx", "1", "p ggml_backend_buffer_get_base(x->buffer) == x->data"),
    Figure(1229, "p *tensor", NAMED, "p *x"),
    Figure(1246, "p buffer->iface.init_tensor",
           "(void (*)(ggml_backend_buffer_t, struct ggml_tensor *)) … "
           "<ggml_backend_cuda_buffer_init_tensor(ggml_backend_buffer_t, ggml_tensor*)>",
           "p x->buffer->iface.init_tensor"),
    Figure(1285, "p tensor->view_src", "(struct ggml_tensor *) 0x0", "p x->view_src"),
    Figure(1287, "p ggml_is_quantized(tensor->type)", "false", "p ggml_is_quantized(x->type)"),
]  # fmt: skip
SCRIPTS = {"graph": ("2024-01", GRAPH), "halves": ("0.26", HALVES), "backend": ("2025-03", BACKEND)}
"""The ggml that decides, and what comes out."""

REFUSED = {
    "p notes_ptr": 'No symbol "notes_ptr" in current context.',
    "br backend.c:62": "No source file named backend.c; a line is an event here: `break 24`.",
    "list ggml.c:4188": "No source file named ggml.c; `list` shows nodes of the graph, `ptype struct NAME` a struct.",
}
"""Lines 286, 1038 and 399."""

_MADE = "contexts, tensors and graphs are made before the first point, so the functions that make them have no frames"
_SOURCE = "a line of ggml's source"
LEFT = {
    180: _MADE,
    **dict.fromkeys((327, 337, 346, 410, 426, 1082, 1102, 1111, 1129), _SOURCE),
    383: "where llama.cpp stands in its own program",
    386: "the stack of llama.cpp, above ggml_init",
    538: "0, as the table is not filled that far yet; here it is full, and the entry is 2.38418579e-07",
    744: "a step out of the function that makes a view: " + _MADE,
    1040: "prints nothing",
    1109: "prints nothing",
    1252: "ggml_backend_cuda_buffer_init_tensor: " + _MADE,
    1283: "the same as in line 1150, of which device = 0 is left: the struct is the CUDA backend's own",
}
"""The commands of seed 3 whose answers do not come out, by line. Seed 4 has none: it is a file of source."""


def answers_of(out: str) -> dict[str, list[str]]:
    """What each command printed, behind the number of the value."""
    answers: dict[str, list[str]] = {}
    for part in out.split("(ggml) ")[1:]:
        command, _, answer = part.partition("\n")
        answer = answer.rstrip("\n")
        answers.setdefault(command, []).append(answer.partition(" = ")[2] if answer[:1] == "$" else answer)
    return answers


def is_printed(prints: str, answer: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, prints.split("…"))), answer) is not None


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_session(call: Call, name: str) -> None:
    release, figures = SCRIPTS[name]
    script = SAMPLES / "sessions" / f"{name}.gdb"
    done = call("debug", "--ggml", release, "-q", "--batch", "--echo", "-x", script, ARENA)
    assert (done.status, done.err) == (0, "")
    check_golden(GOLDEN / f"{name}.txt", done.out)
    answers = answers_of(done.out)
    for line, command, prints, asks, nth in figures:
        answer = answers[asks or command][nth - 1]
        assert is_printed(prints, answer), f"line {line}: {command}: {answer}"


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(call: Call, command: str) -> None:
    done = call("debug", "-q", "--batch", *STARTED, "-ex", command, ARENA)
    assert (done.status, done.err.strip()) == (1, REFUSED[command])


@pytest.mark.parametrize("structs", ["2023-12", "2024-01"])
def test_structs_without_a_planner_are_refused_where_there_is_one(call: Call, structs: str) -> None:
    done = call("debug", "-q", "--batch", "-ex", f"symbol-file {structs}", ARENA)
    assert done.status == 1
    assert f"The structs of {structs} cannot show ggml 0.26" in done.err


def test_every_command_of_the_session_is_held_or_named() -> None:
    """It has 82 commands, and in line 273 the value that `finish` printed."""
    held = {figure.line for _, figures in SCRIPTS.values() for figure in figures}
    assert not held & set(LEFT)
    assert len(held | set(LEFT) | {286, 1038}) == 83
