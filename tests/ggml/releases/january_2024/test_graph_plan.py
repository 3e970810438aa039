"""Graph plans of January 2024: what the CPU's threads need, and who has plans."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.device import Backend, Device, DeviceType, op_table
from ggmltool.ggml.dtypes import F32, TYPES, DType
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.january_2024.graph_plan import (
    graph_plan_compute,
    graph_plan_create,
    graph_plan_free,
    work_size,
)
from ggmltool.ggml.tensor import Dims, Tensor


def backend(type: DeviceType = "cpu") -> Backend:
    return Backend("X", Device("X", type, BufferType("X", "X"), op_table((), True)))


def node(op: Op, ne: Dims, *src: Tensor, type: DType = F32) -> Tensor:
    t = Tensor(type, ne, id=op.name)
    t.set_op(op, (), *src)
    return t


def of(type: str, *ne: int) -> Tensor:
    n = (*ne, 1, 1, 1, 1)
    return Tensor(TYPES[type], (n[0], n[1], n[2], n[3]))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (node(Op.ADD, (8, 1, 1, 1), of("f32", 8), of("f32", 8)), 0),
        (node(Op.ADD, (32, 1, 1, 1), of("q4_0", 32), of("f32", 32), type=TYPES["q4_0"]), 4 * 32 * 4),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("f32", 32, 4), of("f32", 32, 3)), 0),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("q4_0", 32, 4), of("f32", 32, 3)), 34 * 3),
        (node(Op.MUL_MAT, (4, 3, 1, 1), of("f16", 32, 4), of("f32", 32, 3)), 2 * 96),
        (node(Op.SOFT_MAX, (10, 2, 1, 1), of("f32", 10, 2)), 4 * 10 * 2),
        (node(Op.SOFT_MAX, (10, 9, 1, 1), of("f32", 10, 9)), 4 * 10 * 4),
        (node(Op.CONV_TRANSPOSE_1D, (5, 1, 1, 1), of("f16", 3, 2, 4), of("f32", 6, 4)), 2 * 24 + 2 * 24),
        (node(Op.CROSS_ENTROPY_LOSS, (1, 1, 1, 1), of("f32", 6, 2), of("f32", 6, 2)), 4 * (4 + 6 * 4)),
    ],
    ids=str,
)
def test_a_node_needs_so_much(n: Tensor, expected: int) -> None:
    assert work_size([n]) == (expected + 64 * 3 if expected else 0)


def test_the_node_that_needs_most_decides_and_every_thread_has_a_cache_line() -> None:
    small = node(Op.SOFT_MAX, (10, 2, 1, 1), of("f32", 10, 2))
    large = node(Op.SOFT_MAX, (100, 1, 1, 1), of("f32", 100, 1))
    assert work_size([small, large], 2) == 400 + 64
    assert work_size([large], 0) == work_size([large], 4)


def test_a_convolution_of_other_types_is_refused() -> None:
    with pytest.raises(LineAssert, match=r"ggml\.c:16750: false"):
        work_size([node(Op.CONV_TRANSPOSE_1D, (5, 1, 1, 1), of("f32", 3, 2, 4), of("f16", 6, 4))])


def test_a_plan_is_computed_often_and_freed_once() -> None:
    n = node(Op.SQR, (4, 1, 1, 1), of("f32", 4))
    plan = graph_plan_create(backend(), [n])
    computed: list[Sequence[Tensor]] = []
    for _ in range(2):
        graph_plan_compute(plan, lambda _, nodes: computed.append(nodes))
    assert computed == [(n,), (n,)]
    graph_plan_free(plan)
    with pytest.raises(GgmlCrash, match="after it was freed"):
        graph_plan_compute(plan, lambda _, nodes: computed.append(nodes))
    with pytest.raises(GgmlCrash, match="second time"):
        graph_plan_free(plan)


def test_only_the_cpu_has_plans() -> None:
    with pytest.raises(GgmlCrash, match="address NULL"):
        graph_plan_create(backend("gpu"), [])
