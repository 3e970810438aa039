"""The JSON of what is computed: plans and outputs of a run, values that were watched or dumped, times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ask.plan.record import PlanDocument
from ggmltool.ask.run.next_token import NextToken
from ggmltool.ask.run.watched import ENDS, WatchedNode, summary_of
from ggmltool.inspect.use_after_free import FreedMemoryUse
from ggmltool.show.document import Error, Number, ReleaseDocument, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ggmltool.ggml.plan import Plan


@dataclass(frozen=True, slots=True)
class BackendTime:
    """Microseconds that a backend spent on copies and on computing."""

    backend: str
    copy_us: int
    compute_us: int


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """What the backends spent on a graph of so many splits."""

    graph: str
    splits: int
    backends: tuple[BackendTime, ...]


def times_text(times: GraphTimes) -> str:
    """The per-backend timings of sched_compute_splits; backends that did nothing have no line."""
    lines = [f"sched_compute_splits times ({times.splits} splits):\n"]
    for spent in times.backends:
        if spent.copy_us or spent.compute_us:
            name = spent.backend[:5].rjust(5)
            lines.append(f"\t{name}: {spent.copy_us} us copy, {spent.compute_us} us compute\n")
    return "".join(lines)


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
    next_token: NextToken | UnsetType = UNSET
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
            next_token=UNSET if next_token is None else next_token,
            times=UNSET if times is None else list(times),
            use_after_free=list(freed) or UNSET,
            error=UNSET if error is None else Error(**error),
        )


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
