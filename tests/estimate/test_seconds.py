"""Seconds of plans, against sums made by hand."""

from __future__ import annotations

import pytest

from ggmltool.estimate.planned import PlannedCopy, PlannedSplit
from ggmltool.estimate.records import Efficiency, Estimate, Link, Range, Rates
from ggmltool.estimate.seconds import Estimator, GraphWork
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims, Tensor

ALL = Range(1.0, 1.0, 1.0)
WHOLE = Efficiency(*[ALL] * len(Efficiency._fields))


def tensor(type: str, ne: Dims, op: Op = Op.NONE, *src: Tensor, id: str = "") -> Tensor:
    return Tensor(TYPES[type], ne, op=op, src=list(src), id=id)


def rates(**changes: object) -> Rates:
    values: dict[str, object] = {"launch": 0.0, "efficiency": WHOLE, **changes}
    return Rates("x", 1e9, 1e12, 1e12, 1e12, 1e12, **values)  # type: ignore[arg-type]


def test_a_product_with_one_column_takes_as_long_as_reading_its_weights() -> None:
    weight, x = tensor("q8_0", (1024, 512, 1, 1), id="w"), tensor("f32", (1024, 1, 1, 1), id="x")
    product = tensor("f32", (512, 1, 1, 1), Op.MUL_MAT, weight, x, id="y")
    found = Estimator(GraphWork([product]), {"GPU": rates()}).seconds([PlannedSplit("GPU", 0, 1, ())])
    nbytes = 512 * 1024 // 32 * 34 + 1024 * 4 + 512 * 4
    assert found == pytest.approx(Estimate(nbytes / 1e9, nbytes / 1e9, nbytes / 1e9))


def test_what_a_split_copies_is_added() -> None:
    weight, x = tensor("q8_0", (1024, 512, 1, 1), id="w"), tensor("f32", (1024, 1, 1, 1), id="x")
    product = tensor("f32", (512, 1, 1, 1), Op.MUL_MAT, weight, x, id="y")
    gpu = rates(to_device=Link(2e9, 1e9, 0.0), from_device=Link(2e9, 1e9, 0.0))
    estimator = Estimator(GraphWork([product]), {"GPU": gpu})
    alone = estimator.seconds([PlannedSplit("GPU", 0, 1, ())])
    copied = estimator.seconds([PlannedSplit("GPU", 0, 1, (PlannedCopy("w", "CPU"),))])
    assert copied.mid - alone.mid == pytest.approx(weight.nbytes / 1e9)
