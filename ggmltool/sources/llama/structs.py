"""The structs of llama.h, as ctypes mirrors of the builds of llama.cpp that are known (64-bit).

They are passed by value; `spare` at their end is room for what a later build appends.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

_POINTER = c.c_void_p


class Added(NamedTuple):
    """A field that builds have behind the field `after`; `since` is the first build that is known to have it."""

    since: str
    after: str
    name: str
    type: Any
    default: int


ADDED = (
    Added("b10566", "n_outputs_max", "n_outputs_max_per_seq", c.c_uint32, 1),
    Added("b10809", "load_mode", "lazy_mode", c.c_int, 1),
    Added("b11548", "type_v", "moe_cache_size", c.c_size_t, 0),
)
"""In the order in which they came: a build has the first so many of them. A later field is a line more."""

FIRST = "b10335"
"""The first build that is known, without any of them."""

_MODEL = (
    ("devices", _POINTER),
    ("tensor_buft_overrides", _POINTER),
    ("n_gpu_layers", c.c_int32),
    ("split_mode", c.c_int),
    ("load_mode", c.c_int),
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
_CONTEXT = (
    ("n_ctx", c.c_uint32),
    ("n_batch", c.c_uint32),
    ("n_ubatch", c.c_uint32),
    ("n_seq_max", c.c_uint32),
    ("n_rs_seq", c.c_uint32),
    ("n_outputs_max", c.c_uint32),
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


class Layout(NamedTuple):
    """llama_model_params and llama_context_params of some builds, as ctypes classes; `since` is the first one known."""

    since: str
    model: Any
    context: Any


@cache
def layouts() -> tuple[Layout, ...]:
    """All that are known, the newest first."""
    made = []
    for n in range(len(ADDED), -1, -1):
        added = ADDED[:n]
        since = added[-1].since if added else FIRST
        made.append(Layout(since, _struct("ModelParams", _MODEL, added), _struct("ContextParams", _CONTEXT, added)))
    return tuple(made)


def _struct(name: str, fields: Sequence[Any], added: Sequence[Added]) -> Any:
    out = list(fields)
    for more in added:
        names = [field[0] for field in out]
        if more.after in names:
            out.insert(names.index(more.after) + 1, (more.name, more.type))
    return type(name, (c.Structure,), {"_fields_": tuple(out)})


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
    """The fields that do not have their default, which says that the layout is another build's."""
    added = {more.name: more.default for more in ADDED if hasattr(params, more.name)}
    return [name for name, value in (defaults | added).items() if getattr(params, name) != value]
