"""The compute buffers: how large, how full at most, what lies there then; their chunks; what pipeline copies cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import MemoryPlan, Peak, TensorLifetime
from ggmltool.show.document import Row, StepDocument, error_of, head

if TYPE_CHECKING:
    from ggmltool.scenario.tensor_info import Tensors


class Buffer(NamedTuple):
    """The compute buffer of a backend. `shared` names the backend before it that has the same buffer type."""

    backend: str
    buft: str
    size: int
    shared: str | None
    chunks: list[int]
    peak: Peak | None


def buffers_of(plan: Plan, memory: MemoryPlan) -> list[Buffer]:
    """One per backend, in the order of the backends."""
    sizes = dict(plan.buffer_sizes)
    first: dict[str, str] = {}
    out = []
    for name, buft in plan.backends:
        owner = first.setdefault(buft, name)
        own = owner == name
        peak = memory.peak(buft) if own else None
        chunks = memory.chunk_sizes(buft) if own else []
        out.append(Buffer(name, buft, sizes.get(name, 0), None if own else owner, chunks, peak))
    return out


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

    view = "buffers"
    beside = ("plan", "memory", "tensors", "limit", "ascii")
    """The buffers with what lies in them when, and the tensors of the graph; at most `limit` of the tensors at a peak
    are shown, None for all. `ascii` is for the chart."""
    kind: Literal["buffers"] = "buffers"
    buffers: list[BufferRow]
    plan: Plan
    memory: MemoryPlan
    tensors: Tensors
    limit: int | None = None
    ascii: bool = False

    @classmethod
    def of(
        cls, plan: Plan, memory: MemoryPlan, tensors: Tensors, limit: int | None = None, ascii: bool = False
    ) -> Self:
        """The buffers of a plan, whose lifetimes `memory` has."""
        rows = [
            BufferRow(b.backend, b.buft, b.size, b.shared, b.chunks, b.peak and PeakRow.of(b.peak, memory))
            for b in buffers_of(plan, memory)
        ]
        shown = {"buffers": rows, "plan": plan, "memory": memory, "tensors": tensors, "limit": limit, "ascii": ascii}
        return cls(**head(plan) | shown)

    def rows(self) -> tuple[TensorLifetime, ...]:
        """All lifetimes."""
        return self.memory.lifetimes


class ChartShown(BuffersDocument, kw_only=True):
    """The buffers over time."""

    view = "chart"


LAST_CHUNK = 15
"""The chunk that may be of any size: there is none after it."""


class Chunk(Row):
    """A chunk of a compute buffer: `limit` is the largest buffer of its type, None for none; `opened_by` the tensor for
    which there was no room in the chunks before, `during` the node then, None before the first."""

    backend: str
    chunk: int
    size: int
    limit: int | None
    tensors: int
    opened_by: str
    opened_by_size: int
    during: str | None


class ChunksDocument(StepDocument, kw_only=True):
    """`buffers --chunks --json`: the chunks of every compute buffer, and which tensor opened each."""

    view = "chunks"
    beside = ("backends",)
    """The chunks with the names of the backends, for their colors."""
    kind: Literal["chunks"] = "chunks"
    chunks: list[Chunk]
    backends: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan, memory: MemoryPlan, limits: Mapping[str, int | None]) -> Self:
        """The chunks of a plan; `limits` are the bytes of the largest buffer of each type."""
        rows = []
        for buffer in buffers_of(plan, memory):
            for chunk, nbytes in enumerate(buffer.chunks):
                lives = memory.of(buffer.buft, chunk)
                first = lives[0]
                limit = None if chunk == LAST_CHUNK else limits.get(buffer.buft)
                during = memory.nodes[first.start] if first.start >= 0 else None
                rows.append(Chunk(buffer.backend, chunk, nbytes, limit, len(lives), first.tensor, first.size, during))
        return cls(**head(plan), chunks=rows, backends=tuple(name for name, _ in plan.backends))


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

    view = "copies"
    tells_refusal = ("text", "json", "csv")
    beside = ("plans",)
    """Both with their plans."""
    kind: Literal["pipeline_copies"] = "pipeline_copies"
    parallel: CopiesRow
    without: CopiesRow
    plans: tuple[Plan, Plan]

    @classmethod
    def of(cls, parallel: Plan, single: Plan) -> Self:
        """Two plans of one graph."""
        fields = head(parallel) if parallel.error is not None else head(parallel) | {
            "ok": single.ok, "error": error_of(single.error),
        }  # fmt: skip
        return cls(**fields, parallel=CopiesRow.of(parallel), without=CopiesRow.of(single), plans=(parallel, single))
