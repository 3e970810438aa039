"""The JSON of the allocators: the plan and how it came about, free blocks, hash tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ggmltool.ggml.vbuffer import TensorAlloc
from ggmltool.show.document import Row, StepDocument, head
from ggmltool.views.explain.events import AllocEventRow, alloc_event_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.allocations import AllocMoment, AllocStep
    from ggmltool.inspect.allocator import AllocRow


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


class AllocsDocument(StepDocument, kw_only=True):
    """`allocs --json`: the graph allocator's plan, and with --trace how it came about.

    `buffer_id` is an index of `bufts`, -1 where the allocator plans nothing.
    """

    kind: Literal["allocs"] = "allocs"
    bufts: list[str]
    node_allocs: list[NodeAlloc]
    leaf_allocs: list[LeafAlloc]

    @classmethod
    def of(
        cls, plan: Plan, nodes: Sequence[AllocRow], leafs: Sequence[AllocRow], bufts: Sequence[str]
    ) -> AllocsDocument:
        """The allocator's plan after the step of `plan`."""
        leaf_allocs = [LeafAlloc(r.tensor, r.place) for r in leafs]
        return cls(
            **head(plan), bufts=list(bufts), node_allocs=[NodeAlloc.of(r) for r in nodes], leaf_allocs=leaf_allocs
        )


class AllocTrace(StepDocument, kw_only=True):
    """`allocs --trace --json`: what the allocator did, event by event.

    `free_blocks` are those of the chunk after the event, as [offset, size], null where it changed none.
    """

    kind: Literal["allocs"] = "allocs"
    steps: list[AllocEventRow]

    @classmethod
    def of(cls, plan: Plan, steps: Sequence[AllocStep]) -> AllocTrace:
        """The steps that led to the allocator's last plan."""
        return cls(**head(plan), steps=[alloc_event_row(step) for step in steps])


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


class FreeBlocksDocument(StepDocument, kw_only=True):
    """`allocs --free-blocks NODE --json`: what lies where and what is free, when the node `at` had got its memory."""

    kind: Literal["free_blocks"] = "free_blocks"
    at: str
    chunks: list[ChunkBlocks]

    @classmethod
    def of(cls, plan: Plan, moment: AllocMoment, bufts: Sequence[str], at: str) -> FreeBlocksDocument:
        """Every chunk of every buffer id at a moment of the allocator."""
        chunks = [
            ChunkBlocks(
                buft,
                number,
                state.max_size,
                list(state.free_blocks),
                [TakenBlock(*b) for b in blocks],
            )
            for buft, states, taken in zip(bufts, moment.chunks, moment.taken, strict=True)
            for number, (state, blocks) in enumerate(zip(states, taken, strict=True))
        ]
        return cls(**head(plan), at=at, chunks=chunks)
