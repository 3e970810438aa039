"""What the oracle calls in the real library, as tables.

A signature is one letter per argument: t tensor, c context, g graph, p other pointer, s C string, i int (enums too),
I uint32, q int64, z size_t, f float, b bool, B uint8, v nothing. Objects of ggml are plain addresses (Python ints).
"""

from __future__ import annotations

import ctypes

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

_CONSTRUCTORS: dict[str, str] = {
    "t": (
        "dup_tensor view_tensor dup dup_inplace sqr sqr_inplace sqrt sqrt_inplace log log_inplace expm1 "
        "expm1_inplace softplus softplus_inplace sin sin_inplace cos cos_inplace sum sum_rows cumsum mean argmax "
        "abs abs_inplace sgn sgn_inplace neg neg_inplace step step_inplace tanh tanh_inplace elu elu_inplace relu "
        "relu_inplace sigmoid sigmoid_inplace gelu gelu_inplace gelu_erf gelu_erf_inplace gelu_quick "
        "gelu_quick_inplace silu silu_inplace hardswish hardsigmoid exp exp_inplace floor floor_inplace ceil "
        "ceil_inplace round round_inplace trunc trunc_inplace reglu reglu_swapped geglu geglu_swapped swiglu "
        "swiglu_swapped geglu_erf geglu_erf_swapped geglu_quick geglu_quick_swapped cont transpose diag soft_max "
        "soft_max_inplace"
    ),
    "tt": (
        "add add_inplace add1 add1_inplace sub sub_inplace mul mul_inplace div div_inplace count_equal repeat "
        "repeat_back silu_back reglu_split geglu_split swiglu_split geglu_erf_split geglu_quick_split mul_mat "
        "out_prod cpy reshape get_rows conv_2d_sk_p0 conv_2d_s1_ph ssm_conv dsv4_hc_pre cross_entropy_loss"
    ),
    "tti": "add_cast concat glu_split conv_transpose_2d_p0",
    "ttt": (
        "add_id mul_mat_id get_rows_back set_rows add_rel_pos add_rel_pos_inplace cross_entropy_loss_back opt_step_sgd"
    ),
    "ttzzzz": "acc acc_inplace set set_inplace",
    "tqqqq": "repeat_4d cont_4d reshape_4d",
    "tfb": "leaky_relu",
    "tffff": "xielu",
    "tib": "glu",
    "ttff": "swiglu_oai soft_max_ext soft_max_ext_inplace soft_max_ext_back soft_max_ext_back_inplace",
    "tf": ("norm norm_inplace rms_norm rms_norm_inplace l2_norm l2_norm_inplace scale scale_inplace fill fill_inplace"),
    "tif": "group_norm group_norm_inplace",
    "ttf": "rms_norm_back",
    "tff": "scale_bias scale_bias_inplace clamp",
    "ttz": "set_1d set_1d_inplace",
    "ttzz": "set_2d set_2d_inplace",
    "ti": (
        "cast diag_mask_inf diag_mask_inf_inplace diag_mask_zero diag_mask_zero_inplace tri argsort argsort_top_k "
        "top_k win_part unary unary_inplace"
    ),
    "tq": "cont_1d reshape_1d",
    "tqq": "cont_2d reshape_2d",
    "tqqq": "cont_3d reshape_3d",
    "tqz": "view_1d",
    "tqqzz": "view_2d",
    "tqqqzzz": "view_3d",
    "tqqqqzzzz": "view_4d",
    "tiiii": "permute pool_1d pad pad_circular roll",
    "ttii": "rope rope_inplace conv_1d_dw_ph conv_1d_ph",
    "tttiiiffffff": "rope_ext rope_ext_inplace rope_ext_back",
    "tttipiiffffff": "rope_multi rope_multi_inplace rope_multi_back",
    "ttiiiffffff": "rope_custom rope_custom_inplace",
    "ttiiiiiibi": "im2col",
    "ttpiiiiiib": "im2col_back",
    "tiii": "col2im_1d win_unpart",
    "ttiii": "conv_1d conv_1d_dw conv_transpose_1d",
    "ttiiiiii": "conv_2d conv_2d_dw conv_2d_dw_direct conv_2d_direct",
    "ttqiiiiiiiiii": "im2col_3d",
    "ttqiiiiiiiii": "conv_3d",
    "ttiiiiiiiiiiii": "conv_3d_direct",
    "tiiiiiff": "pool_2d",
    "ttiiiiiff": "pool_2d_back",
    "tii": "upscale pad_reflect_1d timestep_embedding get_rel_pos",
    "tiiiii": "upscale_ext",
    "tqqqqI": "interpolate",
    "tiiiiiiii": "pad_ext pad_ext_circular",
    "fff": "arange",
    "ttttfff": "flash_attn_ext",
    "ttttb": "flash_attn_back",
    "tttttttq": "ssm_scan",
    "tttttt": "rwkv_wkv6",
    "tttttf": "gated_linear_attn",
    "ttttttt": "rwkv_wkv7",
    "ttbbb": "solve_tri",
    "ttttttq": "gated_delta_net",
    "tttt": "lightning_indexer dsv4_hc_post",
    "tttfi": "dsv4_hc_comb",
    "tpip": "map_custom1 map_custom1_inplace",
    "ttpip": "map_custom2 map_custom2_inplace",
    "tttpip": "map_custom3 map_custom3_inplace",
    "iqqqqpipip": "custom_4d",
    "tpipip": "custom_inplace",
    "ttttt": "opt_step_adamw",
}

CONSTRUCTORS: dict[str, str] = {name: args for args, names in _CONSTRUCTORS.items() for name in names.split()}
"""Every op constructor without its ggml_ prefix -> its arguments after the context."""

LATER_CONSTRUCTORS: dict[str, str] = {
    "clamp_inplace": "tff",
    "dsv4_hc_pre_gated": "ttf",
    "swiglu_clamp": "ttf",
}
"""Those that a library after 0.20.2 may have."""

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
