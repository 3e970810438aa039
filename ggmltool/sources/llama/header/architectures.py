"""The architectures whose safetensors are known: which metadata they have besides, and what becomes of their tensors.

Each is what a class of llama.cpp's converter does, as far as names, shapes and metadata go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ggmltool.scenario.gguf import BOOL, F32
from ggmltool.sources.llama.header.config import HfConfig, StoredTensor

Tensors = dict[str, StoredTensor]
_F32 = "F32"
MXFP4 = "MXFP4"
"""The type of what was stored as blocks of four bits, and stays so."""


def _nothing(config: HfConfig) -> Tensors:
    return {}


def _same(config: HfConfig, tensors: Tensors) -> Tensors:
    return tensors


class Architecture(NamedTuple):
    """An architecture under llama.cpp's name: what sets its metadata, what makes its tensors of those that are stored
    (still under the names that the converter's table knows), and which ones it adds under their own names.
    """

    name: str
    set_values: Callable[[HfConfig], None]
    tensors: Callable[[HfConfig, Tensors], Tensors] = _same
    extra: Callable[[HfConfig], Tensors] = _nothing


def _head(config: HfConfig) -> int:
    """Columns of a head."""
    head = config.get("head_dim")
    if head is not None:
        return config.size("head_dim")
    n_heads = config.size("num_attention_heads")
    if not n_heads:
        raise config.wrong("num_attention_heads is 0", "a head")
    return config.size("hidden_size") // n_heads


def _llama(config: HfConfig) -> None:
    config.add_common()
    config.add("rope.dimension_count", _head(config))


def _llama_factors(config: HfConfig) -> Tensors:
    rope = config.rope_of()
    is_scaled = str(rope.get("rope_type", "")).lower() == "llama3"
    return {"rope_freqs.weight": StoredTensor(_F32, (-(-_head(config) // 2),))} if is_scaled else {}


def _qwen_moe(config: HfConfig) -> None:
    config.add_common()
    for key, name in (
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ):
        if config.get(name) is not None:
            config.add(key, config.size(name))


def _gemma2(config: HfConfig) -> None:
    config.add_sizes(_GEMMA_SIZES)
    config.add("attention.head_count_kv", config.size("num_key_value_heads", "num_attention_heads"))
    config.add_number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        config.add_number(name, name)
    config.add("attention.sliding_window", config.size("sliding_window"))


_GEMMA_SIZES = (
    "context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.key_length",
    "attention.value_length",
)  # fmt: skip


def _gemma3(config: HfConfig) -> None:
    config.add_common()
    given = config.rope_of().get("rope_theta", 1_000_000.0)
    sizes = {
        "context_length": config.size("max_position_embeddings", default=131072),
        "attention.head_count": config.size("num_attention_heads", default=8),
        "attention.head_count_kv": config.size("num_key_value_heads", default=4),
        "attention.key_length": config.size("head_dim", default=256),
        "attention.value_length": config.size("head_dim", default=256),
    }
    config.add_all(sizes)
    config.add_number("attention.layer_norm_rms_epsilon", "rms_norm_eps", default=1e-6)
    config.add("rope.freq_base", config.number(given, "rope_theta"), F32)
    if config.get("final_logit_softcapping"):
        config.add_number("final_logit_softcapping", "final_logit_softcapping")
    if config.get("sliding_window_pattern") != 1:
        config.add("attention.sliding_window", config.size("sliding_window"))


def _without_head(config: HfConfig, tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}


def _phi3(config: HfConfig) -> None:
    config.add_sizes(
        ("context_length", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv")
    )
    if config.get("n_positions") is not None:
        config.add("context_length", config.size("n_positions"))
    original = config.rope.get("original_max_position_embeddings")
    if type(original) is not int or not 1 < original < 1 << 31:
        raise config.wrong(f"original_max_position_embeddings is {str(original)[:40]!r}", "a number of tokens")
    config.add("rope.scaling.original_context_length", original)
    config.add_number("attention.layer_norm_rms_epsilon", "rms_norm_eps")
    config.add("rope.dimension_count", _phi3_rope(config))
    config.add("rope.freq_base", config.number(config.rope_of().get("rope_theta"), "rope_theta"), F32)
    config.add("attention.sliding_window", config.size("sliding_window", default=0))
    if config.numbers(config.rope.get("long_factor"), "long_factor"):
        scale = config.size("n_positions", "max_position_embeddings") / original
        longer = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1.0 else 1.0
        factor = (
            (0.1 * math.log(scale) + 1.0 if scale > 1.0 else 1.0) if config.rope.get("rope_type") == "yarn" else longer
        )
        config.add("rope.scaling.attn_factor", factor, F32)


def _phi3_rope(config: HfConfig) -> int:
    share = config.number(config.rope.get("partial_rotary_factor", 1.0), "partial_rotary_factor")
    n_heads = config.size("num_attention_heads", "n_head")
    if not n_heads:
        raise config.wrong("num_attention_heads is 0", "a head")
    return int(share * config.size("hidden_size", "n_embd")) // n_heads


def _phi3_factors(config: HfConfig) -> Tensors:
    out: Tensors = {}
    for kind in ("long", "short"):
        factors = config.numbers(config.rope.get(f"{kind}_factor"), f"{kind}_factor")
        if factors and len(factors) * 2 != _phi3_rope(config):
            raise config.wrong(f"{kind}_factor has {len(factors)} numbers", str(_phi3_rope(config) // 2))
        if factors:
            out[f"rope_factors_{kind}.weight"] = StoredTensor(_F32, (len(factors),))
    return out


def _mamba(config: HfConfig) -> None:
    d_model = config.size("hidden_size", "d_model")
    d_inner = config.size("intermediate_size", "d_inner", default=2 * d_model)
    if d_inner != 2 * d_model:
        raise config.wrong(f"intermediate_size is {d_inner}", f"{2 * d_model}, twice the hidden size")
    sizes = {
        "context_length": 1 << 20,
        "embedding_length": d_model,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "ssm.conv_kernel": config.size("conv_kernel", "d_conv", default=4),
        "ssm.inner_size": d_inner,
        "ssm.state_size": config.size("state_size", "d_state", default=16),
        "ssm.time_step_rank": config.size("time_step_rank", "dt_rank", default=-(-d_model // 16)),
    }
    config.add_all(sizes)
    epsilon = config.get("layer_norm_epsilon", "rms_norm_eps")
    config.add("attention.layer_norm_rms_epsilon", config.number(epsilon or 1e-5, "layer_norm_epsilon"), F32)
    config.add("ssm.dt_b_c_rms", config.get("model_type") == "falcon_mamba", BOOL)


def _mamba_tensors(config: HfConfig, tensors: Tensors) -> Tensors:
    """The output is left out where it is the embeddings, which only the values say for sure: the configuration does."""
    is_tied = config.given.get("tie_word_embeddings", True)
    out = _without_head(config, tensors) if is_tied else tensors
    return {
        name: t._replace(shape=tuple(n for n in t.shape if n != 1)) if name.endswith("conv1d.weight") else t
        for name, t in out.items()
    }


def _gpt_oss(config: HfConfig) -> None:
    config.add_common()
    config.add("attention.sliding_window", config.size("sliding_window"))
    config.add("expert_feed_forward_length", config.size("intermediate_size"))


def _gpt_oss_tensors(config: HfConfig, tensors: Tensors) -> Tensors:
    out: Tensors = {}
    for name, t in tensors.items():
        if name.endswith("_scales"):
            continue
        shape = t.shape
        if name.endswith("_blocks") and len(shape) == 4:
            name, t = name.removesuffix("_blocks"), StoredTensor(MXFP4, (*shape[:2], shape[2] * 32))
        elif name.endswith(("down_proj", "gate_up_proj")) and len(shape) == 3:
            t = t._replace(shape=(shape[0], shape[2], shape[1]))
        name = name.replace("_proj_bias", "_proj.bias")
        name = f"{name}.weight" if name.endswith(("_proj", "sinks")) else name
        if "gate_up_proj" not in name:
            out[name] = t
            continue
        half = t._replace(shape=tuple(n // 2 if i == 1 else n for i, n in enumerate(t.shape)))
        for part in ("gate_proj", "up_proj"):
            out[name.replace("gate_up_proj", part)] = half
    return out


def _merged_experts(config: HfConfig, tensors: Tensors) -> Tensors:
    """The matrices of all experts of a layer as one: `…experts.N.NAME` in the order of N."""
    out: Tensors = {}
    n_experts: dict[str, int] = {}
    for name, t in tensors.items():
        head, found, tail = name.partition(".experts.")
        number, _, rest = tail.partition(".")
        if not found or not number.isdecimal():
            out.update(_halves(name, t))
            continue
        merged = (
            f"{head.replace('model.', '', 1)}.experts.{rest}"
            if "block_sparse_moe" in head
            else f"{head}.experts.{rest}"
        )
        merged = merged.replace("block_sparse_moe", "feed_forward")
        n_experts[merged] = n_experts.get(merged, 0) + 1
        out[merged] = t._replace(shape=(n_experts[merged], *t.shape))
    expected = config.get("num_local_experts", "num_experts", "n_routed_experts")
    wrong = next((name for name, n in n_experts.items() if n != expected), None)
    if wrong is not None:
        raise config.wrong(f"{wrong} has {n_experts[wrong]} experts", f"{expected} of them")
    return out


def _halves(name: str, tensor: StoredTensor) -> Iterator[tuple[str, StoredTensor]]:
    """Gate and up of experts that are stored as one tensor."""
    base = name.removesuffix(".weight")
    if base.endswith("mlp.experts.down_proj"):
        yield f"{base}.weight", tensor
    elif base.endswith("mlp.experts.gate_up_proj") and len(tensor.shape) == 3:
        n, rows, columns = tensor.shape
        for part in ("gate_proj", "up_proj"):
            yield f"{base.removesuffix('gate_up_proj')}{part}.weight", tensor._replace(shape=(n, rows // 2, columns))
    else:
        yield name, tensor


def _deepseek(config: HfConfig) -> None:
    """Attention whose keys and values come from a vector of low rank, as one KV head of that width."""
    config.add_common()
    n_experts, rank = config.get("n_routed_experts"), config.size("kv_lora_rank", default=512)
    rope, nope = config.size("qk_rope_head_dim"), config.size("qk_nope_head_dim")
    sizes = {
        "attention.head_count_kv": 1,
        "leading_dense_block_count": config.size("first_k_dense_replace", default=0 if n_experts else config.n_layer),
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": nope + rope,
        "attention.value_length_mla": config.size("v_head_dim"),
        "expert_feed_forward_length": config.size("moe_intermediate_size", "intermediate_size"),
        "expert_shared_count": config.size("n_shared_experts", default=0),
        "rope.dimension_count": rope,
    }
    config.add_all(sizes)
    if config.get("q_lora_rank") is not None:
        config.add("attention.q_lora_rank", config.size("q_lora_rank"))
    if config.get("rms_norm_eps") is None:
        config.add("attention.layer_norm_rms_epsilon", 1e-6, F32)
    multiplier = config.rope.get("mscale_all_dim")
    if config.get("routed_scaling_factor") is not None:
        config.add_number("expert_weights_scale", "routed_scaling_factor")
    if config.get("norm_topk_prob"):
        config.add("expert_weights_norm", True, BOOL)
    if multiplier is not None:
        config.add("rope.scaling.yarn_log_multiplier", 0.1 * config.number(multiplier, "mscale_all_dim"), F32)


def _deepseek_tensors(config: HfConfig, tensors: Tensors) -> Tensors:
    """Without the layers that predict further tokens; what makes keys and values is two matrices for each head."""
    n_heads, nope, v = config.size("num_key_value_heads"), config.size("qk_nope_head_dim"), config.size("v_head_dim")
    tensors = _without_head(config, tensors) if config.given.get("tie_word_embeddings") else tensors
    out: Tensors = {}
    layers = {}
    for name, t in tensors.items():
        number = name.removeprefix("model.layers.").partition(".")[0]
        if not (name.startswith("model.layers.") and number.isdecimal() and int(number[:9]) >= config.n_layer):
            layers[name] = t
    for name, t in _merged_experts(config, layers).items():
        if not name.endswith("kv_b_proj.weight"):
            out[name] = t
            continue
        rank = t.shape[-1]
        if t.shape != (n_heads * (nope + v), rank):
            raise config.wrong(f"{name} has the shape {list(t.shape)}", f"{n_heads * (nope + v)} rows")
        out[name.replace("kv_b_proj", "k_b_proj")] = t._replace(shape=(n_heads, rank, nope))
        out[name.replace("kv_b_proj", "v_b_proj")] = t._replace(shape=(n_heads, v, rank))
    return out


_DEEPSEEK = Architecture("deepseek2", _deepseek, _deepseek_tensors)
_LLAMA = Architecture("llama", _llama, _merged_experts, _llama_factors)
_GEMMA3 = Architecture("gemma3", _gemma3)

ARCHITECTURES: Mapping[str, Architecture] = {
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "FalconMambaForCausalLM": Architecture("mamba", _mamba, _mamba_tensors),
    "Gemma2ForCausalLM": Architecture("gemma2", _gemma2, _without_head),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "GptOssForCausalLM": Architecture("gpt-oss", _gpt_oss, _gpt_oss_tensors),
    "LlamaForCausalLM": _LLAMA,
    "MambaForCausalLM": Architecture("mamba", _mamba, _mamba_tensors),
    "MistralForCausalLM": _LLAMA,
    "MixtralForCausalLM": _LLAMA,
    "Phi3ForCausalLM": Architecture("phi3", _phi3, extra=_phi3_factors),
    "Qwen2ForCausalLM": Architecture("qwen2", HfConfig.add_common),
    "Qwen3ForCausalLM": Architecture("qwen3", HfConfig.add_common),
    "Qwen3MoeForCausalLM": Architecture("qwen3moe", _qwen_moe, _merged_experts),
}
"""By the name that a config.json has for them."""
