"""Which ggml a scenario is for (`ggml: 2025-03`), what that one lacks, and since when there is such a thing.

Dates are those of ggml's own repository. A file that says which ggml it is for and asks for what that one has not is
mistaken; where somebody asks what another ggml would do with it, keys that say nothing there are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ggmltool.ggml.op import KEY_NAMES, Op, op_key
from ggmltool.ggml.releases.parts import profiles_of
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.ggml.tensor import FLAG_PARAM, FLAGS
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.model import BackendSpec, TensorSpec
from ggmltool.scenario.values import as_text

OPS_SINCE = {
    "hardswish": "2024-01-22", "hardsigmoid": "2024-01-22", "arange": "2024-03-03", "timestep_embedding": "2024-03-03",
    "ssm_conv": "2024-03-08", "ssm_scan": "2024-03-08", "flash_attn_ext": "2024-04-30", "sigmoid": "2024-05-01",
    "im2col_back": "2024-07-30", "pool_2d_back": "2024-07-30", "sin": "2024-08-12", "cos": "2024-08-12",
    "exp": "2024-09-01", "opt_step_adamw": "2024-09-20", "count_equal": "2024-10-03", "rwkv_wkv6": "2024-11-07",
    "pad_reflect_1d": "2024-12-03", "gated_linear_attn": "2025-01-10", "l2_norm": "2025-03-18",
    "rwkv_wkv7": "2025-03-18", "custom": "2025-04-09", "conv_2d_dw": "2025-04-17", "gelu_erf": "2025-05-21",
    "roll": "2025-06-18", "set_rows": "2025-06-27", "glu": "2025-06-29", "reglu": "2025-06-29", "geglu": "2025-06-29",
    "swiglu": "2025-06-29", "conv_2d": "2025-06-30", "geglu_erf": "2025-07-03", "geglu_quick": "2025-07-03",
    "add_id": "2025-08-05", "swiglu_oai": "2025-08-05", "opt_step_sgd": "2025-08-14", "conv_3d": "2025-08-22",
    "im2col_3d": "2025-09-04", "xielu": "2025-10-02", "floor": "2025-10-15", "ceil": "2025-10-15",
    "round": "2025-10-15", "trunc": "2025-10-15", "cumsum": "2025-11-13", "tri": "2025-11-13", "fill": "2025-11-13",
    "solve_tri": "2025-11-13", "expm1": "2025-11-13", "softplus": "2025-11-13", "top_k": "2025-11-25",
    "gated_delta_net": "2026-03-07", "col2im_1d": "2026-06-09", "lightning_indexer": "2026-07-11",
    "dsv4_hc_comb": "2026-07-17", "dsv4_hc_pre": "2026-07-17", "dsv4_hc_post": "2026-07-17",
}  # fmt: skip
"""Ops and functions that are younger than January 2024, and the day they came into ggml."""

OPS_UNTIL = {
    "alibi": "2024-05-11", "flash_attn": "2024-05-23", "flash_ff": "2024-05-23", "map_unary": "2025-04-09",
    "map_binary": "2025-04-09", "map_custom1_f32": "2025-04-09", "map_custom2_f32": "2025-04-09",
    "map_custom3_f32": "2025-04-09",
}  # fmt: skip
"""Ops that January 2024 had and 0.20.2 has not, and the day they left ggml. They cannot be written here."""

TYPES_SINCE = {
    "iq3_xxs": "2024-01-30", "iq1_s": "2024-02-18", "iq4_nl": "2024-02-21", "iq3_s": "2024-02-24",
    "iq2_s": "2024-02-26", "iq4_xs": "2024-02-27", "i64": "2024-03-15", "f64": "2024-03-15", "iq1_m": "2024-03-26",
    "bf16": "2024-05-08", "tq1_0": "2024-09-05", "tq2_0": "2024-09-05", "mxfp4": "2025-08-05", "nvfp4": "2026-03-11",
    "q1_0": "2026-04-06", "q2_0": "2026-07-07",
}  # fmt: skip
"""The same of types."""


class Part(NamedTuple):
    """What an op has since a day: a source in slot `source`, or a word of op_params at `word` that is not 0."""

    what: str
    since: str
    source: int = -1
    word: int = -1

    def is_in(self, t: TensorSpec) -> bool:
        """Whether the node has it."""
        if self.source >= 0:
            return len(t.src) > self.source and t.src[self.source] is not None
        return len(t.op_params) > self.word and t.op_params[self.word] != 0


PARTS_SINCE: dict[int, tuple[Part, ...]] = {
    Op.SCALE: (Part("bias", "2025-07-09", word=1),),
    Op.SOFT_MAX: (Part("sinks", "2025-08-05", source=2),),
    Op.FLASH_ATTN_EXT: (Part("sinks", "2025-08-05", source=4),),
    Op.SSM_SCAN: (Part("ids of states", "2025-07-02", source=6),),
    Op.UPSCALE: (Part("mode but nearest", "2025-04-09", word=0),),
    Op.PAD: (
        *(Part("padding on the left", "2025-09-04", word=i) for i in (0, 2, 4, 6)),
        Part("circular padding", "2025-12-06", word=8),
    ),
}
"""Parts of older ops that came later."""

KEYS_SINCE: dict[tuple[str, ...], str] = {
    ("backends", "*", "max_size"): "2024-01-28",
    ("buffer_types", "*", "max_size"): "2024-01-28",
    ("backends", "*", "events"): "2024-03-13",
    ("scheduler", "parallel"): "2024-03-13",
    ("backends", "*", "offload_min_batch"): "2024-03-18",
    ("backends", "*", "supports"): "2024-06-13",
    ("buffer_types", "*", "ops"): "2024-06-13",
    ("scheduler", "op_offload"): "2025-05-11",
    ("backends", "*", "graph_optimize"): "2025-09-08",
}
"""Keys of a scenario, and since when ggml has what they say; `*` stands for any entry."""

OP_OFFLOAD_SINCE = KEYS_SINCE["scheduler", "op_offload"]
"""Since when op offload can be switched off."""

KEYS_UNTIL: dict[tuple[str, ...], str] = {
    ("contexts", "*", "tallocr"): "2024-02-11",
    ("cpu_base_misalign",): "2024-10-17",
}
"""Keys of a scenario that say something about ggml until a day only."""

FLAGS_SINCE = "2024-02-11"
EVAL_CALLBACK_SINCE = "2024-01-17"
TEST_NODES_SINCE = "2025-06-29"

PROFILES_SINCE = {
    "Vulkan": "2024-02-10", "SYCL": "2024-02-10", "RPC": "2024-05-14", "BLAS": "2024-06-16", "CANN": "2024-08-08",
    "OpenCL": "2025-01-14",
}  # fmt: skip
"""Kinds of backends that are younger than January 2024, and the day they came into ggml."""


def read_ggml(value: object) -> Release:
    """The release of a name, by default the newest. Raises Mistake."""
    if value is None:
        return DEFAULT
    name = as_text(value, "ggml")
    if name not in RELEASES:
        raise Mistake(f"there is no ggml {quoted(name)} here", _which(name))
    return RELEASES[name]


def _which(name: str) -> str:
    return did_you_mean(name, RELEASES) or f"ggml is {' or '.join(RELEASES)}"


def lacks(release: Release, since: str) -> bool:
    """Whether something of this day is younger than the release."""
    return since > release.date


def without_unknown(top: dict[str, Any], release: Release) -> tuple[dict[str, Any], list[str]]:
    """The scenario without the keys that the release knows nothing of, and their names."""
    out, left_out = dict(top), []
    for path in unknown_keys(top, release):
        out = _without(out, path)
        left_out.append(_key_text(path))
    return out, left_out


def check_keys_known(top: dict[str, Any], release: Release) -> None:
    """Refuse a key that the release knows nothing of. Raises Mistake."""
    for path in unknown_keys(top, release):
        pattern = next(p for p in (*KEYS_SINCE, *KEYS_UNTIL) if _fits(path, p))
        since = KEYS_SINCE.get(pattern)
        when = f"it exists since {since}" if since else f"ggml had it until {KEYS_UNTIL[pattern]}"
        hint = "leave it out" if since else "leave it out, or write `ggml: 2024-01`"
        raise Mistake(f"ggml {release.name} has no {path[-1]}; {when}", hint, *path, on_key=True)


def unknown_keys(top: dict[str, Any], release: Release) -> Iterator[tuple[str | int, ...]]:
    """Where keys stand that the release knows nothing of."""
    for pattern, since in KEYS_SINCE.items():
        if lacks(release, since):
            yield from _places(top, pattern)
    for pattern, until in KEYS_UNTIL.items():
        if not lacks(release, until):
            yield from _places(top, pattern)


def _places(value: object, pattern: tuple[str, ...]) -> Iterator[tuple[str | int, ...]]:
    if not pattern:
        yield ()
        return
    head, *rest = pattern
    entries: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        entries = [(k, v) for k, v in value.items() if head in ("*", k)]
    elif isinstance(value, list) and head == "*":
        entries = list(enumerate(value))
    for key, entry in entries:
        yield from ((key, *path) for path in _places(entry, tuple(rest)))


def _fits(path: tuple[str | int, ...], pattern: tuple[str, ...]) -> bool:
    return len(path) == len(pattern) and all(p in ("*", k) for k, p in zip(path, pattern, strict=True))


def _without(value: Any, path: tuple[str | int, ...]) -> Any:
    """A copy without the entry at `path`, as deep as it has to be."""
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    head, *rest = path
    if rest:
        copy[head] = _without(copy[head], tuple(rest))
    else:
        del copy[head]
    return copy


def _key_text(path: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in path if isinstance(part, str))


def has_no_flags(release: Release) -> bool:
    """Whether tensors of the release cannot be flagged as inputs and outputs."""
    return lacks(release, FLAGS_SINCE)


def without_flags(t: TensorSpec, release: Release) -> bool:
    """Whether the tensor is flagged in a way that says nothing to the release."""
    return has_no_flags(release) and t.flags & ~FLAG_PARAM != 0


def check_flags(t: TensorSpec, release: Release) -> None:
    """Refuse flags that the release does not have. Raises Mistake."""
    if without_flags(t, release):
        word = next(word for word, bit in FLAGS.items() if t.flags & bit & ~FLAG_PARAM)
        raise Mistake(f"ggml {release.name} has no flag {word}; there are such since {FLAGS_SINCE}", "leave it out")


def check_profiles(backends: Iterable[BackendSpec], release: Release) -> None:
    """Refuse a backend of a profile whose rules of that time are not known. Raises Mistake."""
    known = profiles_of(release)
    for i, backend in enumerate(backends):
        if backend.profile not in known:
            since = PROFILES_SINCE.get(backend.profile, "")
            message = f"the rules that {backend.profile} had in ggml {release.name} are not known here"
            if lacks(release, since):
                message = f"ggml {release.name} has no {backend.profile}; it exists since {since}"
            hint = f"known are {', '.join(known)}; of others say what they do: profile: custom, supports, …"
            raise Mistake(message, hint, i)


def check_known(t: TensorSpec, release: Release) -> None:
    """Refuse a tensor of a type, or a node of an op, that the release does not have. Raises Mistake."""
    since = TYPES_SINCE.get(t.type.name, "")
    if lacks(release, since):
        raise Mistake(f"ggml {release.name} has no type {t.type.name}; it exists since {since}")
    name = KEY_NAMES[op_key(t.op, t.op_params)]
    since = OPS_SINCE.get(name, "")
    if lacks(release, since):
        raise Mistake(f"ggml {release.name} has no op {name}; it exists since {since}")
    for part in PARTS_SINCE.get(t.op, ()):
        if lacks(release, part.since) and part.is_in(t):
            raise Mistake(f"{name} has no {part.what} in ggml {release.name}; it is available since {part.since}")
