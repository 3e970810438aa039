"""Published models as headers of their real shapes: GGUF files of up to 40 GB that take no room on the disk.

`real("llama-70b")` is such a file: every weight has the type and shape that a Q4_K_M (or the published) file gives it,
and no value was ever written. llama.cpp captures it as it captures the model itself.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.sources.gguf_file import Description, Shape, Tensors, write_gguf


class Size(NamedTuple):
    """What a transformer's shapes follow from; `head` is the columns of one head."""

    layers: int
    embd: int
    ff: int
    heads: int
    kv: int
    head: int
    vocab: int
    context: int


def _vector(n: int) -> Shape:
    return "f32", (n,)


def finer(i: int, n: int) -> str:
    """What Q4_K_M gives V and the feed-forward's way down: every third layer, the first and last eighth are finer."""
    return "q6_K" if i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2 else "q4_K"


def _attention(size: Size, value: str, heads: int = 0) -> Tensors:
    wide, narrow = (heads or size.heads) * size.head, size.kv * size.head
    return {
        "attn_norm.weight": _vector(size.embd),
        "attn_q.weight": ("q4_K", (size.embd, wide)),
        "attn_k.weight": ("q4_K", (size.embd, narrow)),
        "attn_v.weight": (value, (size.embd, narrow)),
        "attn_output.weight": ("q4_K", (wide, size.embd)),
    }


def _ffn(size: Size, down: str, ff: int = 0) -> Tensors:
    ff = ff or size.ff
    return {
        "ffn_norm.weight": _vector(size.embd),
        "ffn_gate.weight": ("q4_K", (size.embd, ff)),
        "ffn_up.weight": ("q4_K", (size.embd, ff)),
        "ffn_down.weight": (down, (ff, size.embd)),
    }


def _head_norms(size: Size) -> Tensors:
    return {"attn_q_norm.weight": _vector(size.head), "attn_k_norm.weight": _vector(size.head)}


def _model(size: Size, layers: list[Tensors], embd: str = "q4_K", output: str | None = "q6_K") -> Tensors:
    """All weights; without an `output` that of the embeddings is taken."""
    tensors: Tensors = {"token_embd.weight": (embd, (size.embd, size.vocab)), "output_norm.weight": _vector(size.embd)}
    for i, layer in enumerate(layers):
        tensors |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return tensors if output is None else tensors | {"output.weight": (output, (size.embd, size.vocab))}


def values_of(size: Size, **more: Any) -> dict[str, Any]:
    """The metadata of a transformer, with `more`, whose keys have `__` for a dot."""
    values: dict[str, Any] = {
        "vocab_size": size.vocab,
        "context_length": size.context,
        "embedding_length": size.embd,
        "block_count": size.layers,
        "feed_forward_length": size.ff,
        "attention.head_count": size.heads,
        "attention.head_count_kv": size.kv,
        "attention.key_length": size.head,
        "attention.value_length": size.head,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 1e6,
    }
    return values | {key.replace("__", "."): value for key, value in more.items()}


def _gemma(size: Size, window: int) -> Description:
    norms = _head_norms(size) | {
        "post_attention_norm.weight": _vector(size.embd),
        "post_ffw_norm.weight": _vector(size.embd),
    }
    kinds = [finer(i, size.layers) for i in range(size.layers)]
    layers = [_attention(size, kind) | norms | _ffn(size, kind) for kind in kinds]
    return Description("gemma3", values_of(size, attention__sliding_window=window), _model(size, layers, "q6_K", None))


def _gemma_270m() -> Description:
    """Its rows of 640 columns are no whole number of K-quants' blocks: the file has q5_0 and q8_0 in their place."""
    model = _gemma(Size(18, 640, 2048, 4, 1, 256, 262144, 32768), 512)
    whole = {"q4_K": "q5_0", "q6_K": "q8_0"}
    tensors = {n: (whole.get(kind, kind) if ne[0] % 256 else kind, ne) for n, (kind, ne) in model.tensors.items()}
    return model._replace(tensors=tensors)


def _gemma_27b() -> Description:
    return _gemma(Size(62, 5376, 21504, 32, 16, 128, 262208, 131072), 1024)


def _llama_70b() -> Description:
    size = Size(80, 8192, 28672, 64, 8, 128, 128256, 131072)
    layers = [
        _attention(size, "q6_K" if finer(i, 80) == "q6_K" else "q5_K") | _ffn(size, finer(i, 80)) for i in range(80)
    ]
    return Description("llama", values_of(size, rope__dimension_count=128), _model(size, layers))


def _qwen3_30b_a3b() -> Description:
    size, experts, ff = Size(48, 2048, 6144, 32, 4, 128, 151936, 40960), 128, 768
    layers = []
    for i in range(size.layers):
        layer = _attention(size, finer(i, size.layers)) | _head_norms(size)
        layer |= {
            "ffn_norm.weight": _vector(size.embd),
            "ffn_gate_inp.weight": ("f32", (size.embd, experts)),
            "ffn_gate_exps.weight": ("q4_K", (size.embd, ff, experts)),
            "ffn_up_exps.weight": ("q4_K", (size.embd, ff, experts)),
            "ffn_down_exps.weight": (finer(i, size.layers), (ff, size.embd, experts)),
        }
        layers.append(layer)
    values = values_of(size, expert_count=experts, expert_used_count=8, expert_feed_forward_length=ff)
    return Description("qwen3moe", values, _model(size, layers))


def _glm_4_5_air() -> Description:
    """Experts in all layers but the first, whose feed-forward weights are dense."""
    size, experts, ff = Size(46, 4096, 10944, 96, 8, 128, 151552, 131072), 128, 1408
    biases = {f"attn_{name}.bias": _vector(n) for name, n in (("q", 12288), ("k", 1024), ("v", 1024))}
    layers = []
    for i in range(size.layers):
        layer = _attention(size, finer(i, size.layers)) | biases | {"post_attention_norm.weight": _vector(size.embd)}
        down = "q8_0" if finer(i, size.layers) == "q6_K" else "q5_0"
        if i:
            shared = {f"ffn_{name}_shexp.weight": ("q4_K", (size.embd, ff)) for name in ("gate", "up")}
            layer |= {
                "ffn_gate_inp.weight": ("f32", (size.embd, experts)),
                "exp_probs_b.bias": _vector(experts),
                "ffn_gate_exps.weight": ("q4_K", (size.embd, ff, experts)),
                "ffn_up_exps.weight": ("q4_K", (size.embd, ff, experts)),
                "ffn_down_exps.weight": (down, (ff, size.embd, experts)),
                **shared,
                "ffn_down_shexp.weight": (down, (ff, size.embd)),
            }
        else:
            layer |= {name: shape for name, shape in _ffn(size, "q8_0").items() if "norm" not in name}
        layers.append(layer)
    values = values_of(
        size, expert_count=experts, expert_used_count=8, expert_shared_count=1, expert_feed_forward_length=ff,
        leading_dense_block_count=1, expert_gating_func=2, rope__dimension_count=64,
    )  # fmt: skip
    return Description("glm4moe", values, _model(size, layers))


def _nemotron_49b() -> Description:
    """Llama-3.3-Nemotron-Super-49B: 31 of 80 layers without attention, feed-forward parts of many widths."""
    size = Size(80, 8192, 28672, 64, 8, 128, 128256, 131072)
    bare = {6, 7, 11, *range(43, 71)}
    ffs = [14336 if i == 0 else (5120, 5632, 14336)[i % 3] if i in bare else 28672 for i in range(size.layers)]
    layers = []
    for i, ff in enumerate(ffs):
        attention = {} if i in bare else _attention(size, "q6_K" if finer(i, 80) == "q6_K" else "q5_K")
        layers.append(attention | _ffn(size, finer(i, 80), ff))
    values = values_of(size, rope__dimension_count=128, feed_forward_length=ffs)
    values["attention.head_count"] = [0 if i in bare else size.heads for i in range(size.layers)]
    values["attention.head_count_kv"] = [0 if i in bare else size.kv for i in range(size.layers)]
    return Description("deci", values, _model(size, layers))


def _mamba_2_8b() -> Description:
    embd, inner, state, rank, vocab = 2560, 5120, 16, 160, 50280
    layer: Tensors = {
        "attn_norm.weight": _vector(embd),
        "ssm_in.weight": ("q8_0", (embd, 2 * inner)),
        "ssm_conv1d.weight": ("f32", (4, inner)),
        "ssm_conv1d.bias": _vector(inner),
        "ssm_x.weight": ("q8_0", (inner, rank + 2 * state)),
        "ssm_dt.weight": ("q8_0", (rank, inner)),
        "ssm_dt.bias": _vector(inner),
        "ssm_a": ("f32", (state, inner)),
        "ssm_d": _vector(inner),
        "ssm_out.weight": ("q8_0", (inner, embd)),
    }
    size = Size(64, embd, 0, 0, 0, 0, vocab, 1048576)
    values = {
        key: value for key, value in values_of(size).items() if not key.startswith(("attention.key", "attention.value"))
    }
    values |= {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    return Description("mamba", values, _model(size, [layer] * 64, "q8_0", None))


def _qwen2vl_7b() -> Description:
    """The text part of a vision model: its positions have three parts."""
    size = Size(28, 3584, 18944, 28, 4, 128, 152064, 32768)
    biases = {"attn_q.bias": _vector(3584), "attn_k.bias": _vector(512), "attn_v.bias": _vector(512)}
    layers = [_attention(size, finer(i, 28)) | biases | _ffn(size, finer(i, 28)) for i in range(28)]
    return Description("qwen2vl", values_of(size, rope__dimension_sections=[16, 24, 24, 0]), _model(size, layers))


REAL_MODELS: Mapping[str, Callable[[], Description]] = {
    "gemma-270m": _gemma_270m,
    "gemma-27b": _gemma_27b,
    "glm-4.5-air": _glm_4_5_air,
    "llama-70b": _llama_70b,
    "mamba-2.8b": _mamba_2_8b,
    "nemotron-49b": _nemotron_49b,
    "qwen2vl-7b": _qwen2vl_7b,
    "qwen3-30b-a3b": _qwen3_30b_a3b,
}
"""Every model by name."""


@cache
def real(name: str) -> Path:
    """The file of the model of that name, written once per process and gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="ggmltool-real-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{name}.gguf"
    write_gguf(path, REAL_MODELS[name]())
    return path
