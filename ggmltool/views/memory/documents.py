"""The JSON of memory: compute buffers, who has which bytes when, one tensor, the arenas of the contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from ggmltool.show.document import Row, StepDocument, error_of, head
from ggmltool.views.memory.buffers import buffers_of
from ggmltool.views.memory.chunks import Chunk, chunk_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.memory import MemoryPlan, Peak


class PeakTensor(Row, rename={"start": "from", "end": "to"}):
    """A tensor that is alive at the peak: its bytes and its place; alive `from` one node `to` another, null for the
    beginning and the end. `reused` is the tensor in whose memory it is computed."""

    id: str
    size: int
    chunk: int
    offset: int
    start: str | None
    end: str | None
    output: bool
    reused: str | None


class PeakRow(Row):
    """The `node` during which most bytes are alive (null: before the first), how many, and what lies there then."""

    node: str | None
    nbytes: int
    tensors: list[PeakTensor]

    @classmethod
    def of(cls, peak: Peak, memory: MemoryPlan) -> PeakRow:
        """A peak, with the names of nodes."""

        def node(step: int | None) -> str | None:
            return None if step is None or step < 0 else memory.nodes[step]

        tensors = [
            PeakTensor(t.tensor, t.size, t.chunk, t.offset, node(t.start), node(t.end), t.kept, t.reused)
            for t in peak.tensors
        ]
        return cls(node(peak.step), peak.nbytes, tensors)


class BufferRow(Row):
    """The compute buffer of a backend: its bytes and those of its chunks. `shares` is the backend before it that has
    the same buffer, which then has chunks and peak."""

    backend: str
    buft: str
    size: int
    shares: str | None
    chunks: list[int]
    peak: PeakRow | None


class BuffersDocument(StepDocument, kw_only=True):
    """`buffers --json`: the size of every compute buffer, and what lies in it at its peak, largest first."""

    kind: Literal["buffers"] = "buffers"
    buffers: list[BufferRow]

    @classmethod
    def of(cls, plan: Plan, memory: MemoryPlan) -> BuffersDocument:
        """The buffers of a plan, whose lifetimes `memory` has."""
        rows = [
            BufferRow(
                b.backend, b.buft, b.size, b.shared, b.chunks, None if b.peak is None else PeakRow.of(b.peak, memory)
            )
            for b in buffers_of(plan, memory)
        ]
        return cls(**head(plan), buffers=rows)


class ChunksDocument(StepDocument, kw_only=True):
    """`buffers --chunks --json`: the chunks of every compute buffer, and which tensor opened each."""

    kind: Literal["chunks"] = "chunks"
    chunks: list[Chunk]

    @classmethod
    def of(cls, plan: Plan, memory: MemoryPlan, limits: Mapping[str, int | None]) -> ChunksDocument:
        """The chunks of a plan; `limits` are those of the buffer types."""
        return cls(**head(plan), chunks=chunk_rows(plan, memory, limits))


class CopiesRow(Row):
    """How many tensors are copied, and the bytes of each backend's compute buffer."""

    copies: int
    buffer_sizes: dict[str, int]

    @classmethod
    def of(cls, plan: Plan) -> CopiesRow:
        """What a plan needs."""
        return cls(len(plan.copies), dict(plan.buffer_sizes))


class CopiesDocument(StepDocument, kw_only=True, rename={"parallel": "with"}):
    """`buffers --copies --json`: what a graph needs `with` the copies of pipeline parallelism and `without`."""

    kind: Literal["pipeline_copies"] = "pipeline_copies"
    parallel: CopiesRow
    without: CopiesRow

    @classmethod
    def of(cls, parallel: Plan, single: Plan) -> CopiesDocument:
        """Two plans of one graph."""
        document = cls(**head(parallel), parallel=CopiesRow.of(parallel), without=CopiesRow.of(single))
        return document if parallel.error is not None else replace(document, ok=single.ok, error=error_of(single.error))
