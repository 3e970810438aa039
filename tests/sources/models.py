"""Small models of many architectures as GGUF files: right names, shapes and metadata, every weight zero.

`cached("llama")` is a file of a few hundred KiB that llama.cpp loads, with 256 columns, 304 tokens and 3 to 6 layers.
`SPECIAL_MODELS` place some of their weights in a way of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.shared import made_once
from tests.sources.gguf_file import Description, Shape, Tensors, write_gguf


class Size(NamedTuple):
    """What a transformer's shapes follow from; `kv` are heads of K and V, `head` the columns of one."""

    layers: int
    embd: int
    ff: int
    heads: int
    kv: int
    head: int
    vocab: int
    context: int = 131072


SMALL = Size(4, 256, 512, 4, 2, 64, 304, 8192)
_, E, FF, _, _, HEAD, VOCAB, _ = SMALL
KV, EXPERTS = SMALL.kv * HEAD, 8
"""Columns of all KV heads; experts."""


def vectors(**lengths: int) -> Tensors:
    return {f"{name}.weight": ("f32", (n,)) for name, n in lengths.items()}


def biases(**lengths: int) -> Tensors:
    return {f"{name}.bias": ("f32", (n,)) for name, n in lengths.items()}


def matrices(kind: str, **ne: tuple[int, ...]) -> Tensors:
    return {f"{name}.weight": (kind, shape) for name, shape in ne.items()}


def both(**lengths: int) -> Tensors:
    """Weight and bias of each."""
    parts = (vectors(**{name: n}) | biases(**{name: n}) for name, n in lengths.items())
    return {name: shape for part in parts for name, shape in part.items()}


def attention(kind: str = "q4_K", value: str = "q6_K", size: Size = SMALL) -> Tensors:
    wide, narrow = size.heads * size.head, size.kv * size.head
    return (
        vectors(attn_norm=size.embd)
        | matrices(kind, attn_q=(size.embd, wide), attn_k=(size.embd, narrow))
        | matrices(value, attn_v=(size.embd, narrow))
        | matrices(kind, attn_output=(wide, size.embd))
    )


def head_norms(size: Size = SMALL) -> Tensors:
    return vectors(attn_q_norm=size.head, attn_k_norm=size.head)


def post_norms(size: Size = SMALL) -> Tensors:
    return vectors(post_attention_norm=size.embd, post_ffw_norm=size.embd)


def dense_part(kind: str, down: str, embd: int, ff: int) -> Tensors:
    return matrices(kind, ffn_gate=(embd, ff), ffn_up=(embd, ff)) | matrices(down, ffn_down=(ff, embd))


def ffn(kind: str = "q4_K", down: str = "q6_K", size: Size = SMALL, ff: int = 0) -> Tensors:
    return vectors(ffn_norm=size.embd) | dense_part(kind, down, size.embd, ff or size.ff)


def experts(kind: str, ff: int, down: str = "", embd: int = E, n: int = EXPERTS) -> Tensors:
    """The router and the experts."""
    gate = matrices("f32", ffn_gate_inp=(embd, n))
    ways = matrices(kind, ffn_gate_exps=(embd, ff, n), ffn_up_exps=(embd, ff, n))
    return gate | ways | matrices(down or kind, ffn_down_exps=(ff, embd, n))


def shared(kind: str, ff: int, down: str = "", embd: int = E) -> Tensors:
    ways = matrices(kind, ffn_gate_shexp=(embd, ff), ffn_up_shexp=(embd, ff))
    return ways | matrices(down or kind, ffn_down_shexp=(ff, embd))


def blocks(layers: list[Tensors], prefix: str = "") -> Tensors:
    return {f"{prefix}blk.{i}.{name}": shape for i, layer in enumerate(layers) for name, shape in layer.items()}


def whole(
    layers: list[Tensors], embd: str = "q6_K", output: str | None = "q6_K", prefix: str = "", size: Size = SMALL
) -> Tensors:
    """The weights of all layers, of the embeddings, and of the output unless it shares the embeddings' (None)."""
    tensors = matrices(embd, token_embd=(size.embd, size.vocab)) | blocks(layers, prefix)
    tensors[f"{prefix}output_norm.weight"] = ("f32", (size.embd,))
    return tensors if output is None else tensors | matrices(output, output=(size.embd, size.vocab))


def hparams(n_layer: int, size: Size = SMALL, **more: Any) -> dict[str, Any]:
    """What every architecture asks for, with `more`, whose keys have `__` for a dot."""
    values: dict[str, Any] = {
        "vocab_size": size.vocab,
        "context_length": size.context,
        "embedding_length": size.embd,
        "block_count": n_layer,
        "feed_forward_length": size.ff,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    return values | {key.replace("__", "."): value for key, value in more.items()}


LENGTHS: dict[str, Any] = {"attention__key_length": HEAD, "attention__value_length": HEAD}
ROUTED: dict[str, Any] = {"expert_count": EXPERTS, "expert_used_count": 2}


def _llama() -> Description:
    return Description("llama", hparams(6, rope__dimension_count=HEAD), whole([attention() | ffn()] * 6))


def _llama_moe() -> Description:
    layer = attention("q4_0", "q4_0") | vectors(ffn_norm=E) | experts("q4_0", FF)
    return Description("llama", hparams(4, **ROUTED), whole([layer] * 4, "q4_0"))


def _qwen3() -> Description:
    return Description("qwen3", hparams(5, **LENGTHS), whole([attention() | head_norms() | ffn()] * 5))


def _phi3() -> Description:
    layer = vectors(attn_norm=E) | matrices("q4_K", attn_qkv=(E, E + 2 * KV), attn_output=(E, E)) | vectors(ffn_norm=E)
    layer |= matrices("q4_K", ffn_up=(E, 2 * FF)) | matrices("q6_K", ffn_down=(FF, E))
    values = hparams(4, rope__dimension_count=HEAD, rope__scaling__original_context_length=4096)
    return Description("phi3", values, whole([layer] * 4))


def _gemma2() -> Description:
    layer = attention("q8_0", "q8_0") | post_norms() | ffn("q8_0", "q8_0")
    soft = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    values = hparams(4, **LENGTHS, attention__sliding_window=256) | soft
    return Description("gemma2", values, whole([layer] * 4, "q8_0", None))


def _gemma3() -> Description:
    description = _gemma2()
    values = {key: value for key, value in description.values.items() if "softcapping" not in key}
    return Description("gemma3", values, description.tensors | blocks([head_norms()] * 4))


def _bert() -> Description:
    products = {"attn_q": (E, E), "attn_k": (E, E), "attn_v": (E, E), "attn_output": (E, E)}
    layer: Tensors = {}
    for name, ne in {**products, "ffn_up": (E, FF), "ffn_down": (FF, E)}.items():
        layer |= matrices("f16", **{name: ne}) | biases(**{name: ne[1]})
    layer |= both(attn_output_norm=E, layer_output_norm=E)
    tensors = whole([layer] * 4, "f16", None)
    del tensors["output_norm.weight"]
    tensors |= matrices("f16", position_embd=(E, 512)) | matrices("f32", token_types=(E, 2)) | both(token_embd_norm=E)
    more = {"attention__head_count_kv": 4, "attention__layer_norm_epsilon": 1e-12, "attention__causal": False}
    values = hparams(4, SMALL._replace(context=512), **more, pooling_type=1, tokenizer__ggml__token_type_count=2)
    return Description("bert", values, tensors)


def _t5() -> Description:
    def products(name: str) -> Tensors:
        return matrices("q8_0", **{f"{name}_{part}": (E, E) for part in "qkvo"})

    encoder = ffn("q8_0", "q8_0") | products("attn") | vectors(attn_norm=E) | matrices("f32", attn_rel_b=(4, 32))
    decoder = encoder | products("cross_attn") | vectors(cross_attn_norm=E)
    tensors = whole([encoder] * 3, "q8_0", "q8_0", "enc.") | whole([decoder] * 3, "q8_0", "q8_0", "dec.")
    more = {"attention__head_count_kv": 4, "attention__relative_buckets_count": 32}
    return Description("t5", hparams(3, **more, **LENGTHS, decoder_start_token_id=0), tensors)


def _mamba(kind: str) -> Tensors:
    state = matrices("f32", ssm_conv1d=(4, 768)) | biases(ssm_conv1d=768, ssm_dt=8)
    state |= {"ssm_a": ("f32", (1, 8)), "ssm_d": ("f32", (1, 8))} | matrices("f32", ssm_norm=(256, 2))
    return vectors(attn_norm=E) | matrices(kind, ssm_in=(E, 1288)) | state | matrices(kind, ssm_out=(512, E))


_STATE = {
    "attention.head_count": 0, "attention.head_count_kv": 0, "ssm.conv_kernel": 4, "ssm.inner_size": 512,
    "ssm.state_size": 64, "ssm.time_step_rank": 8, "ssm.group_count": 2,
}  # fmt: skip


def _mamba2() -> Description:
    return Description("mamba2", hparams(4) | _STATE, whole([_mamba("q4_K")] * 4))


def _granitehybrid() -> Description:
    forward = vectors(ffn_norm=E) | experts("q8_0", FF) | shared("q8_0", E)
    layers = [(attention("q8_0", "q8_0") if i == 3 else _mamba("q8_0")) | forward for i in range(5)]
    scales = {"logit_scale": 8.0, "embedding_scale": 12.0, "residual_scale": 0.2, "attention__scale": 0.015625}
    sizes = {"expert_shared_feed_forward_length": E, "rope__dimension_count": HEAD}
    values = _mamba2().values | hparams(5, attention__head_count_kv=[0, 0, 0, 2, 0], **ROUTED, **sizes, **scales)
    return Description("granitehybrid", values, whole(layers, "q8_0", "q8_0"))


def _rwkv7() -> Description:
    layer = both(attn_norm=E, attn_norm_2=E, time_mix_ln=E)
    for letter, rank in {"w": 32, "a": 32, "v": 32, "g": 64}.items():
        layer |= matrices("f32", **{f"time_mix_{letter}1": (E, rank), f"time_mix_{letter}2": (rank, E)})
    layer |= matrices("f16", **{f"time_mix_{name}": (E, E) for name in ("receptance", "key", "value", "output")})
    layer |= vectors(**{f"time_mix_{name}": E for name in ("w0", "a0", "v0", "k_k", "k_a", "r_k")})
    layer |= matrices("f32", time_mix_lerp_fused=(E, 1, 1, 6), channel_mix_lerp_k=(E, 1, 1))
    layer |= matrices("f16", channel_mix_key=(E, FF), channel_mix_value=(FF, E))
    tensors = whole([layer] * 4, "f16", "f16") | both(token_embd_norm=E, output_norm=E)
    ranks = {f"attention__{name}_lora_rank": 32 for name in ("decay", "iclr", "value_residual_mix")}
    heads = {"attention__head_count": 0, "attention__head_count_kv": 0, "attention__layer_norm_epsilon": 1e-5}
    values = hparams(4, **heads, **ranks, wkv__head_size=HEAD, attention__gate_lora_rank=64, token_shift_count=2)
    return Description("rwkv7", values, tensors)


def _deepseek2() -> Description:
    attention = vectors(attn_norm=E) | matrices("q4_K", attn_q_a=(E, 128)) | vectors(attn_q_a_norm=128)
    attention |= matrices("q8_0", attn_q_b=(128, 384)) | matrices("q4_K", attn_kv_a_mqa=(E, 160))
    attention |= vectors(attn_kv_a_norm=128) | matrices("q8_0", attn_k_b=(64, 128, 4), attn_v_b=(128, 64, 4))
    attention |= matrices("q4_K", attn_output=(E, E))
    routed = vectors(ffn_norm=E) | biases(exp_probs_b=EXPERTS) | experts("q4_K", E, "q6_K") | shared("q4_K", E, "q6_K")
    lengths = {"q_lora_rank": 128, "kv_lora_rank": 128, "key_length": 160, "value_length": 128, "key_length_mla": 96}
    more = {f"attention__{name}": n for name, n in {**lengths, "value_length_mla": 64, "head_count_kv": 1}.items()}
    weighted = {"expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2}
    values = hparams(4, **more, rope__dimension_count=32, leading_dense_block_count=1, **ROUTED, **weighted)
    values |= {"expert_shared_count": 1, "expert_feed_forward_length": E}
    return Description("deepseek2", values, whole([attention | ffn(), *[attention | routed] * 3]))


def gpt_oss(size: Size, n: int, used: int, experts_kind: str = "mxfp4") -> Description:
    """Experts in mxfp4, everything else in q8_0; every second layer sees 128 tokens."""
    wide, narrow = size.heads * size.head, size.kv * size.head
    layer = attention("q8_0", "q8_0", size) | experts(experts_kind, size.embd, "", size.embd, n)
    layer |= biases(attn_q=wide, attn_k=narrow, attn_v=narrow, attn_output=size.embd)
    layer |= vectors(attn_sinks=size.heads, post_attention_norm=size.embd) | biases(ffn_gate_inp=n)
    layer |= {f"ffn_{way}_exps.bias": ("f32", (size.embd, n)) for way in ("gate", "up", "down")}
    lengths = {"attention__key_length": size.head, "attention__value_length": size.head}
    routed = {"expert_count": n, "expert_used_count": used, "expert_feed_forward_length": size.embd}
    values = hparams(size.layers, size, **lengths, **routed, attention__sliding_window=128)
    return Description("gpt-oss", values, whole([layer] * size.layers, "q8_0", "q8_0", size=size))


def _gpt_oss() -> Description:
    return gpt_oss(SMALL, EXPERTS, 2)


MODELS: Mapping[str, Callable[[], Description]] = {
    "bert": _bert,
    "deepseek2": _deepseek2,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
    "granitehybrid": _granitehybrid,
    "llama": _llama,
    "llama-moe": _llama_moe,
    "mamba2": _mamba2,
    "phi3": _phi3,
    "qwen3": _qwen3,
    "rwkv7": _rwkv7,
    "t5": _t5,
}
"""Every model by name."""

_EMBEDDINGS: Shape = ("q8_0", (E, VOCAB))
_ATTENTION, _FORWARD = attention("q8_0", "q8_0"), ffn("q8_0", "q8_0")


def _bare(layers: list[Tensors], **more: Shape) -> Tensors:
    """Layers and these weights alone."""
    return blocks(layers) | {f"{name}.weight": shape for name, shape in more.items()}


def _vector(n: int = E) -> Shape:
    return "f32", (n,)


def _bitnet() -> Description:
    layer = _ATTENTION | _FORWARD | vectors(attn_sub_norm=E, ffn_sub_norm=FF)
    layer |= {f"{name}.scale": _vector(1) for name in ("attn_q", "attn_output", "ffn_up")}
    return Description("bitnet", hparams(4), _bare([layer] * 4, token_embd=_EMBEDDINGS, output_norm=_vector()))


def _lfm2(architecture: str, forward: list[Tensors], **more: Any) -> Description:
    conv = vectors(attn_norm=E) | matrices("f32", **{"shortconv.conv": (3, E)})
    conv |= matrices("q8_0", **{"shortconv.in_proj": (E, 3 * E), "shortconv.out_proj": (E, E)})
    kinds = [conv, _ATTENTION | head_norms(), conv, _ATTENTION | head_norms()]
    layers = [kind | f for kind, f in zip(kinds, forward, strict=True)]
    values = hparams(4, shortconv__l_cache=3, attention__head_count_kv=[0, 2, 0, 2], **more)
    return Description(architecture, values, _bare(layers, token_embd=_EMBEDDINGS, token_embd_norm=_vector()))


def _lfm2moe() -> Description:
    routed = vectors(ffn_norm=E) | experts("q8_0", FF) | biases(exp_probs_b=EXPERTS)
    more = {"leading_dense_block_count": 1, "expert_feed_forward_length": FF, "expert_gating_func": 2}
    return _lfm2("lfm2moe", [_FORWARD, *[routed] * 3], **more, **ROUTED)


def _gemma_like(architecture: str, n: int, tensors: dict[str, Shape], **more: Any) -> Description:
    layer = _ATTENTION | head_norms() | post_norms() | _FORWARD
    weights = _bare([layer] * n, token_embd=_EMBEDDINGS, output_norm=_vector(), **tensors)
    return Description(architecture, hparams(n, **LENGTHS, attention__sliding_window=256, **more), weights)


def _gemma4() -> Description:
    windows = {"attention__key_length_swa": HEAD, "attention__value_length_swa": HEAD, "rope__dimension_count": HEAD}
    more: dict[str, Any] = {**windows, "rope__dimension_count_swa": HEAD, "embedding_length_per_layer_input": 0}
    pattern = [True, True, False, True, False]
    return _gemma_like(
        "gemma4", 5, {"rope_freqs": _vector(HEAD // 2)}, **more, attention__sliding_window_pattern=pattern
    )


def _codeshell() -> Description:
    layer = _ATTENTION | biases(attn_norm=E, attn_q=E, attn_k=KV, attn_v=KV, attn_output=E, ffn_norm=E)
    layer |= vectors(ffn_norm=E) | matrices("q8_0", ffn_up=(E, FF)) | biases(ffn_up=FF)
    layer |= matrices("q8_0", ffn_down=(FF, E)) | biases(ffn_down=E)
    tensors = _bare([layer] * 4, output=_EMBEDDINGS, output_norm=_vector()) | biases(output_norm=E)
    return Description("codeshell", hparams(4, attention__layer_norm_epsilon=1e-5), tensors)


def _granitehybrid_rope() -> Description:
    """Rope factors, which layers without attention have as well."""
    model = _granitehybrid()
    return model._replace(tensors=model.tensors | vectors(rope_freqs=HEAD // 2))


def _deci() -> Description:
    """Two layers without attention in the middle, whose caches have no bytes."""
    layers = [_ATTENTION | _FORWARD if i not in (2, 3) else _FORWARD for i in range(6)]
    values = hparams(6, rope__dimension_count=HEAD, feed_forward_length=[FF] * 6)
    for name, n in (("head_count", 4), ("head_count_kv", 2)):
        values[f"attention.{name}"] = [0 if i in (2, 3) else n for i in range(6)]
    return Description("deci", values, _bare(layers, token_embd=_EMBEDDINGS, output_norm=_vector()))


SPECIAL_MODELS: Mapping[str, Callable[[], Description]] = {
    "bitnet": _bitnet,
    "codeshell": _codeshell,
    "deci": _deci,
    "gemma-embedding": lambda: _gemma_like("gemma-embedding", 4, {}, pooling_type=1),
    "gemma4": _gemma4,
    "granitehybrid-rope": _granitehybrid_rope,
    "lfm2": lambda: _lfm2("lfm2", [_FORWARD] * 4),
    "lfm2moe": _lfm2moe,
}
"""Those whose architectures place weights in a way of their own."""


@cache
def cached(name: str) -> Path:
    """The file of the model of that name, written once for all workers."""
    made = MODELS.get(name) or SPECIAL_MODELS[name]
    return made_once(f"{name}.gguf", lambda path: write_gguf(path, made()))
