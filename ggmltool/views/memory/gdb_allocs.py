"""The tables of allocator and scheduler, struct by struct as gdb prints them.

`chunked` is whether the buffers of the release that is looked at have chunks: an offset has a chunk beside it then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.ggml.vbuffer import INVALID, TensorAlloc
from ggmltool.ggml.version import SIZE_MAX
from ggmltool.inspect.allocations import ChunkState, HashNode
from ggmltool.inspect.allocator import AllocRow
from ggmltool.inspect.hash_tables import HashRow, SchedRow
from ggmltool.views.memory.gdb import Printed, Value


def hash_prints(rows: Sequence[HashRow], fields: Sequence[str]) -> Iterator[Printed]:
    """galloc->hash_values of every tensor; struct hash_node has these `fields`."""
    for row in rows:
        yield Printed(f"galloc->hash_values[{row.slot}]", _hash_node(row.node, fields), row.tensor)


def sched_prints(fields: Mapping[str, int | bool], notes: Sequence[str] = ()) -> Iterator[Printed]:
    """Plain fields of a scheduler, by name; `notes` say of which tensor each is."""
    for i, (name, value) in enumerate(fields.items()):
        yield Printed(f"sched->{name}", str(value).lower(), notes[i] if i < len(notes) else "")


def alloc_prints(
    nodes: Sequence[AllocRow], leafs: Sequence[AllocRow], n_buffers: int, chunked: bool
) -> Iterator[Printed]:
    """The plan of a graph allocator: its counts, node_allocs and leaf_allocs."""
    yield Printed("galloc->n_buffers", str(n_buffers))
    yield Printed("galloc->n_nodes", str(len(nodes)))
    yield Printed("galloc->n_leafs", str(len(leafs)))
    for i, row in enumerate(nodes):
        yield Printed(f"galloc->node_allocs[{i}]", _node_alloc(row, chunked), row.tensor)
    for i, row in enumerate(leafs):
        yield Printed(f"galloc->leaf_allocs[{i}]", {"leaf": _tensor_alloc(row.place, chunked)}, row.tensor)


class TallocrState(NamedTuple):
    """A planner at a moment: its expression, its buffer type, and its chunks.

    `unused` is for each chunk how many entries of its array of free blocks were never in use, behind those that are;
    None where others were in use and something is left over there.
    """

    expression: str
    buft: str
    alignment: int
    chunks: tuple[ChunkState, ...]
    unused: tuple[int | None, ...]


def tallocr_prints(tallocrs: Iterable[TallocrState], chunked: bool) -> Iterator[Printed]:
    """The planners, with their chunks where there are any.

    Where something is left over behind the free blocks, those alone are shown.
    """
    for name, buft, alignment, chunks, unused in tallocrs:
        if chunked:
            yield Printed(f"{name}->n_chunks", str(len(chunks)), buft)
        for c, (free, max_size) in enumerate(chunks):
            n_free, most = {"n_free_blocks": str(len(free))}, {"max_size": str(max_size)}
            array: list[Value] = [{"offset": str(block.offset), "size": str(block.size)} for block in free]
            array += [{"offset": "0", "size": "0"}] * (unused[c] or 0)
            blocks = {"free_blocks": array}
            if chunked:
                yield Printed(f"*{name}->chunks[{c}]", {**blocks, **n_free, **most}, buft)
            else:
                yield Printed(f"*{name}", {"alignment": str(alignment), **n_free, **blocks, **most}, buft)


def _hash_node(node: HashNode, fields: Sequence[str]) -> Value:
    struct: dict[str, Value] = {
        "n_children": str(node.n_children),
        "n_views": str(node.n_views),
        "buffer_id": str(node.buffer_id),
        "addr": {"chunk": str(node.chunk), "offset": str(node.offset)},
        "offset": str(node.offset),
        "allocated": "true" if node.allocated else "false",
    }
    return {field: struct[field] for field in fields}


def _node_alloc(row: AllocRow, chunked: bool) -> Value:
    src = [place for _, place in row.sources]
    src += [INVALID] * (MAX_SRC - len(src))
    return {"dst": _tensor_alloc(row.place, chunked), "src": [_tensor_alloc(place, chunked) for place in src]}


def _tensor_alloc(place: TensorAlloc, chunked: bool) -> Value:
    return {
        "buffer_id": str(place.buffer_id),
        **_address(place.chunk, place.offset, chunked),
        "size_max": str(place.size_max),
    }


def _address(chunk: int, offset: int, chunked: bool) -> dict[str, Value]:
    at = str(offset % (SIZE_MAX + 1))
    return {"addr": {"chunk": str(chunk), "offset": at}} if chunked else {"offset": at}


def sched_table_prints(s: AnyScheduler, rows: Sequence[SchedRow]) -> Iterator[Printed]:
    """The plain fields of struct ggml_backend_sched, and what it knows of each tensor: nothing more after a reset."""
    yield from sched_prints(s.fields())
    for array, ids in s.id_arrays().items():
        yield from sched_prints({f"{array}[{i}]": id for i, id in enumerate(ids)}, [n.label for n in s.nodes])
    for row in rows:
        id = -1 if row.backend is None or s.is_reset else s.names.index(row.backend)
        yield Printed(s.id_of_tensor, str(id), row.tensor)
