"""The families of devices that have a judge: which functions of ggml answer for them, and what stands around these."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ggml.devices.cases import Cases
from tests.ggml.devices.cuda_cases import CudaCases
from tests.ggml.devices.metal_graphs import MetalGraph
from tests.ggml.devices.moe_graphs import MoeGraph
from tests.ggml.devices.newer_cases import NewerCases


@dataclass(frozen=True, slots=True)
class Slice:
    """Functions out of one file. `after` is a file of ours that stands behind them, where it can call them."""

    file: str
    roots: tuple[str, ...]
    after: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """How a judge is built: `folder` is the backend's in ggml's `src`, `prelude` our header in place of its vendor's.

    What the prelude defines is not taken out of ggml's source: `given` are the names. `defines` are the compiler's.
    `hardware` is what devices are asked for, by the name that the answers are recorded under. `cases` are the ops that
    they are asked about by seed, `graphs` the graphs (None: it orders no nodes).
    """

    folder: str
    prelude: str
    slices: tuple[Slice, ...]
    given: tuple[str, ...]
    hardware: dict[str, Hardware]
    cases: type[Cases]
    graphs: type[MoeGraph] | type[MetalGraph] | None = None
    defines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device: what the judge is told, and the profile and features that it has in ggmltool (None: the usual)."""

    told: str
    profile: str
    features: frozenset[str] | None = None


_KV_TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16")
_KV_COMPILED = ("F16_F16", "Q4_0_Q4_0", "Q8_0_Q8_0", "BF16_BF16")
_CUDA_SLICES = (
    Slice(
        "ggml-cuda.cu",
        (
            "ggml_backend_cuda_device_supports_op",
            "ggml_backend_cuda_buffer_type_get_alloc_size",
            "ggml_backend_cuda_graph_optimize",
        ),
        "cuda_ops.cpp",
    ),
    Slice("fattn.cu", ("ggml_cuda_flash_attn_ext_supported", "ggml_cuda_flash_attn_ext_get_alloc_size")),
    Slice("topk-moe.cu", ("ggml_cuda_should_use_topk_moe",)),
    Slice("lightning-indexer.cu", ("ggml_cuda_lightning_indexer_supported",)),
    Slice("fwht.cu", ("ggml_cuda_op_mul_mat_use_fwht",)),
)
_DEFAULT_QUANTS = tuple(f"GGML_CUDA_FA_{k}_{v}={int(f'{k}_{v}' in _KV_COMPILED)}" for k in _KV_TYPES for v in _KV_TYPES)
_ALL_QUANTS = tuple(f"GGML_CUDA_FA_{k}_{v}=1" for k in _KV_TYPES for v in _KV_TYPES)
_CUDA_GIVEN = (
    "ggml_backend_cuda_context",
    "ggml_cuda_concurrent_event",
    "ggml_cuda_stream_context",
    "ggml_backend_cuda_device_context",
    "ggml_backend_cuda_buffer_type_context",
    "ggml_cuda_device_info",
    "ggml_cuda_info",
    "ggml_cuda_set_device",
    "ggml_cuda_flash_attn_ext_vec_case",
)
_CUDA_DEFINES = (
    "CUDART_VERSION=12080",
    *(f"{word}=" for word in ("__global__", "__device__", "__host__", "__forceinline__", "__shared__", "__constant__")),
    "__launch_bounds__(...)=",
    "__align__(n)=",
    "__restrict__=",
)

_METAL_SIZES = ("mul_mat_id_extra_tpe", "mul_mat_id_extra_ids")
_METAL_SIZES += tuple(f"flash_attn_ext_extra_{name}" for name in ("pad", "blk", "tmp"))
_METAL_SLICES = (
    Slice(
        "ggml-metal.cpp",
        ("ggml_backend_metal_buffer_type_get_alloc_size", "ggml_backend_metal_graph_optimize"),
        "metal_ops.cpp",
    ),
    Slice("ggml-metal-device.m", ("ggml_metal_device_supports_op",)),
    Slice("ggml-metal-ops.cpp", tuple(f"ggml_metal_op_{name}" for name in _METAL_SIZES)),
    *(
        Slice("ggml-metal-ops.cpp", (f"ggml_metal_op_{name}",))
        for name in ("flash_attn_ext_extra_kv_f16", "flash_attn_ext_extra_idx", "mul_mat_id_extra_amax")
    ),
    Slice("ggml-metal-common.cpp", ("ggml_graph_optimize",)),
    Slice(
        "ggml-metal-common.cpp",
        tuple(
            f"ggml_metal_op_mul_mat_{name}" for name in ("use_fwht", "use_mm", "id_use_mm", "use_mma", "may_use_mma")
        ),
    ),
    Slice("ggml-metal-fusion.cpp", ("ggml_metal_fusion_max", "ggml_metal_fusion_add_alloc_deps")),
)
_METAL_GIVEN = (
    "ggml_metal_t",
    "ggml_metal_buffer_t",
    "ggml_metal_device",
    "ggml_metal_device_t",
    "ggml_metal_device_props",
    "ggml_metal_buffer_id",
    "ggml_metal_buffer_get_id",
    "ggml_metal_graph_optimize",
)

_SYCL_SLICES = (
    Slice(
        "ggml-sycl.cpp",
        ("do_ggml_backend_sycl_device_supports_op", "ggml_backend_sycl_buffer_type_get_alloc_size"),
        "sycl_ops.cpp",
    ),
    Slice("fattn.cpp", ("ggml_sycl_flash_attn_ext_supported",)),
    Slice("fattn.cpp", ("ggml_sycl_flash_attn_ext_get_alloc_size",)),
    Slice("fattn-onednn.cpp", ("ggml_sycl_flash_attn_ext_onednn_supported",)),
    Slice("fattn-onednn.cpp", ("ggml_sycl_fattn_onednn_binds_kv",)),
)
_SYCL_GIVEN = (
    "half",
    "max",
    "gpu_arch",
    "ggml_sycl_device_info",
    "ggml_sycl_info",
    "ggml_backend_sycl_device_context",
    "ggml_sycl_get_device",
    "ggml_sycl_dnnl_has_optimized_gemm",
    "ggml_sycl_get_env",
    "g_ggml_sycl_enable_flash_attention",
    "g_ggml_sycl_enable_mkl_fa",
    "g_ggml_sycl_fa_onednn",
    "g_ggml_sycl_fa_onednn_max_kv",
)

_OPENCL_GIVEN = (
    "ADRENO_GPU_GEN",
    "GPU_FAMILY",
    "ADRENO_CL_COMPILER_TYPE",
    "cl_kernel",
    "ggml_cl_compiler_version",
    "ggml_backend_opencl_context",
    "ggml_backend_opencl_device_context",
    "load_cl_kernels_argsort",
    "ggml_opencl_ensure_fa_f32_f16_prefill_512",
)

_CANN_GIVEN = (
    "aclIntArray",
    "get_env_as_lowercase",
    "parse_bool",
    "is_matmul_weight",
    "ggml_cann_type_mapping",
    "ggml_cann_error",
)

FAMILIES: dict[str, Family] = {
    "CUDA": Family(
        "ggml-cuda",
        "cuda.hpp",
        _CUDA_SLICES,
        _CUDA_GIVEN,
        {
            "CUDA": Hardware("890", "CUDA"),
            "CUDA-turing": Hardware("860", "CUDA", frozenset({"turing"})),
            "CUDA-none": Hardware("610", "CUDA", frozenset()),
        },
        CudaCases,
        MoeGraph,
        (*_CUDA_DEFINES, *_DEFAULT_QUANTS),
    ),
    "CUDA-all-quants": Family(
        "ggml-cuda",
        "cuda.hpp",
        _CUDA_SLICES,
        _CUDA_GIVEN,
        {"CUDA": Hardware("890", "CUDA", frozenset({"turing", "ada", "fa_all_quants"}))},
        CudaCases,
        None,
        (*_CUDA_DEFINES, *_ALL_QUANTS),
    ),
    "ROCm": Family(
        "ggml-cuda",
        "cuda.hpp",
        _CUDA_SLICES,
        _CUDA_GIVEN,
        {
            "ROCm": Hardware("1100 amd", "ROCm"),
            "ROCm-mfma": Hardware("942 amd", "ROCm", frozenset({"mfma"})),
            "ROCm-none": Hardware("1030 amd", "ROCm", frozenset()),
        },
        CudaCases,
        MoeGraph,
        (*_CUDA_DEFINES, *_DEFAULT_QUANTS, "GGML_USE_HIP", "__HIP_PLATFORM_AMD__"),
    ),
    "Metal": Family(
        "ggml-metal",
        "metal.hpp",
        _METAL_SLICES,
        _METAL_GIVEN,
        {
            "Metal": Hardware("bfloat simdgroup_mm simdgroup_reduction", "Metal"),
            "Metal-matrices": Hardware("simdgroup_mm", "Metal", frozenset({"simdgroup_mm"})),
            "Metal-reduction": Hardware(
                "bfloat simdgroup_reduction", "Metal", frozenset({"bfloat", "simdgroup_reduction"})
            ),
        },
        NewerCases,
        MetalGraph,
        ("__has_feature(x)=0",),
    ),
    "SYCL": Family(
        "ggml-sycl",
        "sycl.hpp",
        _SYCL_SLICES,
        _SYCL_GIVEN,
        {
            "SYCL": Hardware("", "SYCL"),
            "SYCL-onednn": Hardware("onednn", "SYCL", frozenset({"onednn"})),
        },
        NewerCases,
        defines=("SYCL_FLASH_ATTN", "GGML_SYCL_DNNL=1", "GGML_SYCL_HAS_BF16", "GGML_SYCL_WARP_SIZE=16"),
    ),
    "OpenCL": Family(
        "ggml-opencl",
        "opencl.hpp",
        (
            Slice(
                "ggml-opencl.cpp",
                ("ggml_opencl_supports_op", "ggml_backend_opencl_buffer_type_get_alloc_size"),
                "opencl_ops.cpp",
            ),
        ),
        _OPENCL_GIVEN,
        {"OpenCL": Hardware("", "OpenCL")},
        NewerCases,
        defines=("GGML_OPENCL_SOA_Q",),
    ),
    "CANN": Family(
        "ggml-cann",
        "cann.hpp",
        (
            Slice(
                "ggml-cann.cpp",
                ("ggml_backend_cann_supports_op", "ggml_backend_cann_buffer_type_get_alloc_size"),
                "cann_ops.cpp",
            ),
        ),
        _CANN_GIVEN,
        {"CANN": Hardware("", "CANN")},
        NewerCases,
    ),
}
