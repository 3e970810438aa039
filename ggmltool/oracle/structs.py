"""The structs of ggml's headers and private state that the oracle reads and writes, as ctypes mirrors (64-bit)."""

from __future__ import annotations

import ctypes as c

MAX_DIMS = 4
MAX_SRC = 10
MAX_PARAMS = 16
MAX_NAME = 64


class Tensor(c.Structure):
    """ggml_tensor."""

    _fields_ = (
        ("type", c.c_int),
        ("buffer", c.c_void_p),
        ("ne", c.c_int64 * MAX_DIMS),
        ("nb", c.c_size_t * MAX_DIMS),
        ("op", c.c_int),
        ("op_params", c.c_int32 * MAX_PARAMS),
        ("flags", c.c_int32),
        ("src", c.c_void_p * MAX_SRC),
        ("view_src", c.c_void_p),
        ("view_offs", c.c_size_t),
        ("data", c.c_void_p),
        ("name", c.c_char * MAX_NAME),
        ("extra", c.c_void_p),
        ("padding", c.c_char * 8),
    )


class InitParams(c.Structure):
    """ggml_init_params."""

    _fields_ = (("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool))


class HashSet(c.Structure):
    """ggml_hash_set."""

    _fields_ = (("size", c.c_size_t), ("used", c.c_void_p), ("keys", c.c_void_p))


class CGraph(c.Structure):
    """ggml_cgraph."""

    _fields_ = (
        ("size", c.c_int),
        ("n_nodes", c.c_int),
        ("n_leafs", c.c_int),
        ("nodes", c.POINTER(c.c_void_p)),
        ("grads", c.c_void_p),
        ("grad_accs", c.c_void_p),
        ("leafs", c.POINTER(c.c_void_p)),
        ("use_counts", c.POINTER(c.c_int32)),
        ("visited_hash_set", HashSet),
        ("order", c.c_int),
        ("uid", c.c_uint64),
    )

    def slot(self, address: int) -> int:
        """The slot of a tensor of the graph, by its address."""
        hashes = self.visited_hash_set
        slot = int((address >> 4) % hashes.size)
        keys = c.cast(hashes.keys, c.POINTER(c.c_void_p))
        while keys[slot] != address:
            slot = (slot + 1) % hashes.size
        return slot

    def has(self, address: int | None) -> bool:
        """Whether there is a tensor of the graph at an address."""
        hashes = self.visited_hash_set
        keys = c.cast(hashes.keys, c.POINTER(c.c_void_p))
        used = c.cast(hashes.used, c.POINTER(c.c_uint32))
        slot = (address or 0) >> 4
        for i in range(hashes.size):
            at = (slot + i) % hashes.size
            if not used[at >> 5] >> (at & 31) & 1:
                return False
            if keys[at] == address:
                return True
        return False

    def use_count(self, address: int) -> int:
        """How often the tensor at an address is a source in the graph it belongs to."""
        return int(self.use_counts[self.slot(address)])


class BufferTypeI(c.Structure):
    """ggml_backend_buffer_type_i."""

    _fields_ = tuple(
        (name, c.c_void_p)
        for name in ("get_name", "alloc_buffer", "get_alignment", "get_max_size", "get_alloc_size", "is_host")
    )


class BufferType(c.Structure):
    """ggml_backend_buffer_type."""

    _fields_ = (("iface", BufferTypeI), ("device", c.c_void_p), ("context", c.c_void_p))


class BufferI(c.Structure):
    """ggml_backend_buffer_i."""

    _fields_ = tuple(
        (name, c.c_void_p)
        for name in (
            "free_buffer",
            "get_base",
            "init_tensor",
            "memset_tensor",
            "set_tensor",
            "get_tensor",
            "set_tensor_2d",
            "get_tensor_2d",
            "cpy_tensor",
            "clear",
            "reset",
        )
    )


class Buffer(c.Structure):
    """ggml_backend_buffer."""

    _fields_ = (
        ("iface", BufferI),
        ("buft", c.c_void_p),
        ("context", c.c_void_p),
        ("size", c.c_size_t),
        ("usage", c.c_int),
    )


class MultiBuffer(c.Structure):
    """ggml_backend_multi_buffer_context: what `context` of a multi-buffer points to."""

    _fields_ = (("buffers", c.POINTER(c.c_void_p)), ("n_buffers", c.c_size_t))


class BackendI(c.Structure):
    """ggml_backend_i."""

    _fields_ = tuple(
        (name, c.c_void_p)
        for name in (
            "get_name",
            "free",
            "set_tensor_async",
            "get_tensor_async",
            "set_tensor_2d_async",
            "get_tensor_2d_async",
            "cpy_tensor_async",
            "synchronize",
            "graph_plan_create",
            "graph_plan_free",
            "graph_plan_update",
            "graph_plan_compute",
            "graph_compute",
            "event_record",
            "event_wait",
            "graph_optimize",
        )
    )


class Backend(c.Structure):
    """ggml_backend."""

    _fields_ = (("guid", c.c_void_p), ("iface", BackendI), ("device", c.c_void_p), ("context", c.c_void_p))


class GraphOptimizeParams(c.Structure):
    """ggml_backend_graph_optimize_params, of the libraries that hand them to graph_optimize."""

    _fields_ = (("add_alloc_dep", c.c_void_p), ("user_data", c.c_void_p))


class Event(c.Structure):
    """ggml_backend_event."""

    _fields_ = (("device", c.c_void_p), ("context", c.c_void_p))


class DeviceI(c.Structure):
    """ggml_backend_device_i."""

    _fields_ = tuple(
        (name, c.c_void_p)
        for name in (
            "get_name",
            "get_description",
            "get_memory",
            "get_type",
            "get_props",
            "init_backend",
            "get_buffer_type",
            "get_host_buffer_type",
            "buffer_from_host_ptr",
            "supports_op",
            "supports_buft",
            "offload_op",
            "event_new",
            "event_free",
            "event_synchronize",
        )
    )


class Device(c.Structure):
    """ggml_backend_device."""

    _fields_ = (("iface", DeviceI), ("reg", c.c_void_p), ("context", c.c_void_p))


class DeviceProps(c.Structure):
    """ggml_backend_dev_props, with ggml_backend_dev_caps at its end."""

    _fields_ = (
        ("name", c.c_char_p),
        ("description", c.c_char_p),
        ("memory_free", c.c_size_t),
        ("memory_total", c.c_size_t),
        ("type", c.c_int),
        ("device_id", c.c_char_p),
        ("async_", c.c_bool),
        ("host_buffer", c.c_bool),
        ("buffer_from_host_ptr", c.c_bool),
        ("events", c.c_bool),
        ("mmap_support", c.c_bool),
    )


SCHED_MAX_BACKENDS = 16
SCHED_MAX_COPIES = 4


class SchedSplit(c.Structure):
    """ggml_backend_sched_split."""

    _fields_ = (
        ("backend_id", c.c_int),
        ("i_start", c.c_int),
        ("i_end", c.c_int),
        ("inputs", c.POINTER(c.c_void_p)),
        ("n_inputs", c.c_int),
        ("inputs_capacity", c.c_int),
        ("graph", CGraph),
    )


class Sched(c.Structure):
    """ggml_backend_sched, of ggml 0.20.2."""

    _fields_ = (
        ("is_reset", c.c_bool),
        ("is_alloc", c.c_bool),
        ("n_backends", c.c_int),
        ("backends", c.c_void_p * SCHED_MAX_BACKENDS),
        ("bufts", c.c_void_p * SCHED_MAX_BACKENDS),
        ("galloc", c.c_void_p),
        ("hash_set", HashSet),
        ("hv_tensor_backend_ids", c.POINTER(c.c_int)),
        ("hv_tensor_copies", c.POINTER(c.c_void_p)),
        ("node_backend_ids", c.POINTER(c.c_int)),
        ("leaf_backend_ids", c.POINTER(c.c_int)),
        ("prev_node_backend_ids", c.POINTER(c.c_int)),
        ("prev_leaf_backend_ids", c.POINTER(c.c_int)),
        ("graph", CGraph),
        ("splits", c.POINTER(SchedSplit)),
        ("n_splits", c.c_int),
        ("splits_capacity", c.c_int),
        ("n_copies", c.c_int),
        ("cur_copy", c.c_int),
        ("next_copy", c.c_int),
        ("events", (c.c_void_p * SCHED_MAX_COPIES) * SCHED_MAX_BACKENDS),
        ("graph_inputs", c.POINTER(c.c_void_p)),
        ("n_graph_inputs", c.c_int),
        ("graph_inputs_capacity", c.c_int),
        ("ctx", c.c_void_p),
        ("callback_eval", c.c_void_p),
        ("callback_eval_user_data", c.c_void_p),
        ("context_buffer", c.c_void_p),
        ("context_buffer_size", c.c_size_t),
        ("op_offload", c.c_bool),
        ("debug", c.c_int),
        ("debug_realloc", c.c_int),
        ("debug_graph_size", c.c_int),
        ("debug_prev_graph_size", c.c_int),
    )


class BufferAddress(c.Structure):
    """buffer_address of ggml-alloc.c."""

    _fields_ = (("chunk", c.c_int), ("offset", c.c_size_t))


class TensorAlloc(c.Structure):
    """tensor_alloc of ggml-alloc.c: where the graph allocator planned a tensor; `size_max` is its alloc size."""

    _fields_ = (("buffer_id", c.c_int), ("addr", BufferAddress), ("size_max", c.c_size_t))


class NodeAlloc(c.Structure):
    """node_alloc of ggml-alloc.c."""

    _fields_ = (("dst", TensorAlloc), ("src", TensorAlloc * MAX_SRC))


class VBuffer(c.Structure):
    """vbuffer of ggml-alloc.c: the chunks of a compute buffer, up to the first NULL."""

    _fields_ = (("chunks", c.c_void_p * 16),)


class Gallocr(c.Structure):
    """ggml_gallocr."""

    _fields_ = (
        ("bufts", c.POINTER(c.c_void_p)),
        ("buffers", c.POINTER(c.c_void_p)),
        ("buf_tallocs", c.POINTER(c.c_void_p)),
        ("n_buffers", c.c_int),
        ("hash_set", HashSet),
        ("hash_values", c.c_void_p),
        ("node_allocs", c.c_void_p),
        ("n_nodes", c.c_int),
        ("leaf_allocs", c.c_void_p),
        ("n_leafs", c.c_int),
    )


class TypeTraits(c.Structure):
    """ggml_type_traits."""

    _fields_ = (
        ("type_name", c.c_char_p),
        ("blck_size", c.c_int64),
        ("blck_size_interleave", c.c_int64),
        ("type_size", c.c_size_t),
        ("is_quantized", c.c_bool),
        ("to_float", c.c_void_p),
        ("from_float_ref", c.c_void_p),
    )
