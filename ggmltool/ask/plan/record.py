"""The JSON of plans: whole, by split, counted, what is copied, pass by pass; and of graphs."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, SplitPlan
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.document import Error, Row, StepDocument, head


class PlanBackend(Row):
    """A backend and its buffer type; they are listed by priority."""

    name: str
    buft: str


class Talloc(Row):
    """An allocator of January 2024 after the graph was allocated in it: bytes, and free blocks as [offset, size]."""

    backend: str
    align_offset: int
    max_size: int
    buffer_size: int
    free_blocks: list[tuple[int, int]]


class PlanDocument(StepDocument, kw_only=True):
    """`plan --json`: the whole plan, with the backend, the split and the place in memory of every node.

    `buffer_sizes` are the bytes of each backend's compute buffer; `log` is what ggml logs, `debug_log` what only a
    debug build does. `tallocs`, `inplace` and `measured` are of January 2024: its allocators, the nodes computed in the
    memory of a source, and the bytes that measuring found. `compute_error` is how ggml aborts when it computes what was
    planned.
    """

    main_table = "nodes"
    kind: Literal["plan"] = "plan"
    backends: list[PlanBackend]
    splits: list[SplitPlan]
    nodes: list[NodePlan]
    leafs: list[LeafPlan]
    copies: list[CopyPlan]
    buffer_sizes: dict[str, int]
    log: list[str]
    debug_log: list[str] | UnsetType = UNSET
    tallocs: list[Talloc] | UnsetType = UNSET
    inplace: list[str] | UnsetType = UNSET
    measured: dict[str, int] | UnsetType = UNSET
    compute_error: Error | UnsetType = UNSET

    @classmethod
    def of(cls, plan: Plan) -> PlanDocument:
        """A plan."""
        error = {} if plan.compute_error is None else {"compute_error": dict(plan.compute_error)}
        return msgspec.convert(plan.as_dict() | error, cls)


class PlanShown(StepDocument, kw_only=True):
    """A plan and its tensors; its document is made when it is wanted. `more` is the command that
    shows all splits."""

    view = "plan"
    kind: Literal["plan"] = "plan"
    plan: Plan
    tensors: Tensors
    more: str

    @classmethod
    def of(cls, plan: Plan, tensors: Tensors, more: str = "") -> PlanShown:
        """A plan that is shown."""
        return cls(**head(plan), plan=plan, tensors=tensors, more=more)

    def document(self) -> PlanDocument:
        """The plan as JSON has it."""
        return replace(PlanDocument.of(self.plan), after=self.after)
