"""What lies in a context's arena, as ggml_print_objects writes it."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.context.record import ContextDocument, ContextRow
from ggmltool.ggml.version import OBJECT_SIZE
from ggmltool.show.table import Style

_TYPES = {"tensor": 0, "graph": 1, "work_buffer": 2}
"""ggml_object_type."""
_CONTEXT_STRUCT = 64
"""How far before its pool the context's struct lies here; ggml has it wherever malloc put it."""


def contexts(answer: Answer[ContextDocument], _: Style) -> str:
    """ggml_print_objects of each context."""
    return "".join(map(print_objects, answer.facts.contexts))


def print_objects(ctx: ContextRow) -> str:
    """ggml_print_objects, byte for byte but for the addresses."""
    lines = [f"ggml_print_objects: objects in context {ctx.base - _CONTEXT_STRUCT:#x}:"]
    following = [f"{ctx.base + o.offset - OBJECT_SIZE:#x}" for o in ctx.objects[1:]] + ["(nil)"]
    for o, behind in zip(ctx.objects, following, strict=False):
        kind = _TYPES[o.type]
        lines.append(f" - ggml_object: type = {kind}, offset = {o.offset}, size = {o.size}, next = {behind}")
    return "\n".join([*lines, "ggml_print_objects: --- end ---"]) + "\n"
