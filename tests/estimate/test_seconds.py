"""Seconds of plans, against sums made by hand."""

from __future__ import annotations

import pytest

from ggmltool.estimate.records import Efficiency, Estimate, Link, PlacedSplit, Rates, ShareRange, SplitCopy
from ggmltool.estimate.seconds import Estimator, GraphWork, node_seconds
from ggmltool.estimate.work import NodeWork, RateKind
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from tests.estimate.tensors import WHOLE, leaf, node, rates, view

LINK = Link(pinned=2e9, pageable=1e9, latency=0.0)
GPU = rates(family="CUDA", to_device=LINK, from_device=LINK)
CPU = rates(family="CPU")


def exactly(seconds: float) -> Estimate:
    return Estimate(*[pytest.approx(seconds)] * 3)


def product(user: bool = False) -> Tensor:
    weight, x = leaf("q8_0", 1024, 512, id="w"), leaf("f32", 1024, 1, id="x", user=user)
    return node(Op.MUL_MAT, weight, x, ne=(512, 1), id="y")


def one_split(*inputs: SplitCopy, backend: str = "GPU") -> list[PlacedSplit]:
    return [PlacedSplit(backend, 0, 1, inputs)]


def test_a_product_with_one_column_takes_as_long_as_reading_its_weights() -> None:
    found = Estimator(GraphWork([product()]), {"GPU": GPU}).seconds(one_split())
    assert found == exactly((512 * 1024 // 32 * 34 + 1024 * 4 + 512 * 4) / 1e9)


def test_a_product_with_many_columns_takes_as_long_as_its_operations() -> None:
    work = NodeWork(RateKind.QUANTIZED, 1e6, 4e12, columns=512)
    assert node_seconds(work, GPU) == exactly(4.0)
    assert node_seconds(work, rates(filling=128)) == exactly(5.0)


def test_a_launch_is_cheaper_in_a_captured_graph_and_free_in_a_chain() -> None:
    device = rates(launch=3e-6, launch_captured=1e-6)
    alone = NodeWork(RateKind.F32, 1.0, 0.0, columns=1)
    assert node_seconds(alone, device).mid == pytest.approx(1e-6, rel=1e-2)
    assert node_seconds(alone._replace(columns=512), device).mid == pytest.approx(3e-6, rel=1e-2)
    assert node_seconds(alone._replace(fused=1.0), device).mid == pytest.approx(1e-9)
    assert node_seconds(alone._replace(fused=512.0), device).mid == pytest.approx(1e-6, rel=1e-2)
    assert node_seconds(alone._replace(fused=1.0), rates(launch=3e-6, fuses=False)).mid == pytest.approx(3e-6, rel=1e-2)


def test_what_is_reached_of_rates_makes_the_range() -> None:
    share = ShareRange(0.25, 0.5, 1.0)
    device = rates(efficiency=WHOLE._replace(matvec=share, launch=ShareRange(0.5, 1.0, 2.0)), launch=1.0)
    found = node_seconds(NodeWork(RateKind.QUANTIZED, 1e9, 0.0, columns=1), device)
    assert found == Estimate(0.5 + 1.0, 1.0 + 2.0, 2.0 + 4.0)


@pytest.mark.parametrize(("kind", "share"), [
    (RateKind.QUANTIZED, "matmul_quantized"), (RateKind.F16, "matmul_float"), (RateKind.BF16, "matmul_float"),
    (RateKind.F32, "matmul_float"), (RateKind.ATTENTION, "attention"), (RateKind.ELEMENTS, "vector"),
])  # fmt: skip
def test_every_kind_goes_by_its_share(kind: RateKind, share: str) -> None:
    half = ShareRange(0.5, 0.5, 0.5)
    device = rates(efficiency=Efficiency(**{**WHOLE._asdict(), share: half}))
    assert node_seconds(NodeWork(kind, 0.0, 1e12, columns=512), device) == exactly(2.0)


def copied(
    what: SplitCopy, work: GraphWork, devices: dict[str, Rates], pinned: bool = False, backend: str = "GPU"
) -> float:
    estimator = Estimator(work, devices, weights_pinned=pinned)
    alone = estimator.seconds(one_split(backend=backend)).mid
    return estimator.seconds(one_split(what, backend=backend)).mid - alone


def test_weights_are_copied_from_pages_unless_they_are_pinned() -> None:
    work, weight = GraphWork([product()]), 512 * 1024 // 32 * 34
    devices = {"GPU": GPU, "CPU": CPU}
    assert copied(SplitCopy("w", "CPU"), work, devices) == pytest.approx(weight / 1e9)
    assert copied(SplitCopy("w", "CPU"), work, devices, pinned=True) == pytest.approx(weight / 2e9)


def test_inputs_and_results_are_copied_from_pinned_memory() -> None:
    devices = {"GPU": GPU, "CPU": CPU}
    assert copied(SplitCopy("x", "CPU"), GraphWork([product(user=True)]), devices) == pytest.approx(4096 / 2e9)
    assert copied(SplitCopy("y", "GPU"), GraphWork([product()]), devices, backend="CPU") == pytest.approx(2048 / 2e9)


def test_a_cache_on_the_host_is_copied_from_pageable_memory_as_far_as_it_is_filled() -> None:
    cache = leaf("f16", 128, 4096, id="cache")
    written = node(Op.SET_ROWS, leaf("f32", 128, 1), leaf("i64", 1), cache, ne=(128, 4096), type="f16", id="written")
    written.view_src = cache
    k = view(cache, 128, 4096, id="k")
    attention = node(Op.FLASH_ATTN_EXT, leaf("f32", 128, 1), k, k, ne=(128, 1, 1), id="attention")
    work = GraphWork([written, k, attention], cached=300)
    estimator = Estimator(work, {"GPU": GPU, "CPU": CPU}, weights_pinned=True)
    split = PlacedSplit("GPU", 2, 3, (SplitCopy("k", "CPU"),))
    assert estimator.copy(split.inputs[0], split).mid == pytest.approx(512 * 128 * 2 / 1e9)


def test_between_two_devices_the_slower_way_counts() -> None:
    slow = rates(family="CUDA", to_device=Link(1e8, 1e8, 0.0), from_device=Link(1e8, 1e8, 0.0))
    assert copied(SplitCopy("y", "slow"), GraphWork([product()]), {"GPU": GPU, "slow": slow}) == pytest.approx(
        2048 / 1e8
    )


def test_where_memory_is_shared_a_copy_reads_and_writes_it() -> None:
    shared = rates(family="Metal")
    assert copied(SplitCopy("y", "CPU"), GraphWork([product()]), {"GPU": shared, "CPU": CPU}) == pytest.approx(
        2 * 2048 / 1e9
    )


def test_only_the_used_experts_are_copied_to_where_they_are_multiplied() -> None:
    experts, ids = leaf("q8_0", 64, 32, 16, id="experts"), leaf("i32", 4, 1, id="ids")
    n = node(Op.MUL_MAT_ID, experts, leaf("f32", 64, 1, 1), ids, ne=(32, 4, 1))
    work, devices = GraphWork([n]), {"GPU": GPU, "CPU": CPU}
    whole = 16 * 32 * 64 // 32 * 34 / 1e9
    assert copied(SplitCopy("experts", "CPU"), work, devices) == pytest.approx(whole / 4)
    estimator = Estimator(work, devices, copies_experts=False)
    assert estimator.copy(SplitCopy("experts", "CPU"), one_split()[0]).mid == pytest.approx(whole)


def test_of_batches_in_flight_the_busiest_device_tells_how_long_they_take() -> None:
    first, second = product(user=True), node(Op.MUL_MAT, leaf("q8_0", 512, 512), leaf("f32", 512, 1), ne=(512, 1))
    splits = [PlacedSplit("A", 0, 1, ()), PlacedSplit("B", 1, 2, (SplitCopy("y", "A"),))]
    estimator = Estimator(GraphWork([first, second]), {"A": GPU, "B": GPU})
    busiest = estimator.compute(splits[0]).mid + estimator.copy(splits[1].inputs[0], splits[1]).mid
    assert estimator.seconds_of_many(splits, 1).mid == pytest.approx(estimator.seconds(splits).mid)
    assert estimator.seconds_of_many(splits, 1000).mid / 1000 == pytest.approx(busiest, rel=1e-2)


def test_batches_do_not_overlap_on_one_device() -> None:
    estimator = Estimator(GraphWork([product()]), {"GPU": GPU})
    assert estimator.seconds_of_many(one_split(), 7).mid == pytest.approx(7 * estimator.seconds(one_split()).mid)
