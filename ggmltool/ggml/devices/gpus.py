"""The GPUs of this machine that cupy can compute on, looked for once, and only by who computes values."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ggmltool.ggml.devices.gpu import Gpu
from ggmltool.ggml.errors import GgmlFailed

INSTALL = "pip install 'ggmltool[cuda]' brings it for CUDA 12, 'ggmltool[cuda13]' for CUDA 13"


class Gpus:
    """The GPUs of this machine in CUDA's order, each begun with when it is asked for: that takes some of its memory."""

    def __init__(self, cupy: Any = None, count: int = 0) -> None:
        self._cupy = cupy
        self._count = count
        self._begun: dict[int, Gpu] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Gpu:
        if not 0 <= number < self._count:
            raise IndexError(number)
        if number not in self._begun:
            try:
                self._begun[number] = Gpu(self._cupy, number)
            except self._cupy.cuda.runtime.CUDARuntimeError as error:
                raise GgmlFailed(
                    "ggml_backend_cuda_init",
                    f"GPU {number} cannot be used: {_first_line(error)}",
                    explanation="`engine: numpy` computes without it",
                ) from error
        return self._begun[number]


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs; if there are none, `why` says what is missing and `remedy` what helps."""

    gpus: Gpus
    why: str = ""
    remedy: str = ""


@cache
def find() -> Found:
    """The GPUs of this machine."""
    if find_spec("cupy") is None:
        return Found(Gpus(), "cupy is not installed", INSTALL)
    with warnings.catch_warnings():
        # It warns of CUDA libraries that it misses, which the trial below would need.
        warnings.simplefilter("ignore")
        try:
            cupy: Any = import_module("cupy")
        except Exception as error:  # what its libraries raise while they are loaded
            return Found(Gpus(), f"cupy cannot be imported: {_first_line(error)}", INSTALL)
        try:
            count = int(cupy.cuda.runtime.getDeviceCount())
        except cupy.cuda.runtime.CUDARuntimeError as error:
            return Found(Gpus(), f"cupy finds no GPU: {_first_line(error)}", "it takes an NVIDIA GPU and its driver")
        if not count:
            return Found(Gpus(), "cupy finds no GPU", "CUDA_VISIBLE_DEVICES may hide it")
        try:
            _try(cupy)
        except Exception as error:  # of the driver, the compiler, cuBLAS
            return Found(Gpus(), f"cupy cannot compute on the GPU: {_first_line(error)}", INSTALL)
    return Found(Gpus(cupy, count))


def _try(cupy: Any) -> None:
    """Compile a kernel and multiply matrices: CUDA's libraries may be missing, or be others than cupy's."""
    a = cupy.arange(16, dtype="float32").reshape(4, 4)
    if float((a @ a.T).sum()) != float(sum(sum(range(i, 16, 4)) ** 2 for i in range(4))):
        raise RuntimeError("a product of matrices is wrong")


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip(" =")), type(error).__name__).strip()
