"""What llama.cpp's own --fit would choose for the same devices, beside what `fit` found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ggmltool.inspect.chosen import FitAsked, choose
from ggmltool.inspect.errors import InspectError
from ggmltool.inspect.fit_wishes import Wishes
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.placed import place
from ggmltool.inspect.placing import Asked
from ggmltool.sources.llama.errors import PlaceError


class OwnChoice(NamedTuple):
    """Its options by name, the splits of all graphs, what devices have left in bytes, and whether that fits; seconds
    are looked up by `Fit`.

    `reason` is what llama.cpp says where it cannot choose, "" else.
    """

    options: Mapping[str, str]
    splits: int
    left: Mapping[str, int]
    fits: bool
    reason: str


def own_choice(wishes: Wishes, opened_for: Callable[[int], Opened]) -> OwnChoice | None:
    """The choice, of what nobody set: layers, their split, experts; None where --fit is not followed.

    `opened_for` gives the capture with a context of so many tokens.
    """
    r = wishes.ranges
    if r.layers or r.tensor_split or r.override_tensor or r.n_cpu_moe is not None or r.n_cpu_ffn is not None:
        return None
    n_ctx = r.contexts[0] if len(r.contexts) == 1 else 0
    try:
        chosen = choose(opened_for, wishes.common, Asked("auto"), FitAsked(n_ctx, flash_auto="auto" in r.flash_attn))
        placed = place(chosen.opened, wishes.common, chosen.asked).placed
    except (InspectError, PlaceError):
        return None
    needs = placed.needs
    asked = chosen.asked
    options = {
        "-c": str(chosen.opened.model.meta.get("n_ctx", "")),
        "-ngl": asked.n_gpu_layers,
        "-ts": asked.tensor_split,
        "-ot": ",".join(asked.override_tensor),
    }
    left = {device: n for device in needs.memory if (n := needs.left(device)) is not None}
    return OwnChoice(
        {name: value for name, value in options.items() if value},
        sum(graph.splits for graph in needs.graphs),
        left,
        not placed.short and placed.error is None,
        "" if chosen.ok else chosen.fitted.reason,
    )
