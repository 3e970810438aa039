"""Expressions over the walk-through sample print what gdb printed of that program."""

from __future__ import annotations

import pytest

import ggmltool
from ggmltool.debugger.expressions import ExpressionError, Scope, complete, evaluate, examine, truth, type_text
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.ggml.events import Allocated
from ggmltool.inspect.history.history import History, record_history


@pytest.fixture(scope="module")
def history() -> History:
    return record_history(ggmltool.load("allocator", ggml="2025-03"))


@pytest.fixture
def scope(history: History) -> Scope:
    """Right after the allocator gave b its memory, as the structs of January 2025 have it."""
    at = next(i for i, p in enumerate(history.points) if isinstance(p.event, Allocated) and p.event.tensor == "b")
    return Scope(history, at, structs="2025-01")


PRINTED = {
    "*hn": "{n_children = 0, n_views = 0, buffer_id = 0, offset = 32, allocated = true}",
    "*a": (
        "{type = GGML_TYPE_F32, backend = GGML_BACKEND_TYPE_CPU, buffer = 0x0, ne = {1, 1, 1, 1}, nb = {4, 4, 4, 4}, "
        "op = GGML_OP_NONE, op_params = {0 <repeats 16 times>}, flags = 1, src = {0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0, "
        "0x0, 0x0, 0x0}, view_src = 0x0, view_offs = 0, data = 0x0, name = \"a\", '\\000' <repeats 62 times>, "
        'extra = 0x0, padding = "\\000\\000\\000\\000\\000\\000\\000"}'
    ),
    "*galloc.buf_tallocs[0]": (
        "{alignment = 32, n_free_blocks = 1, free_blocks = {{offset = 64, size = 9223372036854775743}, "
        "{offset = 0, size = 0} <repeats 255 times>}, max_size = 64}"
    ),
    "ggml_hash(a) % galloc->hash_set->size": "1",
    "galloc->hash_values[ggml_hash(a) % galloc->hash_set->size]": (
        "{n_children = 0, n_views = 0, buffer_id = 0, offset = 0, allocated = true}"
    ),
    "sched->hv_tensor_backend_ids[ggml_hash(mul) % sched->hash_set->size]": "0",
    "ggml_op_can_inplace(mul->op)": "true",
    "graph->leafs[1]->name": "\"b\", '\\000' <repeats 62 times>",
    "sched->bufts[sched->node_backend_ids[0]]": (
        "(ggml_backend_buffer_type_t) 0x7ffff7f40000 <ggml_backend_cpu_buffer_type::ggml_backend_cpu_buffer_type>"
    ),
    "sizeof(struct ggml_object)": "32",
    'strcmp(a->name, "a") == 0 && a->name == "a"': "1",
    "(char *) b - (char *) a": "368",
}


@pytest.mark.parametrize("text", PRINTED)
def test_what_gdb_printed(scope: Scope, text: str) -> None:
    assert formatted(evaluate(text, scope)) == PRINTED[text]


def test_a_struct_with_its_fields(scope: Scope) -> None:
    assert type_text("hn", scope) == (
        "type = struct hash_node {\n    int n_children;\n    int n_views;\n    int buffer_id;\n    size_t offset;\n"
        "    _Bool allocated;\n} *"
    )


def test_memory_in_units(scope: Scope) -> None:
    assert examine("2dg", "a->ne", scope)[0] == "0x555500000030:\t1\t1"


def test_a_condition(scope: Scope) -> None:
    assert truth("hn->offset == 32", scope)
    assert not truth("sched->n_splits > 1", scope)


def test_what_can_follow(scope: Scope) -> None:
    assert complete("galloc->n_", scope) == ["galloc->n_buffers", "galloc->n_leafs", "galloc->n_nodes"]
    assert complete("1 + ga", scope) == ["1 + galloc"]


ERRORS = {
    "notes_ptr": 'No symbol "notes_ptr" in current context.',
    "a->nope": "There is no member named nope.",
    "*a->view_src": "Cannot access memory at address 0x0",
    "1 +": "A syntax error in expression, near `'.",
    "(struct nope *) a": "No struct type named nope.",
    "1 / 0": "Division by zero",
    "*a + 1": "Structure has no component named operator+.",
    "a = b": "Left operand of assignment is not an lvalue.",
    "a->flags = 2": "Cannot access memory at address 0x",
    "$3": "History has not yet reached $3.",
}


@pytest.mark.parametrize("text", ERRORS)
def test_what_gdb_says_of_a_mistake(scope: Scope, text: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        formatted(evaluate(text, scope))
    assert str(raised.value).startswith(ERRORS[text])
