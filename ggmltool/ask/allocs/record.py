"""The JSON of the allocators: the plan and how it came about, free blocks, hash tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from ggmltool.ask.events import AllocEventRow, alloc_event_row
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.state import ChunkState
from ggmltool.inspect.allocator import NodeLabel, WatchedAllocator
from ggmltool.show.document import Row, StepDocument, head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggmltool.inspect.allocator import AllocRow
    from ggmltool.inspect.memory import AllocStep


class SourceAlloc(Row):
    """Where the plan puts a source of a node."""

    tensor: str
    buffer_id: int
    chunk: int
    offset: int
    size_max: int


class NodeAlloc(Row):
    """node_alloc: where the plan puts a node (`dst`) and its sources."""

    tensor: str
    dst: TensorAlloc
    src: list[SourceAlloc]

    @classmethod
    def of(cls, row: AllocRow) -> NodeAlloc:
        """A node's."""
        src = [SourceAlloc(name, a.buffer_id, a.chunk, a.offset, a.size_max) for name, a in row.sources]
        return cls(row.tensor, row.place, src)


class LeafAlloc(Row):
    """leaf_alloc: where the plan puts a leaf."""

    tensor: str
    leaf: TensorAlloc


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


class AllocTable(StepDocument, kw_only=True):
    """`allocs --json`: the graph allocator's plan, and with --trace how it came about.

    `buffer_id` is an index of `bufts`, -1 where the allocator plans nothing.
    """

    view = "allocs"
    beside = ("nodes", "leafs", "tallocrs")
    """The plan as it was read, and the planners as gdb shows them."""
    kind: Literal["allocs"] = "allocs"
    bufts: list[str]
    node_allocs: list[NodeAlloc]
    leaf_allocs: list[LeafAlloc]
    nodes: tuple[AllocRow, ...]
    leafs: tuple[AllocRow, ...]
    tallocrs: tuple[TallocrState, ...]

    @classmethod
    def of(cls, found: WatchedAllocator) -> AllocTable:
        """The allocator's plan at a moment."""
        return cls(
            **head(found.at.plan),
            bufts=[b.name for b in found.gallocr.bufts],
            node_allocs=[NodeAlloc.of(r) for r in found.nodes],
            leaf_allocs=[LeafAlloc(r.tensor, r.place) for r in found.leafs],
            nodes=tuple(found.nodes),
            leafs=tuple(found.leafs),
            tallocrs=_tallocrs(found, found.chunks, found.record.most_free),
        )

    def rows(self) -> tuple[AllocRow, ...]:
        """Nodes, then leafs."""
        return *self.nodes, *self.leafs


class AllocStory(StepDocument, kw_only=True):
    """`allocs --trace --json`: what the allocator did, event by event.

    `free_blocks` are those of the chunk after the event, as [offset, size], null where it changed none.
    """

    view = "story"
    beside = ("told", "nodes")
    """The story, with the steps as they were told and the nodes that they are of."""
    kind: Literal["allocs"] = "allocs"
    steps: list[AllocEventRow]
    told: tuple[AllocStep, ...]
    nodes: tuple[NodeLabel, ...]

    @classmethod
    def of(cls, found: WatchedAllocator) -> AllocStory:
        """The steps that led to the allocator's last plan."""
        told = tuple(found.record.steps)
        steps = [alloc_event_row(step) for step in told]
        return cls(**head(found.at.plan), steps=steps, told=told, nodes=tuple(found.planned.nodes))

    def rows(self) -> tuple[AllocStep, ...]:
        """The steps."""
        return self.told


class TakenBlock(Row):
    """Bytes of a chunk that a tensor has."""

    offset: int
    size: int
    tensor: str


class ChunkBlocks(Row):
    """A chunk: its size so far, the free blocks as [offset, size], and those that are taken."""

    buft: str
    chunk: int
    max_size: int
    free: list[tuple[int, int]]
    taken: list[TakenBlock]


class FreeBlocks(StepDocument, kw_only=True):
    """`allocs --free-blocks NODE --json`: what lies where and what is free, when the node `at` had got its memory."""

    view = "free_blocks"
    beside = ("tallocrs",)
    """The planners as gdb shows them."""
    kind: Literal["free_blocks"] = "free_blocks"
    at: str
    chunks: list[ChunkBlocks]
    tallocrs: tuple[TallocrState, ...]

    @classmethod
    def of(cls, found: WatchedAllocator, at: str) -> FreeBlocks:
        """Every chunk of every buffer id, when the tensor `at` had got its memory."""
        then = found.moment()
        chunks = [
            ChunkBlocks(buft.name, number, c.max_size, list(c.free_blocks), [TakenBlock(*b) for b in blocks])
            for buft, states, taken in zip(found.gallocr.bufts, then.chunks, then.taken, strict=True)
            for number, (c, blocks) in enumerate(zip(states, taken, strict=True))
        ]
        return cls(**head(found.at.plan), at=at, chunks=chunks, tallocrs=_tallocrs(found, then.chunks, then.most_free))


def _tallocrs(
    found: WatchedAllocator, states: Sequence[Sequence[ChunkState]], most_free: Mapping[tuple[str, int], int]
) -> tuple[TallocrState, ...]:
    """The planners, each once."""
    gallocr, release = found.gallocr, found.at.run.model.release
    array = "galloc->buf_tallocs" if release.reserves else "sched->tallocs"
    out = []
    for b, tallocr in enumerate(gallocr.buf_tallocs):
        if gallocr.buf_tallocs.index(tallocr) == b:
            name, chunks = gallocr.bufts[b].name, tuple(states[b])
            room = [release.max_free_blocks - len(chunk.free_blocks) for chunk in chunks]
            clean = [most_free.get((name, c), 1) <= len(chunk.free_blocks) for c, chunk in enumerate(chunks)]
            unused = tuple(n if is_clean else None for n, is_clean in zip(room, clean, strict=True))
            out.append(TallocrState(f"{array}[{b}]", name, tallocr.alignment, chunks, unused))
    return tuple(out)
