"""The scheduler of March 2025 where it does otherwise than today's; what it decides is compared with golden plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device, make_extra_buft
from ggmltool.ggml.errors import DebugAssert
from ggmltool.ggml.events import Event, TensorCopied, TensorWritten
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.march_2025.devices import PROFILES
from ggmltool.ggml.tensor import Tensor
from tests.ggml.devices.cases import Cases
from tests.ggml.graphs import Builder

Spec = dict[str, Any]
GPU: Spec = {"name": "G0", "profile": "custom"}


def test_a_leaf_that_nobody_uses_is_compared_by_a_debug_build_only() -> None:
    def of(n: int) -> Spec:
        tensors = {name: {"type": "f32", "ne": [k], "flags": ["input"]} for name, k in (("x", n), ("y", 4))}
        return {"backends": ["CPU"], "contexts": {"c": {"tensors": tensors}}}

    graphs = {"g": {"nodes": {"z": "relu(y)"}, "expand": ["z", "x"]}}
    small, large = (
        ggmltool.load({"ggmltool": 1, "ggml": "2025-03", **of(n), "graphs": graphs}).start() for n in (4, 64)
    )
    assert small.alloc("g").ok
    small.start().reset()
    large.start_behind(small)
    plan = large.alloc("g")
    assert isinstance(large.failure(plan), DebugAssert)
    assert "release build" in large.failure(plan).explanation


@pytest.mark.parametrize(("ggml", "whole"), [("2025-03", True), ("0.20.2", False)])
def test_experts_are_copied_whole(ggml: str, whole: bool) -> None:
    heard: list[Event] = []
    scenario = ggmltool.load(
        {
            "ggmltool": 1,
            "backends": [{**GPU, "offload_min_batch": 1}, "CPU"],
            "contexts": {
                "w": {
                    "buft": "CPU",
                    "usage": "weights",
                    "tensors": {"w": {"type": "f32", "ne": [8, 8, 4], "data": {"fill": 1}}},
                },
                "c": {
                    "tensors": {
                        "x": {"type": "f32", "ne": [8, 1, 2], "flags": ["input"], "data": {"fill": 1}},
                        "i": {"type": "i32", "ne": [1, 2], "flags": ["input"], "data": [[1], [1]]},
                    }
                },
            },
            "graphs": {"g": {"nodes": {"y": "mul_mat_id(w, x, i)"}}},
        },
        ggml=ggml,
    )
    run = scenario.start(heard.append, values=True)
    assert run.alloc("g").ok
    run.compute("g")
    copies = [e.nbytes for e in heard if isinstance(e, TensorCopied) and e.src == "w"]
    parts = [e for e in heard if isinstance(e, TensorWritten) and e.tensor == "G0#w#0"]
    assert copies == ([8 * 8 * 4 * 4] if whole else [])
    assert bool(parts) or whole


RECORDED = json.loads((Path(__file__).parent / "recorded" / "answers_2025_03.json").read_text("utf-8"))


def make(profile: str, name: str = "D", features: frozenset[str] | None = None) -> Device:
    p = PROFILES[profile].but(has=features)
    return make_device(p, name, make_buft(p, name, name))


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


def plan(release: str, alignment: int, rows: list[int], alone: bool = False) -> dict[str, Any]:
    """The plan of a view, in rows of 64 bytes, that a device reads, and of another node there unless it is `alone`."""
    others = {} if alone else {"z": {"op": "sqr", "src": ["x"], "backend": "G0"}}
    source = {
        "ggmltool": 1,
        "ggml": release,
        "backends": [{"name": "G0", "profile": "custom", "alignment": alignment}, "CPU"],
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": "f32[16, 8]"}}},
        "graphs": {
            "main": {
                "nodes": {
                    "v": {"op": "view", "src": ["x"], "ne": rows, "nb": [4, 64], "offset": 0},
                    "y": {"op": "cont", "src": ["v"], "backend": "G0"},
                    **others,
                }
            }
        },
        "steps": ["alloc main"],
    }
    return ggmltool.load(source).run()[0]


def test_what_is_rounded_up_to_all_that_a_size_can_say_takes_nothing() -> None:
    old, new = plan("2025-03", 128, [4, 0]), plan("0.26", 128, [4, 0])
    assert old["ok"]
    assert old["buffer_sizes"] == new["buffer_sizes"]


def test_there_is_no_room_for_it_in_a_buffer_of_no_bytes() -> None:
    error = plan("2025-03", 128, [4, 0], alone=True)["error"]
    assert error["condition"].startswith("(char *)addr + ggml_backend_buffer_get_alloc_size(buffer, tensor) <= ")


def test_more_than_there_is_stops_ggml_in_its_words() -> None:
    error = plan("2025-03", 16, [4, 0])["error"]
    assert (error["function"], error["message"]) == ("ggml_dyn_tallocr_alloc", "not enough space in the buffer")


def test_a_view_without_columns_has_the_bytes_of_its_strides() -> None:
    assert plan("2025-03", 16, [0, 4])["buffer_sizes"]["G0"] > plan("0.26", 16, [0, 4])["buffer_sizes"]["G0"]
