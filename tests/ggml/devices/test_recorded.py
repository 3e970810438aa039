"""Devices beside ggml's own functions: their answers, recorded from ggml 0.20.2's source compiled for a plain CPU.

`supports` has a bit for every case of `cases.Cases(7)`, the first lowest, as a hexadecimal number; "Metal-none" is a
GPU without any feature. `metal_alloc_sizes` are the cases that take more or less than ggml_nbytes, with the bytes.
`orders` has for every `cases.graph(seed)` the order that a device's graph_optimize makes of the nodes.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ggmltool.ggml.devices.combinators import ALWAYS, NEVER
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.errors import GgmlAssert
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, VIEW_OPS, Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import N_CASES, Cases, graph

HERE = Path(__file__).parent / "recorded"


@cache
def cases() -> list[Tensor]:
    return list(Cases(7))


def recorded(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text("utf-8"))


def node(t: Tensor) -> str:
    return f"{Op(t.op).name} {[(s.type.name, s.ne, s.nb) for s in (t, *t.src) if s is not None]} {t.op_params}"


@pytest.mark.parametrize("name", ["CUDA", "ROCm", "Metal", "Metal-none", "Vulkan", "SYCL", "OpenCL", "CANN"])
def test_a_device_runs_what_ggml_says_it_runs(name: str) -> None:
    bits = int(recorded("answers")["supports"][name], 16)
    profile = PROFILES[name.partition("-")[0]]
    features = frozenset[str]() if name.endswith("-none") else None
    device = make_device(profile.but(has=features), "D", make_buft(profile, "D", "D"))
    answers = 0
    for i, t in enumerate(cases()):
        try:
            answer = device.supports_op(t)
        except GgmlAssert:  # ggml would not answer either
            continue
        assert answer == bool(bits >> i & 1), node(t)
        answers += answer
    assert 0.2 * N_CASES < answers < 0.8 * N_CASES


def test_metal_leaves_as_much_room_behind_a_tensor_as_ggml_says() -> None:
    sizes = dict(recorded("answers")["metal_alloc_sizes"])
    buft = make_buft(PROFILES["Metal"], "MTL0", "MTL0")
    assert len(sizes) > 500
    for i, t in enumerate(cases()):
        assert buft.get_alloc_size(t) == sizes.get(i, t.nbytes), node(t)


def keep_nothing(tensor: Tensor, until: Tensor) -> None:
    raise AssertionError(f"{tensor.id} is to be kept until {until.id}")


@pytest.mark.parametrize("name", ["Metal", "Vulkan"])
def test_a_device_orders_nodes_as_ggml_does(name: str) -> None:
    optimize = PROFILES[name].graph_optimize
    assert optimize is not None
    moved = 0
    for seed, order in enumerate(recorded("orders")[name]):
        g = graph(seed)
        index = {id(n): i for i, n in enumerate(g.nodes)}
        assert [index[id(n)] for n in optimize(list(g.nodes), g.use_count, keep_nothing)] == order, seed
        moved += order != sorted(order)
    assert moved > 50


def op_of(key: int) -> int:
    """ggml's op of an op key."""
    return key if key < FIRST_UNARY_KEY else int(Op.UNARY if key < FIRST_GLU_KEY else Op.GLU)


def test_the_cases_reach_yes_and_no_for_most_ops_of_each_device() -> None:
    answers = recorded("answers")["supports"]
    for name in ("CUDA", "ROCm", "Metal", "Vulkan", "SYCL", "OpenCL", "CANN"):
        bits, profile = int(answers[name], 16), PROFILES[name]
        rules = {op_of(key): rule for key, rule in profile.rules.items()}
        seen: dict[int, set[bool]] = {}
        for i, t in enumerate(cases()):
            seen.setdefault(t.op, set()).add(bool(bits >> i & 1))
        for op in set(Op) - VIEW_OPS - {Op.NONE}:
            rule = rules.get(op, ALWAYS if profile.others else NEVER)
            assert (True in seen[op]) == (rule is not NEVER), (name, op.name)
            assert rule is ALWAYS or False in seen[op], (name, op.name)
