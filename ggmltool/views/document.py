"""JSON documents: one head for all of them, and what several have in common. Each is a struct with a schema."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

if TYPE_CHECKING:
    from ggmltool.estimate.records import Estimate
    from ggmltool.ggml.plan import Plan, PlanError
    from ggmltool.inspect.use_after_free import UseAfterFree


class Row(Struct):
    """A part of a document."""


class Document(Row, kw_only=True):
    """What a command prints with --json: `ggmltool` is the version of the format, `kind` says what it is."""

    main_table: ClassVar[str | None] = None
    """The table that --csv writes if no other is asked for: the name of one of its parts, "" for the document itself as
    one row, None for its first list."""
    ggmltool: Literal[1] = 1
    kind: str


class ReleaseDocument(Document, kw_only=True):
    """A document that holds for one release of ggml, `ggml`."""

    ggml: str


class Error(Row):
    """What ggml printed when it refused to go on: the function, the condition of an assertion, the message; and what it
    means here."""

    kind: str | None
    function: str | None
    condition: str | None
    message: str | None
    explanation: str | None


class FreedByRow(Row):
    """The step (from 1) in which a compute buffer grew, which freed the memory; sizes in bytes."""

    step: int
    did: str
    buft: str
    old_size: int
    new_size: int


class UseAfterFreeRow(Row):
    """A step that used `tensors` in freed memory, and the `results` that rest on it: no values."""

    step: int
    did: str
    tensors: list[str]
    results: list[str]
    freed: FreedByRow

    @classmethod
    def of(cls, use: UseAfterFree) -> UseAfterFreeRow:
        """A use of a run."""
        return cls(use.step, use.did, list(use.tensors), list(use.results), FreedByRow(*use.freed))


class StepDocument(ReleaseDocument, kw_only=True):
    """A document on the state after `step` of `graph`. `after` is the step's number where one was named; `error` is
    there where ggml refused the step, and `ok` is false then."""

    graph: str | None
    step: str
    ok: bool
    error: Error | UnsetType = UNSET
    after: int | UnsetType = UNSET

    def after_step(self, number: int) -> StepDocument:
        """The same for a step that was named by its number."""
        return replace(self, after=number)


def error_of(error: PlanError | None) -> Error | UnsetType:
    """A plan's error, UNSET if there is none."""
    return UNSET if error is None else Error(**dict(error))


def head(plan: Plan) -> dict[str, Any]:
    """The fields of a StepDocument that a plan says."""
    return {
        "ggml": plan.ggml, "graph": plan.graph, "step": plan.step, "ok": plan.ok, "error": error_of(plan.error),
    }  # fmt: skip


def between(nbytes: int, slack: int = 0) -> dict[str, Any]:
    """The fields of a number of bytes: `nbytes`, and `nbytes_max` where it is known to `slack` bytes only."""
    return {"nbytes": nbytes} | ({"nbytes_max": nbytes + slack} if slack else {})


class EstimateRow(Row):
    """An estimate: at least about `low`, likely `mid`, at most about `high`."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, estimate: Estimate) -> EstimateRow:
        """With the digits that it is worth."""
        return cls(*(float(f"{value:.4g}") for value in estimate))


Number = float | str
"""A number; JSON has no NaN and no infinities, which are the texts NaN, Infinity and -Infinity."""


def number(value: Any) -> Any:
    """A number as JSON has it: what is not finite is a text."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
