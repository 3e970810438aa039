"""Metal, Vulkan, SYCL and RPC: memory, what they ask for, and reasons; their answers op by op are in test_recorded."""

from __future__ import annotations

import pytest

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, tensor_alloc
from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import PINNED, extra_names, make_buft, make_device, make_extra_buft
from ggmltool.ggml.devices.profiles import PROFILES
from ggmltool.ggml.op import Op
from ggmltool.ggml.version import SIZE_MAX
from tests.ggml.graphs import Builder

NAMES = {
    "CANN": "CANN0",
    "OpenCL": "OpenCL",
    "ROCm": "ROCm0",
    "Metal": "MTL0",
    "Vulkan": "Vulkan0",
    "SYCL": "SYCL0",
    "RPC": "RPC0",
}


def make(profile: str) -> tuple[Device, BufferType]:
    buft = make_buft(PROFILES[profile], NAMES[profile], NAMES[profile])
    return make_device(PROFILES[profile], NAMES[profile], buft), buft


@pytest.mark.parametrize(
    ("profile", "alignment", "max_size", "batch", "events"),
    [
        ("Metal", 32, SIZE_MAX, 32, True),
        ("Vulkan", 64, 1 << 30, 32, True),
        ("SYCL", 128, SIZE_MAX, 32, True),
        ("ROCm", 128, SIZE_MAX, 32, True),
        ("RPC", 128, SIZE_MAX, None, False),
        ("OpenCL", 128, SIZE_MAX, None, False),
        ("CANN", 128, SIZE_MAX, 32, True),
    ],
)
def test_its_memory_and_what_it_can_do(
    profile: str, alignment: int, max_size: int, batch: int | None, events: bool
) -> None:
    device, buft = make(profile)
    assert (buft.alignment, buft.max_size, buft.host) == (alignment, max_size, False)
    assert (device.type, device.offload_min_batch, device.events) == ("gpu", batch, events)
    assert device.supports_buft(buft)
    assert not device.supports_buft(make_buft(PROFILES["CPU"], "CPU", "CPU"))
    assert (device.graph_optimize is not None) == (profile in ("Metal", "Vulkan"))


def test_metal_asks_for_products_only() -> None:
    device, _ = make("Metal")
    b = Builder()
    w, x = b.leaf("w", 64, 64), b.leaf("x", 64, 32)
    assert device.offload_op(b.node("n", Op.MUL_MAT, w, x, ne=(64, 32)))
    assert not device.offload_op(b.node("n", Op.MUL_MAT, w, x, ne=(64, 31)))
    assert device.offload_op(b.node("n", Op.MUL_MAT_ID, w, x, x, ne=(64, 2, 32)))
    assert not device.offload_op(b.node("n", Op.ADD, b.leaf("y", 64, 512), x))
    assert not device.offload_op(b.node("n", Op.GET_ROWS, w, x, ne=(64, 512)))


def test_sycl_counts_the_rows_of_a_rotations_gradient_and_vulkan_its_tokens() -> None:
    b = Builder()
    n = b.node("n", Op.ROPE_BACK, b.leaf("x", 64, 32, 2), b.leaf("pos", 2, type="i32"))
    assert make("SYCL")[0].offload_op(n)
    assert not make("Vulkan")[0].offload_op(n)


def test_vulkan_takes_no_tensor_that_a_shader_cannot_see_but_unfolds_images_of_any_size() -> None:
    profile = PROFILES["Vulkan"].but(max_tensor_size=1 << 20)
    device = make_device(profile, "Vulkan0", make("Vulkan")[1])
    b = Builder()
    large, small = b.leaf("large", 1 << 18, 2), b.leaf("small", 1 << 18)
    assert device.supports_op(b.node("n", Op.SCALE, small))
    assert device.why_not(b.node("n", Op.ADD, small, large, ne=(1 << 18,))) == (
        "source 1 is larger than the largest buffer that a shader can see"
    )
    assert not device.supports_op(b.node("n", Op.REPEAT, small, ne=(1 << 18, 2)))
    assert device.supports_op(b.node("n", Op.IM2COL, small, large))


def test_sycl_pads_quantized_rows_and_metal_does_not() -> None:
    b = Builder()
    w = b.leaf("w", 256, 3, type="q8_0")
    assert make("SYCL")[1].get_alloc_size(w) == w.nbytes + 8 * 34
    assert make("Metal")[1].get_alloc_size(w) == w.nbytes
    assert make("RPC")[1].get_alloc_size(w) == w.nbytes


def test_rpc_says_yes_to_everything() -> None:
    device, _ = make("RPC")
    b = Builder()
    x = b.leaf("x", 8)
    assert all(device.supports_op(b.node("n", op, x, x, x)) for op in Op)


@pytest.mark.parametrize("profile", ["CUDA", "ROCm", "Vulkan", "SYCL", "CANN"])
def test_pinned_memory_is_host_memory(profile: str) -> None:
    ((name, extra),) = extra_names(PROFILES[profile], f"{profile}0").items()
    buft = make_extra_buft(PROFILES[profile], extra, name, f"{profile}0")
    assert (name, buft.host, buft.family) == (f"{profile}_Host", True, PINNED)


def test_metals_further_memory_is_like_its_own() -> None:
    profile = PROFILES["Metal"]
    names = extra_names(profile, "MTL0")
    assert list(names) == ["MTL0_Private", "MTL0_Mapped"]
    b = Builder()
    n = b.node("n", Op.ARGSORT, b.leaf("x", 8))
    for name, extra in names.items():
        buft = make_extra_buft(profile.but(max_size=1 << 20), extra, name, "MTL0")
        assert (buft.alignment, buft.max_size, buft.host, buft.family) == (32, 1 << 20, False, "Metal")
        assert buft.get_alloc_size(n) == 2 * n.nbytes


@pytest.mark.parametrize(
    ("features", "why"),
    [
        (("simdgroup_mm", "simdgroup_reduction"), "source 0 is bf16, which this GPU has not"),
        (("bfloat", "simdgroup_mm"), "this GPU cannot reduce over a simdgroup, which MUL_MAT needs"),
    ],
)
def test_a_metal_gpu_without_a_feature_says_so(features: tuple[str, ...], why: str) -> None:
    device = make_device(PROFILES["Metal"].but(has=frozenset(features)), "MTL0", make("Metal")[1])
    b = Builder()
    n = b.node("n", Op.MUL_MAT, b.leaf("w", 64, 64, type="bf16"), b.leaf("x", 64, 2), ne=(64, 2), type="f32")
    assert device.why_not(n) == why
    assert make("Metal")[0].supports_op(n)


@pytest.mark.parametrize("op", [Op.ARGSORT, Op.TOP_K])
def test_rocm_sorts_rows_of_up_to_1024(op: Op) -> None:
    device, _ = make("ROCm")
    b = Builder()
    assert device.supports_op(b.node("n", op, b.leaf("x", 1024)))
    assert device.why_not(b.node("n", op, b.leaf("x", 1025))) == ("it sorts rows of up to 1024, and source 0 has 1025")


def test_memory_of_another_rocm_device_is_as_far_away_as_that_of_another_cuda_device() -> None:
    for profile in ("ROCm", "CUDA"):
        b = Builder()
        there = make_buft(PROFILES[profile], f"{profile}1", f"{profile}1")
        x = b.leaf("x", 8)
        tensor_alloc(Buffer(there, 32, AddressSpace()), x, 0)
        here = make_device(PROFILES[profile], f"{profile}0", make_buft(PROFILES[profile], f"{profile}0", f"{profile}0"))
        assert here.why_not(b.node("n", Op.SQR, x)) == f"source 0 lies in {profile}1, memory of another CUDA device"


@pytest.mark.parametrize("alignment", [64, 128, 256])
def test_opencl_takes_quantized_tensors_apart_and_leaves_room_for_the_gaps(alignment: int) -> None:
    buft = make_buft(PROFILES["OpenCL"].but(alignment=alignment), "OpenCL", "OpenCL")
    b = Builder()
    for type, more in (("q8_0", 4 * alignment), ("f16", 0)):
        w = b.leaf("w", 256, 3, type=type)
        assert buft.get_alloc_size(w) == w.nbytes + more


def test_cann_looks_at_columns_of_any_op_but_of_rows_that_are_taken() -> None:
    device, _ = make("CANN")
    b = Builder()
    w, x = b.leaf("w", 64, 64), b.leaf("x", 64, 32)
    assert device.offload_op(b.node("n", Op.ADD, x, x))
    assert device.offload_op(b.node("n", Op.MUL_MAT_ID, w, x, x, ne=(64, 32, 1)))
    assert not device.offload_op(b.node("n", Op.MUL_MAT_ID, w, x, x, ne=(64, 2, 512)))
    assert not device.offload_op(b.node("n", Op.GET_ROWS, w, x, ne=(64, 512)))
