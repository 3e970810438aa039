"""What a process decided beside the plan of the same scenario: field by field, in the order in which ggml decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ggmltool.attach.past import Left
from ggmltool.ggml.sched.past import past_of
from ggmltool.inspect.attached.left import LeftField, left_fields
from ggmltool.inspect.decisions import Reason
from ggmltool.inspect.record import Keep, Record
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario

if TYPE_CHECKING:
    from ggmltool.ggml.sched.state import SchedulerState
    from ggmltool.scenario.spec import ScenarioSpec


class Stage(StrEnum):
    """What ggml decides, in its order."""

    OUTCOME = "outcome"
    GRAPH = "graph"
    BACKENDS = "backends"
    SPLITS = "splits"
    COPIES = "copies"
    SOURCES = "sources"
    MEMORY = "memory"
    SIZES = "sizes"
    LEFT = "left"


class Likely(StrEnum):
    """What may be behind a divergence."""

    NOT_ASKED = "not_asked"
    USER = "user"
    VERSION = "version"
    ORDER = "order"
    PAST = "past"
    SIZE = "size"
    REFUSED = "refused"


class Divergence(NamedTuple):
    """A field that is not the same: `row` names the node, leaf, split or copy; None is what a side does not have."""

    stage: Stage
    row: str
    field: str
    process: Any
    plan: Any


@dataclass(frozen=True, slots=True)
class Verified:
    """A process beside its plan. `fields` are those compared, `different` how many of them are not the same, `first`
    the first in ggml's order; `reason` is why our plan has a tensor where it has it (None: it is about no tensor),
    `likely` what may be behind it. `notes` are what the scenario had to guess."""

    ggml: str
    step: str
    nodes: int
    splits: int
    copies: int
    fields: int
    different: int
    first: Divergence | None = None
    reason: Reason | None = None
    likely: tuple[Likely, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the process did what the plan says."""
        return not self.different


_BY_STAGE: tuple[tuple[Stage, str, tuple[str, ...]], ...] = (
    (Stage.GRAPH, "nodes", ("id", "name", "type", "ne", "nb", "use_count")),
    (Stage.GRAPH, "leafs", ("id",)),
    (Stage.BACKENDS, "nodes", ("backend",)),
    (Stage.BACKENDS, "leafs", ("backend",)),
    (Stage.SPLITS, "splits", ("backend", "i_start", "i_end", "inputs")),
    (Stage.SPLITS, "nodes", ("split",)),
    (Stage.COPIES, "copies", ("name", "of", "backend", "copy")),
    (Stage.SOURCES, "nodes", ("src",)),
    (Stage.MEMORY, "nodes", ("alloc_size",)),
    (Stage.MEMORY, "leafs", ("buffer", "usage", "chunk", "offset")),
    (Stage.MEMORY, "copies", ("buffer", "chunk", "offset")),
    (Stage.MEMORY, "nodes", ("buffer", "usage", "chunk", "offset")),
)
_UNKNOWN_IF_NONE = frozenset({"alloc_size"})
"""Fields that may not have been asked in the process."""


class Comparison:
    """Compares what was decided with a plan; `fields` counts what was compared."""

    def __init__(self, process: Mapping[str, Any], plan: Mapping[str, Any], left: Iterable[LeftField] = ()) -> None:
        self.process = process
        self.plan = plan
        self.left = left
        self.fields = 0

    def divergences(self) -> Iterator[Divergence]:
        """All that is not the same, in ggml's order of deciding."""
        if not self.plan["ok"]:
            error = self.plan.get("error") or {}
            yield Divergence(Stage.OUTCOME, "", "ok", True, error.get("message") or "refused")
            return
        for stage, rows, fields in _BY_STAGE:
            yield from self._rows(stage, rows, fields)
        sizes, planned = self.process["buffer_sizes"], self.plan["buffer_sizes"]
        for backend in dict.fromkeys((*sizes, *planned)):
            yield from self._field(Stage.SIZES, backend, "buffer size", sizes.get(backend), planned.get(backend))
        for row, field, theirs, ours in self.left:
            yield from self._field(Stage.LEFT, row, field, theirs, ours)

    def _rows(self, stage: Stage, rows: str, fields: Sequence[str]) -> Iterator[Divergence]:
        theirs, ours = self.process[rows], self.plan[rows]
        self.fields += 1
        if len(theirs) != len(ours):
            yield Divergence(stage, "", f"number of {rows}", len(theirs), len(ours))
        for mine, other in zip(ours, theirs, strict=False):
            for field in fields:
                yield from self._field(stage, _label(rows, mine), field, other[field], mine[field])

    def _field(self, stage: Stage, row: str, field: str, process: Any, plan: Any) -> Iterator[Divergence]:
        if process is None and field in _UNKNOWN_IF_NONE:
            return
        self.fields += 1
        if process != plan:
            yield Divergence(stage, row, field, process, plan)


def _label(rows: str, row: Mapping[str, Any]) -> str:
    return f"split {row['id']}" if rows == "splits" else str(row.get("id", row.get("name", "")))


def verify(
    document: dict[str, Any],
    graph: str,
    step: str,
    process: Mapping[str, Any],
    notes: Sequence[str] = (),
    left: Left | None = None,
) -> Verified:
    """Plan a program's scenario, and hold what the process decided beside it, with the state in which its call `left`
    the scheduler (None: that was not read). Raises ScenarioError."""
    scenario = Scenario(load_spec(document))
    record = Record(Keep.DECISIONS)
    run = scenario.start(record.listener)
    record.attach(run.start())
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    beside: Iterable[LeftField] = ()
    if left is not None and plan.ok:
        state = cast("SchedulerState", run.sched)
        names = [[t.name or t.id for t in tensors] for tensors in (state.nodes, state.leafs)]
        beside = left_fields(left.past, past_of(state), *names)
        if left.keys is not None:
            beside = (*beside, LeftField("", "keys of the hash set", left.keys, len(state.hash_keys())))
    said = plan.as_dict()
    notes = (*notes, *own_orders(scenario.model, graph, step, said))
    comparison = Comparison(process, said, beside)
    found = list(comparison.divergences())
    first = found[0] if found else None
    reason = None
    if first is not None and plan.ok and first.row in record.decisions.said:
        reason = record.decisions.reason(first.row, run.newest[graph][0], [name for name, _ in plan.backends])
    return Verified(
        scenario.model.ggml,
        step,
        len(process["nodes"]),
        len(process["splits"]),
        len(process["copies"]),
        comparison.fields,
        len(found),
        first,
        reason,
        likely(first, document, notes) if first is not None else (),
        notes,
    )


def own_orders(model: ScenarioSpec, graph: str, step: str, plan: Mapping[str, Any]) -> Iterator[str]:
    """A sentence, if devices have left the nodes in an order that is not the one of the devices that they are like, or
    keep other tensors: the plan has what they did."""
    if not any(b.answers is not None and b.answers.orders for b in model.backends):
        return
    known = [
        replace(b, answers=b.answers if b.answers is None else replace(b.answers, orders=())) for b in model.backends
    ]
    rules = Scenario(replace(model, backends=known)).plan(graph, step).as_dict()
    for theirs, ours in zip(plan["nodes"], rules["nodes"], strict=False):
        if (theirs["id"], theirs["offset"]) != (ours["id"], ours["offset"]):
            yield (
                f"{theirs['backend']} orders nodes, or keeps tensors, as no device does that ggmltool knows by its "
                "name; the plan has it from the program (graph_optimize)"
            )
            return


def likely(first: Divergence, document: Mapping[str, Any], notes: Sequence[str]) -> tuple[Likely, ...]:
    """What may be behind a divergence, the likeliest first."""
    asked = all("answers" in backend for backend in document["backends"])
    guessed = any("user assignments" in note for note in notes)
    match first.stage:
        case Stage.OUTCOME:
            out = [Likely.REFUSED, Likely.PAST]
        case Stage.GRAPH:
            out = [Likely.ORDER]
        case Stage.BACKENDS | Stage.SPLITS:
            out = ([] if asked else [Likely.NOT_ASKED]) + ([Likely.USER] if guessed else [])
        case Stage.COPIES | Stage.SOURCES | Stage.LEFT:
            out = [Likely.PAST]
        case Stage.MEMORY | Stage.SIZES:
            out = ([] if asked else [Likely.SIZE]) + [Likely.ORDER, Likely.PAST]
    return (*out, Likely.VERSION)
