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


BASE: dict[str, str] = {
    "ggml_version": "s:",
    "ggml_commit": "s:",
    "ggml_init": "c:S",
    "ggml_free": "v:c",
    "ggml_used_mem": "z:c",
    "ggml_get_mem_buffer": "p:c",
    "ggml_tensor_overhead": "z:",
    "ggml_graph_overhead": "z:",
    "ggml_graph_overhead_custom": "z:zb",
    "ggml_get_first_tensor": "t:c",
    "ggml_get_next_tensor": "t:ct",
    "ggml_new_tensor": "t:ciip",
    "ggml_set_name": "t:ts",
    "ggml_set_input": "v:t",
    "ggml_set_output": "v:t",
    "ggml_set_param": "v:t",
    "ggml_set_loss": "v:t",
    "ggml_nbytes": "z:t",
    "ggml_nelements": "q:t",
    "ggml_row_size": "z:iq",
    "ggml_type_name": "s:i",
    "ggml_get_type_traits": "p:i",
    "ggml_type_size": "z:i",
    "ggml_blck_size": "q:i",
    "ggml_is_quantized": "b:i",
    "ggml_op_name": "s:i",
    "ggml_op_desc": "s:t",
    "ggml_nrows": "q:t",
    "ggml_is_contiguous": "b:t",
    "ggml_is_contiguous_1": "b:t",
    "ggml_is_contiguous_2": "b:t",
    "ggml_is_contiguous_rows": "b:t",
    "ggml_is_transposed": "b:t",
    "ggml_are_same_shape": "b:tt",
    "ggml_can_repeat": "b:tt",
    "ggml_mul_mat_set_prec": "v:ti",
    "ggml_mul_mat_set_hint": "v:ti",
    "ggml_flash_attn_ext_set_prec": "v:ti",
    "ggml_flash_attn_ext_add_sinks": "v:tt",
    "ggml_soft_max_add_sinks": "v:tt",
    "ggml_quantize_chunk": "z:ippqqqp",
    "ggml_new_graph_custom": "g:czb",
    "ggml_build_forward_expand": "v:gt",
    "ggml_build_forward_order": "v:gt",
    "ggml_build_forward_select": "t:gpii",
    "ggml_graph_print": "v:g",
    "ggml_graph_dump_dot": "v:ggs",
    "ggml_print_objects": "v:c",
    "ggml_hash_size": "z:z",
    "ggml_set_abort_callback": "p:p",
    "ggml_log_set": "v:pp",
    "ggml_backend_name": "s:p",
    "ggml_backend_free": "v:p",
    "ggml_backend_graph_compute": "i:pg",
    "ggml_backend_compare_graph_backend": "b:ppgpppz",
    "ggml_backend_synchronize": "v:p",
    "ggml_backend_supports_op": "b:pt",
    "ggml_backend_tensor_set": "v:tpzz",
    "ggml_backend_tensor_get": "v:tpzz",
    "ggml_backend_tensor_set_async": "v:ptpzz",
    "ggml_backend_tensor_get_async": "v:ptpzz",
    "ggml_backend_tensor_alloc": "i:ptp",
    "ggml_backend_view_init": "i:t",
    "ggml_backend_alloc_ctx_tensors_from_buft": "p:cp",
    "ggml_backend_cpu_buffer_type": "p:",
    "ggml_backend_cpu_buffer_from_ptr": "p:pz",
    "ggml_backend_buft_alloc_buffer": "p:pz",
    "ggml_backend_buft_get_alignment": "z:p",
    "ggml_backend_buft_get_max_size": "z:p",
    "ggml_backend_buft_get_alloc_size": "z:pt",
    "ggml_backend_buft_is_host": "b:p",
    "ggml_backend_buft_name": "s:p",
    "ggml_backend_buffer_init": "p:pFpz",
    "ggml_backend_buffer_free": "v:p",
    "ggml_backend_buffer_get_base": "p:p",
    "ggml_backend_buffer_get_size": "z:p",
    "ggml_backend_buffer_set_usage": "v:pi",
    "ggml_backend_buffer_is_multi_buffer": "b:p",
    "ggml_backend_reg_dev_get": "p:pz",
    "ggml_backend_dev_supports_op": "b:pt",
    "ggml_backend_dev_supports_buft": "b:pp",
    "ggml_backend_sched_new": "p:ppizbb",
    "ggml_backend_sched_free": "v:p",
    "ggml_backend_sched_reserve": "b:pg",
    "ggml_backend_sched_alloc_graph": "b:pg",
    "ggml_backend_sched_graph_compute": "i:pg",
    "ggml_backend_sched_synchronize": "v:p",
    "ggml_backend_sched_reset": "v:p",
    "ggml_backend_sched_set_eval_callback": "v:ppp",
    "ggml_backend_sched_get_n_splits": "i:p",
    "ggml_backend_sched_get_n_copies": "i:p",
    "ggml_backend_sched_get_buffer_size": "z:pp",
    "ggml_backend_sched_set_tensor_backend": "v:ptp",
    "ggml_backend_sched_get_tensor_backend": "p:pt",
    "ggml_gallocr_new_n": "p:pi",
    "ggml_gallocr_free": "v:p",
    "ggml_gallocr_reserve": "b:pg",
    "ggml_gallocr_alloc_graph": "b:pg",
    "ggml_gallocr_get_buffer_size": "z:pi",
}
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
