"""llama.cpp's own choice (`--fit on`, -ngl auto): what it would set for these devices, and how it came to that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from msgspec import structs

from ggmltool.ask.place.options import AUTO_LAYERS, PlaceRequest, devices_of
from ggmltool.inspect.opened import Opened
from ggmltool.scenario.spec import BackendSpec, ScenarioSpec
from ggmltool.scenario.versions import lacks
from ggmltool.show.document import Row
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.own_fit.common_fit import common_fit_params
from ggmltool.sources.llama.own_fit.records import (
    ALL_LAYERS,
    AUTO,
    FULL_CTX,
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

OpenedFor = Callable[[int], Opened]
"""The captured model with a context of so many tokens; 0 is the model's own. Raises for one that cannot be captured."""


class Chosen(NamedTuple):
    """What llama.cpp would set, on which devices, with which of their memory to be left, in bytes.

    `asked` is what it was asked for, with its own choice in the place of what nobody set; `opened` the capture with
    the context that it chose.
    """

    fitted: Fitted
    devices: Sequence[FitDevice]
    margins: Sequence[int]
    asked: PlaceRequest[Any]
    opened: Opened

    @property
    def ok(self) -> bool:
        """Whether llama.cpp says that it fits."""
        return self.fitted.ok

    @property
    def arguments(self) -> str:
        """The parameters as llama-fit-params prints them."""
        return arguments(self.fitted.params)


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
    asked: PlaceRequest[Any],
    n_ctx: int = 0,
    full: bool = False,
    flash_auto: bool = True,
    note: Callable[[str], None] = lambda text: None,
) -> Chosen:
    """What llama.cpp's --fit would set. `n_ctx` 0 leaves the context to it, with `full` as the model's own.

    `flash_auto`: flash attention is left to it (-fa auto). `note` is told of devices that are not known.

    Raises InspectError, and what `opened_for` raises.
    """
    opened = opened_for(n_ctx)
    options = _options(opened.model, asked)
    devices = devices_of(opened.model, asked, len(options.tensor_split), note)
    params = FitParams(n_ctx, _n_gpu_layers(asked), options.tensor_split, options.overrides)

    @cache
    def captures(tokens: int) -> Placer:
        return _prompt_placer(opened_for(tokens).model, devices)

    try:
        placer = captures(n_ctx)
        gpus = fit_devices(placer, options)
        least = asked.fit_ctx if asked.fit_ctx is not None else FULL_CTX if full else MIN_CTX
        settings = _settings(placer, options, gpus, asked.margins, least)
        memory = PlacedMemory(captures, options, flash_auto)
        counts = not lacks(opened.model.release, SEQUENCES_SINCE)
        fitted = common_fit_params(fit_model(placer), gpus, settings, params, memory, counts)
        split = place_options(options, fitted.params, placer).tensor_split
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}") from None
    kept = structs.replace(replace_auto(asked), margin=asked.margins[: max(len(gpus), 1)], fit_target=None)
    chosen = _chosen(kept, fitted.params, split)
    return Chosen(fitted, gpus, settings.margins, chosen, opened_for(fitted.params.n_ctx))


def printed(opened: Opened, asked: PlaceRequest[Any], flash_auto: bool = True) -> str:
    """What llama-fit-params prints with -fitp on: MiB of weights, cache and compute buffers of each device and the
    host. Raises InspectError.
    """
    options = _options(opened.model, asked)
    devices = devices_of(opened.model, asked, len(options.tensor_split))
    try:
        placer = _prompt_placer(opened.model, devices)
        params = FitParams(0, _n_gpu_layers(asked), options.tensor_split, options.overrides)
        measured = PlacedMemory(lambda n_ctx: placer, options, flash_auto)(params)
    except PlaceError as error:
        raise InspectError(f"{opened.argument}: {error}") from None
    names = [gpu.name for gpu in placer.gpus][: len(measured.devices)]
    rows = zip((*names, "Host"), (*measured.devices, measured.host), strict=True)
    return "".join(f"{name} {' '.join(str(n >> 20) for n in parts)} \n" for name, parts in rows)


def replace_auto(asked: PlaceRequest[Any]) -> PlaceRequest[Any]:
    """The same with -ngl all for auto: that is where --fit begins."""
    return structs.replace(asked, n_gpu_layers="all") if asked.layers == AUTO_LAYERS else asked


def _n_gpu_layers(asked: PlaceRequest[Any]) -> int:
    return {AUTO_LAYERS: AUTO, "all": ALL_LAYERS}.get(asked.layers) or int(asked.layers)


def _options(model: ScenarioSpec, asked: PlaceRequest[Any]) -> PlaceOptions:
    """The options as values. Raises InspectError for those, and for a capture, that --fit cannot be followed with."""
    options = replace_auto(asked).options(model)
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
    placer: Placer, options: PlaceOptions, gpus: Sequence[FitDevice], margins: Sequence[int], n_ctx_min: int
) -> FitSettings:
    """What --fit is told besides the parameters. Raises PlaceError if nobody said the memory that it looks at."""
    host = placer.cpu.memory
    if not gpus and host is None:
        raise PlaceError("without a GPU, --fit looks at the memory of the host; say it, as in --device CPU:64GiB")
    n_streams = 1 if placer.model.meta.get("kv_unified") is True else number_of(placer.model, "n_seq_max", 1)
    kept = tuple(margins_of([gpu.name for gpu in gpus], placer.cpu.name, margins).values())
    return FitSettings(kept, n_ctx_min, max(n_streams, 1), options.split_mode, host or 0)


def _chosen(asked: PlaceRequest[Any], params: FitParams, split: Sequence[float]) -> PlaceRequest[Any]:
    """What is asked for, with the parameters that --fit set."""
    set: dict[str, Any] = {}
    if params.n_gpu_layers >= 0:
        set["n_gpu_layers"] = str(params.n_gpu_layers)
    if any(split):
        set["tensor_split"] = ",".join(f"{share:.9g}" for share in split)
    ours = asked.override_tensor or asked.n_cpu_moe
    if params.overrides and not ours and all(o.option.startswith("-ot ") for o in params.overrides):
        set["override_tensor"] = _overrides(params)
    return structs.replace(asked, **set)


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
