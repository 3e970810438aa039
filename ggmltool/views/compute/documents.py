"""The JSON of what is computed: the calls, outputs, values that were watched, and two sides compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.inspect.use_after_free import FreedMemoryUse
from ggmltool.show.document import Error, Number, ReleaseDocument, Row
from ggmltool.views.compute.times import GraphTimes
from ggmltool.views.explain.events import EventRow, event_row
from ggmltool.views.plan.documents import PlanDocument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ggmltool.ggml.plan import Plan
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
        first, last = (ends.tolist() for ends in (flat[:ENDS], flat[-ENDS:]))
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
