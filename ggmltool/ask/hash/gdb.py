"""The hash tables, struct by struct as gdb prints them."""

from __future__ import annotations

from ggmltool.ask.answer import Answer
from ggmltool.ask.hash.record import HashTable, SchedTable
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.show.gdb import Printed, Value, gdb_session
from ggmltool.show.table import Style


def hash_table(answer: Answer[HashTable], style: Style) -> str:
    """galloc->hash_values of every tensor."""
    fields = BY_NAME[answer.facts.ggml].struct_fields("hash_node")
    prints = []
    for node in answer.facts.nodes:
        struct: dict[str, Value] = {
            "n_children": str(node.n_children),
            "n_views": str(node.n_views),
            "buffer_id": str(node.buffer_id),
            "addr": {"chunk": str(node.chunk), "offset": str(node.offset)},
            "offset": str(node.offset),
            "allocated": "true" if node.allocated else "false",
        }
        value = {field: struct[field] for field in fields}
        prints.append(Printed(f"galloc->hash_values[{node.slot}]", value, node.tensor))
    return gdb_session(prints, style.width)


def sched_table(answer: Answer[SchedTable], style: Style) -> str:
    """The plain fields of struct ggml_backend_sched, and what it knows of each tensor: nothing more after a reset."""
    s = answer.facts
    prints = [Printed(f"sched->{name}", str(value).lower()) for name, value in s.fields.items()]
    for array, ids in s.id_arrays.items():
        notes = [*s.nodes, *[""] * len(ids)]
        prints += [Printed(f"sched->{array}[{i}]", str(id), notes[i]) for i, id in enumerate(ids)]
    for row in s.tensors:
        id = -1 if row.backend is None or s.is_reset else s.backends.index(row.backend)
        prints.append(Printed(s.id_of_tensor, str(id), row.tensor))
    return gdb_session(prints, style.width)
