"""Which weights of a quantized model get another type than most: llama.cpp's mixtures, by the role of the weight.

Each function is one role of llama_tensor_get_type_impl; it answers with the name of a type, "" for the one that the
kind of file has by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ggmltool.ggml.dtypes import DType
from ggmltool.sources.llama.errors import CaptureError

_SMALLEST = ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M")
_IQ2_SM = ("IQ2_S", "IQ2_M")
_OUTPUT_Q5 = (*_SMALLEST, "IQ3_XXS")
_MIXTRAL_OUT = (
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS",
)  # fmt: skip
_MIXTRAL = 8
_BLOCK = re.compile(r"blk\.(-?\d{1,9})\.")


class QuantizedWeight(NamedTuple):
    """A weight that is quantized: its columns, and its matrices (experts)."""

    name: str
    columns: int
    matrices: int


@dataclass(slots=True)
class Model:
    """What the rules ask of a model, and how many weights of a role have been given a type so far.

    `n_gqa` are heads for each KV head, `names` those of all weights; `imatrix`: whether there is an importance matrix.
    """

    kind: str
    architecture: str
    n_layer: int
    n_gqa: int
    n_expert: int
    is_70b: bool
    imatrix: bool
    names: Sequence[str]
    done: dict[str, int] = field(default_factory=dict)
    n_values: int = 0
    is_tied: bool = True

    def __post_init__(self) -> None:
        roles = [role_of(name) for name in self.names]
        self.n_values = sum(role in _VALUES for role in roles)
        self.is_tied = "output" not in roles

    def count(self, role: str) -> int:
        """How many weights of the role came before this one."""
        n = self.done.get(role, 0)
        self.done[role] = n + 1
        return n


_VALUES = ("attn_v", "attn_qkv", "attn_kv_b")
"""Roles that are as sensitive as the values of attention."""

_ROLES = (
    ("attn_qkv.weight", "attn_qkv"),
    ("attn_kv_b.weight", "attn_kv_b"),
    ("attn_v.weight", "attn_v"),
    ("attn_k.weight", "attn_k"),
    ("attn_q.weight", "attn_q"),
    ("attn_output.weight", "attn_output"),
    ("ffn_up", "ffn_up"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_down", "ffn_down"),
)


def role_of(name: str) -> str:
    """The role of a weight (tensor_get_category), "" if it has none."""
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "token_embd"
    return next((role for part, role in _ROLES if part in name), "")


def mixed(model: Model, weight: QuantizedWeight, default: DType) -> str:
    """The type of a weight that is quantized: llama_tensor_get_type_impl. Raises CaptureError as it does."""
    role = role_of(weight.name)
    if model.architecture == "glm5-next" and any(
        part in weight.name for part in ("attn_q_a", "attn_q_b", "nextn.eh_proj")
    ):
        return "q8_0"
    if role == "output" or (model.is_tied and role == "token_embd"):
        return _output(model, weight, default)
    if model.kind == "MXFP4_MOE":
        return _mxfp4(model, weight, role)
    if role == "token_embd":
        return _embeddings(model) or default.name
    if model.kind in _SMALLEST:
        return _smallest(model, role) or default.name
    if role in _VALUES:
        return _values(model, default.name)
    rule = _RULES.get(role)
    return (rule(model, weight, role) if rule is not None else "") or default.name


def _output(model: Model, weight: QuantizedWeight, default: DType) -> str:
    """The output, or the embeddings that stand in for it."""
    if model.kind == "MXFP4_MOE" or model.architecture == "falcon" or weight.columns % default.block_size:
        return "q8_0"
    if model.kind in _OUTPUT_Q5:
        return "q5_K"
    return "q8_0" if default.name == "q8_0" else "q6_K"


def _mxfp4(model: Model, weight: QuantizedWeight, role: str) -> str:
    """Experts are MXFP4, all else is Q8_0."""
    is_expert = model.architecture != "bailingmoe3" or role in ("ffn_up", "ffn_gate", "ffn_down")
    return "mxfp4" if weight.matrices > 1 and is_expert else "q8_0"


def _embeddings(model: Model) -> str:
    if model.kind in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "q2_K"
    if model.kind in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
        return "iq3_s"
    return "q4_K" if model.kind in ("TQ1_0", "TQ2_0", "Q2_0") else ""


def _smallest(model: Model, role: str) -> str:
    """Any weight of the files of one and two bits."""
    better = "iq3_s" if model.kind in _IQ2_SM else "q2_K"
    if role in _VALUES:
        model.count("values")
        return "q4_K" if model.n_gqa >= 4 or model.n_expert >= 4 else better
    if role == "attn_k" and model.n_expert == _MIXTRAL:
        return "q4_K"
    if role == "ffn_down":
        return better if model.count(role) < model.n_layer // 8 else ""
    if role == "attn_output":
        if model.n_expert == _MIXTRAL:
            return "q5_K"
        return {"IQ1_S": "iq2_xxs", "IQ1_M": "iq2_xxs", "IQ2_S": "iq3_s", "IQ2_M": "iq3_s"}.get(model.kind, "")
    return ""


def _values(model: Model, default: str) -> str:
    """The values of attention, alone or with what is multiplied together with them."""
    at = model.count("values")
    chosen = _values_of_kind(model, at) or default
    if model.is_70b and chosen in ("q3_K", "q4_K"):
        chosen = "q5_K"
    return "q8_0" if model.n_expert == _MIXTRAL else chosen


def _values_of_kind(model: Model, at: int) -> str:
    many = model.n_gqa >= 4
    match model.kind:
        case "Q2_K":
            return "q4_K" if many else "q3_K"
        case "IQ3_XXS":
            return "q4_K" if many else "iq3_xxs" if model.imatrix else "iq3_s"
        case "Q2_K_S" | "IQ3_XS" | "IQ3_S":
            return "q4_K" if many else ""
        case "IQ3_M":
            return "q4_K"
        case "Q3_K_M":
            return "q5_K" if at < 2 else "q4_K"
        case "Q3_K_L":
            return "q5_K"
        case "IQ4_NL" | "IQ4_XS":
            return "q5_K" if many else ""
        case "Q4_K_M" | "Q5_K_M":
            return "q6_K" if _is_finer(at, model.n_values) else ""
        case "Q4_K_S":
            return "q5_K" if at < 4 else ""
    return ""


def _keys_or_queries(model: Model, weight: QuantizedWeight, role: str) -> str:
    if role == "attn_k" and model.n_expert == _MIXTRAL:
        return "q8_0"
    return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(model.kind, "")


def _ffn_down(model: Model, weight: QuantizedWeight, role: str) -> str:
    at, n = _layer(model, weight, role), model.n_layer
    is_first, falcon = at < n // 8, model.architecture == "falcon"
    match model.kind:
        case "Q2_K":
            return "q3_K"
        case "Q2_K_S":
            return "q4_K" if is_first else ""
        case "IQ3_XXS" if not model.imatrix:
            return "q4_K" if is_first else "q3_K"
        case "Q3_K_M":
            return "q5_K" if at < n // 16 else "q4_K" if not falcon or _is_finer(at, n) else "q3_K"
        case "IQ3_M":
            return "q4_K" if is_first or (model.n_expert == _MIXTRAL and _is_finer(at, n)) else ""
        case "Q3_K_L":
            return "q4_K" if falcon else "q5_K"
        case "Q4_K_M" if falcon:
            return "q6_K" if at < n // 16 else "q5_K" if _is_finer(at, n) else "q4_K"
        case "Q4_K_M" | "Q5_K_M":
            return "q6_K" if _is_finer(at, n) else ""
        case "IQ4_NL" | "IQ4_XS":
            return "q5_K" if is_first and not model.imatrix else ""
        case "Q4_K_S":
            return "q5_K" if is_first and not falcon else ""
        case "Q4_0" | "Q5_0":
            return {"Q4_0": "q4_1", "Q5_0": "q5_1"}[model.kind] if is_first and model.imatrix else ""
    return ""


def _attn_output(model: Model, weight: QuantizedWeight, role: str) -> str:
    if model.architecture == "falcon":
        return "q4_K" if model.kind == "Q3_K_L" else ""
    if model.n_expert == _MIXTRAL:
        return "q5_K" if model.kind in _MIXTRAL_OUT else ""
    better = {"Q2_K": "q3_K", "IQ3_XXS": "iq3_s", "Q3_K_M": "q4_K", "Q3_K_L": "q5_K", "IQ3_M": "q4_K"}
    return better.get(model.kind, "")


def _gate_or_up(model: Model, weight: QuantizedWeight, role: str) -> str:
    """The layers between the first and the last eighth are smaller in one kind of file."""
    is_middle = model.n_layer // 8 <= _layer(model, weight, role) < 7 * model.n_layer // 8
    return "iq3_xxs" if model.kind == "IQ3_XS" and is_middle else ""


_RULES: Mapping[str, Callable[[Model, QuantizedWeight, str], str]] = {
    "attn_k": _keys_or_queries,
    "attn_q": _keys_or_queries,
    "ffn_down": _ffn_down,
    "attn_output": _attn_output,
    "ffn_gate": _gate_or_up,
    "ffn_up": _gate_or_up,
}


def _layer(model: Model, weight: QuantizedWeight, role: str) -> int:
    """The layer of a weight: how many of its role came before, with experts what its name says."""
    at = model.count(role)
    if model.n_expert <= 1:
        return at
    found = _BLOCK.match(weight.name)
    if found is None:
        raise CaptureError(f"Failed to determine layer for tensor {weight.name}")
    if not 0 <= int(found[1]) < model.n_layer:
        raise CaptureError(f"Bad layer {found[1]} for tensor {weight.name}. Must be in [0, {model.n_layer})")
    return int(found[1])


def _is_finer(at: int, n: int) -> bool:
    """Every third layer, and all of the first and the last eighth."""
    return at < n // 8 or at >= 7 * n // 8 or (at - n // 8) % 3 == 2
