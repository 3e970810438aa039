"""What `fit` is asked for, as a space to search; and the options of what is found, as they are written."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from msgspec import structs

from ggmltool.ask.place.chosen import choose
from ggmltool.ask.place.options import (
    AUTO_LAYERS,
    PlaceRequest,
    Placing,
    asked,
    options_of,
    overrides,
    request_of,
    several,
)
from ggmltool.ask.place.record import place
from ggmltool.inspect.opened import Opened
from ggmltool.inspect.ranges import doublings
from ggmltool.scenario.spec import ScenarioSpec
from ggmltool.sources.llama.capture.options import CaptureOptions
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.options import ALL
from ggmltool.sources.llama.place.parts import number_of
from ggmltool.sources.llama.search.candidates import Candidate, Objective
from ggmltool.sources.llama.search.space import AUTO, CTX_STEP, OPTIONS, Setting, Space
from ggmltool.state.errors import InspectError

LEAST_CTX = 8192
"""The shortest context that is tried where none is asked for: it has room for what is to be fast (DEPTH, and more)."""

UBATCHES = (512, 1024, 2048, 4096)
"""The sizes of ubatch that are tried where none is asked for."""

DEPTH = 4096
"""Tokens in the caches where no other number is asked for: with none, it would not matter where caches lie."""

_DEFAULT = Setting()


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is asked for; what is left out is searched, or llama.cpp's default.

    `contexts` (): doublings from 8192 to the model's own. `layers` (): any number; ALL is one. `tensor_split` (): any
    shares. Of contexts that double, those between are tried, too, where the longest is wanted. `n_cpu_moe` and
    `n_cpu_ffn` None: as many as are needed.
    """

    contexts: tuple[int, ...] = ()
    n_batch: int = 2048
    ubatches: tuple[int, ...] = UBATCHES
    types_k: tuple[str, ...] = ("f16",)
    types_v: tuple[str, ...] = ("f16",)
    parallel: tuple[int, ...] = (1,)
    flash_attn: tuple[Literal["auto", "off", "on"], ...] = ("auto",)
    layers: tuple[int, ...] = ()
    tensor_split: tuple[float, ...] = ()
    override_tensor: tuple[str, ...] = ()
    n_cpu_moe: int | None = None
    n_cpu_ffn: int | None = None


class Wishes(NamedTuple):
    """A search that is asked for: the model as its user calls it, and what holds for all its placements.

    `captured` says that it is the capture of a graph, so that nothing of its context can be changed. `base` and `flags`
    are the options of captures that are not searched, as values and as they are written; `quantization` is the kind of
    file that the model is taken as ("": as it is).
    """

    argument: str
    ranges: Ranges
    common: Placing[Any]
    objective: Objective = "fastest"
    captured: bool = False
    base: CaptureOptions = CaptureOptions()
    flags: Mapping[str, str] = {}
    quantization: str = ""

    def space(self, model: ScenarioSpec) -> Space:
        """All that may be tried of a model. Raises InspectError for options that cannot be read."""
        r, common = self.ranges, structs.replace(self.common, n_cpu_ffn=self.ranges.n_cpu_ffn or 0)
        fixed = overrides(r.override_tensor, r.n_cpu_moe or 0, common)
        base = options_of(model, common, ALL, r.tensor_split, fixed)
        placed = Space(
            layers=r.layers or None,
            split=r.tensor_split,
            experts=r.n_cpu_moe is None and not common.cpu_moe,
            dense=r.n_cpu_ffn is None,
            margins=common.margins,
            base=base,
        )
        if self.captured:
            return placed
        contexts = r.contexts or doublings(LEAST_CTX, number_of(model, "n_ctx_train", LEAST_CTX))
        between = len(contexts) > 1 and contexts == doublings(contexts[0], contexts[-1])
        return replace(
            placed,
            contexts=contexts,
            ctx_step=CTX_STEP if between else 0,
            n_batch=r.n_batch,
            ubatches=r.ubatches,
            cache_types=tuple((k, v) for k in r.types_k for v in r.types_v),
            parallel=r.parallel,
            flash_attn=r.flash_attn,
        )

    def options(self, candidate: Candidate) -> dict[str, str]:
        """The options of a candidate by name, in llama.cpp's spelling."""
        return {**self.context(candidate), **self.placement(candidate)}

    def context(self, candidate: Candidate) -> dict[str, str]:
        """The options that its graph was captured with here, but for defaults and `flags`."""
        if self.captured:
            return {}
        setting, words = candidate.setting, {"-c": str(candidate.n_ctx)}
        for name, option in OPTIONS.items():
            value = getattr(setting, name)
            if name != "n_ctx" and value != getattr(_DEFAULT, name):
                words[option] = "auto" if name == "n_parallel" and value == AUTO else str(value)
        return words

    def placement(self, candidate: Candidate) -> dict[str, str]:
        """The options that place it, those that are fixed among them."""
        r, words = self.ranges, dict(candidate.words)
        if r.tensor_split:
            words["-ts"] = ",".join(f"{share:g}" for share in r.tensor_split)
        words |= {"--n-cpu-moe": str(r.n_cpu_moe)} if r.n_cpu_moe else {}
        words |= {"--n-cpu-ffn": str(r.n_cpu_ffn)} if r.n_cpu_ffn else {}
        patterns = [*r.override_tensor, *([words.pop("-ot")] if "-ot" in words else [])]
        return words | ({"-ot": ",".join(patterns)} if patterns else {})

    def asked(self, candidate: Candidate) -> PlaceRequest[Any]:
        """The same placement as `place` is asked for it."""
        words = self.placement(candidate)
        return request_of(
            self.common,
            n_gpu_layers=words["-ngl"],
            tensor_split=words.get("-ts", ""),
            override_tensor=words.get("-ot", ()),
            n_cpu_moe=int(words.get("--n-cpu-moe", "0")),
            n_cpu_ffn=int(words.get("--n-cpu-ffn", "0")),
        )

    def least(self) -> PlaceRequest[Any]:
        """The placement with the fewest layers on GPUs that was allowed: what is short where bounds rule out all."""
        r = self.ranges
        fewest = min((n for n in r.layers if n != ALL), default=None)
        layers = "0" if not r.layers else "all" if fewest is None else str(fewest)
        return request_of(
            self.common,
            n_gpu_layers=layers,
            tensor_split=",".join(f"{share:g}" for share in r.tensor_split),
            override_tensor=r.override_tensor,
            n_cpu_moe=r.n_cpu_moe or 0,
            n_cpu_ffn=r.n_cpu_ffn or 0,
        )

    def capture_options(self, candidate: Candidate) -> CaptureOptions:
        """The options that its graph is captured with."""
        return replace(candidate.setting.capture_options(self.base), n_ctx=candidate.n_ctx)

    def least_options(self) -> CaptureOptions:
        """The capture of it: the shortest context, the smallest batch."""
        r = self.ranges
        n_ctx, n_ubatch = min(r.contexts, default=LEAST_CTX), min(r.ubatches)
        types = r.types_k[-1], r.types_v[-1]
        least = Setting(n_ctx, max(r.n_batch, n_ubatch), n_ubatch, *types, r.parallel[0], r.flash_attn[0])
        return least.capture_options(self.base)

    def most_options(self) -> CaptureOptions:
        """The capture of the setting that was wanted most, but for its context: the first value of each option."""
        r = self.ranges
        n_batch = max(r.n_batch, r.ubatches[0])
        most = Setting(0, n_batch, r.ubatches[0], r.types_k[0], r.types_v[0], r.parallel[0], r.flash_attn[0])
        return most.capture_options(self.base)

    def place_line(self, candidate: Candidate) -> str:
        """The command that shows a candidate."""
        head = ["ggmltool", "place", self.argument, *(w for d in self.common.devices for w in ("--device", d))]
        words = {name: value for name, value in self.placement(candidate).items() if name != "--n-cpu-ffn"}
        placed = asked(self.asked(candidate), **{name: shlex.quote(value) for name, value in words.items()})
        depth = {"-d": str(self.common.n_depth)} if self.common.n_depth else {}
        captured = shell_words({**self.context(candidate), **self.flags, **depth})
        return " ".join(filter(None, [shlex.join(head), placed, captured]))


def shell_words(options: Mapping[str, str]) -> str:
    """Options as they are pasted into a shell; one without a value is a flag."""
    return " ".join(f"{name} {shlex.quote(value)}" if value else name for name, value in options.items())


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
        request = request_of(wishes.common, n_gpu_layers=AUTO_LAYERS, n_cpu_ffn=0)
        chosen = choose(opened_for, request, n_ctx, flash_auto="auto" in r.flash_attn)
        placed = place(chosen.opened, chosen.asked)
    except (InspectError, PlaceError):
        return None
    needs, asked = placed.facts.needs, chosen.asked
    n_ctx_told = str(chosen.opened.model.meta.get("n_ctx", ""))
    options = {"-c": n_ctx_told, "-ngl": asked.layers, "-ts": asked.tensor_split}
    options["-ot"] = ",".join(several(asked.override_tensor))
    left = {device: n for device in needs.memory if (n := needs.left(device)) is not None}
    options = {name: value for name, value in options.items() if value}
    splits = sum(graph.splits for graph in needs.graphs)
    return OwnChoice(options, splits, left, placed.fine, "" if chosen.ok else chosen.fitted.reason)
