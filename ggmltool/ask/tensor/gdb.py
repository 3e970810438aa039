"""One tensor, as gdb prints its struct ggml_tensor."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.tensor.record import GdbFacts, TensorDocument, TensorRow
from ggmltool.ggml.tensor import FLAG_PARAM, MAX_NAME, MAX_OP_PARAMS, MAX_SRC
from ggmltool.show.gdb import Value, char_array, gdb_value
from ggmltool.show.table import Style


def tensor(answer: Answer[TensorDocument], style: Style) -> str:
    """The struct as gdb's `print *t` writes it."""
    return struct_text(answer.facts.tensor, answer.facts.gdb, style.width)


def struct_text(t: TensorRow, facts: GdbFacts, width: int) -> str:
    """A tensor's struct in lines of at most `width` columns."""
    params = t.op_params + [0] * (MAX_OP_PARAMS - len(t.op_params))
    src = [*facts.src, *[0] * (MAX_SRC - len(facts.src))]
    struct: dict[str, Value] = {
        "type": f"GGML_TYPE_{t.type.upper()}",
        "backend": "GGML_BACKEND_GPU" if facts.gpu else "GGML_BACKEND_CPU",
        "buffer": f"{facts.buffer:#x}",
        "ne": [str(n) for n in t.ne],
        "nb": [str(n) for n in t.nb],
        "op": f"GGML_OP_{t.op}",
        "op_params": [str(word) for word in params],
        "flags": str(facts.flags),
        "is_param": "true" if facts.flags & FLAG_PARAM else "false",
        "grad": "0x0",
        "src": [f"{p:#x}" for p in src],
        "perf_runs": "0",
        "perf_cycles": "0",
        "perf_time_us": "0",
        "view_src": f"{facts.view_src:#x}",
        "view_offs": str(t.view_offs),
        "data": f"{t.data:#x}",
        "name": char_array(t.name.encode("utf-8", "surrogateescape"), MAX_NAME),
        "extra": f"{facts.extra:#x}",
        "padding": char_array(b"", 8),
    }
    return gdb_value({field: struct[field] for field in facts.fields}, width)


def signed(word: int) -> int:
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word >> 31 else word
