"""What a process decided beside the plan of the same scenario, field by field, in the order in which ggml decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ggmltool.ask.words import reason_sentence
from ggmltool.attach.state import Left
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.sched.past import Past, past_of
from ggmltool.ggml.state import ChunkState
from ggmltool.inspect.decisions import Reason
from ggmltool.inspect.record import Keep, Record
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import Scenario
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ggmltool.ggml.sched.state import SchedulerState
    from ggmltool.scenario.spec import ScenarioSpec


class LeftField(NamedTuple):
    """A field of the state: whose it is, what it is called, and what each side has."""

    row: str
    field: str
    process: Any
    plan: Any


_NUMBERS = ("is_reset", "is_alloc", "cur_copy", "next_copy", "hash_size", "own_size")


def left_fields(process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]) -> Iterator[LeftField]:
    """Every field of both. `nodes` and `leafs` are the names of those of the scheduler's own graph."""
    yield from _tables(process, plan, nodes, leafs)
    for b, name in enumerate(plan.backends):
        yield LeftField(name, "planned chunks", *(list(map(_chunk, p.planners[b])) for p in (process, plan)))
        yield LeftField(name, "buffers of chunks", *(_listed(p.buffers[b]) for p in (process, plan)))
    yield LeftField("", "backends of the scheduler's nodes", *(list(p.node_ids[: len(nodes)]) for p in (process, plan)))
    yield LeftField("", "backends of the scheduler's leafs", *(list(p.leaf_ids[: len(leafs)]) for p in (process, plan)))
    for what, before in (("nodes", "prev_node_ids"), ("leafs", "prev_leaf_ids")):
        # Behind those the program has what graphs before them left.
        ours = getattr(plan, before)
        yield LeftField("", f"backends of the {what} before", list(getattr(process, before)[: len(ours)]), list(ours))
    for field in _NUMBERS:
        if field == "own_size" and not process.own_size:
            continue
        yield LeftField("", field, getattr(process, field), getattr(plan, field))


def _tables(process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]) -> Iterator[LeftField]:
    """The places that the allocator has written down, of nodes, of their sources, and of leafs."""
    yield LeftField("", "number of the allocator's nodes", len(process.nodes), len(plan.nodes))
    yield LeftField("", "number of the allocator's leafs", len(process.leafs), len(plan.leafs))
    for i, (theirs, ours) in enumerate(zip(process.nodes, plan.nodes, strict=False)):
        name = _at(nodes, i)
        yield LeftField(name, "planned place", _place(theirs[0]), _place(ours[0]))
        yield LeftField(name, "planned places of sources", _places(theirs[1]), _places(ours[1]))
    for i, (leaf, own) in enumerate(zip(process.leafs, plan.leafs, strict=False)):
        yield LeftField(_at(leafs, i), "planned place", _place(leaf), _place(own))


def _at(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) else f"entry {i}"


def _place(place: TensorAlloc) -> str:
    if place.buffer_id < 0:
        return "none"
    return f"backend {place.buffer_id}, chunk {place.chunk}, offset {place.offset}, {place.size_max} bytes"


def _places(places: Sequence[TensorAlloc]) -> list[str]:
    shown = list(map(_place, places))
    while shown and shown[-1] == "none":
        shown.pop()
    return shown


def _chunk(chunk: ChunkState) -> str:
    free = ", ".join(f"{size} at {offset}" for offset, size in chunk.free_blocks)
    return f"{chunk.max_size} bytes, free: {free or 'nothing'}"


def _listed(sizes: Sequence[int] | None) -> list[int]:
    return list(sizes or ())


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


DECISIONS = {
    Stage.OUTCOME: "whether the call succeeds",
    Stage.GRAPH: "the graph itself",
    Stage.BACKENDS: "which backend runs it",
    Stage.SPLITS: "where splits begin",
    Stage.COPIES: "what is copied",
    Stage.SOURCES: "what nodes read",
    Stage.MEMORY: "where it lies in memory",
    Stage.SIZES: "how large buffers are",
    Stage.LEFT: "what the scheduler keeps for the next graph",
}
LIKELY = {
    Likely.NOT_ASKED: "the program's devices were not asked, so that known devices answered for them",
    Likely.USER: "the program assigned it (ggml_backend_sched_set_tensor_backend), which cannot be seen any more once "
    "a graph is allocated; stop at alloc: --at alloc",
    Likely.VERSION: "the program's ggml is another version than it is planned as, or a patched one",
    Likely.ORDER: "a device put the nodes into an order of its own that ggmltool does not know (graph_optimize, or an "
    "environment variable that turns it on or off)",
    Likely.PAST: "the scheduler kept more from earlier graphs than its tables show",
    Likely.SIZE: "a device gives a tensor another size than the known device does",
    Likely.REFUSED: "ggml would refuse such a graph: the program's ggml does not check it, or has other limits",
}


def verified_view(found: Verified, title: str, style: Style) -> str:
    """The same in words."""
    facts = [count(found.nodes, "node"), count(found.splits, "split"), count(found.copies, "copy")]
    if found.same:
        head = heading(
            title, [f"the program did what the plan says: {count(found.fields, 'field')} equal", *facts], style
        )
        return head + render_lines(_notes(found, style), style)
    different = f"{count(found.different, 'field')} of {found.fields} differ from the plan"
    return heading(title, [different, *facts], style) + render_lines(list(_lines(found, style)), style)


def _notes(found: Verified, style: Style) -> list[str]:
    return [line for note in found.notes for line in wrapped(f"note: {note}", style.width)]


def _lines(found: Verified, style: Style) -> Iterator[str]:
    first = found.first
    if first is None:
        return
    yield f"The first, in the order in which ggml decides: {DECISIONS[first.stage]}."
    yield ""
    yield f"  {divergence_name(first)}"
    yield f"    the program: {_shown(first.process)}"
    yield f"    the plan:    {_shown(first.plan)}"
    if found.reason is not None and first.stage in (Stage.BACKENDS, Stage.SPLITS):
        yield f"    because {reason_sentence(found.reason)}"
    yield ""
    yield "What may be behind it:"
    for cause in found.likely:
        yield from wrapped(f"- {LIKELY[cause]}", style.width)
    yield from _notes(found, style)


def divergence_name(d: Divergence) -> str:
    """The field with its row."""
    return f"{d.field} of {d.row}" if d.row else d.field


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        text = ", ".join("none" if v is None else str(v) for v in value)
        return text if len(text) <= 200 else text[:199] + "…"
    return str(value)


class DivergenceRow(Row):
    """Where process and plan part. `stage` is what was decided there, `reason` why the plan has it so."""

    stage: str
    row: str
    field: str
    process: str
    plan: str
    reason: str | None


class AttachVerifyDocument(ReleaseDocument, kw_only=True):
    """`attach --verify --json`: what the program's scheduler decided beside the plan; `likely` are codes of causes."""

    kind: Literal["attach_verify"] = "attach_verify"
    step: str
    same: bool
    nodes: int
    splits: int
    copies: int
    fields: int
    different: int
    first: DivergenceRow | None
    likely: list[str]
    notes: list[str]

    @classmethod
    def of(cls, found: Verified) -> AttachVerifyDocument:
        """A comparison."""
        d = found.first
        reason = reason_sentence(found.reason) if found.reason is not None else None
        row = DivergenceRow(d.stage, d.row, d.field, _shown(d.process), _shown(d.plan), reason) if d else None
        return cls(
            ggml=found.ggml,
            step=found.step,
            same=found.same,
            nodes=found.nodes,
            splits=found.splits,
            copies=found.copies,
            fields=found.fields,
            different=found.different,
            first=row,
            likely=list(found.likely),
            notes=list(found.notes),
        )
