"""A GPU of this machine, through cupy: its memory, and the streams of its backends as ggml's CUDA backend has them.

Blocking copies (ggml_backend_tensor_set, _get, _copy) go through one stream of the device, for which the host then
waits; everything that a backend does goes through the stream of that backend, for which it waits where ggml does.
Cupy stands for the whole library: array functions, streams, events and memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.errors import GgmlAbort, GgmlFailed
from ggmltool.ggml.values.converted import Converted

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

KEPT_SHARE = 3
"""One part in so many of the device's memory may hold weights in float32."""


class Gpu:
    """A CUDA device, `number` in CUDA's order. Several devices of a scenario may share it, each with its own buffers.

    `kept` has the weights that were converted, `name` is what the driver calls it.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        self.xp = cupy
        self.number = number
        self.device = cupy.cuda.Device(number)
        self.name: str = cupy.cuda.runtime.getDeviceProperties(number)["name"].decode(errors="replace")
        self.kept = Converted(self.get_memory()[1] // KEPT_SHARE)
        with self.device:
            self._copies = cupy.cuda.Stream(non_blocking=True)

    def __repr__(self) -> str:
        return f"<Gpu {self.number}>"

    def get_memory(self) -> tuple[int, int]:
        """ggml_backend_cuda_device_get_memory: the bytes that are free, and all of them."""
        free, total = self.device.mem_info
        return int(free), int(total)

    @contextmanager
    def calls(self, function: str) -> Iterator[None]:
        """Calls to CUDA on this device; those that fail end in GgmlAbort, as ggml's CUDA_CHECK does."""
        try:
            with self.device:
                yield
        except MemoryError as error:
            raise GgmlAbort(
                function,
                "CUDA error: out of memory",
                explanation=f"{error}; what a kernel needs meanwhile comes on top of the buffers",
            ) from error
        except self.xp.cuda.runtime.CUDARuntimeError as error:
            raise GgmlAbort(
                function, f"CUDA error: {error}", explanation=f"on GPU {self.number}, {self.name}"
            ) from error

    def alloc(self, size: int, name: str) -> Any:
        """ggml_backend_cuda_buffer_type_alloc_buffer: an array of `size` bytes, one allocation, all zero."""
        with self.device:
            memory = self._malloc(size)
            if memory is None:
                self.kept.clear()
                self.xp.get_default_memory_pool().free_all_blocks()
                memory = self._malloc(size)
        if memory is None:
            free, total = self.get_memory()
            raise GgmlFailed(
                "ggml_backend_cuda_buffer_type_alloc_buffer",
                f"allocating {size / (1 << 20):.2f} MiB on device {self.number}: cudaMalloc failed: out of memory",
                explanation=f"the buffer is {name}; {free} of {total} bytes are free on {self.name}. Planning needs no "
                "memory, and `engine: numpy` takes the host's",
            )
        with self.calls("ggml_backend_cuda_buffer_type_alloc_buffer"):
            pointer = self.xp.cuda.MemoryPointer(memory, 0)
            pointer.memset_async(0, size, self._copies)
            self._copies.synchronize()
            return self.xp.ndarray((size,), dtype="uint8", memptr=pointer)

    def _malloc(self, size: int) -> Any:
        """cudaMalloc; None where the memory is not there."""
        try:
            return self.xp.cuda.Memory(size)
        except (MemoryError, self.xp.cuda.runtime.CUDARuntimeError):
            return None

    def alloc_pinned(self, size: int, name: str) -> Bytes:
        """ggml_cuda_host_malloc: memory of the host that the GPU copies from and to by itself; all zero."""
        import numpy as np

        try:
            with self.device:
                memory = self.xp.cuda.PinnedMemoryPointer(self.xp.cuda.PinnedMemory(size), 0)
        except (MemoryError, self.xp.cuda.runtime.CUDARuntimeError) as error:
            raise GgmlFailed(
                "ggml_cuda_host_malloc",
                f"failed to allocate {size / (1 << 20):.2f} MiB of pinned memory: {error}",
                explanation=f"the buffer is {name}",
            ) from None
        out: Bytes = np.frombuffer(memory, dtype=np.uint8, count=size)
        out[:] = 0
        return out

    def write(self, memory: Any, start: int, data: Bytes) -> None:
        """ggml_backend_cuda_buffer_set_tensor: the host's bytes to the device, and wait."""
        with self.calls("ggml_backend_cuda_buffer_set_tensor"):
            self.write_on(self._copies, memory, start, data)
            self._copies.synchronize()

    def write_on(self, stream: Any, memory: Any, start: int, data: Bytes) -> None:
        """cudaMemcpyAsync from the host, behind what `stream` has to do."""
        cuda = self.xp.cuda.runtime
        at = memory.data.ptr + start
        cuda.memcpyAsync(at, data.ctypes.data, data.size, cuda.memcpyHostToDevice, stream.ptr)

    def read(self, memory: Any, start: int, out: Bytes) -> None:
        """ggml_backend_cuda_buffer_get_tensor: the device's bytes into `out`, and wait."""
        with self.calls("ggml_backend_cuda_buffer_get_tensor"):
            cuda = self.xp.cuda.runtime
            at = memory.data.ptr + start
            cuda.memcpyAsync(out.ctypes.data, at, out.size, cuda.memcpyDeviceToHost, self._copies.ptr)
            self._copies.synchronize()

    def copy(self, memory: Any, start: int, other: Gpu, to: Any, to_start: int, size: int) -> None:
        """ggml_backend_cuda_buffer_cpy_tensor: bytes of this device to `other`, which may be the same, and wait."""
        with self.calls("ggml_backend_cuda_buffer_cpy_tensor"):
            self.copy_on(self._copies, memory, start, other, to, to_start, size)
            self._copies.synchronize()

    def copy_on(self, stream: Any, memory: Any, start: int, other: Gpu, to: Any, to_start: int, size: int) -> None:
        """cudaMemcpyAsync from device to device, cudaMemcpyPeerAsync to another GPU, behind what `stream` has to do."""
        cuda = self.xp.cuda.runtime
        here, there = memory.data.ptr + start, to.data.ptr + to_start
        if other.number == self.number:
            cuda.memcpyAsync(there, here, size, cuda.memcpyDeviceToDevice, stream.ptr)
        else:
            cuda.memcpyPeerAsync(there, other.number, here, self.number, size, stream.ptr)

    def queue(self) -> Queue:
        """A new stream of work."""
        return Queue(self)


class Queue:
    """A backend's stream, and its events, one for each pipeline copy (ggml_backend_cuda_context).

    As a context manager: what cupy does meanwhile goes to this stream.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        with gpu.device:
            self.stream = gpu.xp.cuda.Stream(non_blocking=True)
            self._copied = gpu.xp.cuda.Event(disable_timing=True)
        self._events: dict[int, Any] = {}
        self._entered: list[Any] = []

    def __enter__(self) -> Queue:
        calls = self.gpu.calls("ggml_backend_cuda_graph_compute")
        calls.__enter__()
        self.stream.__enter__()
        self._entered.append(calls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.stream.__exit__(kind, error, trace)
        left: bool | None = self._entered.pop().__exit__(kind, error, trace)
        return left

    def synchronize(self) -> None:
        """ggml_backend_cuda_synchronize: wait for all that the stream has to do."""
        with self.gpu.calls("ggml_backend_cuda_synchronize"):
            self.stream.synchronize()

    def event(self, call: str, copy: int) -> None:
        """ggml_backend_event_record, _wait or _synchronize of the event of pipeline copy `copy`."""
        with self.gpu.calls(f"ggml_backend_event_{call}"):
            event = self._events.get(copy)
            if event is None:
                event = self._events[copy] = self.gpu.xp.cuda.Event(disable_timing=True)
            match call:
                case "record":
                    event.record(self.stream)
                case "wait":
                    self.stream.wait_event(event)
                case "synchronize":
                    event.synchronize()

    def set_async(self, memory: Any, start: int, data: Bytes) -> None:
        """ggml_backend_cuda_set_tensor_async. Pageable `data` may be gone when it returns."""
        with self.gpu.calls("ggml_backend_cuda_set_tensor_async"):
            self.gpu.write_on(self.stream, memory, start, data)

    def copy_to(self, other: Queue, memory: Any, start: int, to: Any, to_start: int, size: int) -> None:
        """ggml_backend_cuda_cpy_tensor_async: the copy on this stream; the other one waits for it."""
        with self.gpu.calls("ggml_backend_cuda_cpy_tensor_async"):
            self.gpu.copy_on(self.stream, memory, start, other.gpu, to, to_start, size)
            if other is not self:
                self._copied.record(self.stream)
        if other is not self:
            with other.gpu.calls("ggml_backend_cuda_cpy_tensor_async"):
                other.stream.wait_event(self._copied)


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
