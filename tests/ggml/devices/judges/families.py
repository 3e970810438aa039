"""The families of devices that have a judge: which functions of ggml answer for them, and what stands around these."""

from __future__ import annotations

from dataclasses import dataclass

from tests.ggml.devices.cases import Cases
from tests.ggml.devices.cuda_cases import CudaCases
from tests.ggml.devices.moe_graphs import MoeGraph


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
    graphs: type[MoeGraph] | None = None
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
}
