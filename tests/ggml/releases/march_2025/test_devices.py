"""Devices of March 2025 beside ggml's own functions of that time (ffed2f04), whose answers are recorded.

`supports` has a bit for every case of `cases.Cases(7)`, the first lowest, as a hexadecimal number; `known` has those
whose op and types there were.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device, make_extra_buft
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.march_2025.devices import PROFILES
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import Cases
from tests.ggml.graphs import Builder

RECORDED = json.loads((Path(__file__).parent / "recorded" / "answers_2025_03.json").read_text("utf-8"))


def make(profile: str, name: str = "D", features: frozenset[str] | None = None) -> Device:
    p = PROFILES[profile]
    return make_device(p, name, make_buft(p, name, name), features=features)


@pytest.mark.parametrize("name", sorted(RECORDED["supports"]))
def test_a_device_ran_what_ggml_said(name: str) -> None:
    known, answers = int(RECORDED["known"], 16), int(RECORDED["supports"][name], 16)
    device = make(name)
    cases = [(t, bool(answers >> i & 1)) for i, t in enumerate(Cases(7)) if known >> i & 1]
    assert len(cases) > 8000
    for t, answer in cases:
        assert device.supports_op(t) == answer, (Op(t.op).name, t.op_params, [(s.type.name, s.ne) for s in t.src if s])
    assert {answer for _, answer in cases} == {True, False}


def add(buft: BufferType | None, op: Op = Op.ADD) -> Tensor:
    build = Builder()
    a, b = build.leaf("a", 64, 64), build.leaf("b", 64, 64)
    if buft is not None:
        b.buffer = Buffer(buft, 1 << 20, AddressSpace())
    return build.node("n", op, a, b)


def test_the_cpu_runs_nothing_with_a_source_that_lies_elsewhere() -> None:
    cpu = make("CPU", "CPU")
    elsewhere, host = BufferType("G", "G"), BufferType("H", "G", host=True)
    assert cpu.supports_op(add(None))
    assert cpu.supports_op(add(host))
    assert cpu.why_not(add(elsewhere)) == "source 1 lies in G, which is not host memory"
    assert cpu.supports_op(add(elsewhere, Op.RESHAPE))


def test_cuda_runs_nothing_with_a_source_on_another_cuda_device() -> None:
    one, other = make("CUDA", "CUDA0"), make("CUDA", "CUDA1")
    assert one.supports_op(add(one.buft))
    assert one.supports_op(add(BufferType("CPU", "CPU", host=True)))
    assert not one.supports_op(add(other.buft))


def test_rocm_has_no_tensor_cores_for_attention() -> None:
    build = Builder()
    q = build.leaf("q", 80, 4, 2)
    k, v = build.leaf("k", 80, 64, 2, type="f16"), build.leaf("v", 80, 64, 2, type="f16")
    n = build.node("n", Op.FLASH_ATTN_EXT, q, k, v)
    assert make("CUDA").supports_op(n)
    assert make("ROCm").why_not(n) == "heads of 80 want tensor cores, which the build does not use"


def test_metal_runs_bf16_only_with_bfloat() -> None:
    build = Builder()
    x = build.leaf("x", 64, type="bf16")
    n = build.node("n", Op.CPY, x, build.leaf("y", 64))
    assert not make("Metal").supports_op(n)
    assert make("Metal", features=frozenset({"bfloat"})).supports_op(n)


def test_the_cpu_and_metal_use_the_host_memory_that_is_mapped() -> None:
    for name, extra in (("CPU", "CPU_Mapped"), ("Metal", "Metal_Mapped")):
        profile = PROFILES[name]
        found = {e.name: e for e in profile.extra}[extra]
        assert make_extra_buft(profile, found, extra, name).host
        assert make_buft(profile, name, name).host
