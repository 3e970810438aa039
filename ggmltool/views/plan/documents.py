"""The JSON of plans: whole, by split, counted, what is copied, and pass by pass."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ggmltool.ggml.plan import CopyPlan, LeafPlan, NodePlan, Plan, SplitPlan
from ggmltool.views.document import Row, StepDocument


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
    free_blocks: tuple[tuple[int, int], ...]


class PlanDocument(StepDocument, kw_only=True):
    """`plan --json`: the whole plan, with the backend, the split and the place in memory of every node.

    `buffer_sizes` are the bytes of each backend's compute buffer; `log` is what ggml logs, `debug_log` what only a
    debug build does. `tallocs`, `inplace` and `measured` are of January 2024: its allocators, the nodes computed in the
    memory of a source, and the bytes that measuring found.
    """

    kind: Literal["plan"] = "plan"
    backends: tuple[PlanBackend, ...]
    splits: tuple[SplitPlan, ...]
    nodes: tuple[NodePlan, ...]
    leafs: tuple[LeafPlan, ...]
    copies: tuple[CopyPlan, ...]
    buffer_sizes: dict[str, int]
    log: tuple[str, ...]
    debug_log: tuple[str, ...] | UnsetType = UNSET
    tallocs: tuple[Talloc, ...] | UnsetType = UNSET
    inplace: tuple[str, ...] | UnsetType = UNSET
    measured: dict[str, int] | UnsetType = UNSET

    @classmethod
    def of(cls, plan: Plan) -> PlanDocument:
        """A plan."""
        return msgspec.convert(plan.as_dict(), cls)
