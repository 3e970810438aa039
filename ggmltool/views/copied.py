"""What every split copies before it runs: each input with its bytes, and where from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ggmltool.ggml.plan import Plan
from ggmltool.views.copied_experts import ExpertCopy, experts_json, experts_line
from ggmltool.views.palette import colors
from ggmltool.views.splits import plan_step
from ggmltool.views.table import Cell, Column, Row, Style, heading, render_lines, render_table
from ggmltool.views.tensors import TensorInfo, Tensors
from ggmltool.views.text import count, printable, size, size_between

_COLUMNS = (
    Column("split", right=True),
    Column("bytes", right=True),
    Column("tensor", cut=True),
    Column("what", drop=1),
    Column("from"),
    Column("to"),
    Column("shape", drop=2),
)


class CopiedInput(NamedTuple):
    """A tensor that a split copies. `what` is weight, input, node or, where only its name is known, view.

    `nbytes` is ggml_nbytes; in a log it can be `slack` bytes more.
    """

    split: int
    tensor: str
    what: str
    src: str
    dst: str
    nbytes: int
    shape: str
    slack: int = 0


class OtherPlan(NamedTuple):
    """The same graph planned with op offload the other way round."""

    op_offload: bool
    inputs: int
    nbytes: int


def copied_inputs(plan: Plan, tensors: Tensors) -> list[CopiedInput]:
    """One for every input of every split, in order."""
    home = {n.id: n.backend for n in plan.nodes} | {leaf.id: leaf.backend for leaf in plan.leafs}
    usage = {leaf.id: leaf.usage for leaf in plan.leafs}
    out = []
    for split in plan.splits:
        for i in split.inputs:
            info = tensors.get(i)
            what = _what(usage[i], info) if i in usage else "node"
            shape, nbytes, slack = (info.shape, info.nbytes, info.slack) if info is not None else ("", 0, 0)
            out.append(CopiedInput(split.id, i, what, home.get(i) or "?", split.backend, nbytes, shape, slack))
    return out


def _what(usage: str | None, info: TensorInfo | None) -> str:
    """What a tensor is that is no node of the plan; a log does not have the nodes that are views."""
    if usage == "weights":
        return "weight"
    return "view" if info is not None and not info.type and info.view_src is not None else "input"


def copied_view(
    plan: Plan,
    tensors: Tensors,
    title: str,
    style: Style,
    other: OtherPlan | None = None,
    experts: Sequence[ExpertCopy] = (),
) -> str:
    """A line per input with a sum per split; then sums per pair of backends and over all."""
    inputs = copied_inputs(plan, tensors)
    facts = [plan_step(plan), f"{count(len(inputs), 'input')} copied, {_size(inputs)}"]
    parts = [heading(title, facts, style)]
    if inputs:
        shapes = any(i.shape for i in inputs)
        rows = [row if shapes else row[:-1] for row in _rows(plan, inputs)]
        parts += ["\n", render_table(_COLUMNS if shapes else _COLUMNS[:-1], rows, style)]
    parts += ["\n", render_lines(copied_sums(inputs), style)]
    if experts:
        parts.append(render_lines([experts_line(experts)], style))
    if other is not None:
        how = "with" if other.op_offload else "without"
        parts.append(render_lines([f"{how} op offload: {count(other.inputs, 'tensor')}, {size(other.nbytes)}"], style))
    return "".join(parts)


def _rows(plan: Plan, inputs: list[CopiedInput]) -> Iterator[Row]:
    inks = {name: color.term for name, color in colors(name for name, _ in plan.backends).items()}
    by_split: dict[int, list[CopiedInput]] = {}
    for i in inputs:
        by_split.setdefault(i.split, []).append(i)
    for split in plan.splits:
        of = by_split.get(split.id, []) if split.inputs else []
        if len(of) > 1:
            yield [f"#{split.id}", Cell(_size(of), "bold"), f"in {len(of)} tensors", "", "", Cell(split.backend), ""]
        for i in of:
            yield [
                f"#{split.id}" if len(of) == 1 else "",
                _size([i]),
                Cell(i.tensor),
                Cell(i.what, "dim"),
                Cell(i.src, inks.get(i.src, "")),
                Cell(i.dst, inks.get(i.dst, "")),
                i.shape,
            ]


def copied_sums(inputs: list[CopiedInput]) -> list[str]:
    """A line per pair of backends, and one for all."""
    if not inputs:
        return ["nothing is copied between backends"]
    lines = []
    for src, dst in dict.fromkeys((i.src, i.dst) for i in inputs):
        of = [i for i in inputs if (i.src, i.dst) == (src, dst)]
        lines.append(f"{printable(src)} → {printable(dst)}: {_sum(of)}{_weights(of)}")
    return [*lines, f"total: {_sum(inputs)}{_weights(inputs)}"]


def _sum(inputs: list[CopiedInput]) -> str:
    return f"{count(len(inputs), 'tensor')}, {_size(inputs)}"


def _weights(inputs: list[CopiedInput]) -> str:
    weights = [i for i in inputs if i.what == "weight" and i.nbytes + i.slack]
    return f" ({_size(weights)} of it weights)" if weights else ""


def _size(inputs: list[CopiedInput]) -> str:
    return size_between(sum(i.nbytes for i in inputs), sum(i.nbytes + i.slack for i in inputs))


def _bytes(inputs: list[CopiedInput]) -> dict[str, int]:
    """`nbytes`, and `nbytes_max` where it is not exact."""
    nbytes, slack = sum(i.nbytes for i in inputs), sum(i.slack for i in inputs)
    return {"nbytes": nbytes} | ({"nbytes_max": nbytes + slack} if slack else {})


def copied_json(
    plan: Plan, tensors: Tensors, other: OtherPlan | None = None, experts: Sequence[ExpertCopy] = ()
) -> dict[str, Any]:
    """Exact bytes of every input, per pair of backends and in all."""
    inputs = copied_inputs(plan, tensors)
    pairs = dict.fromkeys((i.src, i.dst) for i in inputs)
    out: dict[str, Any] = {
        "ggmltool": 1,
        "kind": "copied",
        "ggml": plan.ggml,
        "graph": plan.graph,
        "step": plan.step,
        "ok": plan.ok,
        **_bytes(inputs),
        "inputs": [
            {"split": i.split, "id": i.tensor, "what": i.what, "from": i.src, "to": i.dst} | _bytes([i]) for i in inputs
        ],
        "pairs": [
            {"from": src, "to": dst} | _bytes([i for i in inputs if (i.src, i.dst) == (src, dst)]) for src, dst in pairs
        ],
    }
    if experts:
        out["experts"] = experts_json(experts)
    if other is not None:
        out["with_op_offload" if other.op_offload else "without_op_offload"] = {
            "inputs": other.inputs,
            "nbytes": other.nbytes,
        }
    if plan.error is not None:
        out["error"] = dict(plan.error)
    return out
