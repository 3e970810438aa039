"""Small models as folders of safetensors with a config.json, one for each architecture that is converted.

Names and shapes are those of published models of the architecture; all values are zero and take no room on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

E, FF, HEAD, HEADS, KV, VOCAB, LAYERS, EXPERTS = 256, 512, 64, 4, 2, 304, 2, 4
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}

Shapes = dict[str, tuple[str, tuple[int, ...]]]


class Folder(NamedTuple):
    """A config.json and the tensors by name: type and shape."""

    config: dict[str, Any]
    tensors: Shapes


def _config(architecture: str, **more: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "hidden_size": E,
        "intermediate_size": FF,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        **more,
    }


def _shapes(
    layer: Mapping[str, tuple[int, ...]], head: bool = True, prefix: str = "model.", dtype: str = "BF16"
) -> Shapes:
    """Embeddings, layers, norm and output; `layer` has the shapes of a layer's tensors."""
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (VOCAB, E), f"{prefix}norm.weight": (E,)}
    shapes |= {f"{prefix}layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    shapes |= {"lm_head.weight": (VOCAB, E)} if head else {}
    return {name: (dtype, shape) for name, shape in shapes.items()}


def _weights(**shapes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes by name; `__` stands for a dot."""
    return {f"{name.replace('__', '.')}.weight": shape for name, shape in shapes.items()}


_NORMS = _weights(input_layernorm=(E,), post_attention_layernorm=(E,))
_ATTENTION = _NORMS | _weights(
    self_attn__q_proj=(HEADS * HEAD, E), self_attn__k_proj=(KV * HEAD, E), self_attn__v_proj=(KV * HEAD, E),
    self_attn__o_proj=(E, HEADS * HEAD),
)  # fmt: skip
_FFN = _weights(mlp__gate_proj=(FF, E), mlp__up_proj=(FF, E), mlp__down_proj=(E, FF))
_HEAD_NORMS = _weights(self_attn__q_norm=(HEAD,), self_attn__k_norm=(HEAD,))
_GEMMA_NORMS = _weights(pre_feedforward_layernorm=(E,), post_feedforward_layernorm=(E,))
_GEMMA3 = _ATTENTION | _HEAD_NORMS | _GEMMA_NORMS | _FFN
_EXPERTS = {
    f"block_sparse_moe__experts__{i}__w{w}": (E, FF) if w == 2 else (FF, E) for i in range(EXPERTS) for w in (1, 2, 3)
}
_BIASES = {f"self_attn.{part}_proj.bias": ((HEADS if part == "q" else KV) * HEAD,) for part in "qkv"}
_PHI3 = _NORMS | _weights(
    self_attn__qkv_proj=((HEADS + 2 * KV) * HEAD, E), self_attn__o_proj=(E, E), mlp__gate_up_proj=(2 * FF, E),
    mlp__down_proj=(E, FF),
)  # fmt: skip
_LLAMA_ROPE = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 2048}
_YARN = {"factor": 4, "type": "yarn", "original_max_position_embeddings": 1024, "beta_fast": 32, "beta_slow": 1}
_LONG = {"long_factor": [1.5] * (HEAD // 2), "short_factor": [1.0] * (HEAD // 2), "type": "longrope"}


class Plain(NamedTuple):
    """A model whose layers are alike: what its config.json has besides, a layer's shapes, whether it has a head."""

    architecture: str
    config: dict[str, Any]
    layer: dict[str, tuple[int, ...]]
    head: bool = True
    dtype: str = "BF16"

    def folder(self) -> Folder:
        return Folder(
            _config(f"{self.architecture}ForCausalLM", **self.config), _shapes(self.layer, self.head, dtype=self.dtype)
        )


PLAIN = {
    "gemma2": Plain(
        "Gemma2",
        {"head_dim": HEAD, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "sliding_window": 512},
        _ATTENTION | _GEMMA_NORMS | _FFN, False,
    ),
    "gemma3": Plain(
        "Gemma3",
        {"head_dim": HEAD, "sliding_window": 512, "sliding_window_pattern": 6, "rope_local_base_freq": 10000.0,
         "rope_theta": 1000000},
        _GEMMA3, False,
    ),
    "llama": Plain("Llama", {"rope_scaling": {**_LLAMA_ROPE, "rope_type": "llama3"}}, _ATTENTION | _FFN),
    "llama-yarn": Plain("Llama", {"rope_scaling": _YARN, "head_dim": HEAD}, _ATTENTION | _FFN, False),
    "mistral": Plain("Mistral", {"sliding_window": None, "head_dim": HEAD}, _ATTENTION | _FFN, dtype="F16"),
    "mixtral": Plain(
        "Mixtral", {"num_local_experts": EXPERTS, "num_experts_per_tok": 2},
        _ATTENTION | _weights(block_sparse_moe__gate=(EXPERTS, E), **_EXPERTS),
    ),
    "phi3": Plain(
        "Phi3", {"sliding_window": 2047, "original_max_position_embeddings": 1024, "rope_scaling": _LONG}, _PHI3
    ),
    "phi3-short": Plain(
        "Phi3", {"sliding_window": 2047, "original_max_position_embeddings": 1024, "rope_scaling": None}, _PHI3
    ),
    "qwen2": Plain("Qwen2", {"use_sliding_window": False, "sliding_window": 4096}, _ATTENTION | _FFN | _BIASES),
    "qwen3": Plain(
        "Qwen3", {"head_dim": HEAD, "rope_scaling": None, "tie_word_embeddings": True},
        _ATTENTION | _HEAD_NORMS | _FFN, False,
    ),
}  # fmt: skip


def _qwen3_moe(fused: bool = False) -> Folder:
    each = {"gate_proj": (FF, E), "up_proj": (FF, E), "down_proj": (E, FF)}
    experts: dict[str, tuple[int, ...]] = {
        f"mlp.experts.{i}.{name}.weight": shape for i in range(EXPERTS) for name, shape in each.items()
    }
    if fused:
        experts = {"mlp.experts.gate_up_proj": (EXPERTS, 2 * FF, E), "mlp.experts.down_proj": (EXPERTS, E, FF)}
    layer = _ATTENTION | _HEAD_NORMS | {"mlp.gate.weight": (EXPERTS, E)} | experts
    config = _config(
        "Qwen3MoeForCausalLM", head_dim=HEAD, num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FF
    )
    return Folder(config, _shapes(layer))


def _gemma3_vision() -> Folder:
    text = {
        "hidden_size": E, "intermediate_size": FF, "num_hidden_layers": LAYERS, "sliding_window": 1024,
        "head_dim": HEAD, "num_attention_heads": HEADS, "num_key_value_heads": KV,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    }  # fmt: skip
    vision = {"architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"hidden_size": 8}}
    tensors = _shapes(_GEMMA3, False, "language_model.model.")
    tensors["vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"] = ("BF16", (16, 8))
    tensors["multi_modal_projector.mm_input_projection_weight"] = ("BF16", (8, E))
    return Folder(vision | {"text_config": text}, tensors)


def _gpt_oss(blocks: bool = True) -> Folder:
    stored: Shapes = _shapes(
        _ATTENTION
        | {f"self_attn.{part}_proj.bias": (n,) for part, n in {"q": E, "k": KV * HEAD, "v": KV * HEAD, "o": E}.items()}
        | {"self_attn.sinks": (HEADS,), "mlp.router.weight": (EXPERTS, E), "mlp.router.bias": (EXPERTS,)}
        | {"mlp.experts.gate_up_proj_bias": (EXPERTS, 2 * E), "mlp.experts.down_proj_bias": (EXPERTS, E)}
    )
    for i in range(LAYERS):
        for name, rows in {"gate_up_proj": 2 * E, "down_proj": E}.items():
            at = f"model.layers.{i}.mlp.experts.{name}"
            if blocks:
                stored[f"{at}_blocks"] = ("U8", (EXPERTS, rows, E // 32, 16))
                stored[f"{at}_scales"] = ("U8", (EXPERTS, rows, E // 32))
            else:
                stored[at] = ("BF16", (EXPERTS, E, rows))
    rope = {
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 1024,
        "rope_type": "yarn", "truncate": False,
    }  # fmt: skip
    config = _config(
        "GptOssForCausalLM", head_dim=HEAD, intermediate_size=E, num_local_experts=EXPERTS, num_experts_per_tok=2,
        experts_per_token=2, sliding_window=128, rope_scaling=rope, rms_norm_eps=1e-5,
    )  # fmt: skip
    return Folder(config | ({"quantization_config": {"quant_method": "mxfp4"}} if blocks else {}), stored)


def _mamba(falcon: bool = False) -> Folder:
    inner, state, rank = 2 * E, 16, 16
    layer = {"mixer.A_log": (inner, state), "mixer.D": (inner,), "mixer.conv1d.bias": (inner,)} | _weights(
        norm=(E,), mixer__conv1d=(inner, 1, 4), mixer__in_proj=(2 * inner, E), mixer__x_proj=(rank + 2 * state, inner),
        mixer__dt_proj=(inner, rank), mixer__out_proj=(E, inner),
    )  # fmt: skip
    layer["mixer.dt_proj.bias"] = (inner,)
    shapes = _weights(backbone__embeddings=(VOCAB, E), backbone__norm_f=(E,))
    shapes |= {f"backbone.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    config: dict[str, Any] = {
        "architectures": ["FalconMambaForCausalLM" if falcon else "MambaForCausalLM"],
        "model_type": "falcon_mamba" if falcon else "mamba",
        "hidden_size": E, "intermediate_size": inner, "num_hidden_layers": LAYERS, "state_size": state,
        "conv_kernel": 4, "time_step_rank": rank, "layer_norm_epsilon": 1e-5, "vocab_size": VOCAB,
    }  # fmt: skip
    return Folder(config, {name: ("F32", shape) for name, shape in shapes.items()})


def _deepseek(v3: bool = False) -> Folder:
    rope, nope, v, rank, q_rank = 32, 64, 64, 128, 96
    rows = HEADS * (nope + rope)
    low = _weights(
        self_attn__q_a_proj=(q_rank, E), self_attn__q_a_layernorm=(q_rank,), self_attn__q_b_proj=(rows, q_rank)
    )
    queries = low if v3 else _weights(self_attn__q_proj=(rows, E))
    attention = queries | _NORMS | _weights(
        self_attn__kv_a_proj_with_mqa=(rank + rope, E), self_attn__kv_a_layernorm=(rank,),
        self_attn__kv_b_proj=(HEADS * (nope + v), rank), self_attn__o_proj=(E, HEADS * v),
    )  # fmt: skip
    each = {"gate_proj": (E, E), "up_proj": (E, E), "down_proj": (E, E)}
    names = [*(f"experts.{i}" for i in range(EXPERTS)), "shared_experts"]
    moe: dict[str, tuple[int, ...]] = {f"mlp.{a}.{b}.weight": shape for a in names for b, shape in each.items()}
    moe |= {"mlp.gate.weight": (EXPERTS, E)} | ({"mlp.gate.e_score_correction_bias": (EXPERTS,)} if v3 else {})
    tensors = _shapes(attention)
    for i, layer in enumerate((_FFN, moe, moe) if v3 else (_FFN, moe)):
        more = layer if i < LAYERS else layer | attention  # the last one predicts a further token
        tensors |= {f"model.layers.{i}.{name}": ("BF16", shape) for name, shape in more.items()}
    mscale = {"mscale": 1.0, "mscale_all_dim": 1.0}
    yarn = {"type": "yarn", "factor": 40, **mscale, "original_max_position_embeddings": 4096}
    of_v3 = {"q_lora_rank": q_rank, "scoring_func": "sigmoid", "norm_topk_prob": True}
    more_config: dict[str, Any] = of_v3 if v3 else {}
    config = _config(
        f"DeepseekV{3 if v3 else 2}ForCausalLM", num_key_value_heads=HEADS, kv_lora_rank=rank, v_head_dim=v,
        qk_nope_head_dim=nope, qk_rope_head_dim=rope, n_routed_experts=EXPERTS, num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=E, first_k_dense_replace=1, routed_scaling_factor=1.5,
        rope_scaling=yarn, n_group=1, topk_group=1, **more_config,
    )  # fmt: skip
    return _of_eight_bits(Folder(config, tensors)) if v3 else Folder(config, tensors)


def _of_eight_bits(model: Folder) -> Folder:
    """The matrices of a model in blocks of 128 by 128 numbers of eight bits, each with a scale."""
    tensors: Shapes = {}
    for name, (dtype, shape) in model.tensors.items():
        is_quantized = "_proj." in name and len(shape) == 2
        tensors[name] = ("F8_E4M3" if is_quantized else dtype, shape)
        if is_quantized:
            tensors[f"{name}_scale_inv"] = ("F32", tuple(-(-n // 128) for n in shape))
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return Folder(model.config | {"quantization_config": quantization}, tensors)


FOLDERS: Mapping[str, Callable[[], Folder]] = {
    **{name: model.folder for name, model in PLAIN.items()},
    "deepseek-v2": _deepseek,
    "deepseek-v3-fp8": lambda: _deepseek(v3=True),
    "falcon-mamba": lambda: _mamba(falcon=True),
    "gemma3-vision": _gemma3_vision,
    "gpt-oss": _gpt_oss,
    "gpt-oss-bf16": lambda: _gpt_oss(blocks=False),
    "mamba": _mamba,
    "qwen3-fp8": lambda: _of_eight_bits(PLAIN["qwen3"].folder()),
    "qwen3-moe": _qwen3_moe,
    "qwen3-moe-fused": lambda: _qwen3_moe(fused=True),
}
"""Every folder by name."""


def write_folder(folder: Path, model: Folder, n_files: int = 1) -> Path:
    """Write a model in so many files of safetensors, with their index if there are several; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    names = list(model.tensors)
    where: dict[str, str] = {}
    for i in range(n_files):
        mine = names[i::n_files]
        file = "model.safetensors" if n_files == 1 else f"model-{i + 1:05}-of-{n_files:05}.safetensors"
        where |= dict.fromkeys(mine, file)
        _write_file(folder / file, {name: model.tensors[name] for name in mine})
    if n_files > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder


def _write_file(path: Path, tensors: Shapes) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
