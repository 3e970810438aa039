"""--as: the type of every weight is the one that the real llama-quantize would give it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.sources.llama.capture.capture import capture
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.header.quantization import KINDS, Quantization, quantized, read_quantization
from ggmltool.sources.llama.model_file import open_model, read_header
from tests.sources import quantizer
from tests.sources.gguf_file import Description, Tensors, write_gguf
from tests.sources.models import MODELS, cached, hparams
from tests.sources.random_weights import random_model
from tests.sources.real_models import REAL_MODELS, real

ALL = [Quantization(kind, pure, imatrix) for kind in KINDS for pure in (False, True) for imatrix in (False, True)]
ARCHITECTURES = ("llama", "falcon", "qwen2", "qwen3moe", "deci", "olmo", "jais2", "gemma3", "glm4moe")
LAYERED = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_kv_b", "attn_output", "ffn_norm", "ffn_up", "ffn_gate",
    "ffn_down", "ffn_up_exps", "ffn_gate_exps", "ffn_down_exps", "ffn_gate_inp", "ssm_conv1d", "ssm_in", "attn_rel_b",
    "nextn.eh_proj", "time_mix_w1", "indexer.k_proj", "attn_k_b", "laurel_l", "ffn_down_shexp", "inp_gate",
)  # fmt: skip
SINGLE = ("token_embd", "output", "output_norm", "per_layer_token_embd", "position_embd", "token_types", "cls", "rope")


def ours(path: Path, wanted: Quantization) -> dict[str, str] | str:
    try:
        _, tensors = quantized(read_header(path), wanted)
    except CaptureError as refused:
        return str(refused)
    return {name.decode(): TYPES_BY_ID[type_id].name for name, type_id, _ in tensors}


def check(path: Path, wanted: Quantization) -> None:
    """Our types are those of the real function, which is given an importance matrix if it says that it needs one."""
    needs = not wanted.imatrix and quantizer.needs_imatrix(path, wanted)
    real_types = quantizer.types(path, wanted._replace(imatrix=True) if needs else wanted)
    types = ours(path, wanted)
    if isinstance(real_types, str):
        assert isinstance(types, str), (wanted, real_types)
        assert types.startswith(real_types)
        return
    assert not isinstance(types, str), (wanted, types)
    assert list(types.items()) == list(real_types.items()), wanted


@pytest.mark.parametrize("name", MODELS)
def test_small_models_of_every_architecture(name: str) -> None:
    for wanted in random.Random(name).sample(ALL, 40):
        check(cached(name), wanted)


@pytest.mark.parametrize("name", REAL_MODELS)
def test_models_of_real_shapes(name: str) -> None:
    for wanted in random.Random(name).sample(ALL, 40):
        check(real(name), wanted)


def any_model(rng: random.Random) -> Description:
    """A model that no graph could be built of: any weights of any shapes, under names that decide."""
    n_layer = rng.choice((1, 2, 7, 16, 33, 68, 80))
    heads, experts = rng.choice((4, 8, 64)), rng.choice((0, 0, 1, 4, 8, 64))
    columns = (32, 64, 96, 100, 128, 256, 320, 512, 768, 2)
    more: dict[str, Any] = {
        "attention__head_count": heads,
        "attention__head_count_kv": rng.choice((heads, heads // 4, 1)),
        "attention__layer_norm_epsilon": 1e-5,
        "attention__sliding_window": 128,
        "expert_count": experts,
        "expert_used_count": min(experts, 1),
        "leading_dense_block_count": 0,
        "expert_feed_forward_length": 64,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
    }
    tensors: Tensors = {}
    names = rng.sample(LAYERED, rng.randrange(1, 12))
    for name in [f"blk.{i}.{name}" for i in rng.sample(range(n_layer), min(n_layer, 12)) for name in names]:
        ne = tuple(rng.choice(columns) for _ in range(rng.randrange(1, 4)))
        suffix = rng.choice(("weight",) * 9 + ("bias",))
        tensors[f"{name}.{suffix}"] = (rng.choice(("f32", "f16", "bf16")), ne)
    for name in rng.sample(SINGLE, rng.randrange(1, 6)):
        tensors[f"{name}.weight"] = ("f16", (rng.choice(columns), rng.choice(columns)))
    return Description(rng.choice(ARCHITECTURES), hparams(n_layer, **more), tensors)


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_any_shape(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    judged = 0
    for i in range(12):
        path = tmp_path / f"{i}.gguf"
        write_gguf(path, any_model(rng))
        refusal = quantizer.types(path, Quantization("F32"))
        if isinstance(refusal, str) and "key not found" in refusal:
            continue
        for wanted in rng.sample(ALL, 30):
            check(path, wanted)
            judged += 1
    assert judged > 100


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q8_0", "Q2_K", "IQ4_XS", "Q6_K:pure", "F16"])
def test_the_file_that_llama_quantize_makes_is_captured_alike(kind: str, tmp_path: Path) -> None:
    source, made = random_model("llama", exact=True), tmp_path / "made.gguf"
    quantizer.quantize(source, made, read_quantization(kind))
    opened = open_model(source, kind)
    assert opened.path.stat().st_size == made.stat().st_size
    header, real_header = read_header(opened.path), read_header(made)
    assert header.tensors == real_header.tensors
    assert dict(header.values) == dict(real_header.values)
    options = CaptureOptions(n_ctx=512)
    ours, theirs = capture(source, options, kind).scenario, capture(made, options).scenario
    assert (ours["contexts"], ours["graphs"]) == (theirs["contexts"], theirs["graphs"])
    assert ours["meta"]["model_size"] == theirs["meta"]["model_size"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("q4_K_M", Quantization("Q4_K_M")),
        ("q4_k", Quantization("Q4_K_M")),
        ("IQ4_XS:imatrix", Quantization("IQ4_XS", imatrix=True)),
        ("q6_k:imatrix:pure", Quantization("Q6_K", pure=True, imatrix=True)),
        ("bf16", Quantization("BF16")),
    ],
)
def test_kinds_are_spelled_as_llama_quantize_does(text: str, kind: Quantization) -> None:
    assert read_quantization(text) == kind


def test_what_cannot_be_made_is_refused_in_its_words(tmp_path: Path) -> None:
    tensors: Tensors = {"blk.0.attn_q.weight": ("f16", (96, 8)), "output.weight": ("f16", (256, 8))}
    write_gguf(tmp_path / "m.gguf", Description("llama", hparams(1), tensors))
    assert ours(tmp_path / "m.gguf", Quantization("Q1_0")) == (
        "no tensor type fallback is defined for type q1_0 (blk.0.attn_q.weight has 96 columns)"
    )
