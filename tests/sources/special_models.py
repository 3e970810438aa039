"""Models whose architectures place some of their weights in a way of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.sources.gguf_file import Description, Shape, Tensors
from tests.sources.models import EXPERTS, FF, HEAD, KV, VOCAB, E


def _vector(n: int = E) -> Shape:
    return "f32", (n,)


def _attention() -> Tensors:
    return {
        "attn_norm.weight": _vector(),
        "attn_q.weight": ("q8_0", (E, E)),
        "attn_k.weight": ("q8_0", (E, KV)),
        "attn_v.weight": ("q8_0", (E, KV)),
        "attn_output.weight": ("q8_0", (E, E)),
    }


def _ffn() -> Tensors:
    return {
        "ffn_norm.weight": _vector(),
        "ffn_gate.weight": ("q8_0", (E, FF)),
        "ffn_up.weight": ("q8_0", (E, FF)),
        "ffn_down.weight": ("q8_0", (FF, E)),
    }


def _values(n_layer: int, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "context_length": 8192,
        "embedding_length": E,
        "block_count": n_layer,
        "feed_forward_length": FF,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.layer_norm_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    return values | {key.replace("__", "."): value for key, value in more.items()}


def _layers(layers: list[Tensors], **more: Shape) -> Tensors:
    tensors: Tensors = {}
    for i, layer in enumerate(layers):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return tensors | {f"{name}.weight": shape for name, shape in more.items()}


_EMBEDDINGS: Shape = ("q8_0", (E, VOCAB))


def _bitnet() -> Description:
    layer = _attention() | _ffn() | {"attn_sub_norm.weight": _vector(), "ffn_sub_norm.weight": _vector(FF)}
    scales = {f"{name}.scale": _vector(1) for name in ("attn_q", "attn_output", "ffn_up")}
    tensors = _layers([layer | scales] * 4, token_embd=_EMBEDDINGS, output_norm=_vector())
    return Description("bitnet", _values(4), tensors)


def _shortconv() -> Tensors:
    return {
        "attn_norm.weight": _vector(),
        "shortconv.conv.weight": ("f32", (3, E)),
        "shortconv.in_proj.weight": ("q8_0", (E, 3 * E)),
        "shortconv.out_proj.weight": ("q8_0", (E, E)),
    }


def _experts() -> Tensors:
    return {
        "ffn_norm.weight": _vector(),
        "ffn_gate_inp.weight": ("f32", (E, EXPERTS)),
        "ffn_gate_exps.weight": ("q8_0", (E, FF, EXPERTS)),
        "ffn_up_exps.weight": ("q8_0", (E, FF, EXPERTS)),
        "ffn_down_exps.weight": ("q8_0", (FF, E, EXPERTS)),
        "exp_probs_b.bias": _vector(EXPERTS),
    }


def _lfm2_layers(ffn: list[Tensors]) -> Tensors:
    norms = {"attn_q_norm.weight": _vector(HEAD), "attn_k_norm.weight": _vector(HEAD)}
    kinds = [_shortconv(), _attention() | norms, _shortconv(), _attention() | norms]
    layers = [kind | f for kind, f in zip(kinds, ffn, strict=True)]
    return _layers(layers, token_embd=_EMBEDDINGS, token_embd_norm=_vector())


_LFM2 = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]}


def _lfm2() -> Description:
    return Description("lfm2", _values(4) | _LFM2, _lfm2_layers([_ffn()] * 4))


def _lfm2moe() -> Description:
    values = _LFM2 | {
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": FF,
        "expert_gating_func": 2,
        "expert_count": EXPERTS,
        "expert_used_count": 2,
    }
    return Description("lfm2moe", _values(4) | values, _lfm2_layers([_ffn(), *[_experts()] * 3]))


def _gemma_norms() -> Tensors:
    return {
        "attn_q_norm.weight": _vector(HEAD),
        "attn_k_norm.weight": _vector(HEAD),
        "post_attention_norm.weight": _vector(),
        "post_ffw_norm.weight": _vector(),
    }


_GEMMA: dict[str, Any] = {
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
    "attention.sliding_window": 256,
}


def _gemma4() -> Description:
    values = _GEMMA | {
        "attention.key_length_swa": HEAD,
        "attention.value_length_swa": HEAD,
        "attention.sliding_window_pattern": [True, True, False, True, False],
        "embedding_length_per_layer_input": 0,
        "rope.dimension_count": HEAD,
        "rope.dimension_count_swa": HEAD,
    }
    layer = _attention() | _gemma_norms() | _ffn()
    tensors = _layers([layer] * 5, token_embd=_EMBEDDINGS, output_norm=_vector(), rope_freqs=_vector(HEAD // 2))
    return Description("gemma4", _values(5) | values, tensors)


def _gemma_embedding() -> Description:
    layer = _attention() | _gemma_norms() | _ffn()
    tensors = _layers([layer] * 4, token_embd=_EMBEDDINGS, output_norm=_vector())
    return Description("gemma-embedding", _values(4) | _GEMMA | {"pooling_type": 1}, tensors)


def _codeshell() -> Description:
    biased = {"attn_norm": E, "attn_q": E, "attn_k": KV, "attn_v": KV, "attn_output": E, "ffn_norm": E}
    layer = _attention() | {f"{name}.bias": _vector(n) for name, n in biased.items()}
    layer |= {"ffn_norm.weight": _vector(), "ffn_up.weight": ("q8_0", (E, FF)), "ffn_up.bias": _vector(FF)}
    layer |= {"ffn_down.weight": ("q8_0", (FF, E)), "ffn_down.bias": _vector()}
    tensors = _layers([layer] * 4, output=_EMBEDDINGS, output_norm=_vector()) | {"output_norm.bias": _vector()}
    return Description("codeshell", _values(4), tensors)


def _granitehybrid() -> Description:
    """Rope factors, which layers without attention have as well."""
    from tests.sources.models import MODELS

    model = MODELS["granitehybrid"]()
    return model._replace(tensors=model.tensors | {"rope_freqs.weight": _vector(HEAD // 2)})


SPECIAL_MODELS: Mapping[str, Callable[[], Description]] = {
    "bitnet": _bitnet,
    "codeshell": _codeshell,
    "gemma-embedding": _gemma_embedding,
    "gemma4": _gemma4,
    "granitehybrid-rope": _granitehybrid,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2moe,
}
"""Every such model by name."""
