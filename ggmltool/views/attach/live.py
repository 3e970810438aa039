"""A program's scheduler and allocator as they are at a moment: splits, hash sets, places, buffers."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.attach.state import TensorAllocState
from ggmltool.inspect.attached.seen import (
    Seen,
    SeenAssigned,
    SeenBuffer,
    SeenChunk,
    SeenPlace,
    SeenSlot,
    SeenSplit,
)
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Head, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, shortened, size, wrapped

_MAX_OPS = 4
_MAX_BLOCKS = 4


def title_of(seen: Seen) -> str:
    """What a view is about."""
    s = seen.snapshot
    return f"ggml {s.version or s.release} in the process"


def state_of(seen: Seen) -> list[str]:
    """The scheduler and the graph, and whether it has split and placed that."""
    return [f"scheduler {seen.sched.address:#x}", f"graph {seen.snapshot.graph.address:#x}", f"is {seen.state}"]


def _head(seen: Seen, facts: Sequence[str], style: Style) -> str:
    return heading(title_of(seen), [*facts, *state_of(seen)], style) + render_lines([""], style)


def splits_view(seen: Seen, style: Style) -> str:
    """A line per split."""
    rows = seen.splits()
    ink = colors([seen.backend(i) or "" for i in range(len(seen.sched.backends))])

    def backend(s: SeenSplit) -> Cell:
        return Cell(s.backend, ink[s.backend].term if s.backend in ink else "")

    table = Table[SeenSplit](
        Column("split", lambda s: s.id, right=True),
        Column("backend", backend),
        Column("nodes", lambda s: f"{s.i_start}..{s.i_end - 1}" if s.i_end > s.i_start else "none", right=True),
        Column("ops", lambda s: shortened(list(dict.fromkeys(s.ops)), _MAX_OPS), cut=True, drop=2),
        Column("first node", lambda s: s.nodes[0] if s.nodes else "", cut=True, drop=1),
        Column("copied inputs", lambda s: ", ".join(name for name, _ in s.inputs), cut=True),
        Column("bytes", lambda s: size(sum(n or 0 for _, n in s.inputs)) if s.inputs else "", right=True),
    )
    body = table.render(rows, style) if rows else render_lines([_NO_SPLITS], style)
    before = [] if seen.known or not rows else [render_lines(["", _BEFORE], style)]
    return "".join([_head(seen, [count(len(rows), "split")], style), body, *before])


_NO_SPLITS = "The scheduler has not split a graph yet."
_BEFORE = "The scheduler is reset: these are the splits of the graph before, whose tensors may be gone."


def allocs_view(seen: Seen, style: Style) -> str:
    """node_allocs, leaf_allocs, and what is free in the chunks."""
    nodes, leafs, chunks = seen.node_places(), seen.leaf_places(), seen.chunks()
    parts = [_head(seen, [count(len(nodes), "node_alloc"), count(len(leafs), "leaf_alloc")], style)]
    for what, rows in (("node", nodes), ("leaf", leafs)):
        if rows:
            parts += [_places(what).render(rows, style), render_lines([""], style)]
    return "".join([*parts, _CHUNKS.render(chunks, style)])


def _places(what: str) -> Table[SeenPlace]:
    columns: list[Column[SeenPlace]] = [
        Column("#", lambda p: p.number, right=True),
        Column(what, lambda p: p.tensor, cut=True),
        Column("buffer", lambda p: p.buffer or Cell("none", "dim"), drop=2),
        Column("chunk", lambda p: p.place.chunk if p.buffer else None, right=True, drop=4),
        Column("offset", lambda p: p.place.offset if p.buffer else None, right=True),
        Column("size_max", lambda p: p.place.size_max if p.buffer else None, right=True),
        Column("data", lambda p: f"{p.address:#x}" if p.address else Cell("NULL", "dim"), right=True),
    ]
    if what == "node":
        columns.append(Column("sources", _sources, cut=True, drop=3, numbers=True))
    return Table(*columns)


def _sources(p: SeenPlace) -> str:
    return ", ".join(f"{name} {_short(place)}" for name, place in p.sources)


def _short(place: TensorAllocState) -> str:
    if place.buffer_id < 0:
        return "-1"
    chunk = f"{place.chunk}:" if place.chunk else ""
    return f"{place.buffer_id}:{chunk}{place.offset}+{place.size_max}"


def _free(c: SeenChunk) -> str:
    said = [f"{_end(offset, nbytes)}" for offset, nbytes in c.free]
    return shortened(said, _MAX_BLOCKS) or "nothing"


def _end(offset: int, nbytes: int) -> str:
    end = offset + nbytes
    return f"{offset}..{end}" if end < 1 << 62 else f"{offset}.."


_CHUNKS = Table[SeenChunk](
    Column("allocator", lambda c: c.buffer),
    Column("chunk", lambda c: c.chunk, right=True),
    Column("max_size", lambda c: c.max_size, right=True),
    Column("buffer", lambda c: f"{c.address:#x}" if c.address else Cell("none", "dim"), right=True),
    Column("base", lambda c: f"{c.base:#x}" if c.base is not None else "", right=True, drop=1),
    Column("free", _free, cut=True, numbers=True),
)


def hash_view(seen: Seen, style: Style) -> str:
    """The allocator's hash set with its hash nodes."""
    rows = seen.slots()
    table = Table[SeenSlot](
        Column("slot", lambda r: r.slot, right=True),
        Column("tensor", lambda r: r.tensor, cut=True),
        Column("n_children", lambda r: r.node.n_children, right=True),
        Column("n_views", lambda r: r.node.n_views, right=True),
        Column("buffer", lambda r: f"{r.node.buffer_id} {r.buffer or ''}".rstrip(), drop=1),
        Column("chunk", lambda r: r.node.chunk, right=True, drop=3),
        Column("offset", lambda r: r.node.offset, right=True),
        Column("allocated", lambda r: "true" if r.node.allocated else Cell("false", "dim")),
    )
    facts = [f"{len(rows)} of {seen.sched.galloc.hash_set.size} slots of the allocator"]
    return _head(seen, facts, style) + table.render(rows, style)


def sched_view(seen: Seen, style: Style) -> str:
    """The scheduler's hash set: the backend of each tensor, and its copies."""
    rows = seen.assigned()
    ink = colors([seen.backend(i) or "" for i in range(len(seen.sched.backends))])
    table = Table[SeenAssigned](
        Column("slot", lambda r: r.slot, right=True),
        Column("tensor", lambda r: r.tensor, cut=True),
        Column(
            "backend", lambda r: Cell("none", "dim") if r.backend is None else Cell(r.backend, _ink(ink, r.backend))
        ),
        Column("copies", lambda r: ", ".join(r.copies), cut=True),
    )
    facts = [f"{len(rows)} of {seen.sched.hash_set.size} slots of the scheduler"]
    return _head(seen, facts, style) + table.render(rows, style)


def _ink(ink: object, name: str) -> str:
    return ink[name].term if isinstance(ink, dict) and name in ink else ""


_BUFFERS = Table[SeenBuffer](
    Column("buffer", lambda b: f"{b.address:#x}", right=True),
    Column("type", lambda b: b.type, cut=True),
    Column("usage", lambda b: b.usage),
    Column("size", lambda b: size(b.size), right=True),
    Column("base", lambda b: f"{b.base:#x}" if b.base is not None else "", right=True, drop=2),
    Column("tensors", lambda b: b.tensors, right=True),
    Column("used to", lambda b: size(b.used) if b.used else "", right=True, drop=1),
    Column("whose", lambda b: f"the scheduler's, {b.chunk}" if b.chunk else "the program's", cut=True, drop=3),
)


def buffers_view(seen: Seen, style: Style) -> str:
    """The buffers that tensors of the graph are in."""
    rows = seen.buffers()
    own = sum(b.size for b in rows if b.chunk)
    facts = [count(len(rows), "buffer"), f"{size(own)} of them the scheduler's"]
    return _head(seen, facts, style) + _BUFFERS.render(rows, style)


_NODES = (
    Head("#", right=True),
    Head("node", cut=True),
    Head("op"),
    Head("shape", drop=2),
    Head("backend", drop=1),
    Head("sources", cut=True, drop=3),
)


def graph_view(seen: Seen, style: Style) -> str:
    """The nodes of the program's graph, and its leafs."""
    s = seen.snapshot
    rows = []
    for i, address in enumerate(s.graph.nodes):
        t = s.tensors[address]
        sources = ", ".join(seen.name(a) for a in t.src if a)
        backend = seen.backend(s.sched.backend_ids.get(address))
        shape = f"{seen.type(t)}{_shape(t.ne)}"
        rows.append((i, seen.name(address), seen.op(t), shape, backend or Cell("none", "dim"), sources))
    facts = [count(len(rows), "node"), count(len(s.graph.leafs), "leaf")]
    leafs = wrapped(f"leafs: {', '.join(seen.name(a) for a in s.graph.leafs)}", style.width)
    return _head(seen, facts, style) + render_table(_NODES, rows, style) + render_lines(["", *leafs], style)


def _shape(ne: Sequence[int]) -> str:
    shown = list(ne)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return str(shown)
