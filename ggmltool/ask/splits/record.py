"""The splits of a plan: where each runs, its nodes, what is copied before it."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.inspect.copied import bytes_of
from ggmltool.scenario.tensor_info import TensorInfo, Tensors
from ggmltool.show.colors import term_colors
from ggmltool.show.document import Row, StepDocument, between, head
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines, render_table, without_middle
from ggmltool.show.text import count, shortened


class SplitInput(Row, kw_only=True):
    """A tensor that is copied before a split: its bytes, None if they are not known; with `nbytes_max` between."""

    id: str
    nbytes: int | None
    nbytes_max: int | UnsetType = UNSET

    @classmethod
    def of(cls, id: str, info: TensorInfo | None) -> SplitInput:
        """An input, and what is known of it."""
        return cls(id=id, nbytes=None) if info is None else cls(id=id, **between(info.nbytes, info.slack))


class SplitNode(Row):
    """A node of a split. `op_desc` is the function's name where `op` is UNARY or GLU."""

    index: int
    id: str
    op: str
    op_desc: str
    backend: str | None
    cause: str | None


class SplitRow(Row):
    """A split: its nodes, `i_start` up to and without `i_end` (`last` is the last one, null if there is none), run on
    `backend`, behind the copies of `inputs`. `count` and `ops` are how many nodes, and how many of each op; `nbytes`
    and `copied` are the bytes copied (known ones) and the names of the inputs."""

    id: int
    backend: str
    i_start: int
    i_end: int
    last: int | None
    count: int
    nbytes: int
    copied: list[str]
    ops: list[str]
    inputs: list[SplitInput]
    nodes: list[SplitNode]


class SplitsTable(StepDocument, kw_only=True):
    """`splits --json`: every split with what is copied for it and its nodes, each with backend and cause."""

    view = "record:splits"
    beside = ("plan", "tensors")
    """The splits, with the plan that they are of and what is known of its tensors."""
    kind: Literal["splits"] = "splits"
    splits: list[SplitRow]
    plan: Plan
    tensors: Tensors

    @classmethod
    def of(cls, plan: Plan, tensors: Tensors) -> SplitsTable:
        """The splits of a plan."""
        splits = []
        for split in plan.splits:
            nodes = plan.nodes[split.i_start : split.i_end]
            row = SplitRow(
                split.id,
                split.backend,
                nodes[0].index if nodes else split.i_start,
                nodes[-1].index + 1 if nodes else split.i_end,
                nodes[-1].index if nodes else None,
                len(nodes),
                input_bytes(split, tensors),
                list(split.inputs),
                [f"{n} {op}" for op, n in Counter(n.op_desc for n in nodes).most_common()],
                [SplitInput.of(i, tensors.get(i)) for i in split.inputs],
                [SplitNode(n.index, n.id, n.op, n.op_desc, n.backend, n.cause) for n in nodes],
            )
            splits.append(row)
        return cls(**head(plan), splits=splits, plan=plan, tensors=tensors)


def input_bytes(split: SplitPlan, tensors: Tensors) -> int:
    """Bytes copied before a split."""
    return sum(tensors[i].nbytes for i in split.inputs if i in tensors)


def splits_table(plan: Plan, tensors: Tensors, style: Style, limit: int | None = None) -> str:
    """One row per split; with `limit`, the ones in the middle are left out and counted."""
    table = _table(plan, tensors)
    rows = table.rows(plan.splits)
    most = len(rows) if limit is None else limit
    shown = without_middle(rows, most, lambda n: [Cell("⋮", "dim"), Cell(f"{n} more", "dim")])
    return render_table(table.columns, shown, style)


def splits(answer: Answer[SplitsTable], style: Style) -> str:
    """All splits, with a heading."""
    plan, tensors = answer.facts.plan, answer.facts.tensors
    copied = bytes_of(tensors[i] for split in plan.splits for i in split.inputs if i in tensors)
    copies = sum(len(split.inputs) for split in plan.splits)
    facts = [answer.heading, count(len(plan.splits), "split"), f"{count(copies, 'input')} copied, {copied}"]
    return heading(answer.title, facts, style) + render_lines([""], style) + splits_table(plan, tensors, style)


def _table(plan: Plan, tensors: Tensors) -> Table[SplitPlan]:
    inks = term_colors(name for name, _ in plan.backends)

    def nodes(split: SplitPlan) -> tuple[NodePlan, ...]:
        return plan.nodes[split.i_start : split.i_end]

    def numbers(split: SplitPlan) -> str:
        of = nodes(split)
        return "" if not of else str(of[0].index) if len(of) == 1 else f"{of[0].index}–{of[-1].index}"

    def copied(split: SplitPlan) -> str | None:
        return bytes_of(tensors[i] for i in split.inputs if i in tensors) if split.inputs else None

    def names(split: SplitPlan) -> str:
        return shortened([tensors[i].name or i if i in tensors else i for i in split.inputs], 3)

    return Table(
        Column("split", lambda s: f"#{s.id}", right=True),
        Column("backend", lambda s: Cell(s.backend, inks.get(s.backend, "dim"))),
        Column("nodes", numbers, right=True),
        Column("count", lambda s: len(nodes(s)) if plan.nodes else None, right=True, drop=2),
        Column("copied", copied, right=True),
        Column("inputs", names, cut=True, drop=3),
        Column("main ops", lambda s: ops_of(nodes(s), tensors), cut=True, drop=4),
    )


def ops_of(nodes: tuple[NodePlan, ...], tensors: Tensors) -> str:
    """The most frequent ops: `4 MUL_MAT, 2 SILU, +3 more`."""
    counts = Counter(tensors[node.id].op if node.id in tensors else node.op for node in nodes)
    return shortened([f"{n} {op}" for op, n in counts.most_common()], 3)
