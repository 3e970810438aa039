"""What the oracle calls in the real library, as tables.

A signature is one letter per argument: t tensor, c context, g graph, p other pointer, s C string, i int (enums too),
I uint32, q int64, z size_t, f float, b bool, B uint8, v nothing. Objects of ggml are plain addresses (Python ints).
"""

from __future__ import annotations

import ctypes
import inspect
from functools import cache

from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import COMPOSITES, CONSTRUCTORS, since_of
from ggmltool.ggml.releases.table import RELEASES

CTYPES: dict[str, object] = {
    "t": ctypes.c_void_p,
    "c": ctypes.c_void_p,
    "g": ctypes.c_void_p,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "i": ctypes.c_int,
    "I": ctypes.c_uint32,
    "q": ctypes.c_int64,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "b": ctypes.c_bool,
    "B": ctypes.c_uint8,
    "v": None,
}

_LETTERS = {"int": "i", "int64_t": "q", "size_t": "z", "float": "f", "bool": "b", "DType": "i", "Sequence[int]": "p"}


@cache
def constructors() -> dict[str, str]:
    """Every op constructor without its ggml_ prefix -> its arguments after the context."""
    load()
    out = {"dup_tensor": "t", "view_tensor": "t"}
    for c in (*CONSTRUCTORS.values(), *COMPOSITES.values()):
        name = c.name.removesuffix("_im2col")
        said = c.prototype
        if said is None:
            # Sources, then parameters, each of the C type that its annotation names.
            given = inspect.signature(c.build).parameters
            said = "t" * len(c.sources) + "".join(_LETTERS[str(given[p.name].annotation)] for p in c.params)
        if isinstance(said, str):
            said = {name: said}
        if name in said:
            out[name] = said[name]
            if c.inplace:
                out[f"{name}_inplace"] = said.get(f"{name}_inplace", said[name])
    return {name: arguments for name, arguments in out.items() if arguments}


def in_all_libraries() -> set[str]:
    """The constructors that the library of every release has."""
    oldest = min(release.date for release in RELEASES.values() if release.library is not None)
    return {name for name in constructors() if since_of(name) <= oldest}


_BASE = {
    "s:": "ggml_version ggml_commit",
    "c:S": "ggml_init",
    "v:c": "ggml_free ggml_print_objects",
    "z:c": "ggml_used_mem",
    "p:c": "ggml_get_mem_buffer",
    "z:": "ggml_tensor_overhead ggml_graph_overhead",
    "z:zb": "ggml_graph_overhead_custom",
    "t:c": "ggml_get_first_tensor",
    "t:ct": "ggml_get_next_tensor",
    "t:ciip": "ggml_new_tensor",
    "t:ts": "ggml_set_name",
    "z:t": "ggml_nbytes",
    "q:t": "ggml_nelements ggml_nrows",
    "z:iq": "ggml_row_size",
    "s:i": "ggml_type_name ggml_op_name",
    "p:i": "ggml_get_type_traits",
    "z:i": "ggml_type_size",
    "q:i": "ggml_blck_size",
    "b:i": "ggml_is_quantized",
    "s:t": "ggml_op_desc",
    "b:t": "ggml_is_contiguous ggml_is_contiguous_1 ggml_is_contiguous_2 ggml_is_contiguous_rows ggml_is_transposed",
    "b:tt": "ggml_are_same_shape ggml_can_repeat",
    "v:ti": "ggml_mul_mat_set_prec ggml_mul_mat_set_hint ggml_flash_attn_ext_set_prec",
    "v:tt": "ggml_flash_attn_ext_add_sinks ggml_soft_max_add_sinks",
    "z:ippqqqp": "ggml_quantize_chunk",
    "g:czb": "ggml_new_graph_custom",
    "v:gt": "ggml_build_forward_expand ggml_build_forward_order",
    "v:g": "ggml_graph_print",
    "v:ggs": "ggml_graph_dump_dot",
    "z:z": "ggml_hash_size",
    "p:p": "ggml_set_abort_callback ggml_backend_buffer_get_base",
    "v:pp": "ggml_log_set",
    "s:p": "ggml_backend_name ggml_backend_buft_name",
    "v:p": "ggml_backend_free ggml_backend_synchronize ggml_backend_buffer_free ggml_backend_sched_free "
    "ggml_backend_sched_synchronize ggml_backend_sched_reset ggml_gallocr_free",
    "i:pg": "ggml_backend_graph_compute ggml_backend_sched_graph_compute",
    "b:ppgpppz": "ggml_backend_compare_graph_backend",
    "b:pt": "ggml_backend_supports_op ggml_backend_dev_supports_op",
    "v:tpzz": "ggml_backend_tensor_set ggml_backend_tensor_get",
    "v:ptpzz": "ggml_backend_tensor_set_async ggml_backend_tensor_get_async",
    "i:ptp": "ggml_backend_tensor_alloc",
    "i:t": "ggml_backend_view_init",
    "p:cp": "ggml_backend_alloc_ctx_tensors_from_buft",
    "p:": "ggml_backend_cpu_buffer_type",
    "p:pz": "ggml_backend_buft_alloc_buffer ggml_backend_reg_dev_get",
    "z:p": "ggml_backend_buft_get_alignment ggml_backend_buft_get_max_size ggml_backend_buffer_get_size",
    "z:pt": "ggml_backend_buft_get_alloc_size",
    "b:p": "ggml_backend_buft_is_host ggml_backend_buffer_is_multi_buffer",
    "p:pFpz": "ggml_backend_buffer_init",
    "v:pi": "ggml_backend_buffer_set_usage",
    "b:pp": "ggml_backend_dev_supports_buft",
    "p:ppizbb": "ggml_backend_sched_new",
    "b:pg": "ggml_backend_sched_reserve ggml_backend_sched_alloc_graph ggml_gallocr_reserve ggml_gallocr_alloc_graph",
    "v:ppp": "ggml_backend_sched_set_eval_callback",
    "i:p": "ggml_backend_sched_get_n_splits ggml_backend_sched_get_n_copies",
    "z:pp": "ggml_backend_sched_get_buffer_size",
    "v:ptp": "ggml_backend_sched_set_tensor_backend",
    "p:pt": "ggml_backend_sched_get_tensor_backend",
    "p:pi": "ggml_gallocr_new_n",
}

BASE = {name: signature for signature, names in _BASE.items() for name in names.split()}
"""Functions of libggml-base, as "result:arguments"; S is ggml_init_params, F ggml_backend_buffer_i, by value."""

LATER: dict[str, str] = {
    "ggml_flash_attn_ext_set_n_kv_max": "v:ti",
    "ggml_prec_set_acc": "b:ti",
    "ggml_prec_set_src": "b:tii",
    "ggml_rope_set_offset": "t:ti",
    "ggml_backend_sched_set_copy_callback": "v:ppp",
}
"""Functions of libggml-base that a library after 0.20.2 may have."""

CPU: dict[str, str] = {
    "ggml_backend_cpu_init": "p:",
    "ggml_backend_cpu_reg": "p:",
    "ggml_backend_cpu_set_n_threads": "v:pi",
    "ggml_cpu_init": "v:",
}
"""Functions of libggml-cpu."""
