"""Weights in float32 are kept while their memory lives and nobody writes to it, up to a bound."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ggmltool.ggml.buffer import USAGE_ANY, USAGE_COMPUTE, USAGE_WEIGHTS, AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import CONSTRUCTORS, KERNELS
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values import arrays as memory
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.ggml.values.converted import Converted

load()


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Converted:
    fresh = Converted(limit=1 << 16)
    monkeypatch.setattr(memory, "CONVERTED", fresh)
    return fresh


class Counted(HostArrays):
    """Counts what it converts."""

    def __init__(self) -> None:
        self.n = 0

    def decode(self, data: object, type: object) -> object:
        self.n += 1
        return super().decode(data, type)  # type: ignore[arg-type]


def placed(t: Tensor, usage: int = USAGE_ANY) -> Tensor:
    if t.view_src is not None:
        t.buffer, t.data = t.view_src.buffer, t.view_src.data + t.view_offs
    else:
        t.buffer = Buffer(BufferType("CPU", "CPU"), t.nbytes, AddressSpace(), usage)
        t.data = t.buffer.base
    return t


def product(type: str = "q8_0", usage: int = USAGE_WEIGHTS, rows: int = 8) -> tuple[Counted, Tensor, Tensor]:
    """Arrays, a weight of ones and a node that multiplies a row of ones with it."""
    ctx, arrays = Context(), Counted()
    w = placed(ctx.new_tensor(TYPES[type], (32, rows)), usage)
    x = placed(ctx.new_tensor(TYPES["f32"], (32,)))
    arrays.put(w, 1)
    arrays.put(x, 1)
    return arrays, w, placed(CONSTRUCTORS["mul_mat"].build(ctx, w, x), USAGE_COMPUTE)


def compute(arrays: Counted, node: Tensor) -> tuple[int, int]:
    """The first element of the node, a whole number but for rounding, and how often something was converted for it."""
    before = arrays.n
    KERNELS[node.op](arrays, node)
    after = arrays.n
    return round(float(arrays.f32(node).reshape(-1)[0])), after - before


def test_weights_are_converted_once() -> None:
    arrays, w, y = product()
    first = compute(arrays, y)
    again = compute(arrays, y)
    assert first[0] == again[0] == 32
    assert first[1] - again[1] == 1
    assert w.buffer is not None


@pytest.mark.parametrize(("type", "usage"), [("q8_0", USAGE_ANY), ("q8_0", USAGE_COMPUTE), ("f32", USAGE_WEIGHTS)])
def test_what_is_no_weight_or_needs_no_conversion_is_not_kept(type: str, usage: int, kept: Converted) -> None:
    arrays, _, y = product(type, usage)
    assert compute(arrays, y) == compute(arrays, y)
    assert kept.used == 0


def test_a_weight_that_was_written_to_is_converted_again(kept: Converted) -> None:
    arrays, w, y = product()
    compute(arrays, y)
    assert kept.used == 32 * 8 * 4
    arrays.put(w, 2)
    assert kept.used == 0
    assert compute(arrays, y)[0] == 64
    arrays.set_bytes(w, bytes(34), 0)
    assert compute(arrays, y)[0] == 0


def test_a_kernel_that_writes_into_a_weight_makes_it_new() -> None:
    arrays, w, y = product()
    compute(arrays, y)
    ctx = Context()
    rows, ids = placed(ctx.new_tensor(TYPES["f32"], (32, 1))), placed(ctx.new_tensor(TYPES["i32"], (1,)))
    arrays.put(rows, 3)
    setting = placed(CONSTRUCTORS["set_rows"].build(ctx, w, rows, ids))
    KERNELS[setting.op](arrays, setting)
    assert compute(arrays, y)[0] == 96


def test_no_more_is_kept_than_the_bound_allows(kept: Converted) -> None:
    nodes = [product(rows=200) for _ in range(4)]
    for arrays, _, y in nodes:
        compute(arrays, y)
    assert kept.used == 2 * 32 * 200 * 4 <= kept.limit
    assert [compute(arrays, y)[0] for arrays, _, y in nodes] == [32] * 4


def test_what_is_kept_goes_with_the_memory(kept: Converted) -> None:
    arrays, w, y = product()
    compute(arrays, y)
    assert kept.used
    del arrays, w, y
    gc.collect()
    assert kept.used == 0


def test_the_experts_that_were_used_are_kept(kept: Converted) -> None:
    ctx, arrays = Context(), Counted()
    experts = placed(ctx.new_tensor(TYPES["q8_0"], (32, 4, 8)), USAGE_WEIGHTS)
    x, ids = placed(ctx.new_tensor(TYPES["f32"], (32, 1, 2))), placed(ctx.new_tensor(TYPES["i32"], (2, 2)))
    arrays.put(experts, np.arange(8).reshape(1, 8, 1, 1))
    arrays.put(x, 1)
    arrays.put(ids, [[1, 2], [2, 5]])
    y = placed(CONSTRUCTORS["mul_mat_id"].build(ctx, experts, x, ids))
    first = compute(arrays, y)
    assert first[1] - compute(arrays, y)[1] == 3
    assert kept.used == 3 * 32 * 4 * 4
    assert arrays.f32(y)[0, :, :, 0].round().tolist() == [[32, 64], [64, 160]]
