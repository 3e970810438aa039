"""Settings as llama.cpp's own command line spells them (common/arg.cpp), for the build that is asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ggmltool.sources.llama.layers import ALL, PlaceOptions
from ggmltool.sources.llama.options import AUTO_PARALLEL, CaptureOptions

Tool = Literal["llama-server", "llama-cli"]

_DENSE_SINCE = 10809
"""The first build that is known to have -ncffn and -lzm."""
_DEFAULTS = CaptureOptions()
_CPU_FFN = re.compile(r"--n-cpu-ffn (\d+)")
_SHORT = {"--cpu-moe": "-cmoe", "--n-cpu-moe": "-ncmoe", "--n-cpu-ffn": "-ncffn"}


class Setting(NamedTuple):
    """An option as it is written; a flag has no value."""

    name: str
    value: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, self.value) if self.value else (self.name,)


def line(
    tool: Tool,
    model: str,
    capture: CaptureOptions,
    place: PlaceOptions,
    devices: Sequence[str],
    build: str = "",
) -> str:
    """The line to paste into a POSIX shell that runs a model so; `devices` are the names of its GPUs (-dev).

    `build` is llama.cpp's, as b11549 ("": the newest that is known). Nothing is left to --fit.
    """
    settings = [Setting("-m", model), *context_settings(tool, capture), *place_settings(place, devices, build)]
    return shlex.join([tool, *(word for setting in settings for word in setting.words)])


def can_run(tool: Tool, capture: CaptureOptions) -> bool:
    """Whether the tool can be told so: llama-cli has one conversation, and no option for a cache that is shared."""
    return tool == "llama-server" or (capture.n_parallel == 1 and not capture.kv_unified)


def context_settings(tool: Tool, options: CaptureOptions) -> Iterator[Setting]:
    """The options of a context; of several defaults, llama-server's own number of sequences is not ours."""
    yield Setting("-c", str(options.n_ctx))
    if tool == "llama-server":
        if options.kv_unified and options.n_parallel != AUTO_PARALLEL:
            yield Setting("-kvu")
        yield from [] if _auto(options) else [Setting("-np", str(options.n_parallel))]
    n_batch = max(options.n_batch, options.n_ubatch)
    if n_batch != _DEFAULTS.n_batch:
        yield Setting("-b", str(n_batch))
    if options.n_ubatch != _DEFAULTS.n_ubatch:
        yield Setting("-ub", str(options.n_ubatch))
    if options.flash_attn != _DEFAULTS.flash_attn:
        yield Setting("-fa", options.flash_attn)
    if options.type_k != _DEFAULTS.type_k:
        yield Setting("-ctk", options.type_k)
    if options.type_v != _DEFAULTS.type_v:
        yield Setting("-ctv", options.type_v)
    if options.swa_full:
        yield Setting("--swa-full")


def _auto(options: CaptureOptions) -> bool:
    """Whether llama-server does so without being told: several sequences that share one cache."""
    return options.n_parallel == AUTO_PARALLEL and options.kv_unified


def place_settings(options: PlaceOptions, devices: Sequence[str], build: str = "") -> Iterator[Setting]:
    """The options of placement, all of them, so that --fit has nothing to change."""
    newest = not build or int(build.removeprefix("b")) >= _DENSE_SINCE
    yield Setting("-dev", ",".join(devices) or "none")
    if devices:
        yield Setting("-ngl", "all" if options.n_gpu_layers == ALL else str(options.n_gpu_layers))
    if options.split_mode != "layer":
        yield Setting("-sm", options.split_mode)
        yield Setting("-mg", str(options.main_gpu))
    elif len(devices) > 1 and options.tensor_split:
        yield Setting("-ts", ",".join(f"{share:g}" for share in options.tensor_split))
    yield from _overrides(options, newest)
    if not options.offload_kqv:
        yield Setting("-nkvo")
    if not options.op_offload:
        yield Setting("--no-op-offload")
    if not options.extra_bufts:
        yield Setting("-nr")
    if newest and options.lazy_mode != "auto":
        yield Setting("-lzm", options.lazy_mode)
    yield Setting("-fit", "off")


def _overrides(options: PlaceOptions, newest: bool) -> Iterator[Setting]:
    """-ot and what is short for it, in the order in which the first match wins."""
    patterns: list[str] = []
    rest: list[Setting] = []
    for option in dict.fromkeys(override.option for override in options.overrides):
        name, _, value = option.partition(" ")
        if name == "-ot":
            patterns.append(value)
        elif (dense := _CPU_FFN.fullmatch(option)) is not None and not newest:
            layers = "|".join(map(str, range(int(dense[1]))))
            rest.append(Setting("-ot", rf"blk\.({layers})\.ffn_(up|down|gate)\.=CPU"))
        else:
            rest.append(Setting(_SHORT[name], value))
    if patterns:
        yield Setting("-ot", ",".join(patterns))
    yield from rest
