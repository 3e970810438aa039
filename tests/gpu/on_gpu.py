"""Calls of ops on a GPU, or on the double of one, beside the same calls on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.devices.gpu import Gpu
from ggmltool.ggml.devices.gpu_arrays import GpuArrays
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.values.arrays import HostArrays
from tests.conformance.ops_case import Call, Engine, bytes_of, check_result
from tests.needs import library

HALF = frozenset(("f16", "bf16"))


class OnGpu(Engine):
    """A call computed on a GPU."""

    def __init__(self, case: Call, gpu: Gpu) -> None:
        super().__init__(case, DEFAULT)
        self.gpu = gpu
        self.buft = BufferType("CUDA0", "CUDA0")
        self.buft.gpu = gpu

    def compute(self, data: Sequence[bytes]) -> Any:
        self.place()
        host = HostArrays()
        for t, raw in zip(self.owners, data, strict=True):
            host.set_bytes(t, raw)
        arrays, queue = GpuArrays(self.gpu, "CUDA0", frozenset((self.buft,)), DEFAULT.ops), self.gpu.queue()
        with queue:
            for node in self.ctx.tensors:
                if node.op != Op.NONE and node.op in KERNELS:
                    KERNELS[node.op](arrays, node)
        queue.synchronize()
        return host.raw(self.result)


def tolerance(case: Call) -> float:
    """The NMSE that ggml's tests allow between two backends: of half precision and quantized operands another one."""
    types = [s.dtype for s in (*case.sources, case.sinks) if s is not None]
    rounded = any(t.quantized or t.name in HALF for t in types)
    if case.fn.startswith("mul_mat") and rounded:
        # A product of one row with one row has the error of a single number.
        return 2e-3 if case.sources[0] is not None and case.sources[0].dims[1] == 1 else 5e-4
    return max(case.nmse, 5e-4 if rounded or case.fn.startswith(("gelu", "geglu")) else 1e-7)


def other_on_host(case: Call) -> bool:
    """Whether ggml's CPU computes something else than meant, which a GPU does not.

    It looks up GELU of f32 values as f16, where large ones are infinite, and counts equal elements in the wrong rows of
    tensors with several planes.
    """
    if "gelu" in case.fn or "geglu" in case.fn:
        return any(s is not None and s.data == "special" for s in case.sources)
    return case.fn == "count_equal" and any(s is not None and max(s.dims[2:]) > 1 for s in case.sources)


def differing(cases: Sequence[Call], gpu: Gpu, computed: Callable[[Call], object] = str) -> list[str]:
    """What the GPU computes otherwise than the host does; `computed` is called with each case that both compute."""
    lib, rng, wrong = library(), np.random.default_rng(1), []
    for case in cases:
        data = [bytes_of(lib, s, rng) for s in (*case.sources, case.sinks) if s is not None]
        try:
            expected = Engine(case, DEFAULT).compute(data)
        except GgmlError:
            continue
        got = OnGpu(case, gpu).compute(data)
        computed(case)
        try:
            if not other_on_host(case):
                check_result(replace(case, nmse=tolerance(case)), got, expected)
        except AssertionError as error:
            wrong.append(str(error).splitlines()[0])
    return wrong
