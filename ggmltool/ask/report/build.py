"""Puts the document of a report together from what is known of a moment."""

from __future__ import annotations

import base64
import gzip
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from ggmltool.ask.check.record import read_gauges, status
from ggmltool.ask.report import document as doc
from ggmltool.ask.report.advice import advice_rows
from ggmltool.ask.report.graph import ReportBuffers, TensorRows, allocation_rows, fold_rows, split_rows
from ggmltool.ask.report.tables import (
    NONE,
    ReportNumbers,
    ReportTables,
    ReportTensors,
    Texts,
    event_rows,
    kind_rows,
    numbered,
    reset_rows,
)
from ggmltool.ask.splits.seconds import Timed, timed
from ggmltool.ask.supports.record import asked
from ggmltool.ggml.device import memory_owner
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import AllocationStarted, NotReused, PassedOver, Refused
from ggmltool.inspect.memory import Allocation
from ggmltool.inspect.watched import Keep, Record, Watch, Watched
from ggmltool.scenario.dump import dump
from ggmltool.show.colors import colors
from ggmltool.show.document import EstimateRow, head
from ggmltool.state.errors import InspectError
from ggmltool.version import __version__

if TYPE_CHECKING:
    from ggmltool.ask.supports.record import NodeAnswers
    from ggmltool.ggml.events import Event, Listener
    from ggmltool.inspect.opened import Moment, Opened
    from ggmltool.inspect.watched import Watched
    from ggmltool.scenario import tensor_info
    from ggmltool.scenario.spec import ScenarioSpec

MOST_EVENTS = 150_000
"""Events that are told of at most as they were announced; of more, those that settled nothing are left out."""
_SETTLE_NOTHING = (PassedOver, Refused, NotReused)
_CUT = "events: what was asked and settled nothing"


@dataclass(frozen=True, slots=True)
class Told:
    """A moment, the events from the step on in which its memory was planned, and the allocations of that plan, whose
    walk is over the nodes `order`. `left_out` counts events that settled nothing and are not among these."""

    at: Watched
    events: Sequence[Event]
    steps: Sequence[doc.StepRow]
    allocations: Sequence[Allocation]
    order: Sequence[str]
    left_out: int = 0


class _Tape(Record):
    """A record that keeps the events themselves, too."""

    def __init__(self, keep: Keep) -> None:
        super().__init__(keep)
        self.events: list[Event] = []

    @property
    def listener(self) -> Listener | None:
        return self

    def __call__(self, event: Event) -> None:
        self.lifetimes.number = len(self.events)
        self.events.append(event)
        super().__call__(event)


def tell(opened: Opened, moment: Moment) -> Told:
    """Everything up to a moment. Raises InspectError for a step that is not there."""
    tape = _Tape(Keep.DECISIONS | Keep.MEMORY | Keep.LIMITS)
    watch = Watch(opened, moment, tape)
    steps: list[doc.StepRow] = []
    begins = 0
    for at in watch.each():
        steps.append(doc.StepRow(NONE if at.number is None else at.number, str(at.step), begins))
        begins = len(tape.events)
    planned = [i for i, event in enumerate(tape.events) if isinstance(event, AllocationStarted) and event.at == -1]
    whose = [n for n, step in enumerate(steps) if planned and step.event <= planned[-1]]
    kept = steps[whose[-1] if whose else -1 :]
    first = kept[0].event
    events = tape.events[first:]
    told = [replace(step, event=step.event - first) for step in kept]
    numbers: Sequence[int] = range(len(events))
    if len(events) > MOST_EVENTS:
        numbers = [i for i, event in enumerate(events) if not isinstance(event, _SETTLE_NOTHING)]
        told = [replace(step, event=bisect_left(numbers, step.event)) for step in told]

    def number(event: int | None) -> int | None:
        return None if event is None else bisect_left(numbers, event - first)

    allocations = [
        a._replace(born=bisect_left(numbers, a.born - first), died=number(a.died), trimmed=number(a.trimmed))
        for a in tape.lifetimes.allocations
    ]
    left_out = len(events) - len(numbers)
    return Told(at, [events[i] for i in numbers], told, allocations, tape.memory.nodes, left_out)


SHOWN = 40_000
"""Characters of a scenario that a page shows."""
CARRIED = 400_000
"""Characters of the compressed scenario that a page carries."""


def source_row(model: ScenarioSpec) -> doc.ReportSourceRow:
    """The scenario in its long form as JSON, a line for each tensor and node."""
    text = scenario_text(model)
    shown = text if len(text) <= SHOWN else text[: text.rindex("\n", 0, SHOWN) + 1]
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return doc.ReportSourceRow(shown, len(text), "scenario.json.gz", packed if len(packed) <= CARRIED else "")


def scenario_text(model: ScenarioSpec) -> str:
    """The scenario in its long form, everything explicit."""
    lines: list[str] = []
    _write(dump(model), 0, "", lines)
    return "\n".join(lines) + "\n"


def _write(value: object, depth: int, before: str, lines: list[str]) -> None:
    """Objects and lists in lines of their own down to the third level, below it in one line."""
    indent = " " * depth
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if depth < 4 and any(isinstance(item, (dict, list)) for item in items):
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        lines.append(indent + before + opening)
        keys = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(items)
        for key, item in zip(keys, items, strict=True):
            _write(item, depth + 1, key, lines)
            lines[-1] += ","
        lines[-1] = lines[-1].removesuffix(",")
        lines.append(indent + closing)
    else:
        lines.append(indent + before + json.dumps(value))


def report(opened: Opened, moment: Moment) -> doc.ReportDocument:
    """Everything that the page of a report shows. Raises InspectError for a step that is not there."""
    return _Report(opened, moment, tell(opened, moment)).document()


def asked_for(opened: Opened, moment: Moment) -> str:
    """The command that makes the page."""
    words = ["ggmltool report", opened.options]
    words += [f"--graph {quote(moment.graph)}"] if moment.graph is not None else []
    words += [f"--step {moment.step}"] if moment.after is None and moment.step != "alloc" else []
    words += [f"--after {moment.after}"] if moment.after is not None else []
    return " ".join(filter(None, (*words, quote(opened.argument) if opened.argument else "")))


@dataclass(slots=True)
class _Report:
    opened: Opened
    moment: Moment
    told: Told

    def document(self) -> doc.ReportDocument:
        """All parts, in the order in which they number what they name."""
        at, plan = self.told.at, self.told.at.plan
        graph = at.graph if plan.graph is None else plan.graph
        infos = self.opened.tensors(graph)
        answers = self._asked(at, graph)
        buffers, tables = self._tables(at, infos)
        rows, tensors = self._tensors(at, infos, answers, tables)
        seconds, no_seconds = self._seconds(at)
        splits = split_rows(plan, infos, at.record.decisions, tables, seconds)
        events = list(event_rows(self.told.events, tables))
        allocations = allocation_rows(self.told.allocations, tables.tensors, buffers)
        order = tables.tensors.all(self.told.order)
        gauges = read_gauges(at.run, at.record.limits, graph, plan).gauges
        tensors += rows.others(len(tensors))
        cut = self.told.left_out
        return doc.ReportDocument(
            **head(plan),
            version=__version__,
            title=at.title,
            asked=asked_for(self.opened, self.moment),
            strings=list(tables.strings),
            texts=tables.texts.all,
            backends=list(_backends(at)),
            buffers=list(buffers.rows(at, at.record.memory, allocations)),
            nodes=len(plan.nodes) or sum(row.kind == 0 for row in tensors),
            leafs=len(plan.leafs),
            tensors=tensors,
            answers=rows.answer_rows(),
            folds=fold_rows(plan, infos),
            splits=splits,
            order=order,
            allocations=allocations,
            steps=list(self.told.steps),
            kinds=kind_rows(),
            events=events,
            resets=list(reset_rows(self.told.events)),
            gauges=[_gauge(g) for g in gauges],
            matrix=_matrix(answers, [name for name, _ in plan.backends]),
            advice=advice_rows(self.opened, self.moment, at, gauges),
            seconds=UNSET if seconds is None else _time(seconds),
            no_seconds=no_seconds,
            log=list(plan.log),
            source=source_row(self.opened.model),
            left_out=[doc.LeftOutRow(_CUT, len(events) + cut, len(events))] if cut else [],
            after=UNSET if at.number is None else at.number,
        )

    def _asked(self, at: Watched, graph: str) -> list[NodeAnswers]:
        """What each backend answers for each node; nothing where the graph cannot be built."""
        run = self.opened.scenario.start()
        try:
            run.start()
            return asked(run, graph, at.plan)
        except GgmlError:
            return []

    def _tables(self, at: Watched, infos: tensor_info.Tensors) -> tuple[ReportBuffers, ReportTables]:
        plan = at.plan
        buffers = ReportBuffers()
        for _, buft in plan.backends:
            buffers.compute(buft)
        ids = [n.id for n in plan.nodes] or self._unplanned(at)
        tensors = ReportTensors([*ids, *(leaf.id for leaf in plan.leafs)])
        for copy in plan.copies:
            place = None if copy.chunk is None or copy.offset is None else (copy.chunk, copy.offset)
            tensors.add(copy.name, place)
        backends = numbered(name for name, _ in plan.backends)
        return buffers, ReportTables(ReportNumbers(), Texts(), tensors, backends, buffers.compute, buffers.number)

    def _tensors(
        self, at: Watched, infos: tensor_info.Tensors, answers: Sequence[NodeAnswers], tables: ReportTables
    ) -> tuple[TensorRows, list[doc.ReportTensorRow]]:
        plan = at.plan
        make = TensorRows(tables, infos, at.record.decisions, answers)
        nodes = [make.node(n) for n in plan.nodes] or [make.row(infos[id]) for id in self._unplanned(at)]
        return make, [*nodes, *map(make.leaf, plan.leafs), *make.copies(plan)]

    def _unplanned(self, at: Watched) -> list[str]:
        """The nodes of a graph to which ggml did not come, as the scenario has them."""
        refused = at.plan.error is not None and not at.plan.leafs
        return [t.id for t in self.opened.model.graphs[at.graph].nodes] if refused else []

    def _seconds(self, at: Watched) -> tuple[Timed | None, str]:
        """The estimate, else why there is none."""
        if not at.plan.ok:
            return None, ""
        try:
            return timed(self.opened, at.plan, self.moment), ""
        except InspectError as error:
            return None, str(error)


def _backends(at: Watched) -> Iterator[doc.ReportBackendRow]:
    inks, compute = colors(name for name, _ in at.plan.backends), dict(at.plan.buffer_sizes)
    held: Counter[str] = Counter()
    for buffer in at.run.buffers:
        held[memory_owner(buffer.buft, at.run.backends).name] += buffer.size
    for b, spec in zip(at.run.backends, at.run.model.backends, strict=True):
        device, ink = b.device, inks[b.name]
        yield doc.ReportBackendRow(
            b.name, device.type, spec.profile, device.buft.name, ink.ink, ink.fill,
            device.memory, held[b.name], compute.get(b.name, 0), device.offload_min_batch,
        )  # fmt: skip


def _gauge(gauge: Any) -> doc.ReportGaugeRow:
    of = gauge.about
    return doc.ReportGaugeRow(
        of.group, of.text, gauge.used, gauge.limit, of.nbytes, status(gauge), gauge.where, list(gauge.of), of.beyond
    )


def _matrix(answers: Sequence[NodeAnswers], backends: Sequence[str]) -> list[doc.MatrixRow]:
    """Counts by op, the most frequent first."""
    rows: dict[str, doc.MatrixRow] = {}
    n = len(backends)
    for node in answers:
        row = rows.get(node.op)
        if row is None:
            row = rows[node.op] = doc.MatrixRow(node.op, 0, [0] * n, [0] * n, [0] * n, [0] * n, [0] * n, [""] * n)
        row.nodes += 1
        for i, a in enumerate(node.answers):
            getattr(row, a.state)[i] += 1
            row.runs[i] += node.backend == backends[i]
            row.why[i] = row.why[i] or a.why_not or ""
    return sorted(rows.values(), key=lambda row: -row.nodes)


def _time(seconds: Timed) -> doc.TimeRow:
    all, computes, copies = map(EstimateRow.of, (seconds.all, seconds.computes, seconds.copies))
    return doc.TimeRow(all, computes, copies, seconds.n_tokens, seconds.cached, list(seconds.assumed))
