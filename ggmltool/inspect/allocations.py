"""The allocator's work as a record: every event with the free blocks it leaves, and the hash nodes at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.events import Allocated, AllocationStarted, Freed, Kept, NotReused, Reused
from ggmltool.ggml.gallocr_common import AnyGallocr
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor
from ggmltool.inspect.memory import MemoryRecorder
from ggmltool.inspect.part import Part

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler

AllocEvent = AllocationStarted | Allocated | Reused | NotReused | Freed | Kept


class HashNode(NamedTuple):
    """struct hash_node: what the allocator knows of one tensor."""

    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class Block(NamedTuple):
    """A range of a chunk. `tensor` is who lies there, "" for a free block."""

    offset: int
    size: int
    tensor: str = ""


class ChunkState(NamedTuple):
    """A chunk of a planner: its free blocks in order, and the highest byte that was ever used."""

    free: tuple[Block, ...]
    max_size: int


class AllocStep(NamedTuple):
    """An event of the allocator, with the state of the chunk it changed; None if it changed none."""

    event: AllocEvent
    chunk: ChunkState | None


class AllocMoment(NamedTuple):
    """The allocator right after a tensor got its memory, before its sources are given back.

    `nodes` are the hash nodes by the tensor's index, `chunks` and `taken` the chunks of each buffer id and what lies
    in them. `most_free` are the free blocks that a chunk had at most, by its buffer type's name and number.
    """

    nodes: dict[int, HashNode]
    chunks: tuple[tuple[ChunkState, ...], ...]
    taken: tuple[tuple[tuple[Block, ...], ...], ...]
    most_free: Mapping[tuple[str, int], int]


class AllocRecorder(Part):
    """The steps of the allocator's last plan with its lifetimes, and the moment the tensor `at` was allocated.

    Of a tensor that gets no memory from the allocator (a view, or one that is pre-allocated), the moment is when the
    allocator turns to it. `before`: the moment is when it turns to the node `at`, whatever that gets. `moment` stays
    None where the plan has no tensor (or node) of that name. `most_free` is that of `AllocMoment`, of all plans.
    """

    hears = frozenset({*MemoryRecorder.hears, NotReused})

    def __init__(self, at: str | None = None, before: bool = False) -> None:
        self.gallocr: AnyGallocr | None = None
        self.at = at
        self.before = before
        self.steps: list[AllocStep] = []
        self.moment: AllocMoment | None = None
        self.most_free: dict[tuple[str, int], int] = {}
        self.lifetimes = MemoryRecorder()

    def attach(self, sched: AnyScheduler) -> None:
        self.gallocr = sched.gallocr

    def hear(self, event: AllocEvent) -> None:
        if isinstance(event, AllocationStarted) and event.at == -1:
            self.steps = []
            self.moment = None
        self.lifetimes.hear(event)
        self.steps.append(AllocStep(event, self._chunk(event)))
        if self.gallocr is not None and self._is_the_moment(event):
            self.moment = self._now(self.gallocr)

    def _is_the_moment(self, event: AllocEvent) -> bool:
        match event:
            case Allocated(tensor=tensor) | Reused(tensor=tensor):
                return tensor == self.at and not self.before
            case AllocationStarted(node=node):
                return self.at is not None and node == self.at and self.moment is None
            case _:
                return False

    def _chunk(self, event: AllocEvent) -> ChunkState | None:
        if self.gallocr is None or not isinstance(event, (Allocated, Freed)):
            return None
        names = [b.name for b in self.gallocr.bufts]
        state = chunk_states(self.gallocr, names.index(event.buft))[event.chunk]
        place = event.buft, event.chunk
        self.most_free[place] = max(self.most_free.get(place, 1), len(state.free))
        return state

    def _now(self, gallocr: AnyGallocr) -> AllocMoment:
        hn = gallocr.hash_nodes
        nodes = {i: hash_node(gallocr, i) for i in range(len(hn.offset))}
        chunks = tuple(chunk_states(gallocr, b) for b in range(len(gallocr.bufts)))
        taken = tuple(
            tuple(tuple(self._blocks(gallocr.bufts[b].name, c)) for c in range(len(states)))
            for b, states in enumerate(chunks)
        )
        return AllocMoment(nodes, chunks, taken, dict(self.most_free))

    def _blocks(self, buft: str, chunk: int) -> Iterator[Block]:
        there = [life for life in self.lifetimes.living if (life.buft, life.chunk) == (buft, chunk)]
        yield from sorted(Block(life.offset, life.size, life.tensor) for life in there)


def hash_node(gallocr: AnyGallocr, index: int) -> HashNode:
    """The hash node of the tensor with this index, as it is now."""
    hn = gallocr.hash_nodes
    return HashNode(
        hn.n_children[index],
        hn.n_views[index],
        hn.buffer_id[index],
        hn.chunk[index],
        hn.offset[index],
        bool(hn.allocated[index]),
    )


def chunk_states(gallocr: AnyGallocr, buffer_id: int) -> tuple[ChunkState, ...]:
    """The chunks of a buffer id's planner, as they are now."""
    return tuple(
        ChunkState(tuple(Block(offset, size) for offset, size in chunk.free_blocks), chunk.max_size)
        for chunk in gallocr.buf_tallocs[buffer_id].chunks
    )


def hash_keys(nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the allocator's hash set, in the order ggml_gallocr_alloc_graph_impl first looks them up."""
    return list({look_up.tensor.index: look_up.tensor for look_up in _look_ups(nodes, leafs)}.values())


def hash_keys_so_far(gallocr: AnyGallocr, at: int) -> list[Tensor]:
    """The tensors in the allocator's hash set when it refused to go on, while it walked node `at` (-1: before)."""
    keys: dict[int, Tensor] = {}
    refused = gallocr.refused
    for look_up in _look_ups(gallocr.planned_nodes, gallocr.planned_leafs):
        here = look_up.tensor is refused and look_up.at == at
        if here and not gallocr.hash_nodes.allocated[look_up.tensor.index]:
            break  # it has no backend, which is asked before the look-up
        keys.setdefault(look_up.tensor.index, look_up.tensor)
        if here and look_up.frees == (at >= 0 and not _is_wanted(gallocr, look_up)):
            break
    return list(keys.values())


class _LookUp(NamedTuple):
    """`tensor` is looked up while node `at` is walked (-1: before the first), to give memory back where `frees`."""

    at: int
    tensor: Tensor
    frees: bool = False


def _is_wanted(gallocr: AnyGallocr, look_up: _LookUp) -> bool:
    """Whether a refused tensor was to get memory: a node its own, a source for the node that still counts on it."""
    t = look_up.tensor
    return t is gallocr.planned_nodes[look_up.at] or gallocr.hash_nodes.n_children[t.index] > 0


def _look_ups(nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> Iterator[_LookUp]:
    """What ggml_gallocr_alloc_graph_impl looks up in its hash set, in order."""
    n_children: dict[int, int] = {}
    n_views: dict[int, int] = {}
    for t in leafs:
        yield _LookUp(-1, t)
    for n in nodes:
        if n.view_src is not None and n.op:
            yield _LookUp(-1, n.view_src)
            n_views[n.view_src.index] = n_views.get(n.view_src.index, 0) + 1
        if n.flags & FLAG_INPUT:
            yield _LookUp(-1, n)
        for s in n.src:
            if s is not None:
                yield _LookUp(-1, s)
                n_children[s.index] = n_children.get(s.index, 0) + 1
    for at, n in enumerate(nodes):
        sources = [s for s in n.src if s is not None]
        for s in sources:
            yield _LookUp(at, s)
        yield _LookUp(at, n)
        for s in sources:
            n_children[s.index] -= 1
            yield _LookUp(at, s, True)
            root = s.view_src
            if root is not None and not n_children[s.index] and not n_views.get(s.index, 0):
                # Looking the root up is what puts it into the set; a view without an op may be the first to do so.
                yield _LookUp(at, root, True)
                n_views[root.index] = n_views.get(root.index, 0) - 1
