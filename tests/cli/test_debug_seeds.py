"""Sessions with gdb that this debugger repeats: the same commands print the same figures, those of the session."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.cli.conftest import SAMPLES, Call
from tests.golden import check_golden

GOLDEN = Path(__file__).parent / "golden" / "sessions"
SESSIONS = SAMPLES / "sessions"


class Figure(NamedTuple):
    """What seed 2 prints at a line to `command`, typed for the `nth` time, behind the number of the value."""

    line: int
    command: str
    prints: str
    nth: int = 1


TABLE = "galloc->hash_values[ggml_hash({}) % galloc->hash_set->size]"
NOTHING = "{offset = 0, size = 0} <repeats 255 times>}"
FIGURES = [
    Figure(66, "p galloc->n_nodes", "0"),
    Figure(68, "p graph->n_nodes", "1"),
    Figure(
        276,
        "p *galloc.buf_tallocs[0]",
        f"{{alignment = 32, n_free_blocks = 1, free_blocks = {{{{offset = 0, size = 9223372036854775807}}, {NOTHING}, "
        "max_size = 0}",
    ),
    Figure(281, "p galloc.buf_tallocs[0]->n_free_blocks", "1"),
    Figure(284, "p galloc.buf_tallocs[0]->free_blocks[0]", "{offset = 0, size = 9223372036854775807}"),
    Figure(
        180,
        "p *node",
        "{type = GGML_TYPE_F32, backend = GGML_BACKEND_TYPE_CPU, buffer = 0x0, ne = {1, 1, 1, 1}, nb = {4, 4, 4, 4}, "
        "op = GGML_OP_NONE, op_params = {0 <repeats 16 times>}, flags = 1, src = {0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, "
        "0x0, 0x0, 0x0}, view_src = 0x0, view_offs = 0, data = 0x0, name = \"a\", '\\000' <repeats 62 times>, "
        'extra = 0x0, padding = "\\000\\000\\000\\000\\000\\000\\000"}',
    ),
    Figure(
        199,
        "ptype hn",
        "type = struct hash_node {\n    int n_children;\n    int n_views;\n    int buffer_id;\n    size_t offset;\n"
        "    _Bool allocated;\n} *",
    ),
    Figure(211, "p ggml_hash(node) % galloc->hash_set->size", "1"),
    Figure(263, "p *hn", "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}"),
    Figure(304, "p galloc.buf_tallocs[0].free_blocks[0]", "{offset = 32, size = 9223372036854775775}"),
    Figure(268, "p *hn", "{n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = true}", 2),
    Figure(320, f"p {TABLE.format('graph->leafs[0]')}",
           "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}"),
    Figure(323, f"p {TABLE.format('graph->leafs[1]')}",
           "{n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = true}"),
    Figure(398, "p parent->name", "\"a\", '\\000' <repeats 62 times>"),
    Figure(411, "p ggml_op_can_inplace(node->op)", "true"),
    Figure(1332, f"p {TABLE.format('a')}",
           "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = false}"),
    Figure(1335, f"p {TABLE.format('b')}",
           "{n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = false}"),
    Figure(1338, f"p {TABLE.format('mul')}",
           "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}"),
    Figure(570, "ptype galloc->node_allocs[0].dst",
           "type = struct tensor_alloc {\n    int buffer_id;\n    size_t offset;\n    size_t size_max;\n}"),
    Figure(669, "p galloc->node_allocs[0].src[0]", "{buffer_id = 0, offset = 0, size_max = 4}"),
    Figure(675, "p galloc->node_allocs[0].src[1]", "{buffer_id = 0, offset = 32, size_max = 4}"),
    Figure(724, "p galloc->leaf_allocs[0]", "{leaf = {buffer_id = 0, offset = 0, size_max = 4}}"),
    Figure(726, "p galloc->leaf_allocs[1]", "{leaf = {buffer_id = 0, offset = 32, size_max = 4}}"),
    Figure(
        763,
        "p *galloc->buf_tallocs[0]",
        f"{{alignment = 32, n_free_blocks = 1, free_blocks = {{{{offset = 32, size = 9223372036854775775}}, {NOTHING}, "
        "max_size = 64}",
    ),
]  # fmt: skip


def test_the_walk_through_of_the_allocator(call: Call) -> None:
    script = SESSIONS / "allocator.gdb"
    done = call("debug", "--ggml", "2025-03", "--batch", "--echo", "-x", script, SAMPLES / "allocator.yaml")
    assert done.status == 0
    check_golden(GOLDEN / "allocator.txt", done.out)
    answers: dict[str, list[str]] = {}
    for part in done.out.split("(ggml) ")[1:]:
        command, _, answer = part.partition("\n")
        answers.setdefault(command, []).append(answer.rstrip("\n").partition(" = ")[2] if answer[:1] == "$" else answer)
    for line, command, prints, nth in FIGURES:
        assert answers[command][nth - 1].rstrip("\n") == prints, f"line {line}: {command}"
