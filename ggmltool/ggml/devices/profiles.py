"""The known devices: what each profile says."""

from __future__ import annotations

import re
from dataclasses import replace

from ggmltool.ggml.devices.profile import Profile, ReleaseProfiles
from ggmltool.ggml.devices.unsupported import aborts, asserts, passes_over
from ggmltool.ggml.version import TENSOR_ALIGNMENT


def _custom() -> Profile:
    return Profile("custom", unsupported=aborts("graph_compute", "unsupported op {op}", "refused"))


def _cpu() -> Profile:
    from ggmltool.ggml.devices import cpu

    return Profile(
        "CPU",
        type="cpu",
        alignment=TENSOR_ALIGNMENT,
        host=True,
        any_host=True,
        rules=cpu.RULES,
        extra=cpu.EXTRA,
        features=cpu.FEATURES,
        has=frozenset({"avx2"}),
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
    )


def _blas() -> Profile:
    from ggmltool.ggml.devices import blas

    return Profile(
        "BLAS",
        type="accel",
        buft="CPU",
        any_host=True,
        others=False,
        rules=blas.RULES,
        caps=frozenset(("buffer_from_host_ptr", "mmap_support")),
        unsupported=aborts("ggml_backend_blas_graph_compute"),
    )


def _cuda() -> Profile:
    from ggmltool.ggml.devices import cuda

    return Profile(
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
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        alloc_more="f16 copies of K and V behind FLASH_ATTN_EXT",
        extra=cuda.EXTRA,
        unsupported=asserts("ggml_cuda_graph_evaluate_and_capture"),
    )


def _rocm() -> Profile:
    from ggmltool.ggml.devices import cuda

    return replace(
        _cuda(),
        name="ROCm",
        rules=cuda.AMD_RULES,
        features=cuda.AMD_FEATURES,
        has=frozenset({"wmma"}),
        extra=cuda.AMD_EXTRA,
    )


def _metal() -> Profile:
    from ggmltool.ggml.devices import metal

    return Profile(
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
        graph_optimize=metal.graph_optimize,
        extra=metal.EXTRA,
        features=metal.FEATURES,
        has=frozenset(metal.FEATURES),
        caps=frozenset(("async", "buffer_from_host_ptr", "mmap_support")),
        alloc_more="room behind MUL_MAT_ID, FLASH_ATTN_EXT, CUMSUM, ARGSORT and TOP_K for what their kernels need",
        unsupported=aborts("ggml_metal_op_encode_impl", "unsupported op", "refused"),
    )


def _vulkan() -> Profile:
    from ggmltool.ggml.devices import vulkan

    return Profile(
        "Vulkan",
        alignment=64,
        max_size=vulkan.BLOCK_SIZE,
        others=False,
        rules=vulkan.RULES,
        check=vulkan.size_limits,
        offload_min_batch=32,
        events=True,
        sets_async=True,
        graph_optimize=vulkan.graph_optimize,
        extra=vulkan.EXTRA,
        max_tensor_size=vulkan.MAX_TENSOR_SIZE,
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        unsupported=passes_over("ggml_vk_build_graph"),
    )


def _sycl() -> Profile:
    from ggmltool.ggml.devices import sycl

    return Profile(
        "SYCL",
        row_padding=sycl.ROW_PADDING,
        others=False,
        rules=sycl.RULES,
        offload_min_batch=32,
        batch_size=sycl.batch_size,
        events=True,
        sets_async=True,
        extra=sycl.EXTRA,
        caps=frozenset(("async", "host_buffer", "mmap_support")),
        unsupported=asserts("ggml_backend_sycl_graph_compute_impl", "error: "),
    )


def _opencl() -> Profile:
    from ggmltool.ggml.devices import opencl

    return Profile(
        "OpenCL",
        others=False,
        rules=opencl.RULES,
        alloc_size=opencl.alloc_size,
        alloc_more="room for the gaps between the parts of a quantized tensor",
        unsupported=asserts("ggml_backend_opencl_graph_compute", "error: "),
    )


def _cann() -> Profile:
    from ggmltool.ggml.devices import cann

    return Profile(
        "CANN",
        row_padding=cann.ROW_PADDING,
        others=False,
        rules=cann.RULES,
        offload_min_batch=32,
        batch_size=cann.batch_size,
        events=True,
        copies_async=True,
        extra=cann.EXTRA,
        caps=frozenset(("host_buffer", "mmap_support")),
        unsupported=asserts("evaluate_and_capture_cann_graph"),
    )


def _rpc() -> Profile:
    return Profile("RPC", caps=frozenset(("mmap_support",)))


PROFILES = ReleaseProfiles(
    {
        "custom": _custom,
        "CPU": _cpu,
        "BLAS": _blas,
        "CUDA": _cuda,
        "ROCm": _rocm,
        "Metal": _metal,
        "Vulkan": _vulkan,
        "SYCL": _sycl,
        "OpenCL": _opencl,
        "CANN": _cann,
        "RPC": _rpc,
    }
)
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
