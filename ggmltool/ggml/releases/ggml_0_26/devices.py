"""The devices of ggml 0.26: those of 0.21, with other rules, sizes and node orders."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_21.devices import PROFILES as BEFORE
from ggmltool.ggml.releases.ggml_0_26 import (
    cpu,
    cuda,
    cuda_order,
    metal,
    metal_order,
    opencl,
    sycl,
    vulkan,
    vulkan_order,
)

_CHANGED: dict[str, Profile] = {
    "CPU": replace(BEFORE["CPU"], rules=cpu.RULES, extra=cpu.EXTRA, features=cpu.FEATURES),
    "CUDA": replace(
        BEFORE["CUDA"],
        rules=cuda.RULES,
        alloc_size=cuda.alloc_size,
        graph_optimize=cuda_order.graph_optimize,
        features=cuda.FEATURES,
    ),
    "ROCm": replace(
        BEFORE["ROCm"],
        rules=cuda.AMD_RULES,
        alloc_size=cuda.alloc_size,
        graph_optimize=cuda_order.graph_optimize,
        features=cuda.AMD_FEATURES,
    ),
    "Metal": replace(
        BEFORE["Metal"],
        rules=metal.RULES,
        check=metal.hardware_limits,
        alloc_size=metal.alloc_size,
        graph_optimize=metal_order.graph_optimize,
        extra=metal.EXTRA,
    ),
    "Vulkan": replace(
        BEFORE["Vulkan"],
        rules=vulkan.RULES,
        check=vulkan.limits,
        graph_optimize=vulkan_order.graph_optimize,
        features=vulkan.FEATURES,
        has=frozenset(vulkan.FEATURES),
    ),
    "SYCL": replace(
        BEFORE["SYCL"],
        rules=sycl.RULES,
        check=sycl.hardware_limits,
        alloc_size=sycl.alloc_size,
        alloc_more="room behind FLASH_ATTN_EXT for what its kernels need",
        features=sycl.FEATURES,
    ),
    "OpenCL": replace(BEFORE["OpenCL"], rules=opencl.RULES),
    "RPC": replace(BEFORE["RPC"], events=True, sets_async=True, caps=BEFORE["RPC"].caps | {"async"}),
}

PROFILES: dict[str, Profile] = {name: replace(profile, ggml="0.26") for name, profile in (BEFORE | _CHANGED).items()}
"""The profiles by name."""
