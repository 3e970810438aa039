"""What a process decided beside the plan of the same scenario, field by field, in the order in which ggml decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, cast

from ggmltool.ask.words import reason_sentence
from ggmltool.attach.state import LeftState
from ggmltool.attach.write.written import GRAPH, Written
from ggmltool.ggml.alloc.common import TensorAlloc
from ggmltool.ggml.sched.past import Past, past_of
from ggmltool.ggml.sched.state import SchedulerState
from ggmltool.ggml.state import ChunkState
from ggmltool.inspect.watched import Keep, Record
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.show.document import ReleaseDocument, Row
from ggmltool.show.table import Style, heading, render_lines
from ggmltool.show.text import count, wrapped


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


class DivergenceRow(Row):
    """Where process and plan part. `stage` is what was decided there, `row` names the node, leaf, split or copy,
    `reason` is why the plan has it so."""

    stage: str
    row: str
    field: str
    process: str
    plan: str
    reason: str | None

    @property
    def name(self) -> str:
        """The field with its row."""
        return f"{self.field} of {self.row}" if self.row else self.field


class AttachVerifyDocument(ReleaseDocument, kw_only=True):
    """`attach --verify --json`: what the program's scheduler decided beside the plan; `fields` are those compared,
    `different` how many of them are not the same, `first` the first in ggml's order, `likely` are codes of causes,
    `notes` what the scenario had to guess."""

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


class _Field(NamedTuple):
    """A field of both sides; None is what a side does not have."""

    stage: Stage
    row: str
    name: str
    process: Any
    plan: Any


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


def _decided(process: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterator[_Field]:
    for stage, rows, names in _BY_STAGE:
        theirs, ours = process[rows], plan[rows]
        yield _Field(stage, "", f"number of {rows}", len(theirs), len(ours))
        for mine, other in zip(ours, theirs, strict=False):
            row = f"split {mine['id']}" if rows == "splits" else str(mine.get("id", mine.get("name", "")))
            for name in names:
                # The sizes may not have been asked in the process.
                if name != "alloc_size" or other[name] is not None:
                    yield _Field(stage, row, name, other[name], mine[name])
    sizes, planned = process["buffer_sizes"], plan["buffer_sizes"]
    for backend in dict.fromkeys((*sizes, *planned)):
        yield _Field(Stage.SIZES, backend, "buffer size", sizes.get(backend), planned.get(backend))


def _left(left: LeftState, sched: SchedulerState) -> Iterator[_Field]:
    """The state in which a call has left a scheduler: the tables of the allocator, which the next graph is held
    against, free blocks, buffers, and the scheduler's own numbers."""
    process, plan = left.past, past_of(sched)
    nodes, leafs = ([t.name or t.id for t in tensors] for tensors in (sched.nodes, sched.leafs))
    for row, name, theirs, ours in (*_tables(process, plan, nodes, leafs), *_numbers(process, plan, nodes, leafs)):
        yield _Field(Stage.LEFT, row, name, theirs, ours)
    if left.keys is not None:
        yield _Field(Stage.LEFT, "", "keys of the hash set", left.keys, len(sched.hash_keys()))


def _tables(
    process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]
) -> Iterator[tuple[str, str, object, object]]:
    yield "", "number of the allocator's nodes", len(process.nodes), len(plan.nodes)
    yield "", "number of the allocator's leafs", len(process.leafs), len(plan.leafs)
    for i, (theirs, ours) in enumerate(zip(process.nodes, plan.nodes, strict=False)):
        name = nodes[i] if i < len(nodes) else f"entry {i}"
        yield name, "planned place", _place(theirs[0]), _place(ours[0])
        yield name, "planned places of sources", _places(theirs[1]), _places(ours[1])
    for i, (leaf, own) in enumerate(zip(process.leafs, plan.leafs, strict=False)):
        yield leafs[i] if i < len(leafs) else f"entry {i}", "planned place", _place(leaf), _place(own)


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


def _numbers(
    process: Past, plan: Past, nodes: Sequence[str], leafs: Sequence[str]
) -> Iterator[tuple[str, str, object, object]]:
    for b, name in enumerate(plan.backends):
        yield name, "planned chunks", list(map(_chunk, process.planners[b])), list(map(_chunk, plan.planners[b]))
        yield name, "buffers of chunks", list(process.buffers[b] or ()), list(plan.buffers[b] or ())
    for what, field, n in (
        ("backends of the scheduler's nodes", "node_ids", len(nodes)),
        ("backends of the scheduler's leafs", "leaf_ids", len(leafs)),
        # Behind those the program has what graphs before them left.
        ("backends of the nodes before", "prev_node_ids", len(plan.prev_node_ids)),
        ("backends of the leafs before", "prev_leaf_ids", len(plan.prev_leaf_ids)),
    ):
        yield "", what, list(getattr(process, field)[:n]), list(getattr(plan, field)[:n])
    for field in ("is_reset", "is_alloc", "cur_copy", "next_copy", "hash_size", "own_size"):
        if field != "own_size" or process.own_size:
            yield "", field, getattr(process, field), getattr(plan, field)


def verify(
    document: dict[str, Any],
    graph: str,
    step: str,
    process: Mapping[str, Any],
    notes: Sequence[str] = (),
    left: LeftState | None = None,
) -> AttachVerifyDocument:
    """Plan a program's scenario, and hold what the process decided beside it, with the state in which its call `left`
    the scheduler (None: that was not read). Raises ScenarioError."""
    scenario = LoadedScenario(load_spec(document))
    record = Record(Keep.DECISIONS)
    run = scenario.start(record.listener)
    record.attach(run.start())
    plan = run.reserve(graph) if step == "reserve" else run.alloc(graph)
    said = plan.as_dict()
    notes = [*notes, *_own_orders(scenario.model, graph, step, said)]
    if plan.ok:
        fields = list(_decided(process, said))
        if left is not None:
            fields += _left(left, cast("SchedulerState", run.sched))
        different = [f for f in fields if f.process != f.plan]
    else:
        fields, error = [], said.get("error") or {}
        different = [_Field(Stage.OUTCOME, "", "ok", True, error.get("message") or "refused")]
    first, causes = None, list[str]()
    if different:
        stage, row, name, theirs, ours = different[0]
        reason = None
        if plan.ok and row in record.decisions.said:
            found = record.decisions.reason(row, run.newest[graph][0], [name for name, _ in plan.backends])
            reason = reason_sentence(found)
        first = DivergenceRow(stage, row, name, _shown(theirs), _shown(ours), reason)
        causes += _likely(stage, document, notes)
    return AttachVerifyDocument(
        ggml=scenario.model.ggml,
        step=step,
        same=not different,
        nodes=len(process["nodes"]),
        splits=len(process["splits"]),
        copies=len(process["copies"]),
        fields=len(fields),
        different=len(different),
        first=first,
        likely=causes,
        notes=notes,
    )


def verify_written(made: Written, process: Mapping[str, Any], left: LeftState | None = None) -> AttachVerifyDocument:
    """The same of a scenario that was written of a program. Raises ScenarioError."""
    return verify(made.document, GRAPH, made.step, process, made.notes, left)


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        text = ", ".join("none" if v is None else str(v) for v in value)
        return text if len(text) <= 200 else text[:199] + "…"
    return str(value)


def _own_orders(model: ScenarioSpec, graph: str, step: str, plan: Mapping[str, Any]) -> Iterator[str]:
    """A sentence, if devices have left the nodes in an order that is not the one of the devices that they are like, or
    keep other tensors: the plan has what they did."""
    if not any(b.answers is not None and b.answers.orders for b in model.backends):
        return
    known = [
        replace(b, answers=b.answers if b.answers is None else replace(b.answers, orders=())) for b in model.backends
    ]
    rules = LoadedScenario(replace(model, backends=known)).plan(graph, step).as_dict()
    for theirs, ours in zip(plan["nodes"], rules["nodes"], strict=False):
        if (theirs["id"], theirs["offset"]) != (ours["id"], ours["offset"]):
            yield (
                f"{theirs['backend']} orders nodes, or keeps tensors, as no device does that ggmltool knows by its "
                "name; the plan has it from the program (graph_optimize)"
            )
            return


def _likely(stage: Stage, document: Mapping[str, Any], notes: Sequence[str]) -> list[Likely]:
    """What may be behind a divergence, the likeliest first."""
    asked = all("answers" in backend for backend in document["backends"])
    guessed = any("user assignments" in note for note in notes)
    match stage:
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
    return [*out, Likely.VERSION]


_DECISIONS: Mapping[str, str] = {
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
_LIKELY: Mapping[str, str] = {
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


def verified_view(found: AttachVerifyDocument, title: str, style: Style) -> str:
    """The same in words."""
    facts = [count(found.nodes, "node"), count(found.splits, "split"), count(found.copies, "copy")]
    notes = [line for note in found.notes for line in wrapped(f"note: {note}", style.width)]
    first = found.first
    if first is None:
        equal = f"the program did what the plan says: {count(found.fields, 'field')} equal"
        return heading(title, [equal, *facts], style) + render_lines(notes, style)
    because = first.reason is not None and first.stage in (Stage.BACKENDS, Stage.SPLITS)
    lines = [
        f"The first, in the order in which ggml decides: {_DECISIONS[first.stage]}.",
        "",
        f"  {first.name}",
        f"    the program: {first.process}",
        f"    the plan:    {first.plan}",
        *([f"    because {first.reason}"] if because else []),
        "",
        "What may be behind it:",
        *(line for cause in found.likely for line in wrapped(f"- {_LIKELY[cause]}", style.width)),
        *notes,
    ]
    different = f"{count(found.different, 'field')} of {found.fields} differ from the plan"
    return heading(title, [different, *facts], style) + render_lines(lines, style)
