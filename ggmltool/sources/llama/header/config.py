"""What a config.json says of a model, as the metadata of a GGUF file: the keys that llama.cpp's converter writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ggmltool.scenario.gguf import BOOL, F32, U32, GgufValue, value_of
from ggmltool.sources.llama.errors import CaptureError

MAX_LAYERS = 1024
_MOST = (1 << 31) - 1
_LARGEST = 3e38
"""What a number of 32 bits can be, about."""

_SIZES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("context_length", ("max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length",
                        "model_max_length")),
    ("embedding_length", ("hidden_size", "n_embd", "dim")),
    ("feed_forward_length", ("prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size",
                             "n_inner", "hidden_dim")),
    ("attention.head_count", ("num_attention_heads", "n_head", "n_heads")),
    ("attention.head_count_kv", ("num_key_value_heads", "n_kv_heads")),
    ("expert_count", ("num_local_experts", "num_experts", "n_routed_experts")),
    ("expert_used_count", ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")),
    ("expert_group_count", ("n_group",)),
    ("expert_group_used_count", ("topk_group",)),
    ("attention.key_length", ("head_dim",)),
    ("attention.value_length", ("head_dim",)),
)  # fmt: skip
"""Keys of the metadata that are sizes, and the names that configurations have for them."""

_EPSILONS = (
    ("attention.layer_norm_rms_epsilon", ("rms_norm_eps", "norm_eps")),
    ("attention.layer_norm_epsilon", ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")),
)
_YARN = (
    ("rope.scaling.yarn_ext_factor", ("extrapolation_factor",)),
    ("rope.scaling.yarn_attn_factor", ("attention_factor", "attn_factor")),
    ("rope.scaling.yarn_beta_fast", ("beta_fast",)),
    ("rope.scaling.yarn_beta_slow", ("beta_slow",)),
)
_GLOBAL_THETA = ("global_rope_theta", "rope_global_theta", "rope_theta_global", "rope_theta", "rotary_emb_base")
_LOCAL_THETA = (
    "local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq",
)  # fmt: skip


class StoredTensor(NamedTuple):
    """A tensor as it is stored: its type by safetensors' name, and its shape, the slowest dimension first."""

    dtype: str
    shape: tuple[int, ...]


class HfConfig:
    """A config.json, with what it says of text at its top, and the metadata that are made of it.

    Raises CaptureError for a value that is missing or of another kind than llama.cpp's converter expects.
    """

    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self.where = where
        text = given.get("text_config")
        self.given: dict[str, Any] = {**given, **text} if isinstance(text, dict) else dict(given)
        self.n_layer = self.size("num_hidden_layers", "n_layers", "n_layer", "num_layers")
        if not 0 < self.n_layer <= MAX_LAYERS:
            raise self.wrong(f"{self.n_layer} layers", f"1 to {MAX_LAYERS}")
        self.rope = self._rope()
        self.values: dict[str, GgufValue] = {"block_count": value_of(self.n_layer)}

    def wrong(self, what: str, expected: str) -> CaptureError:
        return CaptureError(f"{self.where}: {what}; expected {expected}")

    def get(self, *names: str) -> Any:
        """The first of these that is there and not null, else None."""
        return next((self.given[name] for name in names if self.given.get(name) is not None), None)

    def size(self, *names: str, default: int | None = None) -> int:
        """A number of things."""
        return self._integer(names, self.get(*names), default)

    def add(self, key: str, value: int | float | bool, kind: int | None = None) -> None:
        """Set a value of the metadata."""
        self.values[key] = value_of(value, kind)

    def add_all(self, values: Mapping[str, int]) -> None:
        """Set several values of the metadata."""
        for key, value in values.items():
            self.add(key, value)

    def add_number(self, key: str, *names: str, default: float | None = None) -> None:
        """Set what the configuration has under the first of these names, which may be a fraction."""
        value = self.get(*names)
        self.add(key, self.number(default if value is None else value, names[0]), F32)

    def add_sizes(self, keys: Iterable[str] = ()) -> None:
        """Set the sizes that the configuration has, or those of them that are named."""
        wanted = set(keys)
        for key, names in _SIZES:
            if (not wanted or key in wanted) and self.get(*names) is not None:
                self.add(key, self.size(*names))

    def add_common(self) -> None:
        """Set what most architectures have: TextModel.set_gguf_parameters."""
        self.add_sizes()
        if self.given.get("is_causal") is False:
            self.add("attention.causal", False, BOOL)
        for key, names in _EPSILONS:
            if self.get(*names) is not None:
                self.add_number(key, *names)
        self._add_rope()
        functions = {"softmax": 1, "sigmoid": 2}
        gating = self.get("score_function", "scoring_func", "score_func", "moe_router_activation")
        if gating is not None and (not isinstance(gating, str) or gating not in functions):
            raise self.wrong(f"scoring_func is {str(gating)[:40]!r}", " or ".join(functions))
        if gating is not None:
            self.add("expert_gating_func", functions[gating], U32)

    def number(self, value: object, name: str) -> float:
        """A value as a number that is finite."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            raise self.wrong(f"{name} is {str(value)[:40]!r}", "a number")
        return float(value)

    def numbers(self, value: object, name: str) -> list[float]:
        """A list of numbers, [] where there is none."""
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > _MOST:
            raise self.wrong(f"{name} is {str(value)[:40]!r}", "a list of numbers")
        return [self.number(item, name) for item in value]

    def _integer(self, names: tuple[str, ...], value: object, default: int | None) -> int:
        value = default if value is None else value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            found = "missing" if value is None else repr(str(value)[:40])
            raise self.wrong(f"{names[0]} is {found}", "a whole number")
        return value

    def _rope(self) -> dict[str, Any]:
        """What is said of RoPE, under the names of today's configurations."""
        given = self.get("rope_parameters", "rope_scaling")
        rope: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        if "full_attention" in rope or "sliding_attention" in rope:
            return rope
        local = self.get(*_LOCAL_THETA)
        if local is not None:
            rope["sliding_attention"] = {"rope_theta": local}
        told = {
            "rope_theta": self.get(*_GLOBAL_THETA),
            "rope_type": rope.get("type"),
            "partial_rotary_factor": self.get("partial_rotary_factor", "rope_pct", "rope_percent"),
            "original_max_position_embeddings": self.get("original_max_position_embeddings"),
        }
        return {**{name: value for name, value in told.items() if value is not None}, **rope}

    def rope_of(self, kind: str = "full_attention") -> Mapping[str, Any]:
        """What is said of one kind of attention."""
        found = self.rope.get(kind, self.rope if kind == "full_attention" else {})
        return found if isinstance(found, dict) else {}

    def _add_rope(self) -> None:
        full, sliding = self.rope_of(), self.rope_of("sliding_attention")
        kind, factor = str(full.get("rope_type", "")), full.get("factor")
        if kind in ("linear", "yarn") and factor is not None:
            self.values["rope.scaling.type"] = value_of(kind)
            self.add("rope.scaling.factor", self.number(factor, "factor"), F32)
        if kind == "yarn" and factor is not None:
            name = "original_max_position_embeddings"
            self.add("rope.scaling.original_context_length", self._integer((name,), full.get(name), None))
            for key, names in _YARN:
                given = next((full[name] for name in names if full.get(name) is not None), None)
                if given is not None:
                    self.add(key, self.number(given, names[0]), F32)
        if kind in ("su", "longrope"):
            self.values["rope.scaling.type"] = value_of("longrope")
        if full.get("rope_theta") is not None:
            self.add("rope.freq_base", self.number(full["rope_theta"], "rope_theta"), F32)
        if sliding.get("rope_theta") is not None:
            self.add("rope.freq_base_swa", self.number(sliding["rope_theta"], "rope_theta"), F32)
