"""What the CPU device runs, op by op (FACTS 2a)."""

from __future__ import annotations

from ggmltool.ggml.device import Device
from ggmltool.ggml.devices.profile import make_buft, make_device
from ggmltool.ggml.devices.profiles import PROFILES, profile_of_name
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor
from tests.ggml.graphs import Builder


def make() -> Device:
    profile = PROFILES["CPU"]
    return make_device(profile, "CPU", make_buft(profile, "CPU", "CPU"))


def runs(op: Op, *src: Tensor, type: str = "f32", params: tuple[int, ...] = ()) -> bool:
    return make().supports_op(Builder().node("n", op, *src, type=type, params=params))


def test_its_memory_is_host_memory_aligned_to_32_bytes() -> None:
    cpu = make()
    assert (cpu.type, cpu.buft.alignment, cpu.buft.host, cpu.any_host) == ("cpu", 32, True, True)
    assert cpu.offload_min_batch is None


def test_profiles_are_found_by_backend_name() -> None:
    assert [profile_of_name(n) for n in ("CPU", "BLAS", "CUDA0", "CUDA12", "CUDA", "CPU0", "GPU", "cuda0")] == [
        "CPU", "BLAS", "CUDA", "CUDA", "CUDA", "custom", "custom", "custom",
    ]  # fmt: skip
    further = ("Metal", "MTL0", "Vulkan1", "SYCL0", "RPC0", "RPC1[h:50052]", "OpenCL", "CANN0")
    assert [profile_of_name(n) for n in further] == [
        "Metal", "Metal", "Vulkan", "SYCL", "RPC", "RPC", "OpenCL", "CANN",
    ]  # fmt: skip
