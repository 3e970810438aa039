"""What comes of comparing: each node that both sides computed, with its errors and its tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType, field, structs

from ggmltool.ask.compare.tolerance import Deviation, is_exact
from ggmltool.ggml.device import Backend
from ggmltool.ggml.tensor import Dims, Tensor, op_desc
from ggmltool.show.document import Number, ReleaseDocument, Row

if TYPE_CHECKING:
    from ggmltool.scenario.run.placed import OneBackendGraph


class ComparedNode(Row, kw_only=True):
    """A node that both sides computed: its own difference from the same inputs, and `end_to_end`, where each goes on
    with its own; `ok` where its own is within the tolerance of its op and types. `not_run_by` are the backends that do
    not run the op. `through` are nodes before it whose values the other side does not tell, so that they are judged
    with it, `shown` how many of its elements it tells, `ran_on` the backend that computed it there, where it is known.
    """

    index: int
    id: str
    op: str
    op_desc: str
    type: str
    ne: Dims
    ok: bool
    tolerance: float
    nmse: Number
    largest_error: Number
    at: Dims | None
    values: tuple[Number, Number] | None
    not_finite: tuple[int, int]
    misplaced: int
    end_to_end: Deviation
    not_run_by: tuple[str, ...]
    through: tuple[str, ...] | UnsetType = UNSET
    shown: int | UnsetType = UNSET
    ran_on: str | UnsetType = UNSET

    @classmethod
    def of(
        cls,
        index: int,
        t: Tensor,
        own: Deviation,
        end_to_end: Deviation,
        tolerance: float,
        backends: tuple[Backend, ...],
        through: tuple[str, ...] = (),
        shown: int | None = None,
    ) -> ComparedNode:
        """The `index`th node of its graph. `backends` are those that computed it."""
        op = op_desc(t)
        return cls(
            index=index,
            id=t.id,
            op=op,
            op_desc=op,
            type=t.type.name,
            ne=t.ne,
            ok=own.within(tolerance, is_exact(t)),
            tolerance=tolerance,
            **structs.asdict(own),
            end_to_end=end_to_end,
            not_run_by=tuple(b.name for b in backends if not b.device.supports_op(t)),
            through=through or UNSET,
            shown=UNSET if shown is None else shown,
        )

    @property
    def drifts(self) -> bool:
        """Whether the sides are over the tolerance where each goes on with its own values."""
        return self.end_to_end.misplaced > 0 or self.end_to_end.nmse > self.tolerance


class ComparedSide(Row):
    """A side, and who computed it."""

    name: str
    engine: str


class ComparedGraph(ReleaseDocument, kw_only=True):
    """`compare --json`: a graph computed on two sides, node by node; `first_bad` is the first kernel that is off.

    `whole`: each side computed the graph at once. `made_up` are the tensors without data that were given values, `zero`
    those that were not, `injected` the nodes that the second side computed with the kernel of another op. `n_nodes`
    counts views too; `nbytes` is what each side took. Of values that were read and not computed: where from
    (`recorded`), nodes without values there (`untold`), and names that the graph does not have (`unknown`).
    """

    view = "comparison"
    main_table = "nodes"
    beside = ("worst",)
    """At most `worst` nodes are shown."""
    kind: Literal["compare"] = "compare"
    version: Literal[2] = 2
    graph: str
    ok: bool
    backends: tuple[ComparedSide, ComparedSide]
    first_bad: str | None
    whole: bool
    n_nodes: int
    nbytes: int
    injected: dict[str, str] = field(default_factory=dict)
    made_up: list[str]
    zero: list[str]
    nodes: list[ComparedNode]
    recorded: str | UnsetType = UNSET
    untold: list[str] | UnsetType = UNSET
    unknown: list[str] | UnsetType = UNSET
    worst: int = 0

    @classmethod
    def of(
        cls,
        ggml: str,
        graph: str,
        placed: OneBackendGraph,
        sides: tuple[ComparedSide, ComparedSide],
        nodes: list[ComparedNode],
        made_up: list[str],
        zero: list[str],
        whole: bool = False,
    ) -> ComparedGraph:
        """What came of the nodes that were compared."""
        bad = next((n.id for n in nodes if not n.ok), None)
        return cls(
            ggml=ggml, graph=graph, ok=bad is None, backends=sides, first_bad=bad, whole=whole,
            n_nodes=placed.graph.n_nodes, nbytes=placed.nbytes, made_up=made_up, zero=zero, nodes=nodes,
        )  # fmt: skip

    @property
    def over(self) -> list[ComparedNode]:
        """The nodes whose own kernels are over the tolerance, in the graph's order."""
        return [n for n in self.nodes if not n.ok]
