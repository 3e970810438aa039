"""What a search may vary: the settings of a context, and where the weights go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from typing import Literal, NamedTuple

from ggmltool.sources.llama.capture.options import AUTO_PARALLEL, CaptureOptions
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.options import Override, PlaceOptions, n_cpu_ffn, n_cpu_moe

AUTO = -1
"""As a number of sequences: -np auto."""

CTX_STEP = 256
"""llama.cpp rounds the context of a sequence up to so many tokens."""

MAX_SETTINGS = 4096

Vector = tuple[float, ...]
"""What a choice costs, the most important first; less is better."""


class Setting(NamedTuple):
    """What one graph is captured with; `n_ctx` 0 is the model's own, `n_parallel` AUTO four that share one cache."""

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    n_parallel: int = 1
    flash_attn: Literal["auto", "off", "on"] = "auto"

    def capture_options(self, base: CaptureOptions) -> CaptureOptions:
        """The options of a capture of both graphs, a prompt's and a token's; what is not varied is that of `base`."""
        auto = self.n_parallel == AUTO
        return replace(
            base,
            **self._asdict() | {"n_parallel": AUTO_PARALLEL if auto else self.n_parallel},
            kv_unified=base.kv_unified or auto,
            phase="both",
        )


@dataclass(frozen=True, slots=True)
class Space:
    """All that a search may try.

    Each list has its most wanted value first, except for `contexts`, of which more is more wanted; with a `ctx_step`,
    contexts between them are tried, too, where the longest is wanted: until one fits and one that is so much longer
    does not. `n_batch` is at least the ubatch. `layers` None: any number on GPUs, else one of these (-1: all). `split`
    (): any shares, else these. `experts` and `dense` say whether the weights of experts and of dense feed-forward parts
    may stay on the CPU where their layer is on a GPU; `parts`, whether so of some of a layer's `down`, `gate` and `up`.
    `margins` have to stay free, a number for each GPU or one for all. `base` is what all placements share.
    """

    contexts: tuple[int, ...] = (0,)
    ctx_step: int = 0
    n_batch: int = 2048
    ubatches: tuple[int, ...] = (512,)
    cache_types: tuple[tuple[str, str], ...] = (("f16", "f16"),)
    parallel: tuple[int, ...] = (1,)
    flash_attn: tuple[Literal["auto", "off", "on"], ...] = ("auto",)
    layers: tuple[int, ...] | None = None
    split: tuple[float, ...] = ()
    experts: bool = True
    dense: bool = False
    parts: bool = True
    margins: tuple[int, ...] = (1 << 30,)
    base: PlaceOptions = field(default_factory=PlaceOptions)

    def settings(self) -> list[Setting]:
        """Every combination, the most wanted first: the longest context, then the lists' order. Raises PlaceError."""
        n = len(self.contexts) * len(self.ubatches) * len(self.cache_types) * len(self.parallel) * len(self.flash_attn)
        if n > MAX_SETTINGS:
            raise PlaceError(f"{n} graphs are too many to search; the limit is {MAX_SETTINGS}")
        contexts = sorted(set(self.contexts), key=lambda n: (n == 0, n), reverse=True)
        return [
            Setting(n_ctx, max(self.n_batch, n_ubatch), n_ubatch, *types, n_parallel, flash_attn)
            for n_ctx, n_parallel, types, flash_attn, n_ubatch in product(
                contexts, self.parallel, self.cache_types, self.flash_attn, self.ubatches
            )
        ]


def given_up(setting: Setting, wanted: Sequence[Setting]) -> tuple[str, ...]:
    """What the setting has less of than the most wanted one, in llama.cpp's spelling.

    >>> given_up(Setting(32768, type_k="q8_0"), [Setting(65536)])
    ('-c 32768 instead of 65536', '-ctk q8_0 instead of f16')
    """
    best = wanted[0]
    return tuple(
        f"{name} {_word(field, getattr(setting, field))} instead of {_word(field, getattr(best, field))}"
        for field, name in OPTIONS.items()
        if getattr(setting, field) != getattr(best, field)
    )


OPTIONS = {
    "n_ctx": "-c",
    "n_parallel": "-np",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "flash_attn": "-fa",
    "n_batch": "-b",
    "n_ubatch": "-ub",
}
"""The option of each field of a Setting."""


def _word(field: str, value: object) -> str:
    return "auto" if field == "n_parallel" and value == AUTO else str(value)


PARTS = ("down", "gate", "up")
"""The parts of a layer's feed-forward in the order in which they leave a GPU."""


class Spill(NamedTuple):
    """The parts of a layer's experts (`experts`) or of its dense feed-forward weights that stay on the CPU."""

    layer: int
    experts: bool
    parts: tuple[str, ...]


class Choice(NamedTuple):
    """`counts` are the layers on each GPU, the output's among them, the last layers of the model."""

    counts: tuple[int, ...]
    spilled: tuple[Spill, ...] = ()

    @property
    def n_gpu_layers(self) -> int:
        return sum(self.counts)

    def options(self, base: PlaceOptions, n_layer: int) -> PlaceOptions:
        """llama.cpp's options of it; a -ts that is given in `base` stays. Overrides of `base` come first."""
        split = base.tensor_split
        if not split and len(self.counts) > 1 and any(self.counts):
            split = tuple(map(float, self.counts))
        overrides = (*base.overrides, *self.overrides(n_layer))
        return replace(base, n_gpu_layers=self.n_gpu_layers, tensor_split=split, overrides=overrides)

    def overrides(self, n_layer: int) -> tuple[Override, ...]:
        """What sends the spilled weights to the CPU."""
        words = self.words(n_layer)
        if "--n-cpu-moe" in words or "--n-cpu-ffn" in words:
            moe, ffn = int(words.get("--n-cpu-moe", 0)), int(words.get("--n-cpu-ffn", 0))
            return (*n_cpu_moe(moe), *n_cpu_ffn(ffn))
        option = words.get("-ot")
        if option is None:
            return ()
        patterns = [rule.removesuffix("=CPU") for rule in option.split(",")]
        return tuple(Override(re.compile(p), "CPU", f"-ot {p}=CPU") for p in patterns)

    def words(self, n_layer: int) -> Mapping[str, str]:
        """The options by name, as llama.cpp spells them: -ngl, -ts, and what spills."""
        words = {"-ngl": str(self.n_gpu_layers)}
        if len(self.counts) > 1 and any(self.counts):
            words["-ts"] = ",".join(map(str, self.counts))
        return words | _spilled_words(self, n_layer)


def _spilled_words(choice: Choice, n_layer: int) -> dict[str, str]:
    """--n-cpu-moe or --n-cpu-ffn where all that spills are the first layers', else -ot.

    The first layers may be on the CPU themselves, where the options change nothing.
    """
    if not choice.spilled:
        return {}
    words = {}
    first = n_layer + 1 - choice.n_gpu_layers
    for experts, option in ((True, "--n-cpu-moe"), (False, "--n-cpu-ffn")):
        mine = [s for s in choice.spilled if s.experts is experts]
        layers = {s.layer for s in mine}
        if mine and (any(s.parts != PARTS for s in mine) or layers != set(range(max(first, 0), max(layers) + 1))):
            return {"-ot": ",".join(_rules(choice.spilled))}
        if mine:
            words[option] = str(max(layers) + 1)
    return words


def _rules(spilled: tuple[Spill, ...]) -> list[str]:
    """REGEX=CPU for all that spill alike."""

    def alike(spill: Spill) -> tuple[bool, tuple[str, ...]]:
        return (not spill.experts, spill.parts)

    out = []
    for (dense, parts), spills in groupby(sorted(spilled, key=lambda s: (alike(s), s.layer)), key=alike):
        layers = "|".join(str(s.layer) for s in spills)
        out.append(f"{pattern(layers, not dense, parts)}=CPU")
    return out


def pattern(layers: str, experts: bool, parts: Iterable[str]) -> str:
    """The regular expression for such parts of these layers (numbers with | between)."""
    names = "|".join("gate|gate_up" if part == "gate" and experts else part for part in parts)
    end = "_(ch|)exps" if experts else r"\."
    return rf"blk\.{_one_of(layers)}\.ffn_{_one_of(names)}{end}"


def _one_of(texts: str) -> str:
    """In parentheses where there is a choice.

    >>> _one_of("5"), _one_of("5|6")
    ('5', '(5|6)')
    """
    return f"({texts})" if "|" in texts else texts
