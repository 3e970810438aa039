"""Models whose architectures place some of their weights in a way of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.sources.gguf_file import Description, Shape, Tensors
from tests.sources.models import EXPERTS, FF, HEAD, KV, VOCAB, E, attention, ffn, hparams, vector


def _layers(layers: list[Tensors], **more: Shape) -> Tensors:
    tensors: Tensors = {}
    for i, layer in enumerate(layers):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return tensors | {f"{name}.weight": shape for name, shape in more.items()}


_EMBEDDINGS: Shape = ("q8_0", (E, VOCAB))


def _bitnet() -> Description:
    layer = (
        attention("q8_0", "q8_0")
        | ffn("q8_0", "q8_0")
        | {"attn_sub_norm.weight": vector(), "ffn_sub_norm.weight": vector(FF)}
    )
    scales = {f"{name}.scale": vector(1) for name in ("attn_q", "attn_output", "ffn_up")}
    tensors = _layers([layer | scales] * 4, token_embd=_EMBEDDINGS, output_norm=vector())
    return Description("bitnet", hparams(4), tensors)


def _shortconv() -> Tensors:
    return {
        "attn_norm.weight": vector(),
        "shortconv.conv.weight": ("f32", (3, E)),
        "shortconv.in_proj.weight": ("q8_0", (E, 3 * E)),
        "shortconv.out_proj.weight": ("q8_0", (E, E)),
    }


def _experts() -> Tensors:
    return {
        "ffn_norm.weight": vector(),
        "ffn_gate_inp.weight": ("f32", (E, EXPERTS)),
        "ffn_gate_exps.weight": ("q8_0", (E, FF, EXPERTS)),
        "ffn_up_exps.weight": ("q8_0", (E, FF, EXPERTS)),
        "ffn_down_exps.weight": ("q8_0", (FF, E, EXPERTS)),
        "exp_probs_b.bias": vector(EXPERTS),
    }


def _lfm2_layers(forward: list[Tensors]) -> Tensors:
    norms = {"attn_q_norm.weight": vector(HEAD), "attn_k_norm.weight": vector(HEAD)}
    kinds = [_shortconv(), attention("q8_0", "q8_0") | norms, _shortconv(), attention("q8_0", "q8_0") | norms]
    layers = [kind | f for kind, f in zip(kinds, forward, strict=True)]
    return _layers(layers, token_embd=_EMBEDDINGS, token_embd_norm=vector())


_LFM2 = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2, 0, 2]}


def _lfm2() -> Description:
    return Description("lfm2", hparams(4) | _LFM2, _lfm2_layers([ffn("q8_0", "q8_0")] * 4))


def _lfm2moe() -> Description:
    values = _LFM2 | {
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": FF,
        "expert_gating_func": 2,
        "expert_count": EXPERTS,
        "expert_used_count": 2,
    }
    return Description("lfm2moe", hparams(4) | values, _lfm2_layers([ffn("q8_0", "q8_0"), *[_experts()] * 3]))


def _gemma_norms() -> Tensors:
    return {
        "attn_q_norm.weight": vector(HEAD),
        "attn_k_norm.weight": vector(HEAD),
        "post_attention_norm.weight": vector(),
        "post_ffw_norm.weight": vector(),
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
    layer = attention("q8_0", "q8_0") | _gemma_norms() | ffn("q8_0", "q8_0")
    tensors = _layers([layer] * 5, token_embd=_EMBEDDINGS, output_norm=vector(), rope_freqs=vector(HEAD // 2))
    return Description("gemma4", hparams(5) | values, tensors)


def _gemma_embedding() -> Description:
    layer = attention("q8_0", "q8_0") | _gemma_norms() | ffn("q8_0", "q8_0")
    tensors = _layers([layer] * 4, token_embd=_EMBEDDINGS, output_norm=vector())
    return Description("gemma-embedding", hparams(4) | _GEMMA | {"pooling_type": 1}, tensors)


def _codeshell() -> Description:
    biased = {"attn_norm": E, "attn_q": E, "attn_k": KV, "attn_v": KV, "attn_output": E, "ffn_norm": E}
    layer = attention("q8_0", "q8_0") | {f"{name}.bias": vector(n) for name, n in biased.items()}
    layer |= {"ffn_norm.weight": vector(), "ffn_up.weight": ("q8_0", (E, FF)), "ffn_up.bias": vector(FF)}
    layer |= {"ffn_down.weight": ("q8_0", (FF, E)), "ffn_down.bias": vector()}
    tensors = _layers([layer] * 4, output=_EMBEDDINGS, output_norm=vector()) | {"output_norm.bias": vector()}
    return Description("codeshell", hparams(4, attention__layer_norm_epsilon=1e-5), tensors)


def _granitehybrid() -> Description:
    """Rope factors, which layers without attention have as well."""
    from tests.sources.models import MODELS

    model = MODELS["granitehybrid"]()
    return model._replace(tensors=model.tensors | {"rope_freqs.weight": vector(HEAD // 2)})


def _deci() -> Description:
    """Two layers without attention in the middle, whose caches have no bytes."""
    layer = attention("q8_0", "q8_0") | ffn("q8_0", "q8_0")
    layers = [layer if i not in (2, 3) else ffn("q8_0", "q8_0") for i in range(6)]
    values = hparams(6, rope__dimension_count=HEAD, feed_forward_length=[FF] * 6)
    values["attention.head_count"] = [0 if i in (2, 3) else 4 for i in range(6)]
    values["attention.head_count_kv"] = [0 if i in (2, 3) else 2 for i in range(6)]
    return Description("deci", values, _layers(layers, token_embd=_EMBEDDINGS, output_norm=vector()))


SPECIAL_MODELS: Mapping[str, Callable[[], Description]] = {
    "bitnet": _bitnet,
    "codeshell": _codeshell,
    "deci": _deci,
    "gemma-embedding": _gemma_embedding,
    "gemma4": _gemma4,
    "granitehybrid-rope": _granitehybrid,
    "lfm2": _lfm2,
    "lfm2moe": _lfm2moe,
}
"""Every such model by name."""
