"""What llama-quantize makes of a model: the type of each weight in a file of a certain kind, such as Q4_K_M.

llama_model_quantize walks the weights in the order of their layers, and gives each the type that its kind of file has
by default, unless its role, its layer or its shape says otherwise: `mixtures.py` has those rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.dtypes import TYPES, TYPES_BY_ID, DType
from ggmltool.scenario.errors import did_you_mean
from ggmltool.scenario.gguf import U32, GgufHeader, GgufTensorInfo, GgufValue, value_of
from ggmltool.sources.llama.errors import CaptureError
from ggmltool.sources.llama.header.mixtures import Model, QuantizedWeight, mixed, role_of

KINDS: Mapping[str, tuple[int, str]] = {
    "Q1_0": (40, "q1_0"),
    "Q2_0": (41, "q2_0"),
    "Q4_0": (2, "q4_0"),
    "Q4_1": (3, "q4_1"),
    "MXFP4_MOE": (38, "mxfp4"),
    "Q5_0": (8, "q5_0"),
    "Q5_1": (9, "q5_1"),
    "IQ2_XXS": (19, "iq2_xxs"),
    "IQ2_XS": (20, "iq2_xs"),
    "IQ2_S": (28, "iq2_xs"),
    "IQ2_M": (29, "iq2_s"),
    "IQ1_S": (24, "iq1_s"),
    "IQ1_M": (31, "iq1_m"),
    "TQ1_0": (36, "tq1_0"),
    "TQ2_0": (37, "tq2_0"),
    "Q2_K": (10, "q2_K"),
    "Q2_K_S": (21, "q2_K"),
    "IQ3_XXS": (23, "iq3_xxs"),
    "IQ3_S": (26, "iq3_s"),
    "IQ3_M": (27, "iq3_s"),
    "IQ3_XS": (22, "iq3_s"),
    "Q3_K_S": (11, "q3_K"),
    "Q3_K_M": (12, "q3_K"),
    "Q3_K_L": (13, "q3_K"),
    "IQ4_NL": (25, "iq4_nl"),
    "IQ4_XS": (30, "iq4_xs"),
    "Q4_K_S": (14, "q4_K"),
    "Q4_K_M": (15, "q4_K"),
    "Q5_K_S": (16, "q5_K"),
    "Q5_K_M": (17, "q5_K"),
    "Q6_K": (18, "q6_K"),
    "Q8_0": (7, "q8_0"),
    "F16": (1, "f16"),
    "BF16": (32, "bf16"),
    "F32": (0, "f32"),
}
"""The kinds of files that llama-quantize makes: llama_ftype, and the type of most weights."""

ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
FLAGS = ("pure", "imatrix")

_NEEDS_IMATRIX = frozenset(("iq3_xxs", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_m", "iq1_s"))
_FALLBACK = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_K", "q3_K", "tq1_0", "tq2_0"), "q4_0"),
    "q4_K": "q5_0",
    "q5_K": "q5_1",
    "q6_K": "q8_0",
}
"""What stands in for a type whose blocks do not fit into a row."""

_SMALL_BLOCK = 32
_LAYER = re.compile(r"blk\.(\d{1,9})\.")
_QUANTIZATION_VERSION = 2
_LARGE = {"qwen2": 80, "deci": 80, "olmo": 80, "jais2": 68}
"""Layers of what llama.cpp takes for a model of 70B, besides Llama's."""

_KEPT = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
    "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight", "time_mix_first.weight",
    "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight",
    "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
    "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd",
    ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
"""Weights that keep their type have one of these in their name."""

_KEPT_WHOLE = ("position_embd.weight", "token_types.weight")
_KEPT_IN = {
    "glm5-next": (
        "hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_gate",
        "indexer_compressor_ape", "ssm_f_a.weight", "ssm_f_b.weight", "ssm_g_a.weight", "ssm_g_b.weight",
        "ssm_beta.weight", "attn_kv_a_mqa.weight", "attn_k_b.weight", "attn_v_b.weight",
    ),
}  # fmt: skip


class Quantization(NamedTuple):
    """What --as asks for: a kind of file, made with --pure or with an importance matrix."""

    kind: str
    pure: bool = False
    imatrix: bool = False

    def __str__(self) -> str:
        return ":".join([self.kind, *(flag for flag in FLAGS if getattr(self, flag))])


def read_quantization(text: str) -> Quantization:
    """`q4_K_M`, `iq4_xs:imatrix`, `q6_k:pure`. Raises CaptureError for another one."""
    word, *flags = text.split(":")
    kind = ALIASES.get(word.upper(), word.upper())
    if kind not in KINDS:
        hint = did_you_mean(word.upper(), [*KINDS, *ALIASES])
        raise CaptureError(f"{word!r} is no kind of file that llama-quantize makes" + (f"; {hint}" if hint else ""))
    wrong = next((flag for flag in flags if flag not in FLAGS), None)
    if wrong is not None:
        raise CaptureError(f"{wrong!r} after {word} is neither {' nor '.join(FLAGS)}, for example {word}:imatrix")
    return Quantization(kind, "pure" in flags, "imatrix" in flags)


def quantized(
    header: GgufHeader, wanted: Quantization
) -> tuple[dict[str, GgufValue], list[tuple[bytes, int, tuple[int, ...]]]]:
    """The metadata and the table of the file that llama-quantize would make: each weight's name, type and ne.

    A kind of file that cannot be made without an importance matrix is made with one. Raises CaptureError where
    llama-quantize refuses.
    """
    tensors = sorted(header.tensors, key=_place)
    types = _chosen(header, tensors, wanted)
    architecture = header.text("general.architecture")
    if not wanted.imatrix and any(_needs_imatrix(t, types[t.name], wanted.kind, architecture) for t in tensors):
        types = _chosen(header, tensors, wanted._replace(imatrix=True))
    values = dict(header.values)
    values["general.quantization_version"] = value_of(_QUANTIZATION_VERSION, U32)
    values["general.file_type"] = value_of(KINDS[wanted.kind][0], U32)
    return values, [(t.name, TYPES[types[t.name]].id, t.ne) for t in tensors]


def _chosen(header: GgufHeader, tensors: Sequence[GgufTensorInfo], wanted: Quantization) -> dict[bytes, str]:
    """The type of each weight by name."""
    default = TYPES[KINDS[wanted.kind][1]]
    model = _model(header, tensors, wanted)
    architecture = header.text("general.architecture")
    out: dict[bytes, str] = {}
    for t in tensors:
        name = t.name.decode("utf-8", "surrogateescape")
        chosen = default
        if not _is_quantized(name, t, architecture):
            chosen = TYPES_BY_ID[t.type_id]
        elif default.quantized:
            weight = QuantizedWeight(name, t.ne[0], t.ne[2] if len(t.ne) > 2 else 1)
            chosen = default if wanted.pure else TYPES[mixed(model, weight, default)]
            chosen = _fitting(name, t.ne[0], chosen)
        out[t.name] = chosen.name
    return out


def _model(header: GgufHeader, tensors: Sequence[GgufTensorInfo], wanted: Quantization) -> Model:
    """What the rules ask of the model."""
    architecture = header.text("general.architecture")

    def number(key: str, default: int = 0) -> int:
        return header.number(f"{architecture}.{key}", default)

    n_head = number("attention.head_count")
    n_head_kv = number("attention.head_count_kv", n_head)
    n_expert, n_layer = number("expert_count"), number("block_count")
    trunk = n_layer - number("nextn_predict_layers")
    is_llama = architecture in ("llama", "llama-embed") and n_expert != 8 and trunk == 80 and n_head != n_head_kv
    return Model(
        kind=wanted.kind,
        architecture=architecture,
        n_layer=n_layer,
        n_gqa=n_head // n_head_kv if n_head_kv > 0 else 0,
        n_expert=n_expert,
        is_70b=is_llama or _LARGE.get(architecture) == trunk,
        imatrix=wanted.imatrix,
        names=[t.name.decode("utf-8", "surrogateescape") for t in tensors],
    )


def _place(tensor: GgufTensorInfo) -> tuple[int, bytes]:
    """llama.cpp's order: by layer, then by name."""
    found = _LAYER.match(tensor.name.decode("utf-8", "replace"))
    return (int(found[1]) if found is not None else -1, tensor.name)


def _is_quantized(name: str, tensor: GgufTensorInfo, architecture: str) -> bool:
    """Whether a weight gets another type: tensor_allows_quantization."""
    return (
        any(n > 1 for n in tensor.ne[1:])
        and name.endswith("weight")
        and name not in _KEPT_WHOLE
        and not any(part in name for part in (*_KEPT, *_KEPT_IN.get(architecture, ())))
    )


def _needs_imatrix(tensor: GgufTensorInfo, type: str, kind: str, architecture: str) -> bool:
    """Whether a weight cannot be quantized without an importance matrix: tensor_requires_imatrix."""
    name = tensor.name.decode("utf-8", "surrogateescape")
    if role_of(name) in ("token_embd", "output") or not _is_quantized(name, tensor, architecture):
        return False
    return type in _NEEDS_IMATRIX or (type == "q2_K" and kind == "Q2_K_S")


def _fitting(name: str, columns: int, type: DType) -> DType:
    """The type, or one with smaller blocks where its own do not fit: tensor_type_fallback. Raises CaptureError."""
    if columns % type.block_size == 0:
        return type
    smaller = _FALLBACK.get(type.name)
    if smaller is None and type.block_size > _SMALL_BLOCK:
        raise CaptureError(f"no tensor type fallback is defined for type {type.name} ({name} has {columns} columns)")
    chosen = TYPES[smaller] if smaller is not None else type
    return chosen if columns % chosen.block_size == 0 else TYPES["f16"]
