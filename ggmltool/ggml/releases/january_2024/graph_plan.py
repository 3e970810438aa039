"""Graph plans of January 2024: a graph with the memory that the CPU's threads need, made once, computed often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggmltool.ggml.device import Backend
from ggmltool.ggml.dtypes import F16, F32, TYPES
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.events import Computed, Entered, Left, Listener
from ggmltool.ggml.graph_copy import GraphCompute
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, nelements, nrows

DEFAULT_N_THREADS = 4
CACHE_LINE_SIZE = 64

_FLOAT = 4
_HALF = 2


@dataclass(slots=True)
class GraphPlan:
    """ggml_backend_graph_plan_t of the CPU: the cgraph as it was, whose tensors are not copied, and its cplan.

    `work_size` is the bytes of the buffer that its threads share; once the plan is freed it must not be computed.
    """

    backend: Backend
    nodes: tuple[Tensor, ...]
    n_threads: int
    work_size: int
    is_freed: bool = False


def graph_plan_create(
    backend: Backend, nodes: Sequence[Tensor], n_threads: int = DEFAULT_N_THREADS, events: Listener | None = None
) -> GraphPlan:
    """ggml_backend_graph_plan_create, which only the CPU has: of other backends the function is NULL."""
    _check_cpu(backend, "ggml_backend_graph_plan_create")
    if events:
        events(Entered("ggml_backend_graph_plan_create", backend.name))
        events(Left("ggml_backend_graph_plan_create"))
    return GraphPlan(backend, tuple(nodes), n_threads, work_size(nodes, n_threads))


def graph_plan_compute(plan: GraphPlan, compute: GraphCompute, events: Listener | None = None) -> None:
    """ggml_backend_graph_plan_compute: compute the plan's nodes; `compute` is the source of the kernels."""
    function = "ggml_backend_graph_plan_compute"
    if plan.is_freed:
        raise GgmlCrash(function, "memory is used after it was freed", "the plan was freed")
    if events:
        events(Entered(function, plan.backend.name))
        events(Computed(-1, plan.backend.name, tuple(t.id for t in plan.nodes)))
    compute(plan.backend, plan.nodes)
    if events:
        events(Left(function))


def graph_plan_free(plan: GraphPlan, events: Listener | None = None) -> None:
    """ggml_backend_graph_plan_free."""
    if plan.is_freed:
        raise GgmlCrash("ggml_backend_graph_plan_free", "memory is freed a second time", "the plan was freed already")
    plan.is_freed = True
    if events:
        events(Entered("ggml_backend_graph_plan_free", plan.backend.name))
        events(Left("ggml_backend_graph_plan_free"))


def _check_cpu(backend: Backend, function: str) -> None:
    if backend.device.type != "cpu":
        raise GgmlCrash(
            function,
            "a call of the address NULL",
            f"{backend.name} has no graph plans, only the CPU has; compute the graph without one",
        )


def work_size(nodes: Sequence[Tensor], n_threads: int = DEFAULT_N_THREADS) -> int:
    """The work_size of ggml_graph_plan of January 2024: the most that any node needs, and a cache line per thread."""
    if n_threads <= 0:
        n_threads = DEFAULT_N_THREADS
    most = max((_work_of(n, n_threads) for n in nodes if n.op in _WORK), default=0)
    return most + CACHE_LINE_SIZE * (n_threads - 1) if most else 0


def _work_of(n: Tensor, n_threads: int) -> int:
    return _WORK[Op(n.op)](n, n_threads)


def _src(n: Tensor, i: int) -> Tensor:
    """A source; ggml reads it without looking."""
    s = n.src[i] if i < len(n.src) else None
    if s is None:
        raise GgmlCrash("ggml_graph_plan", "a read at the address NULL", f"{n.label} has no source {i}")
    return s


def _copy(n: Tensor, n_tasks: int) -> int:
    return _FLOAT * n.ne[0] * n_tasks if n.type.quantized else 0


def _row_of_source(n: Tensor, n_tasks: int) -> int:
    a = _src(n, 0)
    return _FLOAT * a.ne[0] * n_tasks if a.type.quantized else 0


def _acc(n: Tensor, n_tasks: int) -> int:
    return _FLOAT * _src(n, 1).ne[0] * n_tasks if _src(n, 0).type.quantized else 0


def _converted(weights: Tensor, x: Tensor) -> int:
    """Room for the second operand in the type that the first one's rows are multiplied with."""
    vec_dot = TYPES[weights.type.vec_dot_type or "f32"]
    return 0 if x.type is vec_dot else vec_dot.row_size(nelements(x))


def _mul_mat(n: Tensor, _: int) -> int:
    return _converted(_src(n, 0), _src(n, 1))


def _mul_mat_id(n: Tensor, _: int) -> int:
    weights, x = _src(n, 0), _src(n, 1)
    size = _converted(weights, x)
    size += (size + 7) & ~7
    return size + weights.ne[2] * 8 * (1 + x.ne[1])


def _soft_max(n: Tensor, n_threads: int) -> int:
    return _FLOAT * n.ne[0] * min(4, n_threads, nrows(_src(n, 0)))


def _conv_transpose_1d(n: Tensor, _: int) -> int:
    a, b = _src(n, 0), _src(n, 1)
    for t, i, line in ((a, 3, 16730), (b, 2, 16731), (b, 3, 16732)):
        if t.ne[i] != 1:
            which = 0 if t is a else 1
            raise LineAssert(
                "ggml_graph_plan", "ggml.c", line, f"node->src[{which}]->ne[{i}] == 1", f"{t.label} has more matrices"
            )
    sizes = {(F16, F32): _HALF, (F32, F32): _FLOAT}
    if (a.type, b.type) not in sizes:
        raise LineAssert("ggml_graph_plan", "ggml.c", 16750, "false", f"{n.label} is of other types than f16 and f32")
    return sizes[a.type, b.type] * (a.ne[0] * a.ne[1] * a.ne[2] + b.ne[0] * b.ne[1])


def _conv_transpose_2d(n: Tensor, _: int) -> int:
    a, b = _src(n, 0), _src(n, 1)
    return _HALF * (a.ne[0] * a.ne[1] * a.ne[2] * a.ne[3] + b.ne[0] * b.ne[1] * b.ne[2])


def _cross_entropy_loss(n: Tensor, n_tasks: int) -> int:
    return n.type.type_size * (n_tasks + _src(n, 0).ne[0] * n_tasks)


_WORK: dict[Op, Callable[[Tensor, int], int]] = {
    Op.CPY: _copy,
    Op.DUP: _copy,
    Op.ADD: _row_of_source,
    Op.ADD1: _row_of_source,
    Op.ACC: _acc,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.OUT_PROD: _row_of_source,
    Op.SOFT_MAX: _soft_max,
    Op.CONV_TRANSPOSE_1D: _conv_transpose_1d,
    Op.CONV_TRANSPOSE_2D: _conv_transpose_2d,
    Op.CROSS_ENTROPY_LOSS: _cross_entropy_loss,
}
"""What the nodes of each op need, in bytes, given the node and the number of threads; all others need nothing."""
