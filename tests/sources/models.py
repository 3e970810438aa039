"""Small models of many architectures as GGUF files: right names, shapes and metadata, every weight zero.

`write("llama", folder)` is a file of a few hundred KiB that llama.cpp loads. Like the graphs that captures of such
models gave, they have 256 columns, 304 tokens and 3 to 6 layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.shared import made_once
from tests.sources.gguf_file import Description, Shape, Tensors, write_gguf

E, FF, HEAD, KV, VOCAB, EXPERTS = 256, 512, 64, 128, 304, 8
"""Columns, columns of the feed-forward part, of a head, of all KV heads; tokens; experts."""


def vector(n: int = E) -> Shape:
    return "f32", (n,)


def attention(matrix: str = "q4_K", value: str = "q6_K", output: str = "") -> Tensors:
    return {
        "attn_norm.weight": vector(),
        "attn_q.weight": (matrix, (E, E)),
        "attn_k.weight": (matrix, (E, KV)),
        "attn_v.weight": (value, (E, KV)),
        "attn_output.weight": (output or matrix, (E, E)),
    }


def ffn(matrix: str = "q4_K", down: str = "q6_K", n: int = FF) -> Tensors:
    return {
        "ffn_norm.weight": vector(),
        "ffn_gate.weight": (matrix, (E, n)),
        "ffn_up.weight": (matrix, (E, n)),
        "ffn_down.weight": (down, (n, E)),
    }


def _experts(matrix: str, n: int = FF, down: str = "") -> Tensors:
    return {
        "ffn_gate_inp.weight": ("f32", (E, EXPERTS)),
        "ffn_gate_exps.weight": (matrix, (E, n, EXPERTS)),
        "ffn_up_exps.weight": (matrix, (E, n, EXPERTS)),
        "ffn_down_exps.weight": (down or matrix, (n, E, EXPERTS)),
    }


def _shared(matrix: str, n: int = E, down: str = "") -> Tensors:
    return {
        "ffn_gate_shexp.weight": (matrix, (E, n)),
        "ffn_up_shexp.weight": (matrix, (E, n)),
        "ffn_down_shexp.weight": (down or matrix, (n, E)),
    }


def _mamba(matrix: str) -> Tensors:
    return {
        "attn_norm.weight": vector(),
        "ssm_in.weight": (matrix, (E, 1288)),
        "ssm_conv1d.weight": ("f32", (4, 768)),
        "ssm_conv1d.bias": vector(768),
        "ssm_dt.bias": vector(8),
        "ssm_a": ("f32", (1, 8)),
        "ssm_d": ("f32", (1, 8)),
        "ssm_norm.weight": ("f32", (256, 2)),
        "ssm_out.weight": (matrix, (512, E)),
    }


def _model(layers: list[Tensors], embd: str = "q6_K", output: str | None = "q6_K", prefix: str = "") -> Tensors:
    """The weights of all layers, of the embeddings, and of the output unless it shares the embeddings' (None)."""
    tensors: Tensors = {"token_embd.weight": (embd, (E, VOCAB))}
    for i, layer in enumerate(layers):
        tensors |= {f"{prefix}blk.{i}.{name}": shape for name, shape in layer.items()}
    tensors[f"{prefix}output_norm.weight"] = vector()
    if output is not None:
        tensors["output.weight"] = (output, (E, VOCAB))
    return tensors


def hparams(n_layer: int, **more: Any) -> dict[str, Any]:
    """What every architecture asks for, with `more`, whose keys have `__` for a dot."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB,
        "context_length": 8192,
        "embedding_length": E,
        "block_count": n_layer,
        "feed_forward_length": FF,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    return values | {key.replace("__", "."): value for key, value in more.items()}


def _llama() -> Description:
    return Description("llama", hparams(6, rope__dimension_count=HEAD), _model([attention() | ffn()] * 6))


def _llama_moe() -> Description:
    layer = attention("q4_0", "q4_0") | {"ffn_norm.weight": vector()} | _experts("q4_0")
    return Description("llama", hparams(4, expert_count=EXPERTS, expert_used_count=2), _model([layer] * 4, "q4_0"))


def _qwen3() -> Description:
    norms = {"attn_q_norm.weight": vector(HEAD), "attn_k_norm.weight": vector(HEAD)}
    more: dict[str, Any] = {"attention__key_length": HEAD, "attention__value_length": HEAD}
    return Description("qwen3", hparams(5, **more), _model([attention() | norms | ffn()] * 5))


def _phi3() -> Description:
    layer = {
        "attn_norm.weight": vector(),
        "attn_qkv.weight": ("q4_K", (E, E + 2 * KV)),
        "attn_output.weight": ("q4_K", (E, E)),
        "ffn_norm.weight": vector(),
        "ffn_up.weight": ("q4_K", (E, 2 * FF)),
        "ffn_down.weight": ("q6_K", (FF, E)),
    }
    values = hparams(4, rope__dimension_count=HEAD, rope__scaling__original_context_length=4096)
    return Description("phi3", values, _model([layer] * 4))


def _gemma2() -> Description:
    norms = {"post_attention_norm.weight": vector(), "post_ffw_norm.weight": vector()}
    layer = attention("q8_0", "q8_0") | norms | ffn("q8_0", "q8_0")
    more: dict[str, Any] = {
        "attention__key_length": HEAD,
        "attention__value_length": HEAD,
        "attention__sliding_window": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    }
    return Description("gemma2", hparams(4, **more), _model([layer] * 4, "q8_0", None))


def _gemma3() -> Description:
    description = _gemma2()
    norms = {"attn_q_norm.weight": vector(HEAD), "attn_k_norm.weight": vector(HEAD)}
    names = [f"blk.{i}.{name}" for i in range(4) for name in norms]
    tensors = description.tensors | {name: vector(HEAD) for name in names}
    values = {key: value for key, value in description.values.items() if "softcapping" not in key}
    return Description("gemma3", values, tensors)


def _bert() -> Description:
    biased = {"attn_q": (E, E), "attn_k": (E, E), "attn_v": (E, E), "attn_output": (E, E)}
    layer: Tensors = {}
    for name, ne in {**biased, "ffn_up": (E, FF), "ffn_down": (FF, E)}.items():
        layer |= {f"{name}.weight": ("f16", ne), f"{name}.bias": vector(ne[1])}
    for name in ("attn_output_norm", "layer_output_norm"):
        layer |= {f"{name}.weight": vector(), f"{name}.bias": vector()}
    tensors = _model([layer] * 4, "f16", None)
    del tensors["output_norm.weight"]
    tensors |= {
        "position_embd.weight": ("f16", (E, 512)),
        "token_types.weight": ("f32", (E, 2)),
        "token_embd_norm.weight": vector(),
        "token_embd_norm.bias": vector(),
    }
    more: dict[str, Any] = {
        "attention__head_count_kv": 4,
        "attention__layer_norm_epsilon": 1e-12,
        "attention__causal": False,
        "pooling_type": 1,
        "tokenizer__ggml__token_type_count": 2,
    }
    return Description("bert", hparams(4, context_length=512, **more), tensors)


def _t5() -> Description:
    def attention(name: str) -> Tensors:
        return {f"{name}_{part}.weight": ("q8_0", (E, E)) for part in "qkvo"}

    encoder = ffn("q8_0", "q8_0") | attention("attn") | {"attn_norm.weight": vector()}
    encoder["attn_rel_b.weight"] = ("f32", (4, 32))
    decoder = encoder | attention("cross_attn") | {"cross_attn_norm.weight": vector()}
    tensors = _model([encoder] * 3, "q8_0", "q8_0", "enc.") | _model([decoder] * 3, "q8_0", "q8_0", "dec.")
    more: dict[str, Any] = {
        "attention__head_count_kv": 4,
        "attention__relative_buckets_count": 32,
        "attention__key_length": HEAD,
        "attention__value_length": HEAD,
        "decoder_start_token_id": 0,
    }
    return Description("t5", hparams(3, **more), tensors)


def _mamba2() -> Description:
    more: dict[str, Any] = {
        "attention__head_count": 0,
        "attention__head_count_kv": 0,
        "ssm__conv_kernel": 4,
        "ssm__inner_size": 512,
        "ssm__state_size": 64,
        "ssm__time_step_rank": 8,
        "ssm__group_count": 2,
    }
    return Description("mamba2", hparams(4, **more), _model([_mamba("q4_K")] * 4))


def _granitehybrid() -> Description:
    ffn = {"ffn_norm.weight": vector()} | _experts("q8_0") | _shared("q8_0")
    layers = [(attention("q8_0", "q8_0") if i == 3 else _mamba("q8_0")) | ffn for i in range(5)]
    values = (
        _mamba2().values
        | hparams(5)
        | {
            "attention.head_count_kv": [0, 0, 0, 2, 0],
            "expert_count": EXPERTS,
            "expert_used_count": 2,
            "expert_shared_feed_forward_length": E,
            "logit_scale": 8.0,
            "embedding_scale": 12.0,
            "residual_scale": 0.2,
            "attention.scale": 0.015625,
            "rope.dimension_count": HEAD,
        }
    )
    return Description("granitehybrid", values, _model(layers, "q8_0", "q8_0"))


def _rwkv7() -> Description:
    def both(name: str) -> Tensors:
        return {f"{name}.weight": vector(), f"{name}.bias": vector()}

    def low_rank(letter: str, rank: int) -> Tensors:
        return {
            f"time_mix_{letter}1.weight": ("f32", (E, rank)),
            f"time_mix_{letter}2.weight": ("f32", (rank, E)),
        }

    layer = both("attn_norm") | both("attn_norm_2") | both("time_mix_ln")
    for letter, rank in {"w": 32, "a": 32, "v": 32, "g": 64}.items():
        layer |= low_rank(letter, rank)
    layer |= {f"time_mix_{name}.weight": ("f16", (E, E)) for name in ("receptance", "key", "value", "output")}
    layer |= {f"time_mix_{name}.weight": vector() for name in ("w0", "a0", "v0", "k_k", "k_a", "r_k")}
    layer["time_mix_lerp_fused.weight"] = ("f32", (E, 1, 1, 6))
    layer["channel_mix_lerp_k.weight"] = ("f32", (E, 1, 1))
    layer["channel_mix_key.weight"] = ("f16", (E, FF))
    layer["channel_mix_value.weight"] = ("f16", (FF, E))
    tensors = _model([layer] * 4, "f16", "f16") | both("token_embd_norm") | both("output_norm")
    more: dict[str, Any] = {
        "attention__head_count": 0,
        "attention__head_count_kv": 0,
        "attention__layer_norm_epsilon": 1e-5,
        "wkv__head_size": HEAD,
        "attention__decay_lora_rank": 32,
        "attention__iclr_lora_rank": 32,
        "attention__value_residual_mix_lora_rank": 32,
        "attention__gate_lora_rank": 64,
        "token_shift_count": 2,
    }
    return Description("rwkv7", hparams(4, **more), tensors)


def _deepseek2() -> Description:
    attention: Tensors = {
        "attn_norm.weight": vector(),
        "attn_q_a.weight": ("q4_K", (E, 128)),
        "attn_q_a_norm.weight": vector(128),
        "attn_q_b.weight": ("q8_0", (128, 384)),
        "attn_kv_a_mqa.weight": ("q4_K", (E, 160)),
        "attn_kv_a_norm.weight": vector(128),
        "attn_k_b.weight": ("q8_0", (64, 128, 4)),
        "attn_v_b.weight": ("q8_0", (128, 64, 4)),
        "attn_output.weight": ("q4_K", (E, E)),
    }
    experts = {"ffn_norm.weight": vector(), "exp_probs_b.bias": vector(EXPERTS)}
    experts |= _experts("q4_K", E, "q6_K") | _shared("q4_K", E, "q6_K")
    layers = [attention | ffn(), *[attention | experts] * 3]
    more: dict[str, Any] = {
        "attention__head_count_kv": 1,
        "attention__q_lora_rank": 128,
        "attention__kv_lora_rank": 128,
        "attention__key_length": 160,
        "attention__value_length": 128,
        "attention__key_length_mla": 96,
        "attention__value_length_mla": 64,
        "rope__dimension_count": 32,
        "leading_dense_block_count": 1,
        "expert_count": EXPERTS,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": E,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }
    return Description("deepseek2", hparams(4, **more), _model(layers))


def _gpt_oss() -> Description:
    layer = attention("q8_0", "q8_0") | _experts("mxfp4", E)
    layer |= {
        "attn_q.bias": vector(E),
        "attn_k.bias": vector(KV),
        "attn_v.bias": vector(KV),
        "attn_output.bias": vector(),
        "attn_sinks.weight": vector(4),
        "post_attention_norm.weight": vector(),
        "ffn_gate_inp.bias": vector(EXPERTS),
        "ffn_gate_exps.bias": ("f32", (E, EXPERTS)),
        "ffn_up_exps.bias": ("f32", (E, EXPERTS)),
        "ffn_down_exps.bias": ("f32", (E, EXPERTS)),
    }
    more: dict[str, Any] = {
        "attention__key_length": HEAD,
        "attention__value_length": HEAD,
        "attention__sliding_window": 128,
        "expert_count": EXPERTS,
        "expert_used_count": 2,
        "expert_feed_forward_length": E,
    }
    return Description("gpt-oss", hparams(4, **more), _model([layer] * 4, "q8_0", "q8_0"))


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


@cache
def cached(name: str) -> Path:
    """The file of the model of that name, written once for all workers."""
    return made_once(f"{name}.gguf", lambda path: write_gguf(path, MODELS[name]()))


def write(name: str, folder: Path) -> Path:
    """Write the model of that name; the file's path. One that is there already is taken as it is."""
    path = folder / f"{name}.gguf"
    if not path.exists():
        write_gguf(path, MODELS[name]())
    return path
