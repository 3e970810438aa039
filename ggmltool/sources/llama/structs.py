"""The structs of llama.h, as ctypes mirrors of the releases that `lib.SUPPORTED` names (64-bit).

They are passed by value; `spare` at their end is room for what a later release appends.
"""

from __future__ import annotations

import ctypes as c
from functools import cache
from typing import Any

_POINTER = c.c_void_p


LAZY_MODE = (2026, 9)
"""The first release whose model params have a `lazy_mode`."""
MORE_TYPES = (2026, 10)
"""The first release whose context params have two more words, zero by default, before their truth values."""

_MODEL_HEAD = (
    ("devices", _POINTER),
    ("tensor_buft_overrides", _POINTER),
    ("n_gpu_layers", c.c_int32),
    ("split_mode", c.c_int),
    ("load_mode", c.c_int),
)
_MODEL_TAIL = (
    ("main_gpu", c.c_int32),
    ("tensor_split", _POINTER),
    ("progress_callback", _POINTER),
    ("progress_callback_user_data", _POINTER),
    ("kv_overrides", _POINTER),
    ("vocab_only", c.c_bool),
    ("check_tensors", c.c_bool),
    ("use_extra_bufts", c.c_bool),
    ("no_host", c.c_bool),
    ("no_alloc", c.c_bool),
    ("load_mtp", c.c_bool),
    ("spare", c.c_uint8 * 58),
)
_CONTEXT_HEAD = (
    ("n_ctx", c.c_uint32),
    ("n_batch", c.c_uint32),
    ("n_ubatch", c.c_uint32),
    ("n_seq_max", c.c_uint32),
    ("n_rs_seq", c.c_uint32),
    ("n_outputs_max", c.c_uint32),
    ("n_outputs_max_per_seq", c.c_uint32),
    ("n_threads", c.c_int32),
    ("n_threads_batch", c.c_int32),
    ("ctx_type", c.c_int),
    ("rope_scaling_type", c.c_int),
    ("pooling_type", c.c_int),
    ("attention_type", c.c_int),
    ("flash_attn_type", c.c_int),
    ("rope_freq_base", c.c_float),
    ("rope_freq_scale", c.c_float),
    ("yarn_ext_factor", c.c_float),
    ("yarn_attn_factor", c.c_float),
    ("yarn_beta_fast", c.c_float),
    ("yarn_beta_slow", c.c_float),
    ("yarn_orig_ctx", c.c_uint32),
    ("defrag_thold", c.c_float),
    ("cb_eval", _POINTER),
    ("cb_eval_user_data", _POINTER),
    ("type_k", c.c_int),
    ("type_v", c.c_int),
    ("abort_callback", _POINTER),
    ("abort_callback_data", _POINTER),
)
_CONTEXT_TAIL = (
    ("embeddings", c.c_bool),
    ("offload_kqv", c.c_bool),
    ("no_perf", c.c_bool),
    ("op_offload", c.c_bool),
    ("swa_full", c.c_bool),
    ("kv_unified", c.c_bool),
    ("samplers", _POINTER),
    ("n_samplers", c.c_size_t),
    ("ctx_other", _POINTER),
    ("spare", c.c_uint8 * 64),
)


@cache
def model_params(release: tuple[int, ...]) -> type[c.Structure]:
    """llama_model_params of a release of xllamacpp."""
    lazy = (("lazy_mode", c.c_int),) if release >= LAZY_MODE else ()
    return type("ModelParams", (c.Structure,), {"_fields_": (*_MODEL_HEAD, *lazy, *_MODEL_TAIL)})


@cache
def context_params(release: tuple[int, ...]) -> type[c.Structure]:
    """llama_context_params of a release of xllamacpp."""
    more = (("more_types", c.c_int * 2),) if release >= MORE_TYPES else ()
    return type("ContextParams", (c.Structure,), {"_fields_": (*_CONTEXT_HEAD, *more, *_CONTEXT_TAIL)})


class Object(c.Structure):
    """ggml_object: the header before each tensor of a ggml_context. `offs` is the tensor's, from the arena's start."""

    _fields_ = (
        ("offs", c.c_size_t),
        ("size", c.c_size_t),
        ("next", c.c_void_p),
        ("type", c.c_int),
        ("padding", c.c_char * 4),
    )


OBJECT_TYPE_TENSOR, OBJECT_TYPE_GRAPH = 0, 1


class Batch(c.Structure):
    """llama_batch: a value per token in each array; `logits` says of which tokens logits are asked."""

    _fields_ = (
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.POINTER(c.c_float)),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.c_void_p)),
        ("logits", c.POINTER(c.c_int8)),
    )


MODEL_DEFAULTS: dict[str, Any] = {
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "main_gpu": 0,
    "tensor_split": None,
    "progress_callback": None,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
}
"""What llama_model_default_params answers where the layout is the one above."""

CONTEXT_DEFAULTS: dict[str, Any] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "cb_eval": None,
    "type_k": 1,
    "type_v": 1,
    "embeddings": False,
    "offload_kqv": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
    "ctx_other": None,
}
"""What llama_context_default_params answers where the layout is the one above."""


def wrong_fields(params: c.Structure, defaults: dict[str, Any]) -> list[str]:
    """The fields that do not have their default, which says that the layout is another release's."""
    return [name for name, value in defaults.items() if getattr(params, name) != value]
