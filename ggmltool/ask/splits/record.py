"""The splits of a plan: where each runs, its nodes, what is copied before it."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import UNSET, UnsetType

from ggmltool.ggml.plan import Plan, SplitPlan
from ggmltool.scenario.tensor_info import TensorInfo, Tensors
from ggmltool.show.document import Row, StepDocument, between, head


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

    view = "splits"
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
