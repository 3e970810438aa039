"""The known devices: what each profile says."""

from __future__ import annotations

import re

from ggmltool.ggml.devices import (
    blas,
    cann,
    cpu,
    cpu_extra,
    cuda,
    metal,
    metal_order,
    opencl,
    sycl,
    vulkan,
    vulkan_order,
)
from ggmltool.ggml.devices.profile import (
    CAPS,
    Profile,
    alloc_rule,
    extra_names,
    make_buft,
    make_device,
    make_extra_buft,
)
from ggmltool.ggml.version import TENSOR_ALIGNMENT

__all__ = [
    "CAPS",
    "PROFILES",
    "Profile",
    "alloc_rule",
    "extra_names",
    "make_buft",
    "make_device",
    "make_extra_buft",
    "profile_of_name",
]


PROFILES: dict[str, Profile] = {
    "custom": Profile(
        "custom",
        names="any other name",
        description="a device as the scenario describes it; runs every op unless it says otherwise",
    ),
    "CPU": Profile(
        "CPU",
        type="cpu",
        alignment=TENSOR_ALIGNMENT,
        host=True,
        any_host=True,
        rules=cpu.RULES,
        extra=cpu_extra.EXTRA,
        features=cpu_extra.FEATURES,
        has=frozenset({"avx2"}),
        leaves_out="whether this machine has AMX or HBM; KleidiAI and SpacemiT; that packed weights cannot be read",
        names="CPU",
        description="the host; runs nearly every op on host memory of any kind",
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
    ),
    "BLAS": Profile(
        "BLAS",
        type="accel",
        buft="CPU",
        any_host=True,
        others=False,
        rules=blas.RULES,
        names="BLAS",
        description="a BLAS library; large matrix products on host memory",
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
    ),
    "CUDA": Profile(
        "CUDA",
        row_padding=cuda.ROW_PADDING,
        rules=cuda.RULES,
        check=cuda.sources_here,
        alloc_size=cuda.alloc_size,
        offload_min_batch=32,
        events=True,
        copies_async=True,
        features=cuda.FEATURES,
        has=frozenset(cuda.FEATURES),
        leaves_out="Volta's attention kernels, MUSA, the node order of GGML_CUDA_GRAPH_OPT",
        names="CUDA0, CUDA1, …",
        description="an NVIDIA GPU with memory of its own; Ada or newer unless features say otherwise",
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        alloc_more="f16 copies of K and V behind FLASH_ATTN_EXT",
        extra=cuda.EXTRA,
    ),
    "ROCm": Profile(
        "ROCm",
        row_padding=cuda.ROW_PADDING,
        rules=cuda.AMD_RULES,
        check=cuda.sources_here,
        alloc_size=cuda.alloc_size,
        offload_min_batch=32,
        events=True,
        copies_async=True,
        features=cuda.AMD_FEATURES,
        has=frozenset({"wmma"}),
        leaves_out="integrated GPUs, which use host memory too (give type: igpu and supports_bufts: [ROCm_Host]), the "
        "node order of GGML_CUDA_GRAPH_OPT",
        names="ROCm0, ROCm1, …",
        description="an AMD GPU with memory of its own; RDNA 3 or newer unless features say otherwise",
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        alloc_more="f16 copies of K and V behind FLASH_ATTN_EXT",
        extra=cuda.AMD_EXTRA,
    ),
    "Metal": Profile(
        "Metal",
        alignment=32,
        others=False,
        rules=metal.RULES,
        check=metal.hardware_limits,
        alloc_size=metal.alloc_size,
        offload_min_batch=32,
        batch_size=metal.batch_size,
        events=True,
        copies_async=True,
        graph_optimize=metal_order.graph_optimize,
        extra=metal.EXTRA,
        features=metal.FEATURES,
        has=frozenset(metal.FEATURES),
        leaves_out="the device's maxBufferLength (give max_size); buffers rounded up to whole pages",
        names="Metal, MTL0, MTL1, …",
        description="an Apple GPU (M1 or newer) whose memory is the host's too",
        caps=frozenset(("async", "buffer_from_host_ptr", "mmap_support")),
        alloc_more="room behind MUL_MAT_ID, FLASH_ATTN_EXT, CUMSUM, ARGSORT and TOP_K for what their kernels need",
    ),
    "Vulkan": Profile(
        "Vulkan",
        alignment=64,
        max_size=vulkan.BLOCK_SIZE,
        others=False,
        rules=vulkan.RULES,
        check=vulkan.size_limits,
        offload_min_batch=32,
        events=True,
        sets_async=True,
        graph_optimize=vulkan_order.graph_optimize,
        extra=vulkan.EXTRA,
        max_tensor_size=vulkan.MAX_TENSOR_SIZE,
        leaves_out="the driver's own limits (alignment 64, tensors below 4 GiB, 32 KiB of shared memory are typical; "
        "give alignment, max_size, max_tensor_size), 64-bit indexing, drivers without subgroup operations, copies "
        "from pinned memory that do not wait, 32 bytes more in every Vulkan_Host buffer",
        names="Vulkan0, Vulkan1, …",
        description="a GPU with a current Vulkan driver; compute buffers in blocks of at most 1 GiB",
        caps=frozenset(("async", "host_buffer", "mmap_support")),
    ),
    "SYCL": Profile(
        "SYCL",
        row_padding=sycl.ROW_PADDING,
        others=False,
        rules=sycl.RULES,
        offload_min_batch=32,
        batch_size=sycl.batch_size,
        events=True,
        sets_async=True,
        extra=sycl.EXTRA,
        leaves_out="the device's largest allocation (give max_size), split buffers, oneDNN's flash attention on "
        "Battlemage, warps of 32",
        names="SYCL0, SYCL1, …",
        description="an Intel GPU",
        caps=frozenset(("async", "host_buffer", "mmap_support")),
    ),
    "OpenCL": Profile(
        "OpenCL",
        others=False,
        rules=opencl.RULES,
        alloc_size=opencl.alloc_size,
        leaves_out="the device's alignment and largest buffer (128 bytes is typical; give alignment, max_size), "
        "experts of further types on Adreno, what old Adreno compilers cannot build",
        names="OpenCL",
        description="a GPU with OpenCL, such as Qualcomm's Adreno",
        alloc_more="room for the gaps between the parts of a quantized tensor",
    ),
    "CANN": Profile(
        "CANN",
        row_padding=cann.ROW_PADDING,
        others=False,
        rules=cann.RULES,
        offload_min_batch=32,
        batch_size=cann.batch_size,
        events=True,
        copies_async=True,
        extra=cann.EXTRA,
        leaves_out="the NZ format, in which weights may take more (as with GGML_CANN_WEIGHT_NZ=off), the 310P",
        names="CANN0, CANN1, …",
        description="an Ascend NPU",
        caps=frozenset(("host_buffer", "mmap_support")),
    ),
    "RPC": Profile(
        "RPC",
        leaves_out="what the server's own device needs beyond the bytes of a tensor, its alignment and largest buffer: "
        "give alignment, max_size and row_padding as the server has them",
        names="RPC0, RPC0[host:port], …",
        description="a device of another machine; said to run every op",
        caps=frozenset(("mmap_support",)),
    ),
}
"""The known profiles by name."""

_BY_NAME = (
    (re.compile(r"CPU"), "CPU"),
    (re.compile(r"BLAS"), "BLAS"),
    (re.compile(r"CUDA\d*"), "CUDA"),
    (re.compile(r"ROCm\d*"), "ROCm"),
    (re.compile(r"Metal|MTL\d+"), "Metal"),
    (re.compile(r"Vulkan\d+"), "Vulkan"),
    (re.compile(r"SYCL\d+"), "SYCL"),
    (re.compile(r"CANN\d+"), "CANN"),
    (re.compile(r"OpenCL|GPUOpenCL"), "OpenCL"),
    (re.compile(r"RPC\d*(\[[^\]]*\])?"), "RPC"),
)


def profile_of_name(name: str) -> str:
    """The profile of a backend called `name`: "CUDA" for "CUDA0", "custom" for an unknown name."""
    for pattern, profile in _BY_NAME:
        if pattern.fullmatch(name):
            return profile
    return "custom"
