"""One tensor's memory over time: who has it before and after; two tensors: whether they collide."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from ggmltool.ask.answer import Answer
from ggmltool.ask.lifetime.record import LifetimeTable, Owner, TensorLife
from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.ggml.sched.unchecked import REMEDY
from ggmltool.inspect.use_after_free import freed_by
from ggmltool.scenario.versions import has_no_flags
from ggmltool.show.table import Cell, Column, Row, Style, Table, heading, render_lines, section
from ggmltool.show.text import shortened, size, wrapped

_SHOWN = 8
_NAMES = 6


def lifetimes(answer: Answer[LifetimeTable], style: Style) -> str:
    """Sentences and the history of the bytes; of two tensors first what they have to do with each other."""
    facts, nodes = answer.facts.tensors, answer.facts.turns
    keep = (
        "Copy it (cpy) into memory of a context" if has_no_flags(BY_NAME[answer.facts.ggml]) else "Flag it as an output"
    )
    names = " and ".join(f.id for f in facts)
    parts = [heading(f"{answer.title}: {names}", [answer.heading], style)]
    if len(facts) > 1:
        told = [line for text in collision(facts[0], facts[1], nodes) for line in wrapped(text, style.width)]
        parts.append(render_lines(["", *told], style))
    for f in facts:
        lines = [line for text in story(f, nodes, keep) for line in wrapped(text, style.width)]
        parts.append(render_lines(["", *lines], style))
    for f in _with_history(facts):
        table = _owners({g.view_of or g.id for g in facts}, nodes)
        name = f"Who has the bytes of {f.id}, in order" if len(facts) > 1 else "Who has these bytes, in order"
        parts += section(name, table.columns, _history(f, table), style)
    return "".join(parts)


def _with_history(facts: Sequence[TensorLife]) -> Sequence[TensorLife]:
    """Of two tensors the histories where they share bytes, of two with one memory one."""
    if len(facts) < 2:
        return facts
    if shared(facts[0], facts[1]) is None:
        return ()
    return facts[:1] if facts[0].life == facts[1].life else facts


def story(f: TensorLife, nodes: Sequence[str], keep: str) -> list[str]:
    """What there is to say about one tensor, in sentences; `keep` is how one keeps its values."""
    what = f"{f.id} ({f'{f.op} ' if f.op else ''}{f.shape})"
    if f.view_of is not None:
        what += f" is a view of {f.view_of} and"
    if not f.where:
        return [f"{what} has no memory: the graph does not reach it, or it has no bytes.", *_read(f, nodes)]
    chunk = f" of chunk {f.chunk}" if f.chunk else ""
    place = f"{what} has {size(f.size)} at {f.offset}{chunk} in {f.where}"
    if f.freed is not UNSET:
        return [f"{place}: {freed_by(f.freed)}. Using it is a use after free; to avoid it, {REMEDY}.", *_read(f, nodes)]
    if f.older:
        return [f"{place}. An older plan placed it: the newest plan may place other tensors there.", *_read(f, nodes)]
    if f.life is None:
        out = [f"{place}. It is pre-allocated: the graph allocator never reuses its memory."]
        if f.writers:
            out.append(f"Nodes that write into it: {shortened(f.writers, _NAMES)}.")
        return [*out, *_read(f, nodes)]
    out = [f"{place}, {_alive(f, f.life, nodes)}."]
    if f.in_place_of:
        out.append(f"{f.view_of or 'It'} is computed in place of {f.in_place_of}.")
    chain = [
        t.id for t in f.takers if t.in_place_of and t.start == (f.life.end or 0) + 1 and t.in_place_of == f.life.id
    ]
    if chain:
        out.append(f"{chain[0]} is computed in place of it.")
    if f.views:
        out.append(f"Views of it: {shortened(f.views, _NAMES)}.")
    return [*out, *_read(f, nodes), *_after(f, nodes, keep)]


def _alive(f: TensorLife, life: Owner, nodes: Sequence[str]) -> str:
    start = "from before the first node" if life.start < 0 else f"from node {nodes[life.start]}"
    if f.output:
        return f"{start} to the end: it is an output"
    if life.end is None or life.end >= len(nodes):
        return f"{start} to the end"
    if life.end == life.start >= 0:
        return f"at node {nodes[life.start]} only"
    return f"{start} to node {nodes[life.end]}" if life.end >= 0 else "before the first node only"


def _read(f: TensorLife, nodes: Sequence[str]) -> list[str]:
    if not f.readers:
        return ["No node reads it.", *_kept(f, nodes)]
    names = [nodes[r.at] + (f" (through {r.view})" if r.view else " (a copy)" if r.is_copy else "") for r in f.readers]
    return [f"Read by node {shortened(names, _NAMES)}.", *_kept(f, nodes)]


def _kept(f: TensorLife, nodes: Sequence[str]) -> list[str]:
    names = [f"node {nodes[u.at]} ({u.backend})" for u in f.kept_until]
    if not names:
        return []
    return [f"Its device computes nodes together and asks to keep it (add_alloc_dep) until {shortened(names, 3)}."]


def _after(f: TensorLife, nodes: Sequence[str], keep: str) -> list[str]:
    """What its bytes hold once the graph is computed, and whether that harms anybody."""
    early = f.early
    if early:
        taker, reader = early[0]
        over = f"{taker.id} overwrites it at node {nodes[taker.start]}"
        if taker.id == reader.node:
            return [f"DANGER: {over}, and is its own copy: bytes are overwritten before they are copied."]
        return [f"DANGER: {over}, and node {nodes[reader.at]} reads it after that and gets wrong values."]
    if not f.takers:
        return ["Nothing overwrites it: after the graph it still has its values."]
    taker = f.takers[0]
    who = f"{taker.id} overwrites it at node {nodes[taker.start]}"
    if f.copy:
        return [f"{who}."]
    if f.input:
        return [f"{who}: set it again before the graph is computed again."]
    return [f"{who}: after the graph it has other values. {keep} to keep it."]


def _history(f: TensorLife, table: Table[Owner]) -> list[Row]:
    """The owners of the bytes, some before and some after the tensor; the others are counted."""
    if f.own is None:
        return []
    first, last = max(f.own - _SHOWN, 0), min(f.own + _SHOWN + 1, len(f.owners))
    rows = table.rows(f.owners[first:last])
    before: list[Row] = [[Cell("⋮", "dim"), f"{first} before"]] if first else []
    after: list[Row] = [[Cell("⋮", "dim"), f"{len(f.owners) - last} after"]] if last < len(f.owners) else []
    return [*before, *rows, *after]


def _owners(marked: set[str], nodes: Sequence[str]) -> Table[Owner]:
    def end(n: Owner) -> str:
        return "end" if n.end is None or n.end >= len(nodes) else _node(n.end, nodes)

    return Table(
        Column("", lambda n: Cell("▶", "bold") if n.id in marked else None),
        Column("tensor", lambda n: Cell(n.id, "bold" if n.id in marked else ""), cut=True),
        Column("from", lambda n: _node(n.start, nodes), cut=True),
        Column("to", end, cut=True),
        Column("offset", lambda n: n.offset, right=True),
        Column("size", lambda n: size(n.size), right=True),
        Column("how", lambda n: f"in place of {n.in_place_of}" if n.in_place_of else None, cut=True, drop=1),
    )


def _node(at: int, nodes: Sequence[str]) -> str:
    return "start" if at < 0 else nodes[at]


def shared(a: TensorLife, b: TensorLife) -> tuple[int, int] | None:
    """The bytes that two tensors share, as offsets in their chunk; None if they share none."""
    if not a.where or (a.where, a.chunk) != (b.where, b.chunk):
        return None
    start, end = max(a.offset, b.offset), min(a.offset + a.size, b.offset + b.size)
    return (start, end) if start < end else None


def together(a: TensorLife, b: TensorLife, n: int) -> tuple[int, int] | None:
    """The nodes (first, last) while which both are alive; None if there are none. What is no node is -1."""
    spans = [
        (-1, n - 1) if f.life is None else (f.life.start, n - 1 if f.life.end is None else f.life.end) for f in (a, b)
    ]
    start, end = max(s for s, _ in spans), min(e for _, e in spans)
    return (start, end) if start <= end else None


def collision(a: TensorLife, b: TensorLife, nodes: Sequence[str]) -> list[str]:
    """Whether two tensors share bytes, are alive at once, and who is written over whom."""
    names = f"{a.id} and {b.id}"
    common, both = shared(a, b), together(a, b, len(nodes))
    if not a.where or not b.where:
        return [f"{a.id if not a.where else b.id} has no memory, so the two do not collide."]
    at_once = "" if both is None else f"both are alive from {_moment(both[0], nodes)} to {_moment(both[1], nodes)}"
    for f in (a, b):
        if f.freed is not UNSET:
            return [f"{f.id} lies in freed memory ({freed_by(f.freed)}): it has no bytes to share."]
    if common is None:
        where = f"{a.where} and {b.where}" if a.where != b.where else f"other places of {a.where}"
        return [f"{names} share no byte: they lie in {where}; {at_once or 'they are never alive at once'}."]
    said = f"{names} share {size(common[1] - common[0])} at {common[0]} in {a.where}"
    if a.life == b.life:
        if a.life is None:
            owner = "an older plan's memory" if a.older else "the same memory of a context"
            return [f"{said}: {owner}, where the last write wins."]
        return [f"{said}: they are views of one tensor, or one is a view of the other."]
    if a.life is None or b.life is None:
        return [f"{said}."]
    if both is not None:
        return [f"{said}, and {at_once}: DANGER, one overwrites the other."]
    early, late = (a, b) if a.life.start < b.life.start else (b, a)
    out = [f"{said}, at different times: {late.id} overwrites {early.id}."]
    return [*out, _harm(early, late, nodes)]


def _harm(early: TensorLife, late: TensorLife, nodes: Sequence[str]) -> str:
    at = late.life.start if late.life is not None else -1
    reader = next((r for t, r in early.early if t == late.life), None)
    if reader is not None and reader.is_copy:
        return f"DANGER: it is the copy of {early.id}: bytes are overwritten before they are copied."
    if reader is not None:
        return f"DANGER: node {nodes[reader.at]} reads {early.id} after that."
    last = f"read last by node {nodes[early.readers[-1].at]}" if early.readers else "read by no node"
    kind = " (in place)" if early.readers and early.readers[-1].at == at else ""
    return f"No harm in the graph: {early.id} is {last}{kind}, {late.id} is written at {_moment(at, nodes)}."


def _moment(at: int, nodes: Sequence[str]) -> str:
    return "the start" if at < 0 else f"node {nodes[at]}" if at < len(nodes) else "the end"
