"""What comes of a run: plans and outputs of a run, values that were watched or dumped, times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from ggmltool.ask.plan.record import PlanDocument
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.op import VIEW_OPS
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.inspect.use_after_free import FreedMemoryUse
from ggmltool.scenario.data import GgufData
from ggmltool.scenario.run.run import Run, values_of
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.show.document import Error, Number, ReleaseDocument, Row
from ggmltool.sources.llama.model_file import read_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ggmltool.ggml.plan import Plan


class WatchedNode(NamedTuple):
    """A node that was just computed. `src` are its sources as (name, type, ne); `step` is the scenario's, from 1."""

    id: str
    op: str
    type: str
    ne: tuple[int, ...]
    src: tuple[tuple[str, str, tuple[int, ...]], ...]
    backend: str
    graph: str
    step: int


def computed_nodes(model: ScenarioSpec, graph: str) -> set[str]:
    """The nodes of a graph that compute something: all but views."""
    return {n.id for n in model.graphs[graph].nodes if n.op not in VIEW_OPS}


def watched_node(run: Run, t: Tensor, graph: str, step: int) -> WatchedNode:
    """A node of the graph that `step` computes, with the backend that computed it."""
    sched = run.start()
    return WatchedNode(
        t.id,
        op_desc(t),
        t.type.name,
        t.ne,
        tuple((s.label, s.type.name, s.ne) for s in t.src if s is not None),
        sched.names[sched.ids[t.index]],
        graph,
        step,
    )


def values_if_known(run: Run, t: Tensor) -> NDArray[Any] | None:
    """The values of a node just computed; None if the type cannot be read here, or if they rest on freed memory."""
    if t.index in run.freed.results:
        return None
    try:
        return values_of(t)
    except NotComputable:
        return None


ENDS = 3
"""First and last elements in JSON."""


class Summary(NamedTuple):
    """The values of a tensor in numbers; min, max and mean are those of the finite ones, None without any."""

    min: float | None
    max: float | None
    mean: float | None
    nan: int
    inf: int


def summary_of(values: NDArray[Any]) -> Summary:
    """Least, greatest and mean value, and how many are NaN or infinite."""
    import numpy as np

    if values.dtype.kind != "f":
        finite, nan, inf = values.reshape(-1), 0, 0
    else:
        nan, inf = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        finite = values[np.isfinite(values)] if nan or inf else values.reshape(-1)
    if not finite.size:
        return Summary(None, None, None, nan, inf)
    return Summary(float(finite.min()), float(finite.max()), float(finite.mean(dtype=np.float64)), nan, inf)


LOGITS = "result_output"
"""What llama.cpp calls them."""

_SHOWN = 5


class LikelyToken(Row):
    """A token that may come next; `text` is null where the vocabulary is not known."""

    token: int
    text: str | None
    logit: float
    probability: float


class NextToken(Row):
    """The likeliest next tokens, by the last `row` of logits in a tensor."""

    id: str = field(name="tensor")
    row: int
    likely: tuple[LikelyToken, ...]

    @property
    def n_rows(self) -> int:
        """Rows of the tensor."""
        return self.row + 1


def next_token(model: ScenarioSpec, values: Mapping[str, NDArray[Any]]) -> NextToken | None:
    """The likeliest tokens after the last one that logits were computed of; None if there are no logits."""
    import numpy as np

    if model.meta.get("source") != "llama.cpp":
        return None
    names = {n.id: n.name for graph in model.graphs.values() for n in graph.nodes}
    id = next((id for id in reversed(list(values)) if names.get(id) == LOGITS), None)
    if id is None or not values[id].size:
        return None
    logits = values[id][0, 0, -1].astype(np.float64)
    best = np.argsort(-logits, kind="stable")[:_SHOWN]
    with np.errstate(all="ignore"):
        odds = np.exp(logits - logits.max())
        odds /= odds.sum()
    path = _model_file(model)
    vocabulary = read_vocabulary(path) if path is not None else None
    known = vocabulary is not None and len(vocabulary.tokens) == logits.size
    likely = tuple(
        LikelyToken(int(t), vocabulary.text(int(t)) if vocabulary and known else None, float(logits[t]), float(odds[t]))
        for t in best
    )
    return NextToken(id, values[id].shape[2] - 1, likely)


def _model_file(model: ScenarioSpec) -> Path | None:
    """The file that the weights lie in."""
    return next((t.data.path for t in model.tensors() if isinstance(t.data, GgufData)), None)


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
