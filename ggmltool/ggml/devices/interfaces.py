"""The function tables of ggml 0.20.2's backends: which functions there are, and which ones a backend leaves NULL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    "memset_tensor": "an assertion, should anybody ask",
    "set_tensor_2d": "set_tensor piece by piece",
    "get_tensor_2d": "get_tensor piece by piece",
    "cpy_tensor": "copied through host memory",
    "reset": "there is nothing to reset",
}
"""What ggml does where a function is NULL. Functions that every backend has are not listed."""


@dataclass(frozen=True, slots=True)
class FunctionTable:
    """One table of one backend: `kind` is its struct, `instance` what ggml's source calls it.

    `prefix` begins the names of its functions, `null` are the ones it does not have, `named` those whose name does
    not follow the field's. `instead` says what happens where a function is NULL, if that is not what IF_NULL says.
    """

    kind: str
    instance: str
    fields: tuple[str, ...]
    prefix: str
    null: frozenset[str]
    named: Mapping[str, str] = field(default_factory=dict, hash=False)
    instead: Mapping[str, str] = field(default_factory=dict, hash=False)

    def functions(self) -> dict[str, str | None]:
        """Each field with the name of its function, None for NULL."""
        named = self.named
        return {f: None if f in self.null else named.get(f, self.prefix + f) for f in self.fields}

    def if_null(self, function: str) -> str:
        """What ggml does where this function is NULL; "" where every backend has it."""
        return self.instead.get(function, IF_NULL.get(function, ""))


@dataclass(frozen=True, slots=True)
class Interface:
    """The four tables of a backend; the last two are those of its default buffer type and of that type's buffers."""

    backend: FunctionTable
    device: FunctionTable
    buffer_type: FunctionTable
    buffer: FunctionTable

    def tables(self) -> tuple[FunctionTable, ...]:
        """All that there are, from the backend to the buffer: older backends have none of a device."""
        return tuple(t for t in (self.backend, self.device, self.buffer_type, self.buffer) if t.fields)


_SYNCHRONOUS = (
    "set_tensor_async get_tensor_async set_tensor_2d_async get_tensor_2d_async cpy_tensor_async synchronize "
    "graph_plan_update event_record event_wait graph_optimize"
)
_PLANS = "graph_plan_create graph_plan_free graph_plan_update graph_plan_compute"
_HOST_DEVICE = "get_host_buffer_type offload_op event_new event_free event_synchronize"


def _backend(instance: str, prefix: str, null: str, **named: str) -> FunctionTable:
    return FunctionTable("ggml_backend_i", instance, BACKEND_I, prefix, frozenset(null.split()), named)


def _device(instance: str, prefix: str, null: str, **named: str) -> FunctionTable:
    return FunctionTable("ggml_backend_device_i", instance, DEVICE_I, prefix, frozenset(null.split()), named)


def _buffer_type(instance: str, prefix: str, null: str, **named: str) -> FunctionTable:
    kind = "ggml_backend_buffer_type_i"
    return FunctionTable(kind, instance, BUFFER_TYPE_I, prefix, frozenset(null.split()), named)


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
_NO_2D = "set_tensor_2d_async get_tensor_2d_async"
METAL = Interface(
    _backend("ggml_backend_metal_i", "ggml_backend_metal_", f"{_NO_2D} {_PLANS}", get_name="ggml_backend_metal_name"),
    _device(
        "ggml_backend_metal_device_i",
        "ggml_backend_metal_device_",
        "get_host_buffer_type",
        buffer_from_host_ptr="ggml_backend_metal_device_buffer_mapped",
    ),
    _buffer_type("ggml_backend_metal_buffer_type_shared", "ggml_backend_metal_buffer_type_shared_", ""),
    _buffer(
        "ggml_backend_metal_buffer_shared_i",
        "ggml_backend_metal_buffer_shared_",
        "init_tensor set_tensor_2d get_tensor_2d reset",
    ),
)
VULKAN = Interface(
    _backend(
        "ggml_backend_vk_interface",
        "ggml_backend_vk_",
        _PLANS,
        get_name="ggml_backend_vk_name",
        graph_optimize="ggml_vk_graph_optimize",
    ),
    _device("ggml_backend_vk_device_i", "ggml_backend_vk_device_", "", init_backend="ggml_backend_vk_device_init"),
    _buffer_type(
        "ggml_backend_vk_buffer_type_interface",
        "ggml_backend_vk_buffer_type_",
        "is_host",
        get_name="ggml_backend_vk_buffer_type_name",
    ),
    _buffer("ggml_backend_vk_buffer_interface", "ggml_backend_vk_buffer_", "reset"),
)
SYCL = Interface(
    _backend("ggml_backend_sycl_interface", "ggml_backend_sycl_", f"{_NO_2D} cpy_tensor_async {_PLANS} graph_optimize"),
    _device(
        "ggml_backend_sycl_device_interface",
        "ggml_backend_sycl_device_",
        "",
        init_backend="ggml_backend_sycl_device_init",
    ),
    _buffer_type("ggml_backend_sycl_buffer_type_interface", "ggml_backend_sycl_buffer_type_", "is_host"),
    _buffer("ggml_backend_sycl_buffer_interface", "ggml_backend_sycl_buffer_", "set_tensor_2d get_tensor_2d"),
)
RPC = Interface(
    _backend(
        "ggml_backend_rpc_interface",
        "ggml_backend_rpc_",
        f"set_tensor_async get_tensor_async {_NO_2D} cpy_tensor_async {_PLANS} event_record event_wait graph_optimize",
        get_name="ggml_backend_rpc_name",
    ),
    _device(
        "ggml_backend_rpc_device_i",
        "ggml_backend_rpc_device_",
        f"buffer_from_host_ptr {_HOST_DEVICE}",
        init_backend="ggml_backend_rpc_device_init",
    ),
    _buffer_type(
        "ggml_backend_rpc_buffer_type_interface",
        "ggml_backend_rpc_buffer_type_",
        "is_host",
        get_name="ggml_backend_rpc_buffer_type_name",
        get_max_size="ggml_backend_rpc_get_max_size",
    ),
    _buffer("ggml_backend_rpc_buffer_interface", "ggml_backend_rpc_buffer_", "set_tensor_2d get_tensor_2d reset"),
)
OPENCL = Interface(
    _backend(
        "ggml_backend_opencl_i",
        "ggml_backend_opencl_",
        f"set_tensor_async get_tensor_async {_NO_2D} cpy_tensor_async {_PLANS} event_record event_wait graph_optimize",
        get_name="ggml_backend_opencl_name",
    ),
    _device(
        "ggml_backend_opencl_device_i",
        "ggml_backend_opencl_device_",
        _HOST_DEVICE,
        init_backend="ggml_backend_opencl_device_init",
        buffer_from_host_ptr="ggml_backend_opencl_device_buffer_from_ptr",
    ),
    _buffer_type("ggml_backend_opencl_buffer_type_interface", "ggml_backend_opencl_buffer_type_", "is_host"),
    _buffer(
        "ggml_backend_opencl_buffer_interface",
        "ggml_backend_opencl_buffer_",
        "memset_tensor set_tensor_2d get_tensor_2d cpy_tensor",
    ),
)
CANN = Interface(
    _backend(
        "ggml_backend_cann_interface",
        "ggml_backend_cann_",
        f"{_NO_2D} {_PLANS} graph_optimize",
        get_name="ggml_backend_cann_name",
    ),
    _device(
        "ggml_backend_cann_device_interface",
        "ggml_backend_cann_device_",
        "buffer_from_host_ptr",
        init_backend="ggml_backend_cann_device_init",
        supports_op="ggml_backend_cann_supports_op",
        supports_buft="ggml_backend_cann_supports_buft",
        offload_op="ggml_backend_cann_offload_op",
    ),
    _buffer_type(
        "ggml_backend_cann_buffer_type_interface",
        "ggml_backend_cann_buffer_type_",
        "get_max_size",
        get_name="ggml_backend_cann_buffer_type_name",
    ),
    _buffer("ggml_backend_cann_buffer_interface", "ggml_backend_cann_buffer_", "set_tensor_2d get_tensor_2d reset"),
)
