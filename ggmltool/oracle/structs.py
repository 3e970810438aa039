"""ggml's structs as ctypes classes: those that are the same in every library that the oracle knows.

The structs of one library, with the fields that it alone has, are in `Lib.structs`.
"""

from __future__ import annotations

import ctypes

from ggmltool.structs.mirrors import mirrors

MAX_DIMS = 4
MAX_SRC = 10
MAX_PARAMS = 16
MAX_NAME = 64

KNOWN = mirrors("0.20.2")
Tensor = KNOWN["ggml_tensor"]
InitParams = KNOWN["ggml_init_params"]
BufferI = KNOWN["ggml_backend_buffer_i"]
Buffer = KNOWN["ggml_backend_buffer"]
BackendI = KNOWN["ggml_backend_i"]
Backend = KNOWN["ggml_backend"]
Event = KNOWN["ggml_backend_event"]
DeviceI = KNOWN["ggml_backend_device_i"]
Device = KNOWN["ggml_backend_device"]

MultiBuffer = KNOWN.declared("ggml_backend_multi_buffer_context", "ggml_backend_buffer_t * buffers", "size_t n_buffers")
"""What `context` of a multi-buffer points to."""
GraphOptimizeParams = KNOWN.declared(
    "ggml_backend_graph_optimize_params",
    "void (*add_alloc_dep)(void *, struct ggml_tensor *, struct ggml_tensor *)",
    "void * user_data",
)
"""Of the libraries that hand it to graph_optimize."""
TypeTraits = KNOWN.declared(
    "ggml_type_traits",
    "const char * type_name",
    "int64_t blck_size",
    "int64_t blck_size_interleave",
    "size_t type_size",
    "bool is_quantized",
    "void (*to_float)(const void *, float *, int64_t)",
    "void (*from_float_ref)(const float *, void *, int64_t)",
)
ADD_ALLOC_DEP = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
"""add_alloc_dep(user_data, tensor, until)."""


class CGraphStruct(ctypes.Structure):
    """ggml_cgraph."""

    _fields_ = KNOWN["ggml_cgraph"]._fields_

    def slot(self, address: int) -> int:
        """The slot of a tensor of the graph, by its address."""
        hashes = self.visited_hash_set
        slot = int((address >> 4) % hashes.size)
        while hashes.keys[slot] != address:
            slot = (slot + 1) % hashes.size
        return slot

    def has(self, address: int | None) -> bool:
        """Whether there is a tensor of the graph at an address."""
        hashes = self.visited_hash_set
        slot = (address or 0) >> 4
        for i in range(hashes.size):
            at = (slot + i) % hashes.size
            if not hashes.used[at >> 5] >> (at & 31) & 1:
                return False
            if hashes.keys[at] == address:
                return True
        return False

    def use_count(self, address: int) -> int:
        """How often the tensor at an address is a source in the graph it belongs to."""
        return int(self.use_counts[self.slot(address)])
