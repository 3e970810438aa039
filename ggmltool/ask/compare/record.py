"""What comes of comparing: each node that both sides computed, with its errors and its tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType, field, structs

from ggmltool.ggml.device import Backend
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, GluOp, Op, UnaryOp
from ggmltool.ggml.tensor import Dims, Tensor, op_desc
from ggmltool.show.document import Number, ReleaseDocument, Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ggmltool.scenario.run.placed import OneBackendGraph

EXACT = 1e-7
"""The NMSE that ggml's own tests allow between two backends."""

ROUNDED = 5e-4
"""The same for products, and where quantized or half-precision operands are computed with."""

_OF_OPS = dict.fromkeys(
    (Op.MUL_MAT, Op.MUL_MAT_ID, Op.OUT_PROD, Op.IM2COL, Op.CONV_2D, Op.CONV_3D, Op.CONV_TRANSPOSE_2D), ROUNDED
) | {Op.FLASH_ATTN_EXT: ROUNDED, Op.SOFT_MAX: 1e-6, Op.RWKV_WKV7: 5e-3}
"""What ggml's test-backend-ops allows the nodes of a model's graph, by op: GPUs multiply floats in fewer bits, too."""

_LONG_CONTEXT = 20000
"""Cells of a KV cache from which on attention may be off in proportion."""

_COPYING = frozenset((Op.DUP, Op.CPY, Op.CONT, Op.SET, Op.SET_ROWS))
"""Ops that move values, into another type maybe: then they are rounded."""

_MOVING = frozenset((Op.NONE, Op.REPEAT, Op.CONCAT, Op.GET_ROWS, Op.PAD, Op.ROLL))
"""Ops that only move values, whatever their type."""

_TABLES = {FIRST_UNARY_KEY + op for op in (UnaryOp.GELU, UnaryOp.GELU_QUICK)} | {
    FIRST_GLU_KEY + op for op in (GluOp.GEGLU, GluOp.GEGLU_QUICK)
}
"""Functions that ggml's CPU looks up in a table of halves, and a GPU computes."""

_BLOCK = 1 << 20
"""Elements looked at together: a whole tensor as doubles may not fit into memory."""

_INTEGERS = ("i8", "i16", "i32", "i64")


class Deviation(Row):
    """How far two tensors of one shape are apart: the squared error by the first one's squares, the largest absolute
    error, both over elements that are finite in the two, where that is (in ggml's order) and the two values there; NaN
    and infinities of each, and those without a like."""

    nmse: Number
    largest_error: Number
    at: Dims | None
    values: tuple[Number, Number] | None
    not_finite: tuple[int, int]
    misplaced: int

    def within(self, tolerance: float, exact: bool = False) -> bool:
        """Whether the two agree; `exact` ones, as integers have to be, are equal."""
        return not self.misplaced and (self.largest_error == 0 if exact else self.nmse <= tolerance)


def is_exact(t: Tensor) -> bool:
    """Whether values of a tensor have to be equal: integers."""
    return t.type.name in _INTEGERS


def tolerance_of(node: Tensor) -> float:
    """The NMSE that a node's kernel may have by itself, from its op and types alone, as in ggml's test-backend-ops."""
    if node.op in _MOVING or node.is_view_op:
        return EXACT
    types = [s.type for s in node.src if s is not None]
    if node.op in _COPYING and types and node.type.name in ("f32", types[0].name):
        return EXACT
    if node.op == Op.FLASH_ATTN_EXT and node.src[1] is not None:
        return ROUNDED * max(1.0, node.src[1].ne[1] / _LONG_CONTEXT)
    rounded = node.key in _TABLES or any(t.quantized or t.name in ("f16", "bf16") for t in (*types, node.type))
    return max(_OF_OPS.get(Op(node.op), EXACT), ROUNDED if rounded else EXACT)


def measure(a: Tensor, b: Tensor) -> Deviation:
    """How the values of `b` differ from those of `a`, two tensors of one layout in memory of their own."""
    from ggmltool.scenario.run.run import values_of

    return measure_values(a, values_of(a), values_of(b))


def measure_values(t: Tensor, one: NDArray[Any], other: NDArray[Any]) -> Deviation:
    """How the `other` values of a tensor differ from `one`, arrays of shape `ne` reversed."""
    x, y = one.reshape(-1), other.reshape(-1)
    parts = [_part(x[i : i + _BLOCK], y[i : i + _BLOCK]) for i in range(0, x.size, _BLOCK)]
    squares = sum(p.squares for p in parts)
    error = sum(p.squared_error for p in parts)
    largest = max((p.largest for p in parts), default=0.0)
    misplaced = sum(p.misplaced for p in parts)
    worst = max(range(len(parts)), key=lambda i: (parts[i].misplaced > 0, parts[i].largest), default=0)
    at = values = None
    if largest or misplaced:
        flat = worst * _BLOCK + parts[worst].at
        values = (float(x[flat]), float(y[flat]))
        at = position(flat, t.ne)
    nmse = error / squares if squares else (float("inf") if error else 0.0)
    not_finite = (sum(p.not_finite[0] for p in parts), sum(p.not_finite[1] for p in parts))
    return Deviation(nmse, largest, at, values, not_finite, misplaced)


class _Part(NamedTuple):
    """What a block of elements adds; `at` is where in it the first misplaced element is, else the largest error."""

    squares: float
    squared_error: float
    largest: float
    at: int
    not_finite: tuple[int, int]
    misplaced: int


def _part(x: NDArray[Any], y: NDArray[Any]) -> _Part:
    import numpy as np

    with np.errstate(all="ignore"):
        unequal = (x != y) & ~((x != x) & (y != y))
        u, v = x.astype(np.float64), y.astype(np.float64)
        fine = np.isfinite(u), np.isfinite(v)
        both = fine[0] & fine[1]
        misplaced = unequal & ~both
        error = np.where(unequal & both, np.abs(u - v), 0.0)
        if x.dtype.kind in "iu":
            # Integers beyond 2^53 may be unequal and yet one double.
            error = np.where(unequal, np.maximum(error, 1.0), 0.0)
        squares = float(np.square(u[fine[0]]).sum())
    n_misplaced = int(misplaced.sum())
    at = int((misplaced if n_misplaced else error).argmax())
    not_finite = (x.size - int(fine[0].sum()), x.size - int(fine[1].sum()))
    return _Part(squares, float(np.square(error).sum()), float(error.max()), at, not_finite, n_misplaced)


def position(flat: int, ne: Dims) -> Dims:
    """Where the element with this number is, in ggml's order."""
    i0, rest = flat % ne[0], flat // ne[0]
    i1, rest = rest % ne[1], rest // ne[1]
    return (i0, i1, rest % ne[2], rest // ne[2])


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
