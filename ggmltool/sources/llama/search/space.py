"""What a search may vary: the settings of a context, and where the weights go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal, NamedTuple

from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.options import AUTO_PARALLEL, CaptureOptions

AUTO = -1
"""As a number of sequences: -np auto."""

CTX_STEP = 256
"""llama.cpp rounds the context of a sequence up to so many tokens."""

MAX_SETTINGS = 4096


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


def contexts(least: int, most: int, step: int = CTX_STEP) -> tuple[int, ...]:
    """The contexts of a range, both ends included.

    >>> contexts(1000, 2000, 512)
    (1000, 1512, 2000)
    """
    return (*range(least, most, max(step, 1)), most)


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
