"""One way to place a model: layers on each GPU, and feed-forward weights of those that stay on the CPU all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from ggmltool.sources.llama.layers import PlaceOptions
from ggmltool.sources.llama.overrides import Override, n_cpu_ffn, n_cpu_moe

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
