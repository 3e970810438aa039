"""What `attach --show … --json` prints: the scheduler and the allocator of a program as they are at a moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from msgspec import UNSET, Struct, UnsetType

from ggmltool.attach.state import TensorAllocState
from ggmltool.inspect.attached.seen import Seen, SeenPlace
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.views.attach.documents import Process
from ggmltool.views.attach.tensor import set_words
from ggmltool.views.memory.tensor import flag_names

if TYPE_CHECKING:
    from ggmltool.attach.session import Session


class LiveInput(Row):
    """A tensor that is copied for a split; `nbytes` is null of a type that is not known."""

    tensor: str
    nbytes: int | None


class LiveSplit(Row):
    """A split: its nodes are those from `i_start` to before `i_end` of the scheduler's graph."""

    id: int
    backend: str
    i_start: int
    i_end: int
    nodes: list[str]
    inputs: list[LiveInput]


class LiveSource(Row):
    """Where the allocator has a source of a node."""

    tensor: str
    buffer_id: int
    chunk: int
    offset: int
    size_max: int


class LiveAlloc(Row):
    """Where the allocator puts a tensor: `buft` is null and `buffer_id` -1 where it puts it nowhere. `data` is the
    address that it has now, 0 if none; `src` are the sources of a node."""

    tensor: str
    buft: str | None
    buffer_id: int
    chunk: int
    offset: int
    size_max: int
    data: int
    src: list[LiveSource]


class LiveBlock(Row):
    """A free block of a chunk; the last of a chunk has no end."""

    offset: int
    size: int


class LiveChunk(Row):
    """A chunk of an allocator; `buffer` is the address of its buffer, 0 if it has none, `base` where that begins."""

    buft: str
    chunk: int
    max_size: int
    buffer: int
    base: int | None
    free: list[LiveBlock]


class LiveAllocs(Row):
    """node_allocs, leaf_allocs and the chunks of the graph allocator."""

    nodes: list[LiveAlloc]
    leafs: list[LiveAlloc]
    chunks: list[LiveChunk]


class LiveHashNode(Row):
    """A taken slot of the allocator's hash set, with its hash node."""

    slot: int
    tensor: str
    n_children: int
    n_views: int
    buft: str | None
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class LiveHash(Row):
    """The allocator's hash set: how many slots it has, and those that are taken."""

    size: int
    slots: list[LiveHashNode]


class LiveAssigned(Row):
    """A taken slot of the scheduler's hash set: the backend of the tensor, and its copies."""

    slot: int
    tensor: str
    backend: str | None
    copies: list[str]


class LiveSchedHash(Row):
    """The scheduler's hash set: how many slots it has, and those that are taken."""

    size: int
    slots: list[LiveAssigned]


class LiveBuffer(Row):
    """A buffer: `of` says which compute buffer of the scheduler it is, null of one of the program's. `tensors` lie in
    it, `used` bytes up to the end of the last."""

    address: int
    type: str
    usage: str
    size: int
    base: int | None
    of: str | None
    tensors: int
    used: int


class LiveTensor(Row):
    """A tensor: `address` is that of its struct, `data` and `buffer` are 0 if it has none, `nbytes` is null of a type
    that is not known, `backend` where the scheduler has put it."""

    name: str
    address: int
    op: str
    op_params: list[int]
    type: str
    ne: list[int]
    nb: list[int]
    nbytes: int | None
    flags: list[str]
    backend: str | None
    buffer: int
    data: int
    view_src: str | None
    view_offs: int
    src: list[str | None]
    copies: list[str]


class LiveGraph(Row):
    """The program's graph: its nodes, and the names of its leafs."""

    nodes: list[LiveTensor]
    leafs: list[str]


class LiveOwner(Row):
    """A tensor with some of the bytes that are asked for: from node `start` to `end` of the scheduler's graph, null
    where it is there before the graph, or after it; `shared` bytes are those asked for."""

    tensor: str
    op: str
    start: int | None
    end: int | None
    data: int
    nbytes: int
    shared: int
    asked: bool


class LiveLifetime(Row):
    """Who has the bytes of a tensor, in program order."""

    tensor: str
    owners: list[LiveOwner]


class LiveCall(Struct):
    """A scheduler at a moment: before the call `function`, after it, or within (a core dump). Of the views
    those are there that were asked for."""

    function: str | None
    number: int
    when: Literal["before", "after", "within"]
    sched_address: int
    graph_address: int
    state: Literal["reset", "split", "allocated"]
    unread: list[str]
    splits: list[LiveSplit] | UnsetType = UNSET
    hash: LiveHash | UnsetType = UNSET
    sched_hash: LiveSchedHash | UnsetType = UNSET
    allocs: LiveAllocs | UnsetType = UNSET
    buffers: list[LiveBuffer] | UnsetType = UNSET
    graph: LiveGraph | UnsetType = UNSET
    tensors: list[LiveTensor] | UnsetType = UNSET
    lifetimes: list[LiveLifetime] | UnsetType = UNSET


class Asked(NamedTuple):
    """What is to be shown: the views of `plain`, and of each view of tensors the addresses."""

    plain: frozenset[str]
    tensors: Sequence[int]
    lifetimes: Sequence[int]


def live_call(number: int, seen: Seen, asked: Asked) -> LiveCall:
    """A call with its views."""
    s = seen.snapshot
    out = LiveCall(
        s.function, number, s.when, s.sched.address, s.graph.address, seen.state, list(s.unread)
    )  # fmt: skip
    if "splits" in asked.plain:
        out.splits = _splits(seen)
    if "hash" in asked.plain:
        out.hash = _hash(seen)
    if "hash --sched" in asked.plain:
        rows = [LiveAssigned(r.slot, r.tensor, r.backend, list(r.copies)) for r in seen.assigned()]
        out.sched_hash = LiveSchedHash(s.sched.hash_set.size, rows)
    if "allocs" in asked.plain:
        out.allocs = _allocs(seen)
    if "buffers" in asked.plain:
        out.buffers = [
            LiveBuffer(b.address, b.type, b.usage, b.size, b.base, b.chunk or None, b.tensors, b.used)
            for b in seen.buffers()
        ]
    if "graph" in asked.plain:
        out.graph = LiveGraph(_tensors(seen, s.graph.nodes), [seen.name(a) for a in s.graph.leafs])
    if asked.tensors:
        out.tensors = _tensors(seen, asked.tensors)
    if asked.lifetimes:
        out.lifetimes = [_lifetime(seen, address) for address in asked.lifetimes]
    return out


class AttachViewsDocument(ReleaseDocument, kw_only=True):
    """`attach --show … --json`: what the scheduler and the allocator of a program have, call by call. `stood_still` is
    for how many seconds the program did."""

    main_table = "calls"
    kind: Literal["attach_views"] = "attach_views"
    process: Process
    calls: list[LiveCall]
    stood_still: float

    @classmethod
    def of(cls, session: Session, calls: list[LiveCall]) -> Self:
        """The document of a session."""
        return cls(
            ggml=session.instance.release.name, process=Process.of(session), calls=calls,
            stood_still=round(session.stood_still, 3),
        )  # fmt: skip


def _splits(seen: Seen) -> list[LiveSplit]:
    return [
        LiveSplit(s.id, s.backend, s.i_start, s.i_end, list(s.nodes), [LiveInput(*one) for one in s.inputs])
        for s in seen.splits()
    ]


def _hash(seen: Seen) -> LiveHash:
    rows = [
        LiveHashNode(
            r.slot, r.tensor, r.node.n_children, r.node.n_views, r.buffer, r.node.buffer_id, r.node.chunk,
            r.node.offset, r.node.allocated,
        )
        for r in seen.slots()
    ]  # fmt: skip
    return LiveHash(seen.sched.galloc.hash_set.size, rows)


def _allocs(seen: Seen) -> LiveAllocs:
    chunks = [
        LiveChunk(c.buffer, c.chunk, c.max_size, c.address, c.base, [LiveBlock(*block) for block in c.free])
        for c in seen.chunks()
    ]
    return LiveAllocs(_places(seen.node_places()), _places(seen.leaf_places()), chunks)


def _places(rows: Iterable[SeenPlace]) -> list[LiveAlloc]:
    return [
        LiveAlloc(p.tensor, p.buffer, *_place(p.place), p.address,
                  [LiveSource(name, *_place(place)) for name, place in p.sources])
        for p in rows
    ]  # fmt: skip


def _place(place: TensorAllocState) -> tuple[int, int, int, int]:
    return place.buffer_id, place.chunk, place.offset, place.size_max


def _tensors(seen: Seen, addresses: Iterable[int]) -> list[LiveTensor]:
    out = []
    for address in addresses:
        t = seen.snapshot.tensors[address]
        used = max((i + 1 for i, a in enumerate(t.src) if a), default=0)
        out.append(LiveTensor(
            seen.name(address), address, seen.op(t), set_words(t), seen.type(t), list(t.ne), list(t.nb),
            seen.nbytes(t), flag_names(t.flags), seen.backend(seen.sched.backend_ids.get(address)), t.buffer, t.data,
            seen.name(t.view_src) if t.view_src else None, t.view_offs,
            [seen.name(a) if a else None for a in t.src[:used]],
            [seen.name(a) for a in seen.sched.copies.get(address, {}).values()],
        ))  # fmt: skip
    return out


def _lifetime(seen: Seen, address: int) -> LiveLifetime:
    rows = [
        LiveOwner(o.tensor, o.op, o.start, o.end, o.address, o.nbytes, o.shared, o.asked) for o in seen.owners(address)
    ]
    return LiveLifetime(seen.name(address), rows)
