"""What every split copies before it runs: each input with its bytes, and where from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from ggmltool.ask.answer import Answer
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.callbacks import USED_EXPERTS
from ggmltool.inspect.copied import CopiedInput, OtherPlan, copied_inputs
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show import table
from ggmltool.show.colors import term_colors
from ggmltool.show.document import Row, StepDocument, between, head
from ggmltool.show.table import Cell, Column, Style, Table, heading, render_lines, render_table
from ggmltool.show.text import count, printable, size, size_between


class ExpertsRow(Row):
    """A weight of experts of which only the used ones are copied: how many at least and at most, and their bytes."""

    split: int
    id: str
    n_expert: int
    used_min: int
    used_max: int
    nbytes: int
    nbytes_min: int
    nbytes_max: int


def expert_copies(
    model: ScenarioSpec, plan: Plan, tensors: Tensors, bufts: Mapping[str, BufferType]
) -> list[ExpertsRow]:
    """One for every weight that is copied expert by expert, by the scheduler or by llama.cpp's callback.

    That is source 0 of a MUL_MAT_ID at the head of a split, where it lies in host memory for weights; else, in releases
    before August 2025 and in 0.26 without the callback, it is copied whole. ggml copies a little of the expert behind
    each run of used ones, so that what a kernel reads beyond the run is no NaN.
    """
    from ggmltool.ggml.sched.used_experts import EXPERT_TAIL

    if not model.release.rules.copies_used_experts and model.scheduler.copy_callback != USED_EXPERTS:
        return []
    leafs = {leaf.id: leaf for leaf in plan.leafs}
    original = {copy.name: copy.of for copy in plan.copies}
    out = []
    for split in plan.splits:
        node = plan.nodes[split.i_start] if split.i_start < split.i_end else None
        if node is None or node.op != "MUL_MAT_ID" or len(node.src) < 3:
            continue
        weight = original.get(node.src[0] or "")
        leaf, info = leafs.get(weight or ""), tensors.get(weight or "")
        if leaf is None or info is None or weight not in split.inputs:
            continue
        buft = bufts.get(leaf.buffer or "")
        if leaf.usage == "weights" and buft is not None and buft.host:
            name, n_expert = node.src[2] or "", info.ne[2]
            ids = tensors.get(original.get(name, name))
            per_token, tokens = node.ne[1:3] if ids is None else ids.ne[:2]
            least, most = min(per_token, n_expert), min(per_token * tokens, n_expert)
            expert = info.nbytes // max(n_expert, 1)
            nbytes_most = min(info.nbytes, most * (expert + min(expert, EXPERT_TAIL)))
            out.append(ExpertsRow(split.id, info.id, n_expert, least, most, info.nbytes, least * expert, nbytes_most))
    return out


class CopiedRow(Row, kw_only=True, rename={"src": "from", "dst": "to"}):
    """A tensor that is copied before a split, a weight, an input, a node or a view, from one backend to another."""

    split: int
    id: str
    what: str
    src: str
    dst: str
    nbytes: int
    nbytes_max: int | UnsetType = UNSET


class CopiedPair(Row, kw_only=True, rename={"src": "from", "dst": "to"}):
    """All that is copied from one backend to another."""

    src: str
    dst: str
    nbytes: int
    nbytes_max: int | UnsetType = UNSET


class OtherCopies(Row):
    """How many tensors are copied with op offload the other way round, and their bytes."""

    inputs: int
    nbytes: int


class Copied(StepDocument, kw_only=True):
    """`splits --bytes --json`: the bytes that are copied before each split, per pair of backends and in all.

    `nbytes_max` is there where a log knows bytes only to a K or an M. `experts` are weights of which only the used
    experts are copied; `with_op_offload` or `without_op_offload` is the same graph with that option the other way.
    """

    view = "copied:shown"
    beside = ("plan", "copied")
    """The plan, and what is copied, input by input."""
    kind: Literal["copied"] = "copied"
    nbytes: int
    nbytes_max: int | UnsetType = UNSET
    inputs: list[CopiedRow]
    pairs: list[CopiedPair]
    experts: list[ExpertsRow] | UnsetType = UNSET
    with_op_offload: OtherCopies | UnsetType = UNSET
    without_op_offload: OtherCopies | UnsetType = UNSET
    plan: Plan
    copied: Sequence[CopiedInput]

    @classmethod
    def of(
        cls, plan: Plan, tensors: Tensors, other: OtherPlan | None = None, experts: Sequence[ExpertsRow] = ()
    ) -> Copied:
        """What the splits of a plan copy."""
        inputs = copied_inputs(plan, tensors)
        pairs: dict[tuple[str, str], list[CopiedInput]] = {}
        for i in inputs:
            pairs.setdefault((i.src, i.dst), []).append(i)
        otherwise = {} if other is None else {other.op_offload: OtherCopies(other.inputs, other.nbytes)}
        return cls(
            **head(plan),
            **_bytes(inputs),
            inputs=[
                CopiedRow(split=i.split, id=i.tensor, what=i.what, src=i.src, dst=i.dst, **_bytes([i])) for i in inputs
            ],
            pairs=[CopiedPair(src=src, dst=dst, **_bytes(of)) for (src, dst), of in pairs.items()],
            experts=list(experts) or UNSET,
            with_op_offload=otherwise.get(True, UNSET),
            without_op_offload=otherwise.get(False, UNSET),
            plan=plan,
            copied=inputs,
        )

    def rows(self) -> tuple[CopiedInput, ...]:
        """What is copied, input by input."""
        return tuple(self.copied)


def _bytes(inputs: Sequence[CopiedInput]) -> dict[str, Any]:
    return between(sum(i.nbytes for i in inputs), sum(i.slack for i in inputs))


def shown(answer: Answer[Copied], style: Style) -> str:
    """A line per input with a sum per split; then sums per pair of backends and over all."""
    found, inputs = answer.facts, answer.facts.copied
    facts = [answer.heading, f"{count(len(inputs), 'input')} copied, {_size(inputs)}"]
    parts = [heading(answer.title, facts, style)]
    if inputs:
        parts += ["\n", _table(answer.facts.plan, inputs, style)]
    parts += ["\n", render_lines(copied_sums(inputs), style)]
    if found.experts:
        parts.append(render_lines([experts_line(found.experts)], style))
    for how, other in (("with", found.with_op_offload), ("without", found.without_op_offload)):
        if other:
            text = f"{how} op offload: {count(other.inputs, 'tensor')}, {size(other.nbytes)}"
            parts.append(render_lines([text], style))
    return "".join(parts)


def _table(plan: Plan, inputs: Sequence[CopiedInput], style: Style) -> str:
    inks = term_colors(name for name, _ in plan.backends)
    by_split: dict[int, list[CopiedInput]] = {}
    for i in inputs:
        by_split.setdefault(i.split, []).append(i)
    columns: list[Column[CopiedInput]] = [
        Column("split", lambda i: f"#{i.split}" if len(by_split[i.split]) == 1 else None, right=True),
        Column("bytes", lambda i: _size([i]), right=True),
        Column("tensor", lambda i: i.tensor, cut=True),
        Column("what", lambda i: Cell(i.what, "dim"), drop=1),
        Column("from", lambda i: Cell(i.src, inks.get(i.src, ""))),
        Column("to", lambda i: Cell(i.dst, inks.get(i.dst, ""))),
    ]
    if any(i.shape for i in inputs):
        columns.append(Column("shape", lambda i: i.shape, drop=2))
    rows: list[table.Row] = []
    for split in plan.splits:
        of = by_split.get(split.id, []) if split.inputs else []
        if len(of) > 1:
            rows.append([f"#{split.id}", Cell(_size(of), "bold"), f"in {len(of)} tensors", "", "", split.backend])
        rows += Table(*columns).rows(of)
    return render_table(columns, rows, style)


def copied_sums(inputs: Sequence[CopiedInput]) -> list[str]:
    """A line per pair of backends, and one for all."""
    if not inputs:
        return ["nothing is copied between backends"]
    lines = []
    for src, dst in dict.fromkeys((i.src, i.dst) for i in inputs):
        of = [i for i in inputs if (i.src, i.dst) == (src, dst)]
        lines.append(f"{printable(src)} → {printable(dst)}: {_sum(of)}")
    return [*lines, f"total: {_sum(inputs)}"]


def _sum(inputs: Sequence[CopiedInput]) -> str:
    weights = [i for i in inputs if i.what == "weight" and i.nbytes + i.slack]
    return f"{count(len(inputs), 'tensor')}, {_size(inputs)}" + (
        f" ({_size(weights)} of it weights)" if weights else ""
    )


def _size(inputs: Sequence[CopiedInput]) -> str:
    return size_between(sum(i.nbytes for i in inputs), sum(i.nbytes + i.slack for i in inputs))


def experts_line(experts: Sequence[ExpertsRow]) -> str:
    """How much of these weights is copied, in words; "" if there are none."""
    if not experts:
        return ""
    between = size_between(sum(e.nbytes_min for e in experts), sum(e.nbytes_max for e in experts))
    used = ((e.used_min if e.used_min == e.used_max else f"{e.used_min} to {e.used_max}", e) for e in experts)
    shares = dict.fromkeys(f"{how_many} of {e.n_expert}" for how_many, e in used)
    whole = f"{count(len(experts), 'weight')} of experts, {size(sum(e.nbytes for e in experts))} whole"
    return f"{whole}: ggml copies only the experts that the batch uses, {between} ({', '.join(shares)})"
