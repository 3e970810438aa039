"""The rows of a report: tensors with their reasons, folded layers, splits, buffers, and who has which bytes when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET

from ggmltool.ask.buffers.map import bend_of
from ggmltool.ask.report import document as doc
from ggmltool.ask.report.tables import NONE, ReportNumbers, ReportTables, ReportTensors, names_in
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.device import memory_owner
from ggmltool.ggml.events import SplitStarted
from ggmltool.ggml.version import SIZE_MAX, TENSOR_ALIGNMENT
from ggmltool.ggml.why import Why
from ggmltool.inspect.copied import copied_inputs
from ggmltool.inspect.decisions import reason_of
from ggmltool.inspect.fold import Fold, fold_plan, layer_of, layers
from ggmltool.inspect.memory import Allocation, MemoryPlan
from ggmltool.show.document import EstimateRow

if TYPE_CHECKING:
    from ggmltool.ask.splits.seconds import Timed
    from ggmltool.ask.supports.record import NodeAnswers
    from ggmltool.ggml.plan import LeafPlan, NodePlan, Plan
    from ggmltool.inspect.decisions import Decisions
    from ggmltool.inspect.watched import Watched
    from ggmltool.scenario.tensor_info import TensorInfo, Tensors


class TensorRows:
    """Makes the rows of tensors: what the plan says of each, with what was said of it while it was planned."""

    def __init__(self, tables: ReportTables, infos: Tensors, heard: Decisions, asked: Sequence[NodeAnswers]) -> None:
        self.tables = tables
        self.infos = infos
        self.heard = heard
        self.names = list(tables.backends)
        self.answers = ReportNumbers()
        self._answered = {a.id: self._answers(a) for a in asked}

    def node(self, node: NodePlan) -> doc.ReportTensorRow:
        """A node of the plan."""
        t, info = self.tables, self.infos[node.id]
        row = self.row(info, 0, node.backend, node.cause)
        row.name = "" if node.name == node.id else node.name
        row.split, row.uses = node.split, node.use_count
        self._place(row, node, node.usage, node.alloc_size or 0)
        row.answers = self._answered.get(node.id, NONE)
        row.reads = t.tensors.all(node.src) if node.src != tuple(info.src) else []
        return row

    def leaf(self, leaf: LeafPlan) -> doc.ReportTensorRow:
        """A leaf of the plan."""
        settled = self.heard.settled.get(leaf.id)
        row = self.row(self.infos[leaf.id], 1, leaf.backend, None if settled is None else settled.cause)
        self._place(row, leaf, leaf.usage, 0)
        return row

    def copies(self, plan: Plan) -> Iterator[doc.ReportTensorRow]:
        """The copies that the scheduler made."""
        for copy in plan.copies:
            info = self.infos.get(copy.of)
            row = self._blank(copy.name, 2)
            if info is not None:
                row.shape, row.nbytes = self.tables.strings[info.shape], info.nbytes
                row.layer = _layer(info.name)
            row.backend = self.tables.backends.get(copy.backend, NONE)
            row.src = [self.tables.tensors[copy.of]]
            self._place(row, copy, "compute", 0)
            yield row

    def others(self, count: int) -> Iterator[doc.ReportTensorRow]:
        """What the events name besides."""
        for name in self.tables.tensors.names[count:]:
            yield self._blank(name, 3)

    def _blank(self, name: str, kind: int) -> doc.ReportTensorRow:
        none = self.tables.strings["NONE" if kind != 2 else "copy"]
        return doc.ReportTensorRow(name, kind=kind, op=none)

    def row(
        self, info: TensorInfo, kind: int = 0, backend: str | None = None, cause: str | None = None
    ) -> doc.ReportTensorRow:
        """A tensor of the graph: by default a node that was never planned."""
        t = self.tables
        row = self._blank(info.id, kind)
        row.name = "" if info.name == info.id else info.name
        row.op, row.shape = t.strings[info.op], t.strings[info.shape]
        row.nbytes, row.flags, row.layer = info.nbytes, info.flags, _layer(info.name)
        row.backend = t.backends.get(backend or "", NONE)
        row.cause = t.strings[cause]
        row.view_src = t.tensors[info.view_src]
        row.src = t.tensors.all(info.src)
        said = self.heard.said.get(info.id, ())
        if said:
            reason = reason_of(info.id, info.op if kind == 0 else "", said, self.names)
            row.reason = t.texts.of_reason(reason)
            if reason.settled is not None:
                _, by, other = names_in(reason.settled)
                row.by, row.other = t.tensors[by], t.tensors[other]
        return row

    def _place(self, row: doc.ReportTensorRow, of: NodePlan | LeafPlan | object, usage: str | None, size: int) -> None:
        buffer, chunk, offset = (getattr(of, name) for name in ("buffer", "chunk", "offset"))
        if buffer is not None:
            row.buffer = self.tables.memory(buffer, usage or "any")
        row.chunk, row.offset = (NONE if n is None else n for n in (chunk, offset))
        row.size = size

    def _answers(self, asked: NodeAnswers) -> int:
        """The number of a node's answers. Sources that a backend cannot read are named by their slots."""
        strings, texts = self.tables.strings, self.tables.texts
        src = list(self.infos[asked.id].src)
        rows = tuple(
            (
                strings[a.state],
                texts.plain(a.why_not),
                tuple((src.index(c.id) if c.id in src else NONE, texts.plain(c.why)) for c in a.copies),
            )
            for a in asked.answers
        )
        return self.answers[rows]

    def answer_rows(self) -> list[list[doc.ReportAnswerRow]]:
        """The answers by their numbers."""
        return [[doc.ReportAnswerRow(state, why, list(cannot)) for state, why, cannot in rows] for rows in self.answers]


def _layer(name: str) -> int:
    layer = layer_of(name)
    return NONE if layer is None else layer


def fold_rows(plan: Plan, infos: Tensors) -> list[doc.FoldRow]:
    """The repeated layers of a plan."""
    if not plan.splits or not plan.nodes:
        return []
    ids = [node.name for node in plan.nodes]
    return _folds(fold_plan(plan, infos).items, ids)


def _folds(items: Iterable[int | Fold], ids: Sequence[str]) -> list[doc.FoldRow]:
    return [
        doc.FoldRow(f.start, f.period, f.times, layers(ids[f.start : f.end]), _folds(f.body, ids))
        for f in items
        if isinstance(f, Fold)
    ]


def split_rows(
    plan: Plan, infos: Tensors, heard: Decisions, tables: ReportTables, seconds: Timed | None
) -> list[doc.ReportSplitRow]:
    """The splits of a plan: why each begins, what it copies, and its seconds where they are known."""
    started = {event.split: event for event in heard.started}
    made = {(event.split, event.tensor): event for event in heard.inputs}
    inputs: dict[int, list[doc.ReportInputRow]] = {}
    for i in copied_inputs(plan, infos):
        event = made.get((i.split, i.tensor))
        inputs.setdefault(i.split, []).append(
            doc.ReportInputRow(
                tables.tensors[i.tensor],
                tables.strings[i.what],
                tables.backends.get(i.src, NONE),
                i.nbytes,
                NONE if event is None else tables.tensors[event.node],
                [] if event is None else tables.tensors.all(event.copies),
            )
        )
    rows = []
    for split in plan.splits:
        first = plan.nodes[split.i_start].id if split.i_start < len(plan.nodes) else ""
        start = started.get(split.id) or SplitStarted(split.id, split.backend, split.i_start, first, Why.VIEWS_ONLY)
        node, _, other = names_in(start)
        own = inputs.get(split.id, [])
        row = doc.ReportSplitRow(
            backend=tables.backends.get(split.backend, NONE),
            i_start=split.i_start,
            i_end=split.i_end,
            nbytes=sum(i.nbytes for i in own),
            text=tables.texts.of_event(start),
            tensor=tables.tensors[node],
            other=tables.tensors[other],
            inputs=own,
        )
        timed = None if seconds is None or split.id >= len(seconds.splits) else seconds.splits[split.id]
        row.computes = UNSET if timed is None else EstimateRow.of(timed.computes)
        row.copies = UNSET if timed is None else EstimateRow.of(timed.copies)
        rows.append(row)
    return rows


COMPUTE = "compute"


class ReportBuffers:
    """The buffers that there are, by buffer type and usage."""

    def __init__(self) -> None:
        self._keys = ReportNumbers()

    def number(self, buft: str, usage: str) -> int:
        """The number of the memory of this type that is used so."""
        return self._keys[(buft, usage)]

    def compute(self, buft: str) -> int:
        """The number of a compute buffer, by which events name it."""
        return NONE if not buft else self.number(buft, COMPUTE)

    def rows(
        self, at: Watched, memory: MemoryPlan, allocations: Sequence[doc.AllocationRow]
    ) -> Iterator[doc.ReportBufferRow]:
        """The buffers of a run."""
        run = at.run
        names, steps = [b.name for b in run.backends], len(memory.nodes)
        sizes = dict(zip((buft for _, buft in at.plan.backends), (n for _, n in at.plan.buffer_sizes), strict=False))
        for buft, usage in list(self._keys):
            of = run.bufts.get(buft)
            if usage == COMPUTE:
                chunks, total = memory.chunk_sizes(buft), sizes.get(buft, 0)
            else:
                own = [b for b in run.buffers if b.buft.name == buft and USAGE_NAMES[b.usage] == usage]
                chunks = [b.size for b in own]
                total = sum(chunks)
            yield doc.ReportBufferRow(
                buft=buft,
                usage=usage,
                backend=NONE if of is None else names.index(memory_owner(of, run.backends).name),
                size=total,
                chunks=chunks,
                bends=[bend_of(memory.of(buft, i), size, steps) for i, size in enumerate(chunks)]
                if usage == COMPUTE
                else [0] * len(chunks),
                alignment=TENSOR_ALIGNMENT if of is None else of.alignment,
                max_size=None if of is None or of.max_size >= SIZE_MAX // 2 else of.max_size,
                peak=_peak(buft, memory, allocations) if usage == COMPUTE else None,
            )


def _peak(buft: str, memory: MemoryPlan, allocations: Sequence[doc.AllocationRow]) -> doc.ReportPeakRow | None:
    peak = memory.peak(buft)
    if peak is None:
        return None
    numbers = [
        i
        for i, (row, life) in enumerate(zip(allocations, memory.lifetimes, strict=True))
        if life.buft == buft and life.alive(peak.step)
    ]
    numbers.sort(key=lambda i: (-allocations[i].size, allocations[i].offset))
    return doc.ReportPeakRow(peak.step, peak.nbytes, numbers)


def allocation_rows(
    allocations: Sequence[Allocation], tensors: ReportTensors, buffers: ReportBuffers
) -> list[doc.AllocationRow]:
    """The allocations, with those that they took over from and gave to."""
    given = {a.took: i for i, a in enumerate(allocations) if a.took is not None}
    return [
        doc.AllocationRow(
            tensors.at(a.life.tensor, a.life.chunk, a.life.offset), buffers.compute(a.life.buft),
            a.life.chunk, a.life.offset, a.life.size, a.given_back,
            a.life.start, NONE if a.life.end is None else a.life.end, a.born, NONE if a.died is None else a.died,
            NONE if a.took is None else a.took, given.get(i, NONE), a.life.kept,
        )
        for i, a in enumerate(allocations)
    ]  # fmt: skip
