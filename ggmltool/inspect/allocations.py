"""The allocator's work as a record: every event with the free blocks it leaves, and the hash nodes at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.alloc.common import AnyGallocr
from ggmltool.ggml.events import Allocated, AllocationStarted, Freed, Kept, NotReused, Reused
from ggmltool.ggml.sched.reader import chunk_states, hash_nodes
from ggmltool.ggml.state import ChunkState, HashNodeState
from ggmltool.inspect.memory import MemoryRecorder
from ggmltool.inspect.part import Part

if TYPE_CHECKING:
    from ggmltool.ggml.sched.common import AnyScheduler

AllocEvent = AllocationStarted | Allocated | Reused | NotReused | Freed | Kept


class Block(NamedTuple):
    """A range of a chunk. `tensor` is who lies there, "" for a free block."""

    offset: int
    size: int
    tensor: str = ""


class AllocStep(NamedTuple):
    """An event of the allocator, with the state of the chunk it changed; None if it changed none."""

    event: AllocEvent
    chunk: ChunkState | None


class AllocMoment(NamedTuple):
    """The allocator right after a tensor got its memory, before its sources are given back.

    `nodes` are the hash nodes by the tensor's index, `chunks` and `taken` the chunks of each buffer id and what lies
    in them. `most_free` are the free blocks that a chunk had at most, by its buffer type's name and number.
    """

    nodes: dict[int, HashNodeState]
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
        state = chunk_states(self.gallocr.buf_tallocs[names.index(event.buft)])[event.chunk]
        place = event.buft, event.chunk
        self.most_free[place] = max(self.most_free.get(place, 1), len(state.free_blocks))
        return state

    def _now(self, gallocr: AnyGallocr) -> AllocMoment:
        nodes = dict(enumerate(hash_nodes(gallocr)))
        chunks = tuple(map(chunk_states, gallocr.buf_tallocs))
        taken = tuple(
            tuple(tuple(self._blocks(gallocr.bufts[b].name, c)) for c in range(len(states)))
            for b, states in enumerate(chunks)
        )
        return AllocMoment(nodes, chunks, taken, dict(self.most_free))

    def _blocks(self, buft: str, chunk: int) -> Iterator[Block]:
        there = [life for life in self.lifetimes.living if (life.buft, life.chunk) == (buft, chunk)]
        yield from sorted(Block(life.offset, life.size, life.tensor) for life in there)
