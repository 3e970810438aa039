"""The JSON of plans: whole, by split, counted, what is copied, pass by pass; and of graphs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, SplitPlan
from ggmltool.ggml.tensor import FLAG_PARAM, Dims, Tensor, op_desc
from ggmltool.inspect.copied import CopiedInput, OtherPlan, copied_inputs
from ggmltool.show.document import Error, ReleaseDocument, Row, StepDocument, between, head
from ggmltool.views.explain.words import words
from ggmltool.views.plan.passes import changes
from ggmltool.views.plan.splits import input_bytes
from ggmltool.views.plan.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ggmltool.inspect.copied_experts import ExpertCopy
    from ggmltool.inspect.passes import PassRecord
    from ggmltool.scenario.tensor_info import TensorInfo, Tensors


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


class SplitInput(Row, kw_only=True):
    """A tensor that is copied before a split: its bytes, None if they are not known; with `nbytes_max` between."""

    id: str
    nbytes: int | None
    nbytes_max: int | UnsetType = UNSET

    @classmethod
    def of(cls, id: str, info: TensorInfo | None) -> SplitInput:
        """An input, and what is known of it."""
        return cls(id=id, nbytes=None) if info is None else cls(id=id, **between(info.nbytes, info.slack))


class SplitNode(Row):
    """A node of a split. `op_desc` is the function's name where `op` is UNARY or GLU."""

    index: int
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None


class SplitRow(Row):
    """A split: its nodes, `i_start` up to and without `i_end` (`last` is the last one, null if there is none), run on
    `backend`, behind the copies of `inputs`. `count` and `ops` are how many nodes, and how many of each op; `nbytes`
    and `copied` are the bytes copied (known ones) and the names of the inputs."""

    id: int
    backend: str
    i_start: int
    i_end: int
    last: int | None
    count: int
    nbytes: int
    copied: list[str]
    ops: list[str]
    inputs: list[SplitInput]
    nodes: list[SplitNode]


class SplitsDocument(StepDocument, kw_only=True):
    """`splits --json`: every split with what is copied for it and its nodes, each with backend and cause."""

    kind: Literal["splits"] = "splits"
    splits: list[SplitRow]

    @classmethod
    def of(cls, plan: Plan, tensors: Tensors) -> SplitsDocument:
        """The splits of a plan."""
        return cls(**head(plan), splits=[_split(split, plan, tensors) for split in plan.splits])


def _split(split: SplitPlan, plan: Plan, tensors: Tensors) -> SplitRow:
    nodes = plan.nodes[split.i_start : split.i_end]
    return SplitRow(
        split.id,
        split.backend,
        nodes[0].index if nodes else split.i_start,
        nodes[-1].index + 1 if nodes else split.i_end,
        nodes[-1].index if nodes else None,
        len(nodes),
        input_bytes(split, tensors),
        list(split.inputs),
        [f"{n} {op}" for op, n in Counter(n.op_desc for n in nodes).most_common()],
        [SplitInput.of(i, tensors.get(i)) for i in split.inputs],
        [SplitNode(n.index, n.id, n.op, n.op_desc, n.backend, n.cause) for n in nodes],
    )


class TallyDocument(StepDocument, kw_only=True):
    """`splits --by KEYS --json`: how many of the `nodes` there are of every combination of the keys `by`."""

    kind: Literal["tally"] = "tally"
    by: list[str]
    nodes: int
    counts: list[dict[str, str | int]]

    @classmethod
    def of(cls, plan: Plan, tensors: Tensors, keys: Sequence[str]) -> TallyDocument:
        """The nodes of a plan, counted."""
        counts = [_counted(keys, values, n) for values, n in tally(plan, tensors, keys).items()]
        return cls(**head(plan), by=list(keys), nodes=len(plan.nodes), counts=counts)


def _counted(keys: Sequence[str], values: Sequence[str], n: int) -> dict[str, str | int]:
    row: dict[str, str | int] = {"nodes": n}
    return {**dict(zip(keys, values, strict=True)), **row}


class CopiedRow(Row, kw_only=True, rename={"src": "from", "dst": "to"}):
    """A tensor that is copied before a split, a weight, an input, a node or a view, from one backend to another."""

    split: int
    id: str
    what: str
    src: str
    dst: str
    nbytes: int
    nbytes_max: int | UnsetType = UNSET


class CopiedPair(Row, kw_only=True, rename={"src": "from", "dst": "to"}):
    """All that is copied from one backend to another."""

    src: str
    dst: str
    nbytes: int
    nbytes_max: int | UnsetType = UNSET


class ExpertsRow(Row):
    """A weight of experts of which only the used ones are copied: how many at least and at most, and their bytes."""

    split: int
    id: str
    n_expert: int
    used_min: int
    used_max: int
    nbytes: int
    nbytes_min: int
    nbytes_max: int


class OtherCopies(Row):
    """How many tensors are copied with op offload the other way round, and their bytes."""

    inputs: int
    nbytes: int


class CopiedDocument(StepDocument, kw_only=True):
    """`splits --bytes --json`: the bytes that are copied before each split, per pair of backends and in all.

    `nbytes_max` is there where a log knows bytes only to a K or an M. `experts` are weights of which only the used
    experts are copied; `with_op_offload` or `without_op_offload` is the same graph with that option the other way.
    """

    kind: Literal["copied"] = "copied"
    nbytes: int
    nbytes_max: int | UnsetType = UNSET
    inputs: list[CopiedRow]
    pairs: list[CopiedPair]
    experts: list[ExpertsRow] | UnsetType = UNSET
    with_op_offload: OtherCopies | UnsetType = UNSET
    without_op_offload: OtherCopies | UnsetType = UNSET

    @classmethod
    def of(
        cls, plan: Plan, tensors: Tensors, other: OtherPlan | None = None, experts: Sequence[ExpertCopy] = ()
    ) -> CopiedDocument:
        """What the splits of a plan copy."""
        inputs = copied_inputs(plan, tensors)
        pairs: dict[tuple[str, str], list[CopiedInput]] = {}
        for i in inputs:
            pairs.setdefault((i.src, i.dst), []).append(i)
        document = cls(
            **head(plan),
            **_bytes(inputs),
            inputs=[
                CopiedRow(split=i.split, id=i.tensor, what=i.what, src=i.src, dst=i.dst, **_bytes([i])) for i in inputs
            ],
            pairs=[CopiedPair(src=src, dst=dst, **_bytes(of)) for (src, dst), of in pairs.items()],
            experts=[ExpertsRow(*e) for e in experts] or UNSET,
        )
        if other is not None:
            copies = OtherCopies(other.inputs, other.nbytes)
            side = "with_op_offload" if other.op_offload else "without_op_offload"
            document = replace(document, **{side: copies})
        return document


def _bytes(inputs: Sequence[CopiedInput]) -> dict[str, Any]:
    return between(sum(i.nbytes for i in inputs), sum(i.slack for i in inputs))


class PassTensor(Row):
    """A node or leaf after a pass; `changed` where this pass assigned it, for `reason`."""

    index: int
    leaf: bool
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None
    changed: bool
    reason: str | None


class PassSplit(Row):
    """A split that the last pass began, at the node `at`, for `reason`."""

    split: int
    backend: str
    at: int
    node: str
    reason: str


class PassInput(Row):
    """A tensor that the last pass decided to copy before a split."""

    split: int
    id: str
    backend: str


class PassGraphInput(Row):
    """An input of the graph, with its pipeline copies on its own backend."""

    tensor: str
    backend: str
    copies: list[str]


class PassDocument(StepDocument, kw_only=True):
    """`splits --pass N --json`: what is assigned after one pass of the scheduler, and what the pass changed.

    `complete` is false, and the rest is missing, where ggml stopped before the end of the pass.
    """

    main_table = "tensors"
    kind: Literal["pass"] = "pass"
    number: int = msgspec.field(name="pass")
    complete: bool
    tensors: list[PassTensor] | UnsetType = UNSET
    splits: list[PassSplit] | UnsetType = UNSET
    inputs: list[PassInput] | UnsetType = UNSET
    graph_inputs: list[PassGraphInput] | UnsetType = UNSET

    @classmethod
    def of(cls, plan: Plan, records: Sequence[PassRecord], number: int) -> PassDocument:
        """The state after pass `number`, of which there is a record unless ggml stopped before."""
        record = next((r for r in records if r.number == number), None)
        if record is None:
            return cls(**head(plan), number=number, complete=False)
        reasons = changes(record)
        tensors = [
            PassTensor(
                a.index, a.is_leaf, a.tensor, a.op, a.op, a.backend, a.cause, a.tensor in reasons, reasons.get(a.tensor)
            )
            for a in record.assignments
        ]
        splits = [PassSplit(s.split, s.backend, s.at, s.node, words(s)) for s in record.splits]
        inputs = [PassInput(i.split, i.tensor, i.backend) for i in record.inputs]
        graph_inputs = [PassGraphInput(i.tensor, i.backend, list(i.copies)) for i in record.graph_inputs]
        return cls(
            **head(plan),
            number=number,
            complete=True,
            tensors=tensors,
            splits=splits,
            inputs=inputs,
            graph_inputs=graph_inputs,
        )


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
