"""The sessions with gdb, typed into a real gdb on real programs whose ggml, 0.20.2, has no debug information.

The sessions are of the ggml of 2025; the fields that its structs and today's have both are compared. What cannot be
asked here is named with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.attach.in_gdb import session
from tests.attach.programs import python_program
from tests.cli.test_debug_seeds import ALLOCATOR, COMMANDS, SHARED, TWO_DEVICES, Figure
from tests.needs import library, program

pytestmark = program("gdb", "gdb")

STATIC = "in a function that is static: gdb finds it with debug information alone"
NOT_YET = "today's allocator makes its first chunk when the first tensor comes"
ADDRESS = "it depends on the address of a tensor"
DEVICE = "the stack of a CUDA device's functions, and where gdb itself says it stands"
LEFT: Mapping[int, Mapping[int, str]] = {
    0: dict.fromkeys(COMMANDS[0], DEVICE),
    1: dict.fromkeys(COMMANDS[1], DEVICE),
    2: {
        **dict.fromkeys((262, 267, 303, 319, 322, 480, 632), STATIC),
        **dict.fromkeys((276, 280, 283), NOT_YET),
        210: ADDRESS,
        1363: "ggml_graph_print writes to the program's log",
    },
}
HASH_SET = {f"graph.visited_hash_set.{field}" for field in ("size", "used", "keys")}
OTHERWISE = {
    1311: {"flags"}, 826: {"flags"}, 1345: {"inputs", *HASH_SET},
    1393: {"context_buffer_size", "graph_inputs", "graph.size"},
}  # fmt: skip
"""Fields of a figure that have another value today: nodes that are computed have a flag, inputs of splits and of graphs
are arrays that grow, the view of a graph has a hash set, the graph of the scheduler a size."""


class Typed(NamedTuple):
    """A program, and what is typed: commands of gdb, and lines of the seed with what is asked for their figure."""

    sample: str
    figures: list[Figure]
    lines: list[str | tuple[int, str]]


PLACE = "*ggml_gallocr_hash_get({}, {})"
TYPED = {
    "allocator": Typed(
        "sample_graphs/allocator.yaml",
        ALLOCATOR,
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
    "shared": Typed(
        "sample_graphs/sessions/shared.yaml",
        SHARED,
        [
            "break ggml_backend_sched_alloc_graph",
            "run",
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
    "two devices": Typed(
        "sample_graphs/sched-issue.yaml",
        TWO_DEVICES,
        [
            "break ggml_gallocr_reserve_n",
            "run",
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
}  # fmt: skip


def test_every_command_of_the_sessions_is_typed_or_named() -> None:
    typed = [line[0] for one in TYPED.values() for line in one.lines if isinstance(line, tuple)]
    assert sorted([*typed, *LEFT[2]]) == COMMANDS[2]
    assert {number: sorted(LEFT[number]) for number in (0, 1)} == {number: COMMANDS[number] for number in (0, 1)}


@pytest.mark.parametrize("name", TYPED)
def test_figures_of_a_session_are_those_of_a_real_process(name: str) -> None:
    library("0.20.2")
    one = TYPED[name]
    commands = [line if isinstance(line, str) else f"ggml {line[1]}" for line in one.lines]
    said = session(python_program(one.sample), *commands, first=["set auto-load python-scripts off"])
    answers = dict(zip((line for line in one.lines), _answers(said), strict=True))
    figures = {figure.line: figure.prints for figure in one.figures}
    wrong = {}
    for line, answer in answers.items():
        if isinstance(line, tuple):
            number = line[0]
            fields = set(different(parsed(figures[number]), parsed(answer)))
            if fields != OTHERWISE.get(number, set()):
                wrong[number] = (fields, answer)
    assert not wrong


def _answers(said: str) -> Iterator[str]:
    for part in said.split("(gdb) ")[1:]:
        yield part.partition("\n")[2].rstrip("\n")


_POINTER = re.compile(r"0x[1-9a-f][0-9a-f]*(?: <[^>]*>)?(?: \"\")?")
Parsed = str | dict[str, "Parsed"] | list["Parsed"]


def parsed(text: str) -> Parsed:
    """A value as gdb prints it: structs by field, those inside of an address spread out; pointers are all alike."""
    text = _POINTER.sub("0x1", text).strip()
    if text.startswith("type = "):
        return text.replace("    size_t offset;\n", "").replace("    struct buffer_address addr;\n", "")
    if not (text.startswith("{") and text.endswith("}")):
        return text
    parts = list(_parts(text[1:-1]))
    if re.match(r"\w+ = ", parts[0]):
        out: dict[str, Parsed] = {}
        for part in parts:
            field, _, value = part.partition(" = ")
            inner = parsed(value)
            if field in ("addr", "leaf") and isinstance(inner, dict):
                out.update(inner)
            else:
                out[field] = inner
        return out
    return [parsed(part) for part in parts]


def _parts(text: str) -> Iterator[str]:
    """What commas part that stand in no braces and no quotes."""
    depth, start, quoted = 0, 0, False
    for i, char in enumerate(text):
        quoted ^= char == '"'
        depth += 0 if quoted else {"{": 1, "}": -1}.get(char, 0)
        # A text goes on behind a comma: "a", '\\000' <repeats 62 times>.
        if char == "," and not depth and not quoted and not text[i + 1 :].lstrip().startswith("'"):
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()


def different(figure: Parsed, answer: Parsed, path: str = "") -> Iterator[str]:
    """The fields that both have, and that are not the same."""
    if isinstance(figure, dict) and isinstance(answer, dict):
        assert figure.keys() & answer.keys(), f"{figure} has nothing of {answer}"
        for field in figure.keys() & answer.keys():
            yield from different(figure[field], answer[field], f"{path}.{field}" if path else field)
    elif isinstance(figure, list) and isinstance(answer, list) and len(figure) == len(answer):
        for one, other in zip(figure, answer, strict=True):
            yield from different(one, other, path)
    elif figure != answer:
        yield path
