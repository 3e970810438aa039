"""The devices of ggml 0.26: those of 0.21, with other rules, sizes and node orders."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile
from ggmltool.ggml.releases.ggml_0_21.devices import PROFILES as BEFORE


def _cpu(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import cpu

    return replace(before, rules=cpu.RULES, extra=cpu.EXTRA, features=cpu.FEATURES)


def _cuda(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import cuda, cuda_order

    rules, features = (cuda.RULES, cuda.FEATURES) if before.name == "CUDA" else (cuda.AMD_RULES, cuda.AMD_FEATURES)
    return replace(
        before,
        rules=rules,
        alloc_size=cuda.alloc_size,
        graph_optimize=cuda_order.graph_optimize,
        features=features,
    )


def _metal(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import metal, metal_order

    return replace(
        before,
        rules=metal.RULES,
        check=metal.hardware_limits,
        alloc_size=metal.alloc_size,
        graph_optimize=metal_order.graph_optimize,
        extra=metal.EXTRA,
    )


def _vulkan(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import vulkan

    return replace(
        before,
        rules=vulkan.RULES,
        check=vulkan.limits,
        graph_optimize=vulkan.graph_optimize,
        features=vulkan.FEATURES,
        has=frozenset(vulkan.FEATURES),
    )


def _sycl(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import sycl

    return replace(
        before,
        rules=sycl.RULES,
        check=sycl.hardware_limits,
        alloc_size=sycl.alloc_size,
        alloc_more="room behind FLASH_ATTN_EXT for what its kernels need",
        features=sycl.FEATURES,
    )


def _opencl(before: Profile) -> Profile:
    from ggmltool.ggml.releases.ggml_0_26 import opencl

    return replace(before, rules=opencl.RULES)


def _rpc(before: Profile) -> Profile:
    return replace(before, events=True, sets_async=True, caps=before.caps | {"async"})


PROFILES = BEFORE.changed(
    "0.26",
    {
        "CPU": _cpu,
        "CUDA": _cuda,
        "ROCm": _cuda,
        "Metal": _metal,
        "Vulkan": _vulkan,
        "SYCL": _sycl,
        "OpenCL": _opencl,
        "RPC": _rpc,
    },
)
"""The profiles by name."""
