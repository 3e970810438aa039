"""Devices of releases beside ggml's own functions: their answers, recorded by `python -m tests.ggml.devices.record`."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from ggmltool.ggml.releases.table import BY_NAME
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.judges.comparing import alloc_size, device_of, optimized, supports
from tests.ggml.devices.judges.families import FAMILIES
from tests.ggml.devices.recording import N_GRAPHS, SEED, graphs_of, read, recorded, split_numbers

HARDWARE = [
    (version, family, label) for version, family in recorded() for label in FAMILIES[family].hardware
]  # fmt: skip


@cache
def cases(family: str) -> list[Tensor]:
    return list(FAMILIES[family].cases(SEED))


def answers(version: str, family: str) -> dict[str, Any]:
    return read(recorded()[version, family])


@pytest.mark.parametrize(("version", "family", "label"), HARDWARE)
def test_a_device_runs_what_ggml_says_it_runs_and_takes_as_many_bytes(version: str, family: str, label: str) -> None:
    said = answers(version, family)[label]
    bits, sizes, refuses = int(said["supports"], 16), dict(said["sizes"]), set(said["refuses"])
    device = device_of(FAMILIES[family].hardware[label], BY_NAME[version])
    ops = cases(family)
    for i, op in enumerate(ops):
        expected = None if i in refuses else bool(bits >> i & 1)
        assert supports(device, op) == expected, (i, op, op.src)
        size = sizes.get(i, op.nbytes)
        assert size is None or alloc_size(device, op) == size, (i, op, op.src)
    assert 0.2 * len(ops) < bits.bit_count() < 0.8 * len(ops)


@pytest.mark.parametrize(("version", "family"), sorted(recorded()))
def test_a_device_orders_splits_as_ggml_does_and_keeps_the_same_tensors(version: str, family: str) -> None:
    said = answers(version, family)
    label = next((label for label in said if "splits" in said[label]), None)
    if label is None:
        pytest.skip("its source orders no nodes")
    device = device_of(FAMILIES[family].hardware[label], BY_NAME[version])
    splits = said[label]["splits"]
    for seed, (question, answer) in enumerate(zip(graphs_of(FAMILIES[family], range(N_GRAPHS)), splits, strict=True)):
        assert split_numbers(question, optimized(device, question)) == answer, seed
    told = [answer for answer in splits if answer is not None]
    assert sum(order is not None for order, _ in told) > 20
    assert sum(bool(keeps) for _, keeps in told) > 50
