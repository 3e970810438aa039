"""A program's scheduler and allocator as they are at a moment: the views of `attach --show`, and of `ggml` in gdb."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ask.attach.records import (
    LiveAlloc,
    LiveAssigned,
    LiveBuffer,
    LiveCall,
    LiveChunk,
    LiveHashNode,
    LiveOwner,
    LiveSource,
    LiveSplit,
    LiveTensor,
    NamedSnapshot,
    usage_of,
)
from ggmltool.ggml.errors import Error
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.show.colors import colors
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines
from ggmltool.show.text import count, dims, printable, shortened, size, wrapped
from ggmltool.state.memory.tensors import TensorStruct

_MAX_OPS = 4
_MAX_BLOCKS = 4


def title_of(seen: NamedSnapshot) -> str:
    """What a view is about."""
    s = seen.snapshot
    return f"ggml {s.version or s.release} in the process"


def state_of(seen: NamedSnapshot) -> list[str]:
    """The scheduler and the graph, and whether it has split and placed that."""
    return [f"scheduler {seen.sched.address:#x}", f"graph {seen.snapshot.graph.address:#x}", f"is {seen.state}"]


def _head(seen: NamedSnapshot, facts: Sequence[str], style: Style) -> str:
    return heading(title_of(seen), [*facts, *state_of(seen)], style) + render_lines([""], style)


def _backend(seen: NamedSnapshot) -> Callable[[str | None], Cell]:
    """The name of a backend in its color."""
    ink = colors([seen.backend(i) or "" for i in range(len(seen.sched.backends))])

    def cell(name: str | None) -> Cell:
        return Cell("none", "dim") if name is None else Cell(name, ink[name].term if name in ink else "")

    return cell


def splits_view(seen: NamedSnapshot, style: Style) -> str:
    """A line per split."""
    rows = seen.splits()
    backend = _backend(seen)
    table = Table[LiveSplit](
        Column("split", lambda s: s.id, right=True),
        Column("backend", lambda s: backend(s.backend)),
        Column("nodes", lambda s: f"{s.i_start}..{s.i_end - 1}" if s.i_end > s.i_start else "none", right=True),
        Column("ops", lambda s: shortened(list(dict.fromkeys(s.ops)), _MAX_OPS), cut=True, drop=2),
        Column("first node", lambda s: s.nodes[0] if s.nodes else "", cut=True, drop=1),
        Column("copied inputs", lambda s: ", ".join(i.tensor for i in s.inputs), cut=True),
        Column("bytes", lambda s: size(sum(i.nbytes or 0 for i in s.inputs)) if s.inputs else "", right=True),
    )
    body = table.render(rows, style) if rows else render_lines([_NO_SPLITS], style)
    before = [] if seen.known or not rows else [render_lines(["", _BEFORE], style)]
    return "".join([_head(seen, [count(len(rows), "split")], style), body, *before])


_NO_SPLITS = "The scheduler has not split a graph yet."
_BEFORE = "The scheduler is reset: these are the splits of the graph before, whose tensors may be gone."


def allocs_view(seen: NamedSnapshot, style: Style) -> str:
    """node_allocs, leaf_allocs, and what is free in the chunks."""
    found = seen.allocs()
    nodes, leafs = list(enumerate(found.nodes)), list(enumerate(found.leafs))
    parts = [_head(seen, [count(len(nodes), "node_alloc"), count(len(leafs), "leaf_alloc")], style)]
    for what, rows in (("node", nodes), ("leaf", leafs)):
        if rows:
            parts += [_ALLOCS[what].render(rows, style), render_lines([""], style)]
    return "".join([*parts, _CHUNKS.render(found.chunks, style)])


def _source(s: LiveSource) -> str:
    if s.buffer_id < 0:
        return f"{s.tensor} -1"
    chunk = f"{s.chunk}:" if s.chunk else ""
    return f"{s.tensor} {s.buffer_id}:{chunk}{s.offset}+{s.size_max}"


def _allocs(what: str, *more: Column[tuple[int, LiveAlloc]]) -> Table[tuple[int, LiveAlloc]]:
    return Table(
        Column("#", lambda p: p[0], right=True),
        Column(what, lambda p: p[1].tensor, cut=True),
        Column("buffer", lambda p: p[1].buft or Cell("none", "dim"), drop=2),
        Column("chunk", lambda p: p[1].chunk if p[1].buft else None, right=True, drop=4),
        Column("offset", lambda p: p[1].offset if p[1].buft else None, right=True),
        Column("size_max", lambda p: p[1].size_max if p[1].buft else None, right=True),
        Column("data", lambda p: f"{p[1].data:#x}" if p[1].data else Cell("NULL", "dim"), right=True),
        *more,
    )


_SOURCES: Column[tuple[int, LiveAlloc]] = Column(
    "sources", lambda p: ", ".join(map(_source, p[1].src)), cut=True, drop=3, numbers=True
)
_ALLOCS = {"node": _allocs("node", _SOURCES), "leaf": _allocs("leaf")}


def _free(c: LiveChunk) -> str:
    ends = [(block.offset, block.offset + block.size) for block in c.free]
    said = [f"{offset}..{end}" if end < 1 << 62 else f"{offset}.." for offset, end in ends]
    return shortened(said, _MAX_BLOCKS) or "nothing"


_CHUNKS = Table[LiveChunk](
    Column("allocator", lambda c: c.buft),
    Column("chunk", lambda c: c.chunk, right=True),
    Column("max_size", lambda c: c.max_size, right=True),
    Column("buffer", lambda c: f"{c.buffer:#x}" if c.buffer else Cell("none", "dim"), right=True),
    Column("base", lambda c: f"{c.base:#x}" if c.base is not None else "", right=True, drop=1),
    Column("free", _free, cut=True, numbers=True),
)


def hash_view(seen: NamedSnapshot, style: Style) -> str:
    """The allocator's hash set with its hash nodes."""
    found = seen.hash()
    rows = found.slots
    table = Table[LiveHashNode](
        Column("slot", lambda r: r.slot, right=True),
        Column("tensor", lambda r: r.tensor, cut=True),
        Column("n_children", lambda r: r.n_children, right=True),
        Column("n_views", lambda r: r.n_views, right=True),
        Column("buffer", lambda r: f"{r.buffer_id} {r.buft or ''}".rstrip(), drop=1),
        Column("chunk", lambda r: r.chunk, right=True, drop=3),
        Column("offset", lambda r: r.offset, right=True),
        Column("allocated", lambda r: "true" if r.allocated else Cell("false", "dim")),
    )
    facts = [f"{len(rows)} of {found.size} slots of the allocator"]
    return _head(seen, facts, style) + table.render(rows, style)


def sched_view(seen: NamedSnapshot, style: Style) -> str:
    """The scheduler's hash set: the backend of each tensor, and its copies."""
    found = seen.sched_hash()
    rows = found.slots
    backend = _backend(seen)
    table = Table[LiveAssigned](
        Column("slot", lambda r: r.slot, right=True),
        Column("tensor", lambda r: r.tensor, cut=True),
        Column("backend", lambda r: backend(r.backend)),
        Column("copies", lambda r: ", ".join(r.copies), cut=True),
    )
    facts = [f"{len(rows)} of {found.size} slots of the scheduler"]
    return _head(seen, facts, style) + table.render(rows, style)


_BUFFERS = Table[LiveBuffer](
    Column("buffer", lambda b: f"{b.address:#x}", right=True),
    Column("type", lambda b: b.type, cut=True),
    Column("usage", lambda b: b.usage),
    Column("size", lambda b: size(b.size), right=True),
    Column("base", lambda b: f"{b.base:#x}" if b.base is not None else "", right=True, drop=2),
    Column("tensors", lambda b: b.tensors, right=True),
    Column("used to", lambda b: size(b.used) if b.used else "", right=True, drop=1),
    Column("whose", lambda b: f"the scheduler's, {b.of}" if b.of else "the program's", cut=True, drop=3),
)


def buffers_view(seen: NamedSnapshot, style: Style) -> str:
    """The buffers that tensors of the graph are in."""
    rows = seen.buffers()
    own = sum(b.size for b in rows if b.of)
    facts = [count(len(rows), "buffer"), f"{size(own)} of them the scheduler's"]
    return _head(seen, facts, style) + _BUFFERS.render(rows, style)


_NODES = Table[tuple[int, LiveTensor]](
    Column("#", lambda n: n[0], right=True),
    Column("node", lambda n: n[1].name, cut=True),
    Column("op", lambda n: n[1].op),
    Column("shape", lambda n: n[1].type + dims(n[1].ne), drop=2),
    Column("backend", lambda n: n[1].backend or Cell("none", "dim"), drop=1),
    Column("sources", lambda n: ", ".join(s for s in n[1].src if s), cut=True, drop=3),
)


def graph_view(seen: NamedSnapshot, style: Style) -> str:
    """The nodes of the program's graph, and its leafs."""
    graph = seen.graph()
    facts = [count(len(graph.nodes), "node"), count(len(graph.leafs), "leaf")]
    leafs = wrapped(f"leafs: {', '.join(graph.leafs)}", style.width)
    nodes = _NODES.render(list(enumerate(graph.nodes)), style)
    return _head(seen, facts, style) + nodes + render_lines(["", *leafs], style)


def tensor_view(seen: NamedSnapshot, address: int, style: Style) -> str:
    """One line per fact."""
    t, found = seen.snapshot.tensors[address], seen.facts(address)
    nbytes = found.nbytes
    users = (n for n in seen.graph_nodes if (node := seen.tensor(n)) is not None and address in node.src)
    facts = [
        ("struct", f"{address:#x}"),
        ("op", found.op),
        ("op_params", " ".join(map(str, found.op_params))),
        ("type", found.type),
        ("ne", str(found.ne)),
        ("nb", str(found.nb)),
        ("nbytes", "" if nbytes is None else str(nbytes) if nbytes < 1024 else f"{nbytes} ({size(nbytes)})"),
        ("flags", ", ".join(found.flags)),
        ("backend", found.backend or "none"),
        ("memory", _memory(seen, t)),
        ("data", f"{t.data:#x}" if t.data else "NULL"),
        ("view of", f"{found.view_src} at {t.view_offs}" if found.view_src else ""),
        *((f"src[{j}]", f"{seen.name(a)} ({a:#x})") for j, a in enumerate(t.src) if a),
        ("used by", ", ".join(map(seen.name, users))),
        ("copies", ", ".join(found.copies)),
    ]
    lines = []
    for name, value in facts:
        if value:
            lines += textwrap.wrap(
                printable(value), max(style.width, 40), initial_indent=f"  {name:<11}", subsequent_indent=" " * 13,
                break_on_hyphens=False,
            )  # fmt: skip
    return heading(f"{title_of(seen)}: {found.name}", state_of(seen), style) + render_lines(["", *lines], style)


def _memory(seen: NamedSnapshot, t: TensorStruct) -> str:
    buffer = seen.snapshot.buffers.get(t.buffer)
    if not t.buffer or buffer is None:
        return "none" if not t.buffer else f"buffer {t.buffer:#x}"
    offset = f", offset {t.data - buffer.base}" if t.data and buffer.base is not None else ""
    chunk = seen.chunk_names.get(t.buffer)
    name, whose = chunk or seen.buft(buffer.buft), ", of the scheduler" if chunk else ""
    return f"{name} ({usage_of(buffer)}{whose}), buffer {t.buffer:#x}{offset}"


def lifetime_view(seen: NamedSnapshot, address: int, style: Style) -> str:
    """Who has the bytes of a tensor, in program order."""
    t = seen.snapshot.tensors[address]
    found = seen.lifetime(address)
    nodes = seen.graph_nodes
    facts = [count(seen.nbytes(t) or 0, "byte"), _memory(seen, t)]
    top = heading(f"{title_of(seen)}: {found.tensor}", [*facts, *state_of(seen)], style)
    if not found.owners:
        said = "It has no memory." if not t.data else "No tensor that was read has its bytes."
        return top + render_lines(["", said], style)

    def at(node: int | None, otherwise: str) -> str:
        return otherwise if node is None else f"{seen.name(nodes[node])} (#{node})"

    table = Table[LiveOwner](
        Column("", lambda o: ">" if o.asked else ""),
        Column("tensor", lambda o: o.tensor, cut=True),
        Column("op", lambda o: o.op, drop=2),
        Column("from", lambda o: at(o.start, "before the graph"), cut=True),
        Column("last read by", lambda o: at(o.end, "its end, or later"), cut=True),
        Column("data", lambda o: f"{o.data:#x}", right=True, drop=1),
        Column("bytes", lambda o: o.nbytes, right=True),
        Column("shared", lambda o: o.shared, right=True),
    )
    return top + render_lines([""], style) + table.render(found.owners, style)


PLAIN: Mapping[str, Callable[[NamedSnapshot, Style], str]] = {
    "splits": splits_view,
    "hash": hash_view,
    "hash --sched": sched_view,
    "allocs": allocs_view,
    "buffers": buffers_view,
    "graph": graph_view,
}
OF_TENSOR: Mapping[str, Callable[[NamedSnapshot, int, Style], str]] = {"tensor": tensor_view, "lifetime": lifetime_view}
WORDS = (*PLAIN, *(f"{view} NODE" for view in OF_TENSOR))


class NoViewError(Error):
    """What was asked for is no view, or is of no tensor that is there."""


class WantedView(NamedTuple):
    """A view, and the tensor that it is of."""

    view: str
    tensor: str = ""


def wanted(text: str) -> list[WantedView]:
    """The views of an option: those of `PLAIN` parted by commas, or one of `OF_TENSOR` with its tensor.

    Raises NoViewError.

    >>> wanted("splits,hash --sched"), wanted("tensor a, b")
    ([Wanted(view='splits', tensor=''), Wanted(view='hash --sched', tensor='')], [Wanted(view='tensor', tensor='a, b')])
    """
    view, _, tensor = text.strip().partition(" ")
    if view in OF_TENSOR:
        if not tensor.strip():
            raise NoViewError(f"{view} is of a tensor: --show '{view} NODE'")
        return [WantedView(view, tensor.strip())]
    views = [" ".join(part.split()) for part in text.split(",")]
    for one in views:
        if one not in PLAIN:
            hint = did_you_mean(one, [*PLAIN, *OF_TENSOR])
            raise NoViewError(f"there is no view {quoted(one)}; {hint or 'there are ' + ', '.join(WORDS)}")
    return [WantedView(one) for one in views]


def shown(seen: NamedSnapshot, views: Sequence[WantedView], style: Style) -> str:
    """These views, one below the other. Raises NoViewError."""
    parts = [
        OF_TENSOR[view](seen, address_of(seen, tensor), style) if tensor else PLAIN[view](seen, style)
        for view, tensor in views
    ]
    return render_lines([""], style).join(parts)


def live_call(number: int, seen: NamedSnapshot, views: Sequence[WantedView]) -> LiveCall:
    """A call with these views, as --json prints it. Raises NoViewError."""
    out = LiveCall.of(number, seen)
    for view, tensor in views:
        if view == "tensor":
            out.tensors = [*(out.tensors or ()), seen.facts(address_of(seen, tensor))]
        elif view == "lifetime":
            out.lifetimes = [*(out.lifetimes or ()), seen.lifetime(address_of(seen, tensor))]
        else:
            field = "sched_hash" if view == "hash --sched" else view
            setattr(out, field, getattr(seen, field)())
    return out


def address_of(seen: NamedSnapshot, name: str) -> int:
    """The tensor of a name, or at an address. Raises NoViewError."""
    found = seen.named(name)
    if found is None and name.startswith("0x"):
        found = next((address for address in seen.snapshot.tensors if f"{address:#x}" == name.lower()), None)
    if found is None:
        hint = did_you_mean(name, [seen.name(address) for address in seen.snapshot.tensors])
        raise NoViewError(f"no tensor is called {quoted(name)}{'; ' if hint else ''}{hint}")
    return found
