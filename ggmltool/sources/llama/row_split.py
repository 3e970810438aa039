"""-sm row: every GPU has some rows of each matrix, and why llama.cpp gets no further with it.

A backend takes part whose registry has ggml_backend_split_buffer_type. CUDA and ROCm had it until 2026-07-09 (llama.cpp
#24216), before ggml 0.20.2. SYCL has it still, but its supports_buft takes nothing but its own buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggmltool.scenario.spec import BackendSpec
from ggmltool.sources.llama.errors import LlamaRefused

SPLIT_BUFFER = "SYCL_Split"
"""The buffer type of matrices whose rows SYCL's devices share."""

_INSTEAD = "Use -sm layer, which gives whole layers to each GPU."


def refuse_without_rows(gpus: Sequence[BackendSpec]) -> None:
    """make_gpu_buft_list: raise LlamaRefused if there is a GPU that has no split buffers, whatever it would get."""
    for gpu in gpus:
        if gpu.profile != "SYCL":
            raise LlamaRefused(
                f"error loading model: device {gpu.name} does not support split buffers",
                "-sm row puts the weights into split buffers, which only SYCL still has: those of CUDA and ROCm were "
                f"removed in July 2026, before ggml 0.20.2. {_INSTEAD}",
            )


def refuse_split_weights(weights: Iterable[str]) -> None:
    """ggml_backend_sched_backend_id_from_cur: raise LlamaRefused for the first of the weights in split buffers.

    `weights` are their names in the order of the graph's leafs; without any, llama.cpp goes on.
    """
    first = next(iter(weights), None)
    if first is not None:
        raise LlamaRefused(
            f"pre-allocated tensor ({first}) in a buffer ({SPLIT_BUFFER}) that cannot run the operation (NONE)",
            "llama.cpp loads the weights, with their rows shared by the GPUs, and then aborts when it reserves the "
            f"graph: SYCL's supports_buft does not take {SPLIT_BUFFER}. {_INSTEAD}",
        )
