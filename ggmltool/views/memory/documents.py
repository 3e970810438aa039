"""The JSON of memory: compute buffers, who has which bytes when, one tensor, the arenas of the contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, replace

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims, op_desc, root_of
from ggmltool.inspect.use_after_free import FreedBy
from ggmltool.show.document import Row, StepDocument, error_of, head
from ggmltool.views.memory.buffers import buffers_of
from ggmltool.views.memory.chunks import Chunk, chunk_rows
from ggmltool.views.memory.tensor import flag_names, layout, signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ggmltool.ggml.context import Context
    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.contexts import GraphFacts
    from ggmltool.inspect.memory import MemoryPlan, Peak
    from ggmltool.inspect.tensor import TensorFacts


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


class HashNodeRow(Row):
    """What the allocator's hash table has of a tensor: uses and views left, and its place."""

    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class TensorRow(Row):
    """Everything about a tensor: extents `ne`, strides in bytes `nb`, its struct's simulated `address`, backend and
    cause, the place of its data; null where ggml has none."""

    id: str | None
    name: str
    address: int
    context: str
    op: str
    op_desc: str
    op_params: list[int]
    type: str
    ne: Dims
    nb: Dims
    nbytes: int
    layout: list[str]
    flags: list[str]
    backend: str | None
    cause: str | None
    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None
    data: int
    view_src: str | None
    view_offs: int
    src: list[str | None]
    use_count: int
    used_by: list[str]
    copies: list[str]
    hash_node: HashNodeRow | None
    freed: FreedBy | UnsetType = UNSET


class TensorDocument(StepDocument, kw_only=True):
    """`tensor --json`: everything about one tensor."""

    main_table = "tensor"
    kind: Literal["tensor"] = "tensor"
    tensor: TensorRow

    @classmethod
    def of(cls, plan: Plan, facts: TensorFacts) -> TensorDocument:
        """What is known of a tensor after the step of a plan."""
        t = facts.tensor
        b = root_of(t).buffer
        row = TensorRow(
            id=t.id or None,
            name=t.name,
            address=facts.address,
            context=facts.context,
            op=Op(t.op).name,
            op_desc=op_desc(t),
            op_params=[signed(w) for w in t.op_params],
            type=t.type.name,
            ne=t.ne,
            nb=t.nb,
            nbytes=t.nbytes,
            layout=layout(t),
            flags=flag_names(facts.flags),
            backend=facts.backend,
            cause=facts.cause or None,
            buffer=None if b is None else b.buft.name,
            usage=None if b is None else USAGE_NAMES[b.usage],
            chunk=None if b is None else b.chunk,
            offset=None if b is None else t.data - b.base,
            data=t.data,
            view_src=None if t.view_src is None else t.view_src.label,
            view_offs=t.view_offs,
            src=[None if s is None else s.label for s in t.src],
            use_count=facts.use_count,
            used_by=list(facts.used_by),
            copies=list(facts.copies),
            hash_node=None if facts.node is None else HashNodeRow(**asdict(facts.node)),
            freed=facts.freed or UNSET,
        )
        return cls(**head(plan), tensor=row)


class ObjectRow(Row):
    """An object of a context: bytes from the start of its arena; of a tensor its name and where its data lies."""

    type: str
    offset: int
    size: int
    tensor: str | None
    data: int | None


class ContextRow(Row):
    """A context: its arena's simulated address, and the objects in it."""

    name: str
    base: int
    used_mem: int
    objects: list[ObjectRow]

    @classmethod
    def of(cls, ctx: Context) -> ContextRow:
        """A context and its objects, in order."""
        objects = [
            ObjectRow(
                o.type, o.offset, o.size, *((None, None) if o.tensor is None else (o.tensor.label, o.tensor.data))
            )
            for o in ctx.objects()
        ]
        return cls(ctx.name, ctx.base, ctx.used_mem, objects)


class FieldRow(Row):
    """An array of a cgraph: where it begins in its object, and its bytes."""

    field: str
    offset: int
    nbytes: int


class CGraphRow(Row):
    """A cgraph: the most nodes and leafs that it can have, how many it has, and where its arrays lie."""

    size: int
    n_nodes: int
    n_leafs: int
    layout: list[FieldRow]


class ContextDocument(StepDocument, kw_only=True):
    """`context --json`: what lies where in the arenas of the contexts, and how the cgraph is laid out."""

    main_table = "contexts.objects"
    kind: Literal["context"] = "context"
    contexts: list[ContextRow]
    cgraph: CGraphRow

    @classmethod
    def of(cls, plan: Plan, contexts: Sequence[Context], graph: GraphFacts) -> ContextDocument:
        """The contexts as they are after the step of a plan."""
        fields = [FieldRow(*field) for field in graph.layout]
        cgraph = CGraphRow(graph.size, graph.n_nodes, graph.n_leafs, fields)
        return cls(**head(plan), contexts=[ContextRow.of(ctx) for ctx in contexts], cgraph=cgraph)
