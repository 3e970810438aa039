"""The function tables of ggml 0.20.2's backends: which functions there are, and which ones a backend leaves NULL."""

from __future__ import annotations

from dataclasses import dataclass

BACKEND_I = (
    "get_name", "free", "set_tensor_async", "get_tensor_async", "set_tensor_2d_async", "get_tensor_2d_async",
    "cpy_tensor_async", "synchronize", "graph_plan_create", "graph_plan_free", "graph_plan_update",
    "graph_plan_compute", "graph_compute", "event_record", "event_wait", "graph_optimize",
)  # fmt: skip
DEVICE_I = (
    "get_name", "get_description", "get_memory", "get_type", "get_props", "init_backend", "get_buffer_type",
    "get_host_buffer_type", "buffer_from_host_ptr", "supports_op", "supports_buft", "offload_op", "event_new",
    "event_free", "event_synchronize",
)  # fmt: skip
BUFFER_TYPE_I = ("get_name", "alloc_buffer", "get_alignment", "get_max_size", "get_alloc_size", "is_host")
BUFFER_I = (
    "free_buffer", "get_base", "init_tensor", "memset_tensor", "set_tensor", "get_tensor", "set_tensor_2d",
    "get_tensor_2d", "cpy_tensor", "clear", "reset",
)  # fmt: skip

IF_NULL: dict[str, str] = {
    "set_tensor_async": "ggml_backend_tensor_set, which waits",
    "get_tensor_async": "ggml_backend_tensor_get, which waits",
    "set_tensor_2d_async": "set_tensor_async piece by piece",
    "get_tensor_2d_async": "get_tensor_async piece by piece",
    "cpy_tensor_async": "waits for both, then tensor_copy",
    "synchronize": "there is nothing to wait for",
    "graph_plan_create": "an assertion, should anybody ask",
    "graph_plan_free": "an assertion, should anybody ask",
    "graph_plan_update": "nothing asks for it",
    "graph_plan_compute": "an assertion, should anybody ask",
    "event_record": "it has no events",
    "event_wait": "it has no events",
    "graph_optimize": "nodes stay in their order",
    "get_host_buffer_type": "it has no pinned host memory",
    "buffer_from_host_ptr": "it cannot take over host memory",
    "offload_op": "it asks for no ops",
    "event_new": "no events, so no pipeline copies",
    "event_free": "it has no events",
    "event_synchronize": "it has no events",
    "get_max_size": "SIZE_MAX",
    "get_alloc_size": "ggml_nbytes",
    "is_host": "false",
    "init_tensor": "tensors need no preparation",
    "set_tensor_2d": "set_tensor piece by piece",
    "get_tensor_2d": "get_tensor piece by piece",
    "cpy_tensor": "copied through host memory",
    "reset": "there is nothing to reset",
}
"""What ggml does where a function is NULL. Functions that every backend has are not listed."""


@dataclass(frozen=True, slots=True)
class FunctionTable:
    """One table of one backend: `kind` is its struct, `instance` what ggml's source calls it.

    `prefix` begins the names of its functions, `null` are the ones it does not have.
    """

    kind: str
    instance: str
    fields: tuple[str, ...]
    prefix: str
    null: frozenset[str]

    def functions(self) -> dict[str, str | None]:
        """Each field with the name of its function, None for NULL."""
        return {field: None if field in self.null else self.prefix + field for field in self.fields}


@dataclass(frozen=True, slots=True)
class Interface:
    """The four tables of a backend; the last two are those of its default buffer type and of that type's buffers."""

    backend: FunctionTable
    device: FunctionTable
    buffer_type: FunctionTable
    buffer: FunctionTable

    def tables(self) -> tuple[FunctionTable, ...]:
        """All four, from the backend to the buffer."""
        return (self.backend, self.device, self.buffer_type, self.buffer)


_SYNCHRONOUS = (
    "set_tensor_async get_tensor_async set_tensor_2d_async get_tensor_2d_async cpy_tensor_async synchronize "
    "graph_plan_update event_record event_wait graph_optimize"
)
_PLANS = "graph_plan_create graph_plan_free graph_plan_update graph_plan_compute"
_HOST_DEVICE = "get_host_buffer_type offload_op event_new event_free event_synchronize"


def _backend(instance: str, prefix: str, null: str) -> FunctionTable:
    return FunctionTable("ggml_backend_i", instance, BACKEND_I, prefix, frozenset(null.split()))


def _device(instance: str, prefix: str, null: str) -> FunctionTable:
    return FunctionTable("ggml_backend_device_i", instance, DEVICE_I, prefix, frozenset(null.split()))


def _buffer_type(instance: str, prefix: str, null: str) -> FunctionTable:
    return FunctionTable("ggml_backend_buffer_type_i", instance, BUFFER_TYPE_I, prefix, frozenset(null.split()))


def _buffer(instance: str, prefix: str, null: str) -> FunctionTable:
    return FunctionTable("ggml_backend_buffer_i", instance, BUFFER_I, prefix, frozenset(null.split()))


_CPU_BUFFER_TYPE = _buffer_type(
    "ggml_backend_cpu_buffer_type", "ggml_backend_cpu_buffer_type_", "get_max_size get_alloc_size"
)
_CPU_BUFFER = _buffer(
    "ggml_backend_cpu_buffer_i", "ggml_backend_cpu_buffer_", "init_tensor set_tensor_2d get_tensor_2d reset"
)

CPU = Interface(
    _backend("ggml_backend_cpu_i", "ggml_backend_cpu_", _SYNCHRONOUS),
    _device("ggml_backend_cpu_device_i", "ggml_backend_cpu_device_", _HOST_DEVICE),
    _CPU_BUFFER_TYPE,
    _CPU_BUFFER,
)
BLAS = Interface(
    _backend("blas_backend_i", "ggml_backend_blas_", f"{_SYNCHRONOUS} {_PLANS}"),
    _device("ggml_backend_blas_device_i", "ggml_backend_blas_device_", _HOST_DEVICE),
    _CPU_BUFFER_TYPE,
    _CPU_BUFFER,
)
CUDA = Interface(
    _backend("ggml_backend_cuda_interface", "ggml_backend_cuda_", _PLANS),
    _device("ggml_backend_cuda_device_interface", "ggml_backend_cuda_device_", "buffer_from_host_ptr"),
    _buffer_type("ggml_backend_cuda_buffer_type_interface", "ggml_backend_cuda_buffer_type_", "get_max_size is_host"),
    _buffer("ggml_backend_cuda_buffer_interface", "ggml_backend_cuda_buffer_", "reset"),
)
