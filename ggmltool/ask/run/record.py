"""What comes of a run: plans and outputs of a run, values that were watched or dumped, times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ask.plan.record import PlanDocument
from ggmltool.ask.run.next_token import NextToken
from ggmltool.ask.run.watched import ENDS, WatchedNode, summary_of
from ggmltool.inspect.use_after_free import FreedMemoryUse
from ggmltool.show.document import Error, Number, ReleaseDocument, Row

if TYPE_CHECKING:
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


class StepReport(NamedTuple):
    """One step: what it is called, what it did (the plan of a reserve or alloc), or the error that ended the run.

    `uses_freed`: it used memory that was freed. `number` counts all steps of the scenario from 1, those that were left
    out too.
    """

    step: str
    did: str = ""
    plan: Plan | None = None
    error: tuple[tuple[str, str | None], ...] | None = None
    number: int = 1
    uses_freed: bool = False

    @property
    def failure(self) -> tuple[tuple[str, str | None], ...] | None:
        """Why ggml refused this step, if it did."""
        return self.error or (self.plan.error if self.plan is not None else None)


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
