"""What llama.cpp's --fit works with: the parameters that it may change, and what it measures of captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ggmltool.ggml.op import Op
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import Needs, lost_attention
from ggmltool.sources.llama.place.options import ALL, EXPERTS, Override, PlaceOptions, chosen_gpus
from ggmltool.sources.llama.place.parts import number_of
from ggmltool.sources.llama.place.place import Placer

AUTO, ALL_LAYERS = -1, -2
"""-ngl auto and -ngl all, as llama.cpp's n_gpu_layers."""

MIB = 1 << 20
MARGIN = 1 << 30
"""llama.cpp's default of --fit-target, in bytes."""

MIN_CTX = 4096
"""llama.cpp's default of --fit-ctx, in tokens."""

FULL_CTX = (1 << 32) - 1
"""As the smallest context: -c 0 asks for all that the model was trained with, which is not reduced."""

Status = Literal["success", "failure", "error", "crash"]
"""common_params_fit_status; `crash` is llama.cpp ending in the middle of it."""


class FitFailed(Exception):  # noqa: N818 - llama.cpp calls it a failure
    """common_params_fit_exception: no parameters were found; the message has llama.cpp's words."""


class FitError(Exception):
    """A std::runtime_error of llama.cpp, in its words."""


class FitCrash(Exception):  # noqa: N818 - no error that anybody catches
    """What ends llama.cpp, such as a division by zero."""


class FitDevice(NamedTuple):
    """A GPU: its name, how it describes itself, the name of its buffer type, and its memory in bytes (0: unknown)."""

    name: str
    description: str
    buft: str
    free: int
    total: int


class MemoryBreakdown(NamedTuple):
    """Bytes of weights, caches and compute buffers (llama_memory_breakdown_data)."""

    model: int = 0
    context: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        return self.model + self.context + self.compute


class Measured(NamedTuple):
    """What parameters need: on each device, in host memory, and in buffer types that are neither."""

    devices: tuple[MemoryBreakdown, ...]
    host: MemoryBreakdown
    others: tuple[tuple[str, MemoryBreakdown], ...] = ()


@dataclass(frozen=True, slots=True)
class FitParams:
    """The parameters that --fit may change. `n_ctx` 0: unset; `tensor_split` of zeros or empty: by free memory."""

    n_ctx: int = 0
    n_gpu_layers: int = AUTO
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[Override, ...] = ()


class FitModel(NamedTuple):
    """What is known of the model: its layers without the output layer, its longest context, whether it has experts."""

    n_layer: int
    n_ctx_train: int
    has_experts: bool


@dataclass(frozen=True, slots=True)
class FitSettings:
    """What --fit is told besides the parameters.

    `margins` are in bytes, one for each device (without a device: one for the host); `n_ctx_min` in tokens of a
    sequence. `n_streams` is the number of sequences with a KV cache of their own. `host_total` is the CPU's memory in
    bytes.
    """

    margins: tuple[int, ...]
    n_ctx_min: int = MIN_CTX
    n_streams: int = 1
    split_mode: str = "layer"
    host_total: int = 0


class Trial(NamedTuple):
    """Parameters that --fit measured, what they need, and why it asked."""

    why: str
    params: FitParams
    measured: Measured


@dataclass(frozen=True, slots=True)
class Fitted:
    """What llama.cpp chooses.

    `params` are those that it goes on with, whatever the `status`; `reason` says in its words why there is no success.
    `log` has its lines as it prints them with -lv 4; `trials` what it measured, in this order.
    """

    status: Status
    reason: str
    params: FitParams
    log: tuple[str, ...]
    trials: tuple[Trial, ...]

    @property
    def ok(self) -> bool:
        return self.status == "success"


Measure = Callable[[FitParams], Measured]
"""common_get_device_memory_data: a model and a context made with the parameters, without memory, and what they need."""


def div(a: int, b: int) -> int:
    """Integer division as C does it, towards zero. Raises FitCrash where it would trap."""
    if not b:
        raise FitCrash("divides by zero (SIGFPE)")
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def mib(nbytes: int) -> int:
    """Whole MiB."""
    return div(nbytes, MIB)


def u32(n: int) -> int:
    """A number as a uint32_t holds it."""
    return n & 0xFFFFFFFF


_PREFIXES = ("NVIDIA ", "GeForce ", "Tesla ", "AMD ", "Radeon ", "Instinct ")
_HEAD = "| {} | {}   {}    {}   {}   {}   {}    {} |"
_DEVICE = "| {} | {} = {} + ({} = {} + {} + {}) + {} |"
_OTHER = "| {} | {}   {}    {} = {} + {} + {}    {} |"


def breakdown(devices: Sequence[FitDevice], measured: Measured) -> list[str]:
    """common_memory_breakdown_print: a row per device, one of the host, one of each other buffer type; in MiB."""
    titles = ["memory breakdown [MiB]", "total", "free", "self", "model", "context", "compute", "unaccounted"]
    rows = [(_HEAD, titles)]
    for device, parts in zip(devices, measured.devices, strict=True):
        unaccounted = mib(device.total - device.free - parts.total)
        short = device.description
        for prefix in _PREFIXES:
            short = short.removeprefix(prefix)
        memory = [str(mib(device.total)), str(mib(device.free))]
        rows.append((_DEVICE, [f"  - {device.name} ({short})", *memory, *_mibs(parts), str(unaccounted)]))
    for name, parts in (("Host", measured.host), *measured.others):
        rows.append((_OTHER, [f"  - {name}", "", "", *_mibs(parts), ""]))
    widths = [max(len(cells[j]) for _, cells in rows) for j in range(8)]
    lines = []
    for template, (name, *numbers) in rows:
        cells = [name.ljust(widths[0]), *(n.rjust(w) for n, w in zip(numbers, widths[1:], strict=True))]
        lines.append("common_memory_breakdown_print: " + template.format(*cells))
    return lines


def names(devices: Sequence[FitDevice]) -> list[str]:
    """The devices as the log names them, in a column."""
    shown = [f"{d.name} ({d.description})" for d in devices]
    return [name.ljust(max(map(len, shown))) for name in shown]


def _mibs(parts: MemoryBreakdown) -> list[str]:
    return [str(mib(n)) for n in (parts.total, *parts)]


@dataclass(slots=True)
class Fitting:
    """A fit on its way: what is given, the parameters as they are now, what was said and measured so far."""

    model: FitModel
    devices: tuple[FitDevice, ...]
    settings: FitSettings
    measure_with: Measure
    params: FitParams
    log: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    def say(self, text: str, function: str = "common_params_fit_impl") -> None:
        """A line of the log."""
        self.log.append(f"{function}: {text}")

    def measure(self, why: str, params: FitParams | None = None) -> Measured:
        """common_get_device_memory_data_impl: measure these parameters, by default those of now."""
        asked = self.params if params is None else params
        found = self.measure_with(asked)
        for device in self.devices:
            if not device.free and not device.total:
                self.say(
                    f"device {device.name} did not report memory; --fit will not use it",
                    "common_get_device_memory_data_impl",
                )
        self.log += breakdown(self.devices, found)
        self.trials.append(Trial(why, asked, found))
        return found


Captures = Callable[[int], Placer]
"""The graph of a prompt, captured for a context of so many tokens (0: the model's own)."""


def fit_model(placer: Placer) -> FitModel:
    """What --fit knows of a captured model. Raises PlaceError if the capture does not say how long a context can be."""
    n_ctx_train = placer.model.meta.get("n_ctx_train")
    if not isinstance(n_ctx_train, int):
        raise PlaceError("the capture does not say the model's own context (meta: n_ctx_train)")
    if not n_ctx_train:
        raise PlaceError("the model does not say how long its context can be")
    layers = number_of(placer.model, "n_layer", placer.parts.n_layer)
    return FitModel(layers, n_ctx_train, any(EXPERTS.search(name) for name in placer.parts.names))


def fit_devices(placer: Placer, options: PlaceOptions) -> list[FitDevice]:
    """The GPUs that llama.cpp uses. Raises PlaceError for one whose memory nobody said."""
    out = []
    for gpu in chosen_gpus(placer.gpus, options):
        if gpu.memory is None:
            raise PlaceError(
                f"--fit needs to know what is free on {gpu.name}; say it, as in --device {gpu.name}:24GiB "
                f"({gpu.name}:0GiB for a device that does not report it)"
            )
        out.append(FitDevice(gpu.name, gpu.name, placer.devices[gpu.name].buft.name, gpu.memory, gpu.memory))
    return out


class PlacedMemory:
    """common_get_device_memory_data of captured graphs. `options` are those of placement that --fit does not change.

    `flash_auto` says that llama.cpp decides about flash attention (-fa auto). Where it turns it off, the cache remains
    laid out for it, in a graph that no capture has; that is refused.
    """

    def __init__(self, captures: Captures, options: PlaceOptions, flash_auto: bool = True) -> None:
        self.captures = captures
        self.options = options
        self.flash_auto = flash_auto
        self._measurers: dict[int, Measurer] = {}
        self._supported: dict[int, bool] = {}
        self._known: dict[FitParams, Measured] = {}

    def __call__(self, params: FitParams) -> Measured:
        """What these parameters need. Raises PlaceError, and what `captures` raises."""
        if params not in self._known:
            self._known[params] = self._measured(params)
        return self._known[params]

    def _measured(self, params: FitParams) -> Measured:
        n_ctx = params.n_ctx
        if n_ctx not in self._measurers:
            self._measurers[n_ctx] = Measurer(self.captures(n_ctx))
        measurer = self._measurers[n_ctx]
        options = place_options(self.options, params, measurer.placer)
        if self.flash_auto:
            self._check_attention(measurer.placer, options, n_ctx)
        options = replace(options, assigns=False)
        needs = measurer.needs(options)
        if needs.with_copies:
            needs = measurer.needs(replace(options, parallel=True))
        if needs.error is not None:
            raise PlaceError(f"ggml cannot plan it: {dict(needs.error)['message']}")
        return _by_device(measurer.placer, needs, options)

    def _check_attention(self, placer: Placer, options: PlaceOptions, n_ctx: int) -> None:
        """Raise PlaceError where llama.cpp does without. It keeps what every GPU supports on the devices of layers."""
        if n_ctx not in self._supported:
            # Whether every GPU supports flash attention as the captured graph has it.
            model = placer.model
            nodes = [n for name in model.graphs for n in LoadedScenario(model).start().build(name).nodes]
            attention = [n for n in nodes if n.op == Op.FLASH_ATTN_EXT]
            devices = [placer.devices[gpu.name] for gpu in placer.gpus]
            self._supported[n_ctx] = all(device.supports_op(n) for device in devices for n in attention)
        if self._supported[n_ctx] and options.offload_kqv:
            return
        probe = placer.probe(options)
        lost = lost_attention(probe, probe.placement.layers)
        if lost is not None:
            il, backend = lost
            raise PlaceError(
                f"--fit: layer {il} is on {probe.placement.layers.of(il)}, its flash attention on {backend}, so that "
                "llama.cpp turns it off and goes on with a graph that cannot be captured; decide with -fa on or -fa off"
            )


def place_options(options: PlaceOptions, params: FitParams, placer: Placer) -> PlaceOptions:
    """The options that place what the parameters say.

    By default llama.cpp splits by free memory, and takes that of the host for a device that does not report any.
    """
    split = params.tensor_split
    gpus = chosen_gpus(placer.gpus, options)
    if not any(split) and placer.cpu.memory and any(gpu.memory == 0 for gpu in gpus):
        split = tuple(float(gpu.memory or placer.cpu.memory) for gpu in gpus)
    n_gpu_layers = ALL if params.n_gpu_layers < 0 else params.n_gpu_layers
    return replace(options, n_gpu_layers=n_gpu_layers, tensor_split=split, overrides=params.overrides)


def _by_device(placer: Placer, needs: Needs, options: PlaceOptions) -> Measured:
    """Add up by device; all that is host memory is the host's, whichever device it belongs to."""
    devices = {gpu.name: MemoryBreakdown() for gpu in chosen_gpus(placer.gpus, options)}
    host = MemoryBreakdown()
    others: list[tuple[str, MemoryBreakdown]] = []
    for use in needs.uses:
        parts = MemoryBreakdown(use.weights, use.cache, use.compute)
        buft = placer.bufts[use.buft]
        if buft.host:
            host = _sum(host, parts)
        elif buft.device in devices:
            devices[buft.device] = _sum(devices[buft.device], parts)
        else:
            others.append((use.buft, parts))
    return Measured(tuple(devices.values()), host, tuple(others))


def _sum(a: MemoryBreakdown, b: MemoryBreakdown) -> MemoryBreakdown:
    return MemoryBreakdown(*(x + y for x, y in zip(a, b, strict=True)))
