"""What llama.cpp's --fit works with: the parameters that it may change, what it measures, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ggmltool.sources.llama.place.options import Override

AUTO, ALL = -1, -2
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


class Parts(NamedTuple):
    """Bytes of weights, caches and compute buffers (llama_memory_breakdown_data)."""

    model: int = 0
    context: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        return self.model + self.context + self.compute


class Measured(NamedTuple):
    """What parameters need: on each device, in host memory, and in buffer types that are neither."""

    devices: tuple[Parts, ...]
    host: Parts
    others: tuple[tuple[str, Parts], ...] = ()


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
    sequence. `n_streams` is the number of sequences with a KV cache of their own. `host_free` and `host_total` are the
    CPU's memory in bytes.
    """

    margins: tuple[int, ...]
    n_ctx_min: int = MIN_CTX
    n_streams: int = 1
    split_mode: str = "layer"
    host_free: int = 0
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
    rows = list(_rows(devices, measured))
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


def _rows(devices: Sequence[FitDevice], measured: Measured) -> Iterator[tuple[str, list[str]]]:
    titles = ["memory breakdown [MiB]", "total", "free", "self", "model", "context", "compute", "unaccounted"]
    yield _HEAD, titles
    for device, parts in zip(devices, measured.devices, strict=True):
        unaccounted = mib(device.total - device.free - parts.total)
        memory = [str(mib(device.total)), str(mib(device.free))]
        yield _DEVICE, [f"  - {device.name} ({_short(device.description)})", *memory, *_mibs(parts), str(unaccounted)]
    for name, parts in (("Host", measured.host), *measured.others):
        yield _OTHER, [f"  - {name}", "", "", *_mibs(parts), ""]


def _mibs(parts: Parts) -> list[str]:
    return [str(mib(n)) for n in (parts.total, *parts)]


def _short(description: str) -> str:
    """A description without the names of makers and series."""
    for prefix in _PREFIXES:
        description = description.removeprefix(prefix)
    return description


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
