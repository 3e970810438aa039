"""A session with gdb on the allocator and the scheduler, seed 2, typed into a real gdb on a real program whose ggml,
0.20.2, has no debug information.

The session is of the ggml of 2025; the fields that its structs and today's have both are compared. What cannot be
asked here is named with the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.attach.in_gdb import session
from tests.attach.printed import answers, different, parsed
from tests.attach.programs import python_program
from tests.cli.sessions import COMMANDS, FIGURES
from tests.needs import library, program

pytestmark = program("gdb", "gdb")

STATIC = "in a function that is static: gdb finds it with debug information alone"
NOT_YET = "today's allocator makes its first chunk when the first tensor comes"
ADDRESS = "it depends on the address of a tensor"
LEFT = {
    **dict.fromkeys((262, 267, 303, 319, 322, 480, 632), STATIC),
    **dict.fromkeys((276, 280, 283), NOT_YET),
    210: ADDRESS,
    1363: "ggml_graph_print writes to the program's log",
}
"""Commands whose figure is not asked for, and why."""
HASH_SET = {f"graph.visited_hash_set.{field}" for field in ("size", "used", "keys")}
OTHERWISE = {
    1311: {"flags"}, 826: {"flags"}, 1345: {"inputs", *HASH_SET},
    1393: {"context_buffer_size", "graph_inputs", "graph.size"},
}  # fmt: skip
"""Fields of a figure that have another value today: nodes that are computed have a flag, inputs of splits and of graphs
are arrays that grow, the view of a graph has a hash set, the graph of the scheduler a size."""


class Typed(NamedTuple):
    """A session whose sample the program plans, and what is typed: commands of gdb, and lines of the seed with what is
    asked for their figure."""

    session: str
    sample: str
    lines: list[str | tuple[int, str]]


PLACE = "*ggml_gallocr_hash_get({}, {})"
TYPED = [
    Typed(
        "allocator",
        "sample_graphs/allocator.yaml",
        [
            "break ggml_gallocr_reserve_n",
            "run",
            (69, "p galloc->n_nodes"),
            (71, "p graph->n_nodes"),
            (180, "p *a"),
            (199, "ptype struct hash_node *"),
            "delete",
            "finish",
            (213, "p " + PLACE.format("galloc", "a")),
            (662, "p " + PLACE.format("galloc", "a")),
            (397, "p graph->nodes[0]->src[0]->name"),
            (659, "p graph->nodes[0]->src[0]->name"),
            (410, "p ggml_op_can_inplace(mul->op)"),
            (583, "ptype *galloc->node_allocs"),
            (589, "ptype galloc->node_allocs[0].dst"),
            (596, "ptype galloc->leaf_allocs[0]"),
            (668, "p galloc->node_allocs[0].src[0]"),
            (674, "p galloc->node_allocs[0].src[1]"),
            (723, "p galloc->leaf_allocs[0]"),
            (725, "p galloc->leaf_allocs[1]"),
            (762, "p *galloc->buf_tallocs[0]->chunks[0]"),
            (793, "p *galloc->buffers[0]->chunks[0]"),
        ],
    ),
    Typed(
        "two-devices",
        "sample_graphs/sched-issue.yaml",
        [
            "tbreak ggml_backend_sched_reserve",
            "continue",
            "break ggml_gallocr_reserve_n",
            "continue",
            "ggml use",
            "delete",
            "finish",
            (478, "p graph->nodes[0]->src[0]->name"),
            (682, "p galloc->node_allocs[0]"),
            (814, "p galloc->n_buffers"),
            (826, "p *graph->nodes[0]"),
            (833, "p *graph->leafs[0]"),
            (838, "p *graph->leafs[1]"),
            "break ggml_gallocr_alloc_graph",
            "continue",
            (916, "p sched->node_backend_ids[0]"),
            (918, "p sched->prev_node_backend_ids[0]"),
            (920, "p sched->bufts[sched->node_backend_ids[0]]"),
            (922, "p sched->bufts[sched->prev_node_backend_ids[0]]"),
        ],
    ),
    Typed(
        "shared",
        "sample_graphs/sessions/shared.yaml",
        [
            "delete",
            "break ggml_backend_sched_alloc_graph",
            "continue",
            "continue",
            "delete",
            "ggml use",
            "finish",
            (1227, "p (char *) b->data - (char *) a->data"),
            (1229, "p (char *) b->data - (char *) a->data"),
            (1297, "p *a"),
            (1304, "p *b"),
            (1311, "p *mul"),
            *((n, f"p sched->hv_tensor_backend_ids[ggml_hash_find(&sched->hash_set, {t})]")
              for n, t in ((1322, "a"), (1324, "b"), (1326, "mul"))),
            *((n, "p " + PLACE.format("sched->galloc", t)) for n, t in ((1331, "a"), (1334, "b"), (1337, "mul"))),
            (1342, "p sched->n_splits"),
            (1345, "p sched->splits[0]"),
            (1393, "p *sched"),
            (1448, "p *sched->graph.nodes[0][0]->src[0]"),
        ],
    ),
]  # fmt: skip
"""In one program, one after the other; it ends with the last."""


def test_every_command_of_the_session_is_typed_or_named() -> None:
    typed = [line[0] for one in TYPED for line in one.lines if isinstance(line, tuple)]
    assert sorted([*typed, *LEFT]) == COMMANDS[2]


def test_figures_of_the_session_are_those_of_a_real_process() -> None:
    library("0.20.2")
    lines = [line for one in TYPED for line in one.lines]
    commands = [line if isinstance(line, str) else f"ggml {line[1]}" for line in lines]
    program = python_program(*(one.sample for one in TYPED))
    said = answers(session(program, *commands, first=["set auto-load python-scripts off"]))
    figures = {figure.line: figure.prints for one in TYPED for figure in FIGURES[one.session]}
    wrong = {}
    for line, answer in zip(lines, said, strict=True):
        if isinstance(line, tuple):
            fields = set(different(parsed(figures[line[0]]), parsed(answer)))
            if fields != OTHERWISE.get(line[0], set()):
                wrong[line[0]] = (fields, answer)
    assert not wrong
