"""llama.cpp's own choice, `--fit on`: which context, layers, split and overrides it would set for these devices.

`common_fit_params` follows llama.cpp's function of that name step by step, with its numbers and its words. It measures
through a function that is given to it; memory.py has the one that places a captured model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ggmltool.sources.llama.own_fit.layers import fill_layers
from ggmltool.sources.llama.own_fit.records import (
    AUTO,
    FULL_CTX,
    FitCrash,
    FitDevice,
    FitError,
    FitFailed,
    FitModel,
    FitParams,
    FitSettings,
    Fitted,
    Fitting,
    Measure,
    Measured,
    Status,
    div,
    mib,
    names,
    u32,
)


def common_fit_params(
    model: FitModel,
    devices: Sequence[FitDevice],
    settings: FitSettings,
    params: FitParams,
    measure: Measure,
    rounds_streams: bool = True,
) -> Fitted:
    """What llama.cpp makes of these parameters; it changes those that nobody set.

    `rounds_streams`: the context counts for every stream of the KV cache, and is set even if nothing else is. Errors of
    `measure` other than FitError pass through.
    """
    if not rounds_streams:
        settings = replace(settings, n_streams=1)
    fitting = Fitting(model, tuple(devices), settings, measure, params)
    status: Status = "success"
    reason = ""
    try:
        if settings.split_mode == "tensor":
            raise FitFailed("llama_params_fit is not implemented for SPLIT_MODE_TENSOR, abort")
        context = _Context(fitting, rounds_streams)
        full = context.initial()
        if not _fits(fitting, full) and not context.reduced(full):
            _check_unset(fitting)
            fill_layers(fitting)
        fitting.say("successfully fit params to free device memory", "common_fit_params")
    except FitFailed as failed:
        status, reason = "failure", str(failed)
        fitting.say(f"failed to fit params to free device memory: {reason}", "common_fit_params")
    except FitError as error:
        status, reason = "error", str(error)
        fitting.say(
            f"encountered an error while trying to fit params to free device memory: {reason}", "common_fit_params"
        )
    except FitCrash as crash:
        status, reason = "crash", str(crash)
    return Fitted(status, reason, fitting.params, tuple(fitting.log), tuple(fitting.trials))


def _fits(fitting: Fitting, full: Measured) -> bool:
    """Step 1: whether the parameters as they are leave every device its margin."""
    say, margins, devices = fitting.say, fitting.settings.margins, fitting.devices
    if not devices:
        used, total = full.host.total, fitting.settings.host_total
        say(f"projected to use {mib(used)} MiB of host memory vs. {mib(total)} MiB of total host memory")
        if total - used >= margins[0]:
            say(f"will leave {mib(total - used)} >= {mib(margins[0])} MiB of system memory, no changes needed")
            return True
        return False
    free = [d.free - parts.total for d, parts in zip(devices, full.devices, strict=True)]
    if len(devices) > 1:
        say("projected memory use with initial parameters [MiB]:")
        for name, d, parts, left, margin in zip(names(devices), devices, full.devices, free, margins, strict=True):
            say(
                f"  - {name}: {mib(d.total):6d} total, {mib(parts.total):6d} used, {mib(left):6d} free vs. "
                f"target of {mib(margin):6d}"
            )
    used, total = sum(parts.total for parts in full.devices), sum(d.free for d in devices)
    say(f"projected to use {mib(used)} MiB of device memory vs. {mib(total)} MiB of free device memory")
    if any(left < margin for left, margin in zip(free, margins, strict=True)):
        return False
    if len(devices) == 1:
        say(f"will leave {mib(free[0])} >= {mib(margins[0])} MiB of free device memory, no changes needed")
    else:
        say("targets for free memory can be met on all devices, no changes needed")
    return True


class _Context:
    """Steps 1 and 2 as far as they are about the context: what it is at first, and whether a shorter one helps."""

    def __init__(self, fitting: Fitting, sets_ctx: bool) -> None:
        settings, model = fitting.settings, fitting.model
        self.fitting = fitting
        self.sets_ctx = sets_ctx
        self.auto = fitting.params.n_ctx == 0
        self.most = min(model.n_ctx_train * settings.n_streams, FULL_CTX)
        self.least = min(settings.n_ctx_min * settings.n_streams, FULL_CTX)

    def initial(self) -> Measured:
        """Measure the parameters as they came; a context that nobody set becomes the model's own."""
        fitting = self.fitting
        fitting.say("getting device memory data for initial parameters:")
        full = fitting.measure("initial parameters")
        if not self.auto or not self.sets_ctx:
            return full
        fitting.params = replace(fitting.params, n_ctx=self.most)
        n_streams = fitting.settings.n_streams
        if n_streams > 1:
            fitting.say(f"context size unset and KV cache not unified -> using {self.most} for {n_streams} sequences:")
            full = fitting.measure("context for all sequences")
        return full

    def reduced(self, full: Measured) -> bool:
        """Step 2: shorten the context. Whether everything fits thereby. Raises FitFailed if nothing else could."""
        fitting = self.fitting
        say, margins, devices = fitting.say, fitting.settings.margins, fitting.devices
        used = _used(full)
        free = sum(d.free for d in devices) if devices else fitting.settings.host_total
        target = free - sum(margins[: max(len(devices), 1)])
        if used > target:
            short = mib(used - target)
            if len(devices) <= 1:
                say(
                    f"cannot meet free memory target of {mib(margins[0])} MiB, need to reduce device memory by "
                    f"{short} MiB"
                )
            else:
                say(f"cannot meet free memory targets on all devices, need to use {short} MiB less in total")
            if not self.auto:
                say(f"context size set by user to {fitting.params.n_ctx} -> no change")
            elif self.most > self.least:
                if self._shorten(full, used, target):
                    return True
            elif fitting.settings.n_ctx_min == FULL_CTX:
                say(f"user has requested full context size of {self.most} -> no change")
            else:
                say(
                    f"default model context size is {self.most} which is <= the min. context size of {self.least} -> "
                    "no change"
                )
        if not devices:
            raise FitFailed("was unable to fit model into system memory by reducing context, abort")
        return False

    def _shorten(self, full: Measured, used: int, target: int) -> bool:
        """Interpolate between the shortest context and the longest; whether the model fits on at most one device."""
        fitting = self.fitting
        n_devices = len(fitting.devices)
        if n_devices > 1:
            # What they are expected to waste, since only whole layers (experts: whole tensors) are split.
            weights = sum(parts.model for parts in full.devices)
            per_layer = div(weights, min(u32(fitting.params.n_gpu_layers), fitting.model.n_layer))
            target -= (n_devices + 1) * per_layer // (6 if fitting.model.has_experts else 2)
        fitting.params = replace(fitting.params, n_ctx=self.least)
        least = _used(fitting.measure("shortest context"))
        span = self.most - self.least
        if target <= least:
            self._say_reduced(used - least)
            return False
        n_ctx = u32(self.least + div(span * (target - least), used - least))
        n_ctx = max(n_ctx - n_ctx % (256 * fitting.settings.n_streams), self.least)
        fitting.params = replace(fitting.params, n_ctx=n_ctx)
        self._say_reduced(u32(self.most - n_ctx) * div(used - least, span))
        if n_devices <= 1:
            fitting.say("entire model can be fit by reducing context")
            return True
        fitting.say("entire model should be fit across devices by reducing context")
        return False

    def _say_reduced(self, nbytes: int) -> None:
        self.fitting.say(
            f"context size reduced from {self.most} to {self.fitting.params.n_ctx} -> need {mib(nbytes)} MiB less "
            "memory in total"
        )


def _used(measured: Measured) -> int:
    """Bytes on all devices; without any, in host memory."""
    return sum(parts.total for parts in measured.devices) if measured.devices else measured.host.total


def _check_unset(fitting: Fitting) -> None:
    """Only what nobody set is changed. Raises FitFailed."""
    params = fitting.params
    if params.n_gpu_layers != AUTO:
        raise FitFailed(f"n_gpu_layers already set by user to {params.n_gpu_layers}, abort")
    if len(fitting.devices) > 1:
        if any(params.tensor_split[: len(fitting.devices)]):
            raise FitFailed("model_params::tensor_split already set by user, abort")
        if fitting.settings.split_mode == "row":
            raise FitFailed("changing weight allocation for LLAMA_SPLIT_MODE_ROW not implemented, abort")
    if params.overrides:
        raise FitFailed("model_params::tensor_buft_overrides already set by user, abort")
