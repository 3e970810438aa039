"""The function tables of backends in January 2024 and in March 2025."""

from __future__ import annotations

from dataclasses import replace

from ggmltool.ggml.devices import interfaces
from ggmltool.ggml.devices.interfaces import FunctionTable, Interface

_SINCE_MARCH_2025 = frozenset(
    ("set_tensor_2d_async", "get_tensor_2d_async", "graph_optimize", "set_tensor_2d", "get_tensor_2d")
)


def _march_2025(today: Interface, *missing: str) -> Interface:
    """The tables as they were: without the functions that came later; the buffers had none of the `missing` ones."""

    def then(table: FunctionTable, *more: str) -> FunctionTable:
        fields = tuple(field for field in table.fields if field not in _SINCE_MARCH_2025)
        return replace(table, fields=fields, null=table.null - _SINCE_MARCH_2025 | set(more))

    return Interface(then(today.backend), then(today.device), then(today.buffer_type), then(today.buffer, *missing))


CPU_2025 = _march_2025(interfaces.CPU)
BLAS_2025 = _march_2025(interfaces.BLAS)
CUDA_2025 = _march_2025(interfaces.CUDA)
RPC_2025 = _march_2025(interfaces.RPC, "memset_tensor")

INTERFACES_2025 = {"CPU": CPU_2025, "BLAS": BLAS_2025, "CUDA": CUDA_2025, "ROCm": CUDA_2025, "RPC": RPC_2025}
"""Those of March 2025 by the profile's name."""

_BACKEND_I = (
    "get_name", "free", "get_default_buffer_type", "set_tensor_async", "get_tensor_async", "cpy_tensor_async",
    "synchronize", "graph_plan_create", "graph_plan_free", "graph_plan_compute", "graph_compute", "supports_op",
)  # fmt: skip
_BUFFER_TYPE_I = ("get_name", "alloc_buffer", "get_alignment", "get_alloc_size", "supports_backend", "is_host")
_BUFFER_I = (
    "get_name", "free_buffer", "get_base", "init_tensor", "set_tensor", "get_tensor", "cpy_tensor", "clear", "reset",
)  # fmt: skip
_NO_DEVICE = FunctionTable("ggml_backend_device_i", "", (), "", frozenset())
_CRASH = "a crash, should anybody ask"
_INSTEAD = {
    "cpy_tensor_async": "tensor_set_async from host memory, else tensor_copy",
    "graph_plan_create": _CRASH, "graph_plan_free": _CRASH, "graph_plan_compute": _CRASH,
}  # fmt: skip


def _january_2024(instance: str, word: str, null: str, buffer_type: FunctionTable, buffer: FunctionTable) -> Interface:
    """A backend was its own device. `null` are the functions of the backend that are not there."""
    prefix = f"ggml_backend_{word}_"
    named = {"get_name": f"{prefix}name"}
    backend = FunctionTable("ggml_backend_i", instance, _BACKEND_I, prefix, frozenset(null.split()), named, _INSTEAD)
    return Interface(backend, _NO_DEVICE, buffer_type, buffer)


def _buffer_type(instance: str, prefix: str, null: str, get_name: str = "get_name") -> FunctionTable:
    named = {"get_name": prefix + get_name}
    return FunctionTable("ggml_backend_buffer_type_i", instance, _BUFFER_TYPE_I, prefix, frozenset(null.split()), named)


def _buffer(instance: str, prefix: str, null: str, get_name: str = "get_name") -> FunctionTable:
    named = {"get_name": prefix + get_name}
    return FunctionTable("ggml_backend_buffer_i", instance, _BUFFER_I, prefix, frozenset(null.split()), named)


_SYNCHRONOUS = "set_tensor_async get_tensor_async cpy_tensor_async synchronize"
_PLANS = "graph_plan_create graph_plan_free graph_plan_compute"

CPU_2024 = _january_2024(
    "cpu_backend_i",
    "cpu",
    _SYNCHRONOUS,
    _buffer_type("ggml_backend_cpu_buffer_type", "ggml_backend_cpu_buffer_type_", "get_alloc_size"),
    _buffer("cpu_backend_buffer_i", "ggml_backend_cpu_buffer_", "init_tensor reset", "name"),
)
CUDA_2024 = _january_2024(
    "ggml_backend_cuda_interface",
    "cuda",
    _PLANS,
    _buffer_type("ggml_backend_cuda_buffer_type_interface", "ggml_backend_cuda_buffer_type_", "is_host", "name"),
    _buffer("ggml_backend_cuda_buffer_interface", "ggml_backend_cuda_buffer_", "reset"),
)
METAL_2024 = _january_2024(
    "ggml_backend_metal_i",
    "metal",
    f"{_SYNCHRONOUS} {_PLANS}",
    _buffer_type("ggml_backend_buffer_type_metal", "ggml_backend_metal_buffer_type_", "get_alloc_size"),
    _buffer("ggml_backend_metal_buffer_i", "ggml_backend_metal_buffer_", "init_tensor reset"),
)
