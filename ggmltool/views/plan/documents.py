"""The JSON of plans: whole, by split, counted, what is copied, pass by pass; and of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, SplitPlan
from ggmltool.ggml.tensor import FLAG_PARAM, Dims, Tensor, op_desc
from ggmltool.show.document import Error, ReleaseDocument, Row, StepDocument, head

if TYPE_CHECKING:
    from collections.abc import Sequence


class PlanBackend(Row):
    """A backend and its buffer type; they are listed by priority."""

    name: str
    buft: str


class Talloc(Row):
    """An allocator of January 2024 after the graph was allocated in it: bytes, and free blocks as [offset, size]."""

    backend: str
    align_offset: int
    max_size: int
    buffer_size: int
    free_blocks: list[tuple[int, int]]


class PlanDocument(StepDocument, kw_only=True):
    """`plan --json`: the whole plan, with the backend, the split and the place in memory of every node.

    `buffer_sizes` are the bytes of each backend's compute buffer; `log` is what ggml logs, `debug_log` what only a
    debug build does. `tallocs`, `inplace` and `measured` are of January 2024: its allocators, the nodes computed in the
    memory of a source, and the bytes that measuring found. `compute_error` is how ggml aborts when it computes what was
    planned.
    """

    main_table = "nodes"
    kind: Literal["plan"] = "plan"
    backends: list[PlanBackend]
    splits: list[SplitPlan]
    nodes: list[NodePlan]
    leafs: list[LeafPlan]
    copies: list[CopyPlan]
    buffer_sizes: dict[str, int]
    log: list[str]
    debug_log: list[str] | UnsetType = UNSET
    tallocs: list[Talloc] | UnsetType = UNSET
    inplace: list[str] | UnsetType = UNSET
    measured: dict[str, int] | UnsetType = UNSET
    compute_error: Error | UnsetType = UNSET

    @classmethod
    def of(cls, plan: Plan) -> PlanDocument:
        """A plan."""
        error = {} if plan.compute_error is None else {"compute_error": dict(plan.compute_error)}
        return msgspec.convert(plan.as_dict() | error, cls)


class GraphTensor(Row):
    """A node or leaf: extents `ne`, strides in bytes `nb`, the names of its sources; `id` None for the scheduler's
    own."""

    index: int
    id: str | None
    name: str
    op: str
    op_desc: str
    type: str
    ne: Dims
    nb: Dims
    param: bool
    src: list[str | None]

    @classmethod
    def all(cls, tensors: Sequence[Tensor]) -> list[GraphTensor]:
        """Tensors in the graph's order."""
        return [cls._of(i, t) for i, t in enumerate(tensors)]

    @classmethod
    def _of(cls, index: int, t: Tensor) -> GraphTensor:
        src = [None if s is None else s.label for s in t.src]
        param = bool(t.flags & FLAG_PARAM)
        return cls(index, t.id or None, t.name, Op(t.op).name, op_desc(t), t.type.name, t.ne, t.nb, param, src)


class BuiltGraph(ReleaseDocument, kw_only=True):
    """`graph --json`: nodes and leafs in the graph's order, as the scenario builds it or as the scheduler allocates it.

    `of` says whose graph it is.
    """

    kind: Literal["graph"] = "graph"
    graph: str
    of_: Literal["scenario"] = msgspec.field(default="scenario", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]

    @classmethod
    def of(cls, ggml: str, graph: str, nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> BuiltGraph:
        """The graph as ggml_build_forward_expand leaves it."""
        return cls(ggml=ggml, graph=graph, nodes=GraphTensor.all(nodes), leafs=GraphTensor.all(leafs))


class SchedulerGraph(StepDocument, kw_only=True):
    """`graph --sched --json`: the graph that the scheduler hands to the allocator, with its copies."""

    kind: Literal["graph"] = "graph"
    of_: Literal["scheduler"] = msgspec.field(default="scheduler", name="of")
    nodes: list[GraphTensor]
    leafs: list[GraphTensor]

    @classmethod
    def of(cls, plan: Plan, nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> SchedulerGraph:
        """The scheduler's graph after the step of a plan."""
        return cls(**head(plan), nodes=GraphTensor.all(nodes), leafs=GraphTensor.all(leafs))
