"""Sessions with gdb on contexts, tensors and buffers (seed 3) and down to a device's functions (seeds 0 and 1), typed
into one real gdb on two real programs in C. They have debug information, their ggml, 0.20.2, has none.

Seed 3 is of the ggml of 2023 and 2024, the others of 2025; what is otherwise today is named with the reason. The device
has the functions of CUDA's by name. Seed 4 is a file of source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from tests.attach.in_gdb import session
from tests.attach.printed import answers, different, parsed
from tests.attach.programs import c_program
from tests.cli import sessions
from tests.cli.sessions import is_printed
from tests.needs import made, program

pytestmark = program("gdb", "gdb")

Line = str | tuple[int, str]
TABLE = "ggml_table_f32_f16"
CONTEXTS: list[Line] = [
    "file {contexts}",
    "break in_context",
    "break viewed",
    "break before",
    "break in_buffer",
    "run",
    (145, "ggml p *(struct ggml_object*) ctx->mem_buffer"),
    (147, "ggml p sizeof(struct ggml_object)"),
    (197, "ggml p ctx->mem_buffer"),
    (199, "ggml p ctx->objects_begin"),
    (201, "ggml p ctx->objects_begin->offs"),
    (224, "ggml ptype struct ggml_cgraph"),
    (239, "ggml p *cgraph"),
    (250, "ggml p sizeof(struct ggml_cgraph)"),
    (252, "ggml p cgraph"),
    (254, "ggml p cgraph + 1"),
    (256, "ggml p 0x7ffff6ba0080 - 0x7ffff6ba0030"),
    (273, "ggml p ggml_hash_size(cgraph->size * 2)"),
    (279, "ggml p sizeof(struct ggml_tensor**)"),
    (281, "ggml p cgraph->size * 8"),
    (284, "ggml p cgraph->leafs"),
    (286, "ggml p notes_ptr"),
    (288, "ggml p cgraph->nodes"),
    (290, "ggml p (char *) cgraph->leafs - (char *) cgraph->nodes"),
    (371, "ggml p sizeof(struct ggml_tensor)"),
    (373, "ggml p ggml_nbytes(a)"),
    (375, "ggml p sizeof(struct ggml_tensor) + ggml_nbytes(a)"),
    (391, "ggml p ggml_init"),
    (449, "ggml ptype ggml_fp16_t"),
    (451, "ggml p sizeof(ggml_fp16_t)"),
    (458, "ggml p/d (1 << 16)"),
    (460, "ggml p/t (1 << 16)"),
    *((n, f"ggml p {TABLE}[{i}]") for n, i in ((526, 0), (529, 1), (532, 2), (535, 3), (548, 1), (573, 2), (616, 3))),
    (545, f"ggml x/tw {TABLE}"),
    (550, f"ggml x/tw {TABLE} +  1"),
    (612, f"ggml x/tw {TABLE} + 2"),
    (619, f"ggml p/t {TABLE}[3]"),
    "continue",
    (742, "p a"),
    "up",
    (689, "ggml p *x"),
    *((n, f"ggml p ((float*) x->data)[{i}]") for n, i in ((698, 0), (700, 1), (702, 2), (704, 4), (706, 3), (708, 9))),
    (735, "ggml p view->view_offs / ggml_type_size(view->type)"),
    (986, "p x"),
    (988, "p/r *x"),
    (1000, "p x.buffer"),
    "down",
    (745, "p a"),
    "continue",
    (1069, "ggml p *first"),
    (1094, "ggml p first->data"),
    (1096, "ggml p first->view_src"),
    "continue",
    (1229, "ggml p *tensor"),
    (1285, "ggml p tensor->view_src"),
    (1287, "ggml p ggml_is_quantized(tensor->type)"),
    (1064, "ggml p ggml_backend_buft_get_alignment(buffer->buft)"),
    (1066, "ggml p ggml_backend_buft_get_max_size(buffer->buft)"),
    (1099, "ggml p ggml_backend_buffer_get_size(buffer)"),
    "kill",
]
SHOWN = "p graph != 0"
"""Behind the instructions that put them into the frame, arguments are what they were given."""
DEVICES: list[Line] = [
    "file {priority}",
    "delete",
    "tbreak ggml_backend_sched_alloc_graph",
    "run any",
    "tbreak ggml_backend_cuda_device_supports_buft",
    "continue",
    (94, "bt"),
    "tbreak ggml_backend_cuda_buffer_set_tensor",
    "continue",
    (200, "bt"),
    "tbreak ggml_backend_sched_graph_compute",
    "continue",
    "tbreak ggml_backend_cuda_buffer_set_tensor",
    "continue",
    (211, "bt"),
    "tbreak ggml_backend_graph_compute_async",
    "continue",
    (43, "bt"),
    "ggml break node_0",
    "continue",
    (81, "bt"),
    SHOWN,
    "delete",
    (222, "c"),
]

NEVER = sessions.LEFT[3]
SEED_3 = [f for figures in sessions.FIGURES.values() for f in figures if f.seed == 3]
FIGURES: Mapping[int, str] = {
    286: 'No symbol "notes_ptr" in current context, and no tensor of this name in the graph.',
    **{f.line: f.prints.replace("= …'\\000' <repeats … times>", "= '\\000' <repeats 63 times>") for f in SEED_3[::-1]},
}
"""What seed 3 prints, of several figures of a line the first."""
STACKS = {f.line: f.prints for figures in sessions.FIGURES.values() for f in figures if f.seed == 1}
OTHERWISE = {145: {"size", "next", "type"}, 224: {""}, 250: {""}, 371: {""}, 375: {""}}
"""Fields of a figure, or all of it, that are others today: a graph has use counts, and a bitmap beside its hash set, a
tensor has no times and no gradient, and the session looks before the context gets another object."""
LEFT = {
    **NEVER,
    66: "a variable in ggml_new_graph_custom: gdb finds it with debug information alone",
    399: "a line of ggml's source",
    998: "tensors have had no backend since 2024-12",
    1038: "a line of the session's own program",
    **dict.fromkeys((1150, 1246), "of CUDA's own functions and structs"),
}
EMPTY = {50, 89, 108, 207}
STATIC = {51}
"""ggml_backend_cpu_graph_compute: gdb finds it with debug information alone."""
NO_FRAME = {
    "ggml_backend_sched_compute_splits", "ggml_backend_sched_backend_from_buffer",
    "ggml_backend_sched_backend_id_from_cur", "ggml_backend_sched_split_graph", "ggml_backend_tensor_set",
    "ggml_backend_tensor_copy", "ggml_backend_dev_supports_buft", "ggml_backend_supports_buft",
    "ggml_backend_graph_compute_async", "ggml_backend_buft_is_cuda_split",
}  # fmt: skip
"""Functions that the compiler has put into their callers, that end by a jump into another, or that are CUDA's own."""
_FRAME = re.compile(r"^#\d+ +(?:0x[0-9a-f]+ in )?(\w+) \((.*?)\)", re.MULTILINE)


def test_every_command_of_the_sessions_is_typed_or_named() -> None:
    typed = {n for n, _ in _typed(CONTEXTS)}
    assert typed | LEFT.keys() == FIGURES.keys() | NEVER.keys() | {1038}
    assert not typed & LEFT.keys()
    for seed in (0, 1):
        assert {n for n, _ in _typed(DEVICES)} | EMPTY | STATIC >= set(sessions.COMMANDS[seed])


def _typed(lines: list[Line]) -> Iterator[tuple[int, str]]:
    return (line for line in lines if isinstance(line, tuple))


def test_figures_of_the_sessions_are_those_of_real_processes() -> None:
    programs = {name: made(partial(c_program, source=name, debug=True)) for name in ("contexts", "priority")}
    commands = [line if isinstance(line, str) else line[1] for line in (*CONTEXTS, *DEVICES)]
    filled = [command.format(**programs) if command[:5] == "file " else command for command in commands]
    said = list(answers(session(["/bin/true"], *filled)))
    assert len(said) == len(commands)
    wrong = {}
    for line, answer in zip(CONTEXTS, said, strict=False):
        if isinstance(line, tuple) and _others(FIGURES[line[0]], answer) != OTHERWISE.get(line[0], set()):
            wrong[line[0]] = answer
    for line, answer in zip(DEVICES, said[len(CONTEXTS) :], strict=True):
        if isinstance(line, tuple) and line[0] != 222 and not _is_stack(STACKS[line[0]], answer):
            wrong[line[0]] = answer
    assert not wrong
    assert said[commands.index(SHOWN)].endswith(" = 1")
    assert "exited normally" in said[-1]


def _others(figure: str, answer: str) -> set[str]:
    """The fields that are not those of the figure."""
    answer = re.sub(r"^\$\d+ = ", "", answer)
    if is_printed(figure, answer):
        return set()
    return set(different(parsed(figure), parsed(answer)))


def _is_stack(figure: str, answer: str) -> bool:
    """Whether the calls of a figure are on the stack in their order, but for those without a frame; what is copied has
    the same size."""
    frames = _FRAME.findall(answer)
    shown = [name for name, _ in frames][: [name for name, _ in frames].index("compute")]
    calls = [line.partition(" (")[0] for line in figure.splitlines()]
    sizes = re.findall(r"=(\d+)\b", figure.splitlines()[0])
    return [call for call in calls if call in shown or call not in NO_FRAME] == shown and re.findall(
        r"=(\d+)\b(?!x)", frames[0][1]
    )[-2:] == sizes
