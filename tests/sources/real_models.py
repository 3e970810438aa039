"""Published models as headers of their real shapes: GGUF files of up to 60 GB that take no room on the disk.

`real("llama-70b")` is such a file: every weight has the type and shape that a Q4_K_M (or the published) file gives it,
and no value was ever written. llama.cpp captures it as it captures the model itself. `bench_model("llama-7b q4_0")` is
the file of a published measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from ggmltool.ggml.dtypes import TYPES
from tests.shared import made_once
from tests.sources.gguf_file import Description, Tensors, write_gguf
from tests.sources.models import (
    Size,
    attention,
    biases,
    dense_part,
    experts,
    ffn,
    gpt_oss,
    head_norms,
    hparams,
    matrices,
    post_norms,
    shared,
    vectors,
    whole,
)


def finer(i: int, n: int) -> str:
    """What Q4_K_M gives V and the feed-forward's way down: every third layer, the first and last eighth are finer."""
    return "q6_K" if i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2 else "q4_K"


def _values(size: Size, **more: Any) -> dict[str, Any]:
    """The metadata of a transformer, with `more`, whose keys have `__` for a dot."""
    lengths = {"attention__key_length": size.head, "attention__value_length": size.head}
    return hparams(size.layers, size, **{"rope__freq_base": 1e6, **lengths, **more})


def _qkv_biases(size: Size) -> Tensors:
    narrow = size.kv * size.head
    return biases(attn_q=size.heads * size.head, attn_k=narrow, attn_v=narrow)


def _gemma(size: Size, window: int) -> Description:
    norms = head_norms(size) | post_norms(size)
    kinds = [finer(i, size.layers) for i in range(size.layers)]
    layers = [attention("q4_K", kind, size) | norms | ffn("q4_K", kind, size) for kind in kinds]
    values = _values(size, attention__sliding_window=window)
    return Description("gemma3", values, whole(layers, "q6_K", None, size=size))


def _gemma_270m() -> Description:
    """Its rows of 640 columns are no whole number of K-quants' blocks: the file has q5_0 and q8_0 in their place."""
    model = _gemma(Size(18, 640, 2048, 4, 1, 256, 262144, 32768), 512)
    fitting = {"q4_K": "q5_0", "q6_K": "q8_0"}
    tensors = {n: (fitting.get(kind, kind) if ne[0] % 256 else kind, ne) for n, (kind, ne) in model.tensors.items()}
    return model._replace(tensors=tensors)


def _large(size: Size, i: int) -> Tensors:
    """The attention of a layer of a model of 70 billions, with finer values."""
    return attention("q4_K", "q6_K" if finer(i, size.layers) == "q6_K" else "q5_K", size)


LLAMA_70B = Size(80, 8192, 28672, 64, 8, 128, 128256)


def _llama_70b() -> Description:
    layers = [_large(LLAMA_70B, i) | ffn("q4_K", finer(i, 80), LLAMA_70B) for i in range(80)]
    values = _values(LLAMA_70B, rope__dimension_count=128)
    return Description("llama", values, whole(layers, "q4_K", size=LLAMA_70B))


QWEN3_30B = Size(48, 2048, 6144, 32, 4, 128, 151936)


def _qwen3_30b_a3b(kind: str, downs: list[str], output: str, size: Size, **more: Any) -> Description:
    """8 of 128 experts for a token; `downs` are the types of V and of the way down, a layer each."""
    layers = [
        attention(kind, down, size) | head_norms(size) | vectors(ffn_norm=size.embd)
        | experts(kind, 768, down, size.embd, 128)
        for down in downs
    ]  # fmt: skip
    values = _values(size, expert_count=128, expert_used_count=8, expert_feed_forward_length=768, **more)
    return Description("qwen3moe", values, whole(layers, kind, output, size=size))


def _glm_4_5_air() -> Description:
    """Experts in all layers but the first, whose feed-forward weights are dense."""
    size, ff = Size(46, 4096, 10944, 96, 8, 128, 151552), 1408
    layers = []
    for i in range(size.layers):
        layer = attention("q4_K", finer(i, size.layers), size) | _qkv_biases(size)
        layer |= vectors(post_attention_norm=size.embd)
        if i:
            down = "q8_0" if finer(i, size.layers) == "q6_K" else "q5_0"
            routed = experts("q4_K", ff, down, size.embd, 128)
            layer |= routed | biases(exp_probs_b=128) | shared("q4_K", ff, down, size.embd)
        else:
            layer |= dense_part("q4_K", "q8_0", size.embd, size.ff)
        layers.append(layer)
    values = _values(
        size, expert_count=128, expert_used_count=8, expert_shared_count=1, expert_feed_forward_length=ff,
        leading_dense_block_count=1, expert_gating_func=2, rope__dimension_count=64,
    )  # fmt: skip
    return Description("glm4moe", values, whole(layers, "q4_K", size=size))


def _nemotron_49b() -> Description:
    """Llama-3.3-Nemotron-Super-49B: 31 of 80 layers without attention, feed-forward parts of many widths."""
    size, bare = LLAMA_70B, {6, 7, 11, *range(43, 71)}
    ffs = [14336 if i == 0 else (5120, 5632, 14336)[i % 3] if i in bare else 28672 for i in range(size.layers)]
    layers = [({} if i in bare else _large(size, i)) | ffn("q4_K", finer(i, 80), size, ff) for i, ff in enumerate(ffs)]
    values = _values(size, rope__dimension_count=128, feed_forward_length=ffs)
    for name, n in (("head_count", size.heads), ("head_count_kv", size.kv)):
        values[f"attention.{name}"] = [0 if i in bare else n for i in range(size.layers)]
    return Description("deci", values, whole(layers, "q4_K", size=size))


def _mamba_2_8b() -> Description:
    embd, inner, state, rank = 2560, 5120, 16, 160
    layer = (
        vectors(attn_norm=embd) | matrices("q8_0", ssm_in=(embd, 2 * inner)) | matrices("f32", ssm_conv1d=(4, inner))
    )
    layer |= biases(ssm_conv1d=inner) | matrices("q8_0", ssm_x=(inner, rank + 2 * state), ssm_dt=(rank, inner))
    layer |= biases(ssm_dt=inner) | {"ssm_a": ("f32", (state, inner)), "ssm_d": ("f32", (inner,))}
    layer |= matrices("q8_0", ssm_out=(inner, embd))
    size = Size(64, embd, 0, 0, 0, 0, 50280, 1048576)
    states = {"ssm__conv_kernel": 4, "ssm__inner_size": inner, "ssm__state_size": state, "ssm__time_step_rank": rank}
    values = hparams(64, size, rope__freq_base=1e6, **states)
    return Description("mamba", values, whole([layer] * 64, "q8_0", None, size=size))


def _qwen2vl_7b() -> Description:
    """The text part of a vision model: its positions have three parts."""
    size = Size(28, 3584, 18944, 28, 4, 128, 152064, 32768)
    kinds = [finer(i, 28) for i in range(28)]
    layers = [attention("q4_K", kind, size) | _qkv_biases(size) | ffn("q4_K", kind, size) for kind in kinds]
    values = _values(size, rope__dimension_sections=[16, 24, 24, 0])
    return Description("qwen2vl", values, whole(layers, "q4_K", size=size))


REAL_MODELS: Mapping[str, Callable[[], Description]] = {
    "gemma-270m": _gemma_270m,
    "gemma-27b": partial(_gemma, Size(62, 5376, 21504, 32, 16, 128, 262208), 1024),
    "glm-4.5-air": _glm_4_5_air,
    "llama-70b": _llama_70b,
    "mamba-2.8b": _mamba_2_8b,
    "nemotron-49b": _nemotron_49b,
    "qwen2vl-7b": _qwen2vl_7b,
    "qwen3-30b-a3b": partial(
        _qwen3_30b_a3b, "q4_K", [finer(i, 48) for i in range(48)], "q6_K", QWEN3_30B._replace(context=40960)
    ),
}
"""Every model by name."""


class Dense(NamedTuple):
    """A transformer of a published measurement."""

    architecture: str
    size: Size
    biases: bool = False
    tied: bool = False
    norms: bool = False


LLAMA_8B = Dense("llama", Size(32, 4096, 14336, 32, 8, 128, 128256))


def _dense(model: Dense, kind: str, output: str = "", fine: str = "", embeddings: str = "") -> Description:
    """Weights of one type, but for the output, and for V and the way down of finer layers."""
    size = model.size
    more = _qkv_biases(size) if model.biases else {}
    more |= head_norms(size) | post_norms(size) if model.norms else {}
    downs = [fine if fine and finer(i, size.layers) == "q6_K" else kind for i in range(size.layers)]
    layers = [attention(kind, down, size) | more | ffn(kind, down, size) for down in downs]
    window = {"attention__sliding_window": 1024} if model.architecture == "gemma3" else {}
    tensors = whole(layers, embeddings or kind, None if model.tied else output or kind, size=size)
    return Description(model.architecture, _values(size, rope__dimension_count=size.head, **window), tensors)


def _gpt_oss(layers: int, n: int) -> Description:
    model = gpt_oss(Size(layers, 2880, 2880, 64, 8, 64, 201088), n, 4)
    return model._replace(values=model.values | {"rope.freq_base": 1e6, "rope.dimension_count": 64})


BENCH_MODELS: Mapping[str, Callable[[], Description]] = {
    "llama-7b q4_0": partial(_dense, Dense("llama", Size(32, 4096, 11008, 32, 32, 128, 32000)), "q4_0", "q6_K"),
    "llama-8b q4_0": partial(_dense, LLAMA_8B, "q4_0", "q6_K"),
    "llama-8b q4_K_M": partial(_dense, LLAMA_8B, "q4_K", "q6_K", "q6_K"),
    "llama-8b f16": partial(_dense, LLAMA_8B, "f16"),
    "llama-70b q4_K_M": partial(_dense, Dense("llama", LLAMA_70B), "q4_K", "q6_K", "q6_K"),
    "llama-3b q4_K_M": partial(
        _dense, Dense("llama", Size(28, 3072, 8192, 24, 8, 128, 128256), tied=True), "q4_K", "", "q6_K", "q6_K"
    ),
    "tinyllama q4_K_M": partial(_dense, Dense("llama", Size(22, 2048, 5632, 32, 4, 64, 32000)), "q4_K", "q6_K", "q6_K"),
    "qwen2-7b q8_0": partial(_dense, Dense("qwen2", Size(28, 3584, 18944, 28, 4, 128, 152064), biases=True), "q8_0"),
    "gemma3-4b q4_0": partial(
        _dense, Dense("gemma3", Size(34, 2560, 10240, 8, 4, 256, 262208), tied=True, norms=True), "q4_0", "", "", "q8_0"
    ),
    "gpt-oss-20b mxfp4": partial(_gpt_oss, 24, 32),
    "gpt-oss-120b mxfp4": partial(_gpt_oss, 36, 128),
    "qwen3-30b-a3b q8_0": partial(_qwen3_30b_a3b, "q8_0", ["q8_0"] * 48, "q8_0", QWEN3_30B, rope__dimension_count=128),
}
"""Models of published measurements, by name and quantization."""


def weights_nbytes(description: Description) -> int:
    """The bytes of all weights, as llama-bench shows them."""
    return sum(TYPES[kind].row_size(ne[0]) * prod(ne[1:]) for kind, ne in description.tensors.values())


@cache
def real(name: str) -> Path:
    """The file of the model of that name, written once for all workers."""
    return made_once(f"real/{name}.gguf", lambda path: write_gguf(path, REAL_MODELS[name]()))


@cache
def bench_model(name: str) -> Path:
    """The file of a model that was measured."""
    return made_once(f"bench/{name}.gguf", lambda path: write_gguf(path, BENCH_MODELS[name]()))
