"""The JSON of estimated seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from ggmltool.show.document import EstimateRow, Row, StepDocument, head

if TYPE_CHECKING:
    from ggmltool.inspect.timed import Timed


class SplitSecondsRow(Row):
    """A split: its nodes, the inputs that are copied before it with their bytes (of experts those that are used, of
    caches the filled cells), and the seconds of both."""

    split: int
    backend: str
    nodes: int
    inputs: int
    nbytes: int
    computes: EstimateRow
    copies: EstimateRow


class SecondsDocument(StepDocument, kw_only=True):
    """`splits --seconds --json`: an estimate of the seconds that each split takes, and all of them.

    `n_tokens` are those of the batch, null for a graph that is no llama.cpp's, with `n_depth` in the caches before.
    `with_pinned_weights` are the seconds of all where weights on the host lie in pinned memory; `with_op_offload` or
    `without_op_offload` with that option the other way. `rates` names the hardware of each backend; that of `assumed`
    nobody named.
    """

    kind: Literal["seconds"] = "seconds"
    n_tokens: int | None
    n_depth: int
    seconds: EstimateRow
    computes: EstimateRow
    copies: EstimateRow
    splits: list[SplitSecondsRow]
    with_pinned_weights: EstimateRow | UnsetType = UNSET
    with_op_offload: EstimateRow | UnsetType = UNSET
    without_op_offload: EstimateRow | UnsetType = UNSET
    rates: dict[str, str]
    assumed: list[str]

    @classmethod
    def of(cls, timed: Timed) -> SecondsDocument:
        """The seconds of a plan."""
        other = {} if timed.other is None else {timed.other[0]: EstimateRow.of(timed.other[1])}
        return cls(
            **head(timed.plan),
            n_tokens=timed.n_tokens,
            n_depth=timed.cached,
            seconds=EstimateRow.of(timed.all),
            computes=EstimateRow.of(timed.computes),
            copies=EstimateRow.of(timed.copies),
            splits=[
                SplitSecondsRow(
                    s.split, s.backend, s.nodes, s.inputs, round(s.nbytes),
                    EstimateRow.of(s.computes), EstimateRow.of(s.copies),
                )
                for s in timed.splits
            ],
            with_pinned_weights=UNSET if timed.pinned is None else EstimateRow.of(timed.pinned),
            with_op_offload=other.get(True, UNSET),
            without_op_offload=other.get(False, UNSET),
            rates={backend: rates.name for backend, rates in timed.rates.items()},
            assumed=list(timed.assumed),
        )  # fmt: skip
