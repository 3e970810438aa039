"""llama.cpp's own choice (`--fit on`, -ngl auto): what it would set for these devices, and how it came to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from ggmltool.ask.place.options import DEFAULT_MARGIN, Common, PlaceRequest, devices_of
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.scenario.versions import lacks
from ggmltool.show.document import Row
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.own_fit.common_fit import common_fit_params
from ggmltool.sources.llama.own_fit.records import (
    ALL_LAYERS,
    AUTO,
    MIN_CTX,
    FitDevice,
    FitParams,
    FitSettings,
    Fitted,
    PlacedMemory,
    Status,
    fit_devices,
    fit_model,
    place_options,
)
from ggmltool.sources.llama.place.needs import margins_of
from ggmltool.sources.llama.place.options import PlaceOptions
from ggmltool.sources.llama.place.parts import number_of
from ggmltool.sources.llama.place.place import Placer
from ggmltool.state.errors import InspectError

FOLLOWED_SINCE = "2026-08-21"
"""llama.cpp's --fit is followed as it is since this day, that of ggml 0.21."""

SEQUENCES_SINCE = "2026-09-01"
"""Since when it counts the context for every sequence, and sets one that nobody set whatever else it does."""

AUTO_LAYERS = "auto"
"""-ngl, as it is left to --fit."""

OpenedFor = Callable[[int], Opened]
"""The captured model with a context of so many tokens; 0 is the model's own. Raises for one that cannot be captured."""


class FitAsked(NamedTuple):
    """What --fit is asked for: `n_ctx` 0 leaves the context to it, `n_ctx_min` is the shortest that it may set.

    `flash_auto`: flash attention is left to llama.cpp (-fa auto).
    """

    n_ctx: int = 0
    n_ctx_min: int = MIN_CTX
    flash_auto: bool = True


class Chosen(NamedTuple):
    """What llama.cpp would set, on which devices, with which of their memory to be left, in bytes.

    `asked` is what it was asked for, with its own choice in the place of what nobody set; `opened` the capture with
    the context that it chose.
    """

    fitted: Fitted
    devices: Sequence[FitDevice]
    margins: Sequence[int]
    asked: PlaceRequest
    opened: Opened

    @property
    def ok(self) -> bool:
        """Whether llama.cpp says that it fits."""
        return self.fitted.ok

    @property
    def arguments(self) -> str:
        """The parameters as llama-fit-params prints them."""
        return arguments(self.fitted.params)


def read_fit_target(text: str) -> tuple[int, ...]:
    """--fit-target: MiB for each GPU, or one number for all; GPUs beyond the list keep the default. Raises
    InspectError.
    """
    parts = [part.strip() for part in text.replace("/", ",").split(",")]
    if not all(part.isdecimal() and len(part) < 12 for part in parts):
        raise InspectError(f"{text!r} is not a list of MiB, e.g. 1024 or 1024,512")
    margins = tuple(int(part) << 20 for part in parts)
    return margins if len(margins) == 1 else margins + DEFAULT_MARGIN


def arguments(params: FitParams) -> str:
    """Parameters as llama-fit-params prints them: -c, -ngl, -ts up to the last share, -ot."""
    words = [f"-c {params.n_ctx} -ngl {params.n_gpu_layers}"]
    shares = list(params.tensor_split)
    while shares and not shares[-1]:
        shares.pop()
    if len(shares) > 1:
        words.append(f"-ts {','.join(str(int(share)) for share in shares)}")
    if params.overrides:
        words.append(f'-ot "{_overrides(params)}"')
    return " ".join(words)


def choose(
    opened_for: OpenedFor,
    common: Common,
    asked: PlaceRequest,
    fit: FitAsked,
    note: Callable[[str], None] = lambda text: None,
) -> Chosen:
    """What llama.cpp's --fit would set. `note` is told of devices that are not known.

    Raises InspectError, and what `opened_for` raises.
    """
    opened = opened_for(fit.n_ctx)
    options = _options(opened.model, common, asked)
    devices = devices_of(opened.model, common, len(options.tensor_split), note)
    params = FitParams(fit.n_ctx, _n_gpu_layers(asked), options.tensor_split, options.overrides)

    @cache
    def captures(n_ctx: int) -> Placer:
        return _prompt_placer(opened_for(n_ctx).model, devices)

    try:
        placer = captures(fit.n_ctx)
        gpus = fit_devices(placer, options)
        settings = _settings(placer, options, gpus, common, fit)
        memory = PlacedMemory(captures, options, fit.flash_auto)
        counts = not lacks(opened.model.release, SEQUENCES_SINCE)
        fitted = common_fit_params(fit_model(placer), gpus, settings, params, memory, counts)
        split = place_options(options, fitted.params, placer).tensor_split
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}") from None
    chosen = _chosen(replace_auto(asked), fitted.params, split)
    return Chosen(fitted, gpus, settings.margins, chosen, opened_for(fitted.params.n_ctx))


def printed(opened: Opened, common: Common, asked: PlaceRequest, flash_auto: bool = True) -> str:
    """What llama-fit-params prints with -fitp on: MiB of weights, cache and compute buffers of each device and the
    host. Raises InspectError.
    """
    options = _options(opened.model, common, asked)
    devices = devices_of(opened.model, common, len(options.tensor_split))
    try:
        placer = _prompt_placer(opened.model, devices)
        params = FitParams(0, _n_gpu_layers(asked), options.tensor_split, options.overrides)
        measured = PlacedMemory(lambda n_ctx: placer, options, flash_auto)(params)
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}") from None
    names = [gpu.name for gpu in placer.gpus][: len(measured.devices)]
    rows = zip((*names, "Host"), (*measured.devices, measured.host), strict=True)
    return "".join(f"{name} {' '.join(str(n >> 20) for n in parts)} \n" for name, parts in rows)


def replace_auto(asked: PlaceRequest) -> PlaceRequest:
    """The same with -ngl all for auto: that is where --fit begins."""
    return asked._replace(n_gpu_layers="all") if asked.n_gpu_layers == AUTO_LAYERS else asked


def _n_gpu_layers(asked: PlaceRequest) -> int:
    return {AUTO_LAYERS: AUTO, "all": ALL_LAYERS}.get(asked.n_gpu_layers) or int(asked.n_gpu_layers)


def _options(model: ScenarioSpec, common: Common, asked: PlaceRequest) -> PlaceOptions:
    """The options as values. Raises InspectError for those, and for a capture, that --fit cannot be followed with."""
    options = replace_auto(asked).options(model, common)
    if asked.searched:
        raise InspectError("-ts auto is a search of ggmltool's; --fit chooses the split as llama.cpp does")
    if lacks(model.release, FOLLOWED_SINCE):
        raise InspectError(
            f"llama.cpp's --fit is followed since ggml 0.21; the capture is of ggml {model.release.name}"
        )
    if model.meta.get("phase") == "token":
        raise InspectError("--fit measures a prompt, but the capture is of one token; capture with --phase prompt")
    return options


def _prompt_placer(model: ScenarioSpec, devices: Sequence[BackendSpec]) -> Placer:
    """The model with the first of its graphs alone, that of a prompt."""
    return Placer(replace(model, graphs=dict(list(model.graphs.items())[:1])), devices)


def _settings(
    placer: Placer, options: PlaceOptions, gpus: Sequence[FitDevice], common: Common, fit: FitAsked
) -> FitSettings:
    """What --fit is told besides the parameters. Raises PlaceError if nobody said the memory that it looks at."""
    host = placer.cpu.memory
    if not gpus and host is None:
        raise PlaceError("without a GPU, --fit looks at the memory of the host; say it, as in --device CPU:64GiB")
    n_streams = 1 if placer.model.meta.get("kv_unified") is True else number_of(placer.model, "n_seq_max", 1)
    margins = tuple(margins_of([gpu.name for gpu in gpus], placer.cpu.name, common.margin).values())
    return FitSettings(margins, fit.n_ctx_min, max(n_streams, 1), options.split_mode, host or 0, host or 0)


def _chosen(asked: PlaceRequest, params: FitParams, split: Sequence[float]) -> PlaceRequest:
    """What is asked for, with the parameters that --fit set."""
    if params.n_gpu_layers >= 0:
        asked = asked._replace(n_gpu_layers=str(params.n_gpu_layers))
    if any(split):
        asked = asked._replace(tensor_split=",".join(f"{share:.9g}" for share in split))
    ours = asked.override_tensor or asked.n_cpu_moe
    if params.overrides and not ours and all(o.option.startswith("-ot ") for o in params.overrides):
        asked = asked._replace(override_tensor=(_overrides(params),))
    return asked


def _overrides(params: FitParams) -> str:
    return ",".join(f"{o.pattern.pattern}={o.buft}" for o in params.overrides)


class TriedRow(Row):
    """Bytes of a device (or of the host) with parameters that --fit measured."""

    device: str
    model: int
    context: int
    compute: int


class TrialRow(Row):
    """Parameters that --fit measured, as llama-fit-params prints them, and what they need."""

    why: str
    arguments: str
    needs: list[TriedRow]


class FitRow(Row):
    """llama.cpp's own choice: `arguments` as llama-fit-params prints them, whatever the `status`; `reason` says why
    there is no success; `log` has its lines as it prints them with -lv 4."""

    status: Status
    reason: str | None
    arguments: str
    n_ctx: int
    n_gpu_layers: int
    tensor_split: list[float]
    overrides: list[str]
    trials: list[TrialRow]
    log: list[str]

    @classmethod
    def of(cls, chosen: Chosen) -> FitRow:
        """A choice."""
        fitted, params = chosen.fitted, chosen.fitted.params
        names = (*(d.name for d in chosen.devices), "Host")
        trials = []
        for trial in fitted.trials:
            needs = (*trial.measured.devices, trial.measured.host)
            rows = [TriedRow(name, *parts) for name, parts in zip(names, needs, strict=True)]
            trials.append(TrialRow(trial.why, arguments(trial.params), rows))
        return cls(
            status=fitted.status,
            reason=fitted.reason or None,
            arguments=chosen.arguments,
            n_ctx=params.n_ctx,
            n_gpu_layers=params.n_gpu_layers,
            tensor_split=list(params.tensor_split),
            overrides=[f"{o.pattern.pattern}={o.buft}" for o in params.overrides],
            trials=trials,
            log=list(fitted.log),
        )
