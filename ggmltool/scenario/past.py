"""The state that a scheduler has when the first step comes, as a scenario says it: `past` under `scheduler`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Annotated, Any

from msgspec import Meta

from ggmltool.ggml.alloc.common import INVALID, NodeAlloc, TensorAlloc
from ggmltool.ggml.sched.past import Past, PastCopy
from ggmltool.ggml.state import ChunkState, FreeBlock
from ggmltool.ggml.version import SCHED_MAX_COPIES, SIZE_MAX, VBUFFER_MAX_CHUNKS
from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.values import (
    Bool,
    Keys,
    as_int,
    as_list,
    as_map,
    as_size,
    as_word,
    at,
    check_keys,
    key_names,
    read_keys,
)

MOST_NODES = 1_000_000
"""Nodes, and leafs, of the scheduler's own graph."""
_NONE = -1
_CHUNK = VBUFFER_MAX_CHUNKS - 1
"""The last chunk's number."""

Natural = Annotated[int, Meta(ge=0)]

MOST_SLOTS = 1_000_000
"""Tensors in the scheduler's arena."""


Place = Annotated[list[Natural], Meta(min_length=4, max_length=4)] | None
Runs = list[tuple[str | None, Annotated[int, Meta(ge=1)]]]
Block = Annotated[list[Natural], Meta(min_length=2, max_length=2)]
Chunks = Meta(max_length=VBUFFER_MAX_CHUNKS)
Copy = Annotated[list[Natural], Meta(min_length=1, max_length=3)] | None
CopyNumber = Annotated[int, Meta(ge=0, le=SCHED_MAX_COPIES - 1)]
MOST_ROOM = 1 << 40
GraphSize = Annotated[int, Meta(ge=0, le=MOST_ROOM)]


class PastKeys(Keys):
    """What a scheduler has when the first step comes."""

    is_reset: Bool | None = None
    is_alloc: Bool | None = None
    cur_copy: CopyNumber | None = None
    next_copy: CopyNumber | None = None
    node_ids: Runs | None = None
    leaf_ids: Runs | None = None
    prev_node_ids: Runs | None = None
    prev_leaf_ids: Runs | None = None
    nodes: list[Annotated[list[Place], Meta(min_length=1)]] | None = None
    leafs: list[Place] | None = None
    planners: dict[str, Annotated[list[tuple[Natural, list[Block]]], Chunks]] | None = None
    buffers: dict[str, Annotated[list[int | str], Chunks]] | None = None
    hash_size: GraphSize | None = None
    own_size: GraphSize | None = None
    graph_inputs_capacity: GraphSize | None = None
    inputs_capacity: Annotated[list[GraphSize], Meta(max_length=MOST_NODES)] | None = None
    copies: dict[str, dict[str, Annotated[list[Copy], Chunks]]] | None = None


def read_past(value: object, backends: tuple[str, ...]) -> Past:
    """The map `past` of a scheduler over these backends. Raises Mistake."""
    given = as_map(value, "past")
    check_keys(given, key_names(PastKeys), "past")

    def runs(v: object) -> tuple[int, ...]:
        out: list[int] = []
        for i, item in enumerate(as_list(v, "a list of backends")):
            out += at(i, _run, item, backends, MOST_NODES - len(out))
        return tuple(out)

    def place(v: object) -> TensorAlloc:
        return _place(v, len(backends))

    def node(v: object) -> NodeAlloc:
        dst, *srcs = _each(v, "a node", place, 64) or [INVALID]
        return dst, tuple(srcs)

    said = read_keys(
        given,
        PastKeys,
        node_ids=runs,
        leaf_ids=runs,
        prev_node_ids=runs,
        prev_leaf_ids=runs,
        nodes=lambda v: tuple(_each(v, "nodes", node)),
        leafs=lambda v: tuple(_each(v, "leafs", place)),
        planners=lambda v: _chunks(v, backends, _chunk, ()),
        buffers=lambda v: _chunks(v, backends, lambda size: as_size(size, "a buffer"), None),
        inputs_capacity=lambda v: tuple(_each(v, "inputs_capacity", _room)),
        copies=lambda v: _copies(v, backends),
    )
    return Past(backends, **said)


def _each(value: object, what: str, convert: Callable[[Any], Any], most: int = MOST_NODES) -> list[Any]:
    items = as_list(value, what)
    if len(items) > most:
        raise Mistake(f"{what} has {len(items)} items", f"at most {most} are allowed")
    return [at(i, convert, item) for i, item in enumerate(items)]


def _room(value: object) -> int:
    return as_int(value, "a room for inputs", 0, MOST_ROOM)


def _parts(value: object, what: str, numbers: tuple[int, ...], are: str, hint: str) -> list[Any]:
    """A list with one of these numbers of parts, which messages call `are`."""
    items = as_list(value, what)
    if len(items) not in numbers:
        raise Mistake(f"{what} has {are}, not {len(items)}", hint)
    return items


def _run(value: object, backends: Sequence[str], room: int) -> list[int]:
    name, n = _parts(value, "a run", (2,), "two parts", "for example [CPU, 12]")
    backend = _NONE if name is None else backends.index(at(0, as_word, name, "a backend", backends))
    return [backend] * at(1, as_int, n, "how many", 1, room)


def _place(value: object, n_backends: int) -> TensorAlloc:
    if value is None:
        return INVALID
    items = _parts(value, "a place", (4,), "four numbers", "[backend, chunk, offset, bytes]")
    whats = (("a backend's number", n_backends - 1), ("a chunk", _CHUNK), ("bytes", SIZE_MAX), ("bytes", SIZE_MAX))
    return TensorAlloc(*(at(i, as_int, items[i], what, 0, most) for i, (what, most) in enumerate(whats)))


def _chunks(value: object, backends: Sequence[str], convert: Callable[[Any], Any], rest: Any) -> tuple[Any, ...]:
    given = as_map(value, "a map by backend")
    check_keys(given, backends, "past")
    return tuple(
        rest if given.get(name) is None else tuple(at(name, _each, given[name], "chunks", convert, VBUFFER_MAX_CHUNKS))
        for name in backends
    )


def _chunk(value: object) -> ChunkState:
    highest, blocks = _parts(value, "a chunk", (2,), "two parts", "[highest byte, [[offset, size], ...]]")
    free = at(1, _each, blocks, "free blocks", _block, 4096)
    return ChunkState(at(0, as_int, highest, "the highest byte", 0, SIZE_MAX), tuple(free))


def _copies(value: object, backends: Sequence[str]) -> tuple[PastCopy, ...]:
    """The copies of each tensor, by its id and the backend."""
    out = []
    for id, of in as_map(value, "a map by tensor").items():
        made = at(id, _chunks, of, backends, _copy, None)
        out += [PastCopy(id, b, copies) for b, copies in enumerate(made) if copies is not None]
    return tuple(out)


def _copy(value: object) -> tuple[int, tuple[int, int] | None] | None:
    if value is None:
        return None
    items = _parts(value, "a copy", (1, 3), "one number or three", "[slot, chunk, offset]")
    slot = at(0, as_int, items[0], "a slot", 0, MOST_SLOTS - 1)
    if len(items) == 1:
        return slot, None
    chunk = at(1, as_int, items[1], "a chunk", 0, _CHUNK)
    return slot, (chunk, at(2, as_int, items[2], "bytes", 0, SIZE_MAX))


def _block(value: object) -> FreeBlock:
    items = _parts(value, "a free block", (2,), "two numbers", "[offset, size]")
    offset, size = (at(i, as_int, item, "bytes", 0, SIZE_MAX) for i, item in enumerate(items))
    return FreeBlock(offset, size)


def dump_past(past: Past) -> dict[str, Any]:
    """The map that says the same."""
    new = Past(past.backends)
    told = {f.name: getattr(past, f.name) for f in fields(past) if getattr(past, f.name) != getattr(new, f.name)}
    out: dict[str, Any] = {}
    for key, value in told.items():
        match key:
            case "node_ids" | "leaf_ids" | "prev_node_ids" | "prev_leaf_ids":
                runs = groupby(value)
                out[key] = [[None if b == _NONE else past.backends[b], len(list(of))] for b, of in runs]
            case "nodes":
                out[key] = [[_dump_place(dst), *map(_dump_place, srcs)] for dst, srcs in value]
            case "leafs":
                out[key] = [_dump_place(leaf) for leaf in value]
            case "planners":
                chunks = (name_of for name_of in zip(past.backends, value, strict=False) if name_of[1])
                out[key] = {b: [[c.max_size, [list(block) for block in c.free_blocks]] for c in of] for b, of in chunks}
            case "buffers":
                sizes = zip(past.backends, value, strict=False)
                out[key] = {b: list(of) for b, of in sizes if of is not None}
            case "copies":
                out[key] = {}
                for of, b, made in value:
                    told_copies = [None if c is None else [c[0], *(c[1] or ())] for c in made]
                    out[key].setdefault(of, {})[past.backends[b]] = told_copies
            case _:
                out[key] = value
    return out


def _dump_place(place: TensorAlloc) -> list[int] | None:
    if place.buffer_id < 0:
        return None
    return [place.buffer_id, place.chunk, place.offset, place.size_max]
