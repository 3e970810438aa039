"""What llama.cpp knows of a weight by its name: the layer it belongs to, and the op it is tested with."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ggmltool.ggml.op import Op

LayerKind = Literal["input", "repeating", "output"]

_BLOCK = re.compile(r"(?:^|\.)blk\.(\d{1,9})\.")
_LAYER_OF_NODE = re.compile(r"-(\d{1,9})(?=$| \()")
_LAYER_OF_CACHE = re.compile(r"_l(\d{1,9})(?=$| \()")

_LAYERS: dict[LayerKind, str] = {
    "input": "token_embd position_embd token_types per_layer_token_embd",
    "output": (
        "output output_norm cls cls.output cls.norm dense_2 dense_3 altup_proj altup_unembd_proj output_hc_fn "
        "output_hc_base output_hc_scale nextn.post_proj fc d2t"
    ),
}
_KINDS = {base: kind for kind, names in _LAYERS.items() for base in names.split()}

TIED = "token_embd"
"""The weight that is also the output's where the model has none of its own."""

PER_LAYER = frozenset(("rope_freqs", "rope_factors_long", "rope_factors_short"))
"""Weights that every layer has, though the model holds them once."""

_TESTED_WITH: dict[Op, str] = {
    Op.GET_ROWS: (
        "token_embd position_embd token_types per_layer_token_embd attn_rel_b attn_compressor_ape "
        "indexer_compressor_ape ffn_gate_tid2eid nextn.embed_tokens d2t"
    ),
    Op.ROPE: "rope_freqs rope_factors_long rope_factors_short",
    Op.SCALE: "attn_sinks",
    Op.DIV: "ffn.act",
    Op.SSM_CONV: "ssm_conv1d",
    Op.SSM_SCAN: "ssm_a",
    Op.RWKV_WKV6: "time_mix_first",
    Op.IM2COL: "conv1d",
    Op.ADD: (
        "exp_probs_b time_mix_lerp_w time_mix_lerp_k time_mix_lerp_v time_mix_lerp_r time_mix_lerp_g "
        "time_mix_lerp_fused time_mix_decay time_mix_w0 time_mix_a0 time_mix_v0 hc_attn_base hc_ffn_base "
        "output_hc_base"
    ),
    Op.MUL: (
        "ssm_d ssm_conv1d_q ssm_conv1d_k ssm_conv1d_v time_mix_lerp_x time_mix_ln channel_mix_lerp_k "
        "channel_mix_lerp_r time_mix_k_k time_mix_k_a time_mix_r_k layer_output_scale altup_correct_scale "
        "hc_attn_scale hc_ffn_scale output_hc_scale"
    ),
    Op.MUL_MAT_ID: (
        "ffn_down_exps ffn_gate_exps ffn_up_exps ffn_gate_up_exps ffn_down_chexps ffn_gate_chexps ffn_up_chexps"
    ),
}
_OPS = {base: op for op, names in _TESTED_WITH.items() for base in names.split()}


class Weight(NamedTuple):
    """A weight's place in the model: `base` is its name without layer and suffix, `il` the number of its layer."""

    base: str
    suffix: str
    kind: LayerKind
    il: int


def weight_of(name: str) -> Weight:
    """What the name of a weight says.

    >>> weight_of("blk.3.ffn_up.weight"), weight_of("enc.output_norm.weight").kind
    (Weight(base='ffn_up', suffix='weight', kind='repeating', il=3), 'output')
    """
    block = _BLOCK.search(name)
    rest = name[block.end() :] if block else re.sub(r"^(enc|dec)\.", "", name)
    base, suffix = rest, ""
    for end in ("weight", "bias", "scale", "input_scale"):
        if rest.endswith(f".{end}"):
            base, suffix = rest[: -len(end) - 1], end
    if block:
        return Weight(base, suffix, "repeating", int(block[1]))
    kind = _KINDS.get(base, "repeating")
    return Weight(base, suffix, kind, 0 if kind == "repeating" else -1)


def tested_op(weight: Weight, used_by: int | None) -> Op:
    """The op that llama.cpp tests a buffer type with, for a name that it knows; else the op `used_by` that uses it."""
    op = _OPS.get(weight.base)
    if op is None:
        op = Op.MUL if weight.base.endswith(("norm", "norm_1", "norm_2")) else Op.MUL_MAT
        if used_by in (Op.MUL, Op.ADD, Op.MUL_MAT, Op.MUL_MAT_ID, Op.GET_ROWS) and weight.suffix != "bias":
            op = Op(used_by)
    if weight.suffix == "bias":
        return Op.ADD_ID if op is Op.MUL_MAT_ID else Op.ADD
    return op


def layer_of_node(name: str) -> int | None:
    """The layer of a node by the number that llama.cpp's names end with; None where there is none.

    >>> layer_of_node("Qcur-12"), layer_of_node("Qcur-12 (view)"), layer_of_node("result_norm")
    (12, 12, None)
    """
    found = _LAYER_OF_NODE.search(name)
    return int(found[1]) if found else None


def layer_of_cache(name: str) -> int | None:
    """The layer of a tensor of the KV cache or the recurrent state, or of a view of it.

    >>> layer_of_cache("cache_k_l7"), layer_of_cache("cache_k_l7 (view)"), layer_of_cache("cache")
    (7, 7, None)
    """
    found = _LAYER_OF_CACHE.search(name)
    return int(found[1]) if found else None
