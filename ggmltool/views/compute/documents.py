"""The JSON of what is computed: the calls, outputs, values that were watched, and two sides compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.inspect.use_after_free import FreedMemoryUse
from ggmltool.show.document import Error, Number, ReleaseDocument, Row, number
from ggmltool.views.compute.times import GraphTimes
from ggmltool.views.explain.events import EventRow, event_row
from ggmltool.views.plan.documents import PlanDocument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ggmltool.ggml.plan import Plan
    from ggmltool.inspect.apart import Apart
    from ggmltool.inspect.compared import ComparedGraph, ComparedNode
    from ggmltool.inspect.eval_callback import WatchedNode
    from ggmltool.inspect.next_token import NextToken
    from ggmltool.inspect.trace import Trace


class TraceStep(Row):
    """A step of the scenario: all that the engine announced meanwhile, and ggml's text where it failed."""

    step: str
    error: str | None
    events: list[EventRow]


class TraceDocument(ReleaseDocument, kw_only=True):
    """`trace --json`: the calls that ggml makes, step by step, in order; `Entered` and `Left` make them a tree."""

    main_table = "steps.events"
    kind: Literal["trace"] = "trace"
    ok: bool
    steps: list[TraceStep]
    error: Error | UnsetType = UNSET

    @classmethod
    def of(cls, ggml: str, found: Trace) -> TraceDocument:
        """The steps that were done."""
        steps = [TraceStep(s.step, s.error or None, [event_row(e) for e in s.events]) for s in found.steps]
        error = UNSET if found.error is None else Error(**found.error)
        return cls(ggml=ggml, ok=found.error is None, steps=steps, error=error)


class LikelyRow(Row):
    """A token that may come next; `text` is null where the vocabulary is not known."""

    token: int
    text: str | None
    logit: float
    probability: float


class NextTokenRow(Row):
    """The likeliest next tokens, by the `row` of logits in a tensor."""

    tensor: str
    row: int
    likely: list[LikelyRow]


class WatchedRow(Row, kw_only=True):
    """A node that was watched: of its values the finite ones' least, greatest and mean, how many are NaN or infinite,
    the first and the last; nothing of them where they cannot be read."""

    step: int
    graph: str
    id: str
    op: str
    op_desc: str
    type: str
    ne: list[int]
    src: list[str]
    backend: str
    min: float | UnsetType | None = UNSET
    max: float | UnsetType | None = UNSET
    mean: float | UnsetType | None = UNSET
    nan: int | UnsetType = UNSET
    inf: int | UnsetType = UNSET
    first: list[Number] | UnsetType = UNSET
    last: list[Number] | UnsetType = UNSET

    @classmethod
    def of(cls, node: WatchedNode, values: NDArray[Any] | None) -> WatchedRow:
        """A node that was just computed."""
        from ggmltool.views.compute.watch import ENDS, summary_of

        row = cls(
            step=node.step,
            graph=node.graph,
            id=node.id,
            op=node.op,
            op_desc=node.op,
            type=node.type,
            ne=list(node.ne),
            src=[name for name, _, _ in node.src],
            backend=node.backend,
        )
        if values is None:
            return row
        flat = values.reshape(-1)
        first, last = ([number(v) for v in ends.tolist()] for ends in (flat[:ENDS], flat[-ENDS:]))
        return replace(row, **summary_of(values)._asdict(), first=first, last=last)


class RunDocument(ReleaseDocument, kw_only=True):
    """`run --json`: the plans of all reserve and alloc steps, and the outputs as nested lists, by name.

    `watched` and `times` are there with --watch and --times, `next_token` of a captured prompt, `use_after_free` where
    a step used memory that was freed: the run is not ok then, and outputs that rest on it are null.
    """

    main_table = "outputs"
    kind: Literal["run"] = "run"
    ok: bool
    plans: list[PlanDocument]
    outputs: dict[str, Any]
    watched: list[WatchedRow] | UnsetType = UNSET
    next_token: NextTokenRow | UnsetType = UNSET
    times: list[GraphTimes] | UnsetType = UNSET
    use_after_free: list[FreedMemoryUse] | UnsetType = UNSET
    error: Error | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        ggml: str,
        plans: Sequence[Plan],
        outputs: Mapping[str, Any],
        error: Mapping[str, str | None] | None,
        watched: Sequence[WatchedRow] | None = None,
        next_token: NextToken | None = None,
        times: Sequence[GraphTimes] | None = None,
        freed: Sequence[FreedMemoryUse] = (),
    ) -> RunDocument:
        """What the steps of a scenario came to."""
        return cls(
            ggml=ggml,
            ok=error is None and not freed,
            plans=[PlanDocument.of(plan) for plan in plans],
            outputs=dict(outputs),
            watched=UNSET if watched is None else list(watched),
            next_token=UNSET if next_token is None else _next_token(next_token),
            times=UNSET if times is None else list(times),
            use_after_free=list(freed) or UNSET,
            error=UNSET if error is None else Error(**error),
        )


def _next_token(found: NextToken) -> NextTokenRow:
    return NextTokenRow(found.id, found.row, [LikelyRow(*token) for token in found.likely])


class DumpedRow(Row):
    """A node that was written to a file: what it was computed of, and the array's `shape` (`ne` reversed) and type."""

    file: str
    id: str
    step: int
    graph: str
    op: str
    op_desc: str
    src: list[str]
    backend: str
    type: str
    ne: list[int]
    shape: list[int]
    dtype: str

    @classmethod
    def of(cls, file: str, node: WatchedNode, values: NDArray[Any]) -> DumpedRow:
        """A node and its values."""
        src, shape = [source for source, _, _ in node.src], list(values.shape)
        about = node.id, node.step, node.graph, node.op, node.op, src, node.backend, node.type
        return cls(file, *about, list(node.ne), shape, str(values.dtype))


class DumpDocument(ReleaseDocument, kw_only=True):
    """manifest.json of `run --dump FOLDER`: which tensor each file has."""

    kind: Literal["dump"] = "dump"
    scenario: str
    tensors: list[DumpedRow]


class OffRow(Row):
    """How far two values of a node are apart: the squared error by the first side's squares, the largest absolute
    error, where that is and the two values there; NaN and infinities of each, and those without a like."""

    nmse: Number
    largest_error: Number
    at: list[int] | None
    values: list[Number] | None
    not_finite: list[int]
    misplaced: int

    @classmethod
    def of(cls, off: Apart) -> OffRow:
        """A difference."""
        at, values = (None, None) if off.at is None else (list(off.at), [number(v) for v in off.values])
        return cls(number(off.nmse), number(off.largest), at, values, list(off.not_finite), off.misplaced)


class ComparedRow(Row, kw_only=True):
    """A node that both sides computed: its own difference from the same inputs, and `end_to_end`; `ok` where its own is
    within the tolerance. `through` are nodes before it that are judged with it, `shown` how many elements are told,
    `ran_on` the backend that computed it on the other side, where that is known."""

    index: int
    id: str
    op: str
    op_desc: str
    type: str
    ne: list[int]
    ok: bool
    tolerance: float
    nmse: Number
    largest_error: Number
    at: list[int] | None
    values: list[Number] | None
    not_finite: list[int]
    misplaced: int
    end_to_end: OffRow
    not_run_by: list[str]
    through: list[str] | UnsetType = UNSET
    shown: int | UnsetType = UNSET
    ran_on: str | UnsetType = UNSET

    @classmethod
    def of(cls, n: ComparedNode, ran_on: str | None = None) -> ComparedRow:
        """A node that was compared; on the other side a backend computed it, if that is known."""
        own = OffRow.of(n.own)
        return cls(
            index=n.index,
            id=n.id,
            op=n.op,
            op_desc=n.op,
            type=n.type,
            ne=list(n.ne),
            ok=n.ok,
            tolerance=n.tolerance,
            nmse=own.nmse,
            largest_error=own.largest_error,
            at=own.at,
            values=own.values,
            not_finite=own.not_finite,
            misplaced=own.misplaced,
            end_to_end=OffRow.of(n.end_to_end),
            not_run_by=list(n.not_run_by),
            through=list(n.through) or UNSET,
            shown=UNSET if n.shown is None else n.shown,
            ran_on=ran_on or UNSET,
        )


class SideRow(Row):
    """A side, and who computed it."""

    name: str
    engine: str


class CompareDocument(ReleaseDocument, kw_only=True):
    """`compare --json`: a graph computed on two sides, node by node; `first_bad` is the first kernel that is off.

    `whole`: each side computed the graph at once. Of values that were read and not computed: where from (`recorded`),
    nodes without values there (`untold`), and names that the graph does not have (`unknown`).
    """

    main_table = "nodes"
    kind: Literal["compare"] = "compare"
    version: Literal[2] = 2
    graph: str
    ok: bool
    backends: list[SideRow]
    first_bad: str | None
    whole: bool
    n_nodes: int
    nbytes: int
    injected: dict[str, str]
    made_up: list[str]
    zero: list[str]
    nodes: list[ComparedRow]
    recorded: str | UnsetType = UNSET
    untold: list[str] | UnsetType = UNSET
    unknown: list[str] | UnsetType = UNSET

    @classmethod
    def of(cls, ggml: str, c: ComparedGraph) -> CompareDocument:
        """All nodes that were compared."""
        over = c.over
        document = cls(
            ggml=ggml,
            graph=c.graph,
            ok=not over,
            backends=[SideRow(name, engine) for name, engine in zip(c.sides, c.engines, strict=True)],
            first_bad=over[0].id if over else None,
            whole=c.whole,
            n_nodes=c.n_nodes,
            nbytes=c.nbytes,
            injected=dict(c.injected),
            made_up=list(c.made_up),
            zero=list(c.zero),
            nodes=[ComparedRow.of(n, c.ran_on.get(n.id)) for n in c.nodes],
        )
        if not c.recorded:
            return document
        return replace(document, recorded=c.recorded, untold=list(c.untold), unknown=list(c.unknown))
