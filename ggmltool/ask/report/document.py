"""The document behind the page: everything the page shows, compact enough to be embedded in it.

Tensors, backends, buffers, allocations and texts are rows of tables, and everything else names them by their number
there (-1: none). A text is a list of parts: literals at even places, at odd places the name of the field of its row
that stands there (`tensor`, `by`, `other`), so that names of tensors are written once. `strings` is what is said often.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from ggmltool.show.document import Document, EstimateRow, Row, StepDocument

Text = list[str]
"""Literals at even places, names of fields at odd ones."""


class ReportBackendRow(Row):
    """A backend by priority: its kind of device, its buffer type, and its color in the light (`fill` under dark text)
    and as lines and text (`ink`). `memory` is the device's bytes, null if the scenario does not say; `contexts` and
    `compute` are the bytes that the scenario's tensors and the compute buffers take of it."""

    name: str
    type: str
    about: str
    buft: str
    ink: str
    fill: str
    memory: int | None
    contexts: int
    compute: int
    offload_min_batch: int | None


class ReportPeakRow(Row):
    """When most bytes are alive in a buffer: the step of the allocator (-1: before the first), the bytes, and the
    allocations there, largest first."""

    step: int
    nbytes: int
    allocations: list[int]


class ReportBufferRow(Row):
    """Memory of one buffer type: a compute buffer (`usage` is compute), or buffers of contexts. `backend` owns the
    memory; `chunks` are the bytes of each chunk, and `bends` the offset in each at which a drawing changes its scale, 0
    for none; `max_size` is the most that a chunk may have, null if any."""

    buft: str
    usage: str
    backend: int
    size: int
    chunks: list[int]
    bends: list[int]
    alignment: int
    max_size: int | None
    peak: ReportPeakRow | None


class ReportTensorRow(Struct, array_like=True):
    """A tensor: a node, a leaf, a copy made by the scheduler, or another that the allocator met (`kind`: 0 to 3), in
    this order and each in that of the graph.

    `name` is "" where it is the id. `op`, `shape` and `cause` are strings; `nbytes` is ggml_nbytes. `src` are the
    sources as the graph has them, `reads` what the scheduler put in their place ([] if all are as written); of a copy
    `src` is what it is copied from. `buffer`, `chunk`, `offset` and `size` say where it lies in the end. `reason` is
    the text of why it has its backend, with `by` and `other`; `answers` the row of what every backend answers; `layer`
    the number that its name speaks of.
    """

    id: str
    name: str = ""
    kind: int = 0
    op: int = -1
    shape: int = -1
    nbytes: int = 0
    flags: int = 0
    backend: int = -1
    cause: int = -1
    split: int = -1
    view_src: int = -1
    buffer: int = -1
    chunk: int = -1
    offset: int = -1
    size: int = 0
    layer: int = -1
    uses: int = 0
    reason: int = -1
    by: int = -1
    other: int = -1
    answers: int = -1
    src: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)


class ReportAnswerRow(Row, array_like=True):
    """What one backend answers for a node: yes, no, copy or offload (a string), the text of why not, and the sources
    that it cannot read where they lie, as pairs of their slot and the text of why."""

    state: int
    why: int
    unreadable: list[tuple[int, int]]


class ReportInputRow(Row, array_like=True):
    """A tensor that is copied before a split: what it is (weight, input or node, a string), where from (a backend), its
    bytes, the node it is copied for first, and its copies on the split's backend."""

    tensor: int
    what: int
    backend: int
    nbytes: int
    node: int
    copies: list[int]


class ReportSplitRow(Struct):
    """A split: nodes `i_start` up to and without `i_end` run on a backend, behind the copies of `inputs`, of `nbytes`
    in all. It begins for the reason of `text`, which is of the node `tensor`; `computes` and `copies` are seconds,
    where the rates of the devices are known."""

    backend: int
    i_start: int
    i_end: int
    nbytes: int
    text: int
    tensor: int
    other: int
    inputs: list[ReportInputRow]
    computes: EstimateRow | UnsetType = UNSET
    copies: EstimateRow | UnsetType = UNSET


class AllocationRow(Row, array_like=True):
    """Bytes that a tensor has in a chunk of a compute buffer: from step `start` of the allocator (-1: before the first)
    until after step `end` (-1 to the end of the graph), and in the walk from event `born` until event `died` (-1:
    never).

    `took` is the allocation whose bytes it took over in place, `given` the one that took over from it; `size` is what
    it keeps, and `given_back` what it gave back of the bytes that it took over. `kept`: the tensor is an output.
    """

    tensor: int
    buffer: int
    chunk: int
    offset: int
    size: int
    given_back: int
    start: int
    end: int
    born: int
    died: int
    took: int
    given: int
    kept: bool


class KindRow(Row):
    """A kind of event: the `fields` of its rows behind the kind's number, and how it is said: fields at odd places.

    By their names: `tensor`, `by`, `other`, `node`, `until`, `src` and `dst` are tensors, `copies` and `nodes` lists of
    tensors, `backend` a backend, `buffer`, `src_buffer` and `dst_buffer` buffers, `text` a text, `function`, `detail`,
    `cause`, `call`, `how`, `level`, `line`, `old_place` and `new_place` strings; `size`, `nbytes`, `old_size`,
    `new_size` and `offset` bytes (null: none), other fields numbers. Rows leave out -1 at their end.
    """

    name: str
    fields: list[str]
    says: Text


class StepRow(Row):
    """A step of the scenario whose events are in the document: its number (-1: a fresh scheduler), its words, and the
    first of its events."""

    number: int
    title: str
    event: int


class ResetRow(Row, array_like=True):
    """Before event number `event`, all that was so far of `what` is forgotten: 0 assignments, 1 splits and what they
    copy, 2 allocations."""

    event: int
    what: int


class FoldRow(Row):
    """Nodes that repeat: `times` layers of `period` nodes from `start` on, what they are called, and the folds inside
    of the first."""

    start: int
    period: int
    times: int
    title: str
    folds: list[FoldRow]


class ReportGaugeRow(Row):
    """A limit of ggml: how much of it is used (null: not reached), where, what it is made of, what is beyond it;
    `status` is fine, near, over, breached or "not reached"."""

    group: str
    title: str
    used: int | None
    limit: int
    nbytes: bool
    status: str
    where: str
    of: list[tuple[str, int]]
    beyond: str


class MatrixRow(Struct):
    """An op with how many nodes have it, and for each backend how many of them it would run: as they are (yes), after
    copies, by offload, not (no); `runs` is how many it gets. `why` is the first reason of a no."""

    op: str
    nodes: int
    yes: list[int]
    copy: list[int]
    offload: list[int]
    no: list[int]
    runs: list[int]
    why: list[str]


class AdviceRow(Row):
    """Something that could be changed, in words, for a split (-1: for none), and what it comes to where it was planned:
    splits, bytes copied, bytes of all compute buffers; null where that is not known.

    `kind` is freed (a step used freed memory), now (what there is), option (of the scheduler), weights (put elsewhere
    together), node, op (which a device does not support) or limit.
    """

    kind: str
    text: str
    split: int
    splits: int | None
    copied: int | None
    nbytes: int | None


class ReportSourceRow(Row):
    """The scenario in its long form: `text` is JSON, of a long one its beginning, of `nbytes` in all. `packed` is the
    whole file compressed by gzip, in base64, to be saved as `name` and planned again; "" for one that is too large."""

    text: str
    nbytes: int
    name: str
    packed: str


class TimeRow(Row):
    """The seconds of the graph: all of it, its nodes, its copies; `tokens` are those of its batch, null for a graph
    that is no llama.cpp's. `assumed` are hosts whose rates nobody named."""

    all: EstimateRow
    computes: EstimateRow
    copies: EstimateRow
    tokens: int | None
    cached: int
    assumed: list[str]


class LeftOutRow(Row):
    """What a bound cut: how many there are, and how many are here."""

    what: str
    of: int
    here: int


class ReportDocument(StepDocument, kw_only=True):
    """`report --json`: everything the page of `report` shows of a graph.

    `version` is ggmltool's, `asked` the command that makes the page. `nodes` and `leafs` count the first rows of
    `tensors`; `order` are the tensors of the allocator's steps. Each row of `events` begins with the number of its
    kind; walking them from the first gives the state at each, and behind the last the plan. `no_seconds` is why there
    is no estimate.
    """

    kind: Literal["report"] = "report"
    version: str
    title: str
    asked: str
    strings: list[str]
    texts: list[Text]
    backends: list[ReportBackendRow]
    buffers: list[ReportBufferRow]
    nodes: int
    leafs: int
    tensors: list[ReportTensorRow]
    answers: list[list[ReportAnswerRow]]
    folds: list[FoldRow]
    splits: list[ReportSplitRow]
    order: list[int]
    allocations: list[AllocationRow]
    steps: list[StepRow]
    kinds: list[KindRow]
    events: list[list[Any]]
    resets: list[ResetRow]
    gauges: list[ReportGaugeRow]
    matrix: list[MatrixRow]
    advice: list[AdviceRow]
    seconds: TimeRow | UnsetType = UNSET
    no_seconds: str = ""
    log: list[str]
    source: ReportSourceRow
    left_out: list[LeftOutRow]


class ReportDivergenceRow(Row):
    """Where two plans part: the first node with another order, backend or split (`kind`), as a tensor of each (-1: it
    is in one of them only), and what each plan decides there."""

    kind: str
    a: int
    b: int
    says_a: str
    says_b: str


class TotalRow(Row):
    """A number of both plans; `nbytes`: it is bytes."""

    what: str
    a: int
    b: int
    nbytes: bool


class GroupRow(Row):
    """Nodes that differ in the same way: what it is, and the pairs of their tensors (-1: in one plan only)."""

    kind: str
    title: str
    pairs: list[tuple[int, int]]


class ReportRuleRow(Row):
    """A rule of ggml's that changed between the two releases, what it was and is, and what it did here; `rule` is ""
    for what follows from the others."""

    rule: str
    since: str
    before: str
    now: str
    here: list[str]


class ReportComparisonDocument(Document, kw_only=True):
    """`report --compare --json`: the reports of two plans, and what differs between them.

    `parts` are those that differ, of nodes, splits, copies, buffers, sizes, contexts; the first of `divergences` is
    where the plans part first. `pairs` are the nodes that are in both, by their tensors.
    """

    kind: Literal["report_comparison"] = "report_comparison"
    titles: tuple[str, str]
    a: ReportDocument
    b: ReportDocument
    same: bool
    parts: list[str]
    divergences: list[ReportDivergenceRow]
    totals: list[TotalRow]
    groups: list[GroupRow]
    rules: list[ReportRuleRow]
    pairs: list[tuple[int, int]]

    @property
    def title(self) -> str:
        """What the two are called."""
        return " and ".join(self.titles)
