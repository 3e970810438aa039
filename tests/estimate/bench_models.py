"""The models of published measurements, as headers of their real shapes: `bench_model("llama-7b q4_0")` is a file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.sources.gguf_file import Description, Tensors, write_gguf
from tests.sources.real_models import Size, values_of
from tests.sources.real_models import finer as is_finer


class Dense(NamedTuple):
    """What a transformer's shapes follow from; `kv` and `head` are heads of K and V and the columns of one."""

    architecture: str
    layers: int
    embd: int
    ff: int
    heads: int
    kv: int
    head: int
    vocab: int
    biases: bool = False
    tied: bool = False
    norms: bool = False


LLAMA_7B = Dense("llama", 32, 4096, 11008, 32, 32, 128, 32000)
LLAMA_8B = Dense("llama", 32, 4096, 14336, 32, 8, 128, 128256)
LLAMA_70B = Dense("llama", 80, 8192, 28672, 64, 8, 128, 128256)
LLAMA_3B = Dense("llama", 28, 3072, 8192, 24, 8, 128, 128256, tied=True)
TINYLLAMA = Dense("llama", 22, 2048, 5632, 32, 4, 64, 32000)
QWEN2_7B = Dense("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, biases=True)
GEMMA3_4B = Dense("gemma3", 34, 2560, 10240, 8, 4, 256, 262208, tied=True, norms=True)


def _values(size: Dense, **more: Any) -> dict[str, Any]:
    alike = Size(size.layers, size.embd, size.ff, size.heads, size.kv, size.head, size.vocab, 131072)
    return values_of(alike, rope__dimension_count=size.head, **more)


def _attention(size: Dense, kind: str, value: str) -> Tensors:
    wide, narrow = size.heads * size.head, size.kv * size.head
    out: Tensors = {
        "attn_norm.weight": ("f32", (size.embd,)),
        "attn_q.weight": (kind, (size.embd, wide)),
        "attn_k.weight": (kind, (size.embd, narrow)),
        "attn_v.weight": (value, (size.embd, narrow)),
        "attn_output.weight": (kind, (wide, size.embd)),
    }
    if size.biases:
        out |= {f"attn_{x}.bias": ("f32", (n,)) for x, n in (("q", wide), ("k", narrow), ("v", narrow))}
    if size.norms:
        out |= {f"attn_{x}_norm.weight": ("f32", (size.head,)) for x in "qk"}
        out |= {f"post_{x}_norm.weight": ("f32", (size.embd,)) for x in ("attention", "ffw")}
    return out


def _whole(size: Dense, layers: list[Tensors], embeddings: str, output: str) -> Tensors:
    tensors: Tensors = {
        "token_embd.weight": (embeddings, (size.embd, size.vocab)),
        "output_norm.weight": ("f32", (size.embd,)),
    }
    if not size.tied:
        tensors["output.weight"] = (output, (size.embd, size.vocab))
    return tensors | {f"blk.{i}.{name}": t for i, layer in enumerate(layers) for name, t in layer.items()}


def dense(size: Dense, kind: str, output: str = "", finer: str = "", embeddings: str = "") -> Description:
    """A transformer whose weights have one type, but for the output, and for V and the way down of finer layers."""
    layers: list[Tensors] = []
    for i in range(size.layers):
        down = finer if finer and is_finer(i, size.layers) == "q6_K" else kind
        layers.append(
            _attention(size, kind, down)
            | {
                "ffn_norm.weight": ("f32", (size.embd,)),
                "ffn_gate.weight": (kind, (size.embd, size.ff)),
                "ffn_up.weight": (kind, (size.embd, size.ff)),
                "ffn_down.weight": (down, (size.ff, size.embd)),
            }
        )
    values = _values(size, attention__sliding_window=1024) if size.architecture == "gemma3" else _values(size)
    return Description(size.architecture, values, _whole(size, layers, embeddings or kind, output or kind))


def gpt_oss(layers: int, experts: int) -> Description:
    """gpt-oss: experts in mxfp4, everything else in q8_0; every second layer sees 128 tokens."""
    size = Dense("gpt-oss", layers, 2880, 2880, 64, 8, 64, 201088)
    wide, narrow = size.heads * size.head, size.kv * size.head
    layer = _attention(size, "q8_0", "q8_0") | {
        "attn_q.bias": ("f32", (wide,)),
        "attn_k.bias": ("f32", (narrow,)),
        "attn_v.bias": ("f32", (narrow,)),
        "attn_output.bias": ("f32", (size.embd,)),
        "attn_sinks.weight": ("f32", (size.heads,)),
        "post_attention_norm.weight": ("f32", (size.embd,)),
        "ffn_gate_inp.weight": ("f32", (size.embd, experts)),
        "ffn_gate_inp.bias": ("f32", (experts,)),
    }
    for way in ("gate", "up", "down"):
        layer[f"ffn_{way}_exps.weight"] = ("mxfp4", (size.embd, size.ff, experts))
        layer[f"ffn_{way}_exps.bias"] = ("f32", (size.ff, experts))
    values = _values(
        size,
        expert_count=experts,
        expert_used_count=4,
        expert_feed_forward_length=size.ff,
        attention__sliding_window=128,
    )
    return Description("gpt-oss", values, _whole(size, [layer] * layers, "q8_0", "q8_0"))


def qwen3_30b_a3b(kind: str) -> Description:
    """Qwen3-30B-A3B: 8 of 128 experts for a token."""
    size, experts, ff = Dense("qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936), 128, 768
    layer = _attention(size, kind, kind) | {f"attn_{x}_norm.weight": ("f32", (size.head,)) for x in "qk"}
    layer |= {
        "ffn_norm.weight": ("f32", (size.embd,)),
        "ffn_gate_inp.weight": ("f32", (size.embd, experts)),
        "ffn_gate_exps.weight": (kind, (size.embd, ff, experts)),
        "ffn_up_exps.weight": (kind, (size.embd, ff, experts)),
        "ffn_down_exps.weight": (kind, (ff, size.embd, experts)),
    }
    values = _values(size, expert_count=experts, expert_used_count=8, expert_feed_forward_length=ff)
    return Description("qwen3moe", values, _whole(size, [layer] * size.layers, kind, kind))


BENCH_MODELS: Mapping[str, Callable[[], Description]] = {
    "llama-7b q4_0": partial(dense, LLAMA_7B, "q4_0", "q6_K"),
    "llama-8b q4_0": partial(dense, LLAMA_8B, "q4_0", "q6_K"),
    "llama-8b q4_K_M": partial(dense, LLAMA_8B, "q4_K", "q6_K", "q6_K"),
    "llama-8b f16": partial(dense, LLAMA_8B, "f16"),
    "llama-70b q4_K_M": partial(dense, LLAMA_70B, "q4_K", "q6_K", "q6_K"),
    "llama-3b q4_K_M": partial(dense, LLAMA_3B, "q4_K", "", "q6_K", "q6_K"),
    "tinyllama q4_K_M": partial(dense, TINYLLAMA, "q4_K", "q6_K", "q6_K"),
    "qwen2-7b q8_0": partial(dense, QWEN2_7B, "q8_0"),
    "gemma3-4b q4_0": partial(dense, GEMMA3_4B, "q4_0", "", "", "q8_0"),
    "gpt-oss-20b mxfp4": partial(gpt_oss, 24, 32),
    "gpt-oss-120b mxfp4": partial(gpt_oss, 36, 128),
    "qwen3-30b-a3b q8_0": partial(qwen3_30b_a3b, "q8_0"),
}
"""Every model by name and quantization."""


def weights_nbytes(description: Description) -> int:
    """The bytes of all weights, as llama-bench shows them."""
    from ggmltool.ggml.dtypes import TYPES

    total = 0
    for kind, ne in description.tensors.values():
        rows = 1
        for n in ne[1:]:
            rows *= n
        total += rows * TYPES[kind].row_size(ne[0])
    return total


@cache
def bench_model(name: str) -> Path:
    """The file of a model, written once per process and gone with it; it takes no room on the disk."""
    folder = Path(tempfile.mkdtemp(prefix="ggmltool-bench-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{name.replace(' ', '-')}.gguf"
    write_gguf(path, BENCH_MODELS[name]())
    return path
