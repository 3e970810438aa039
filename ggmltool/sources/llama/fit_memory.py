"""What llama.cpp's --fit measures, from captured graphs: a model placed with its parameters, without any memory.

There, llama.cpp counts the compute buffers of the prompt's graph alone, with pipeline copies whether they fit or not,
and no buffer of outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.errors import GgmlFailed
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.scenario.compiled import Compiled
from ggmltool.scenario.reserving_run import ReservingRun
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.fit_records import FitDevice, FitModel, FitParams, Measured, Parts
from ggmltool.sources.llama.layers import ALL, PlaceOptions, chosen_gpus
from ggmltool.sources.llama.overrides import EXPERTS
from ggmltool.sources.llama.place import Placement, Placer

if TYPE_CHECKING:
    from ggmltool.ggml.backend import Backend
    from ggmltool.scenario.model import BackendSpec

Captures = Callable[[int, bool], Placer]
"""The model captured for a context of so many tokens (0: its own), with -fa off if the flag says so."""


def fit_model(placer: Placer) -> FitModel:
    """What --fit knows of a captured model. Raises PlaceError if the capture does not say how long a context can be."""
    meta = placer.model.meta
    n_ctx_train, n_layer = meta.get("n_ctx_train"), meta.get("n_layer")
    if not isinstance(n_ctx_train, int):
        raise PlaceError("the capture does not say the model's own context (meta: n_ctx_train)")
    layers = n_layer if isinstance(n_layer, int) else placer.parts.n_layer
    return FitModel(layers, n_ctx_train, any(EXPERTS.search(name) for name in placer.parts.names))


def fit_devices(placer: Placer, options: PlaceOptions) -> list[FitDevice]:
    """The GPUs that llama.cpp uses. Raises PlaceError for one whose memory nobody said."""
    out = []
    for gpu in chosen_gpus(placer.gpus, options):
        if gpu.memory is None:
            raise PlaceError(
                f"--fit needs to know what is free on {gpu.name}; say it, as in --device {gpu.name}:24GiB "
                f"({gpu.name}:0 for a device that does not report it)"
            )
        out.append(FitDevice(gpu.name, gpu.name, placer.devices[gpu.name].buft.name, gpu.memory, gpu.memory))
    return out


class PlacedMemory:
    """common_get_device_memory_data of captured graphs. `options` are those of placement that --fit does not change."""

    def __init__(self, captures: Captures, options: PlaceOptions) -> None:
        self.captures = captures
        self.options = options
        self._known: dict[tuple[object, ...], Measured] = {}

    def __call__(self, params: FitParams) -> Measured:
        """What these parameters need. Raises PlaceError, and what `captures` raises."""
        key = (params.n_ctx, max(params.n_gpu_layers, ALL), params.tensor_split, params.overrides)
        if key not in self._known:
            placer = self.captures(params.n_ctx, False)
            options = place_options(self.options, params, placer)
            if _drops_flash_attention(placer, options):
                placer = self.captures(params.n_ctx, True)
            self._known[key] = measure(placer, placer.place(options))
        return self._known[key]


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


def measure(placer: Placer, placement: Placement) -> Measured:
    """The bytes of a placement as --fit counts them. Raises PlaceError if its graph cannot be planned."""
    run = ReservingRun(Compiled(placement.model))
    plan = _reserve(run, placement)
    found: dict[str, Parts] = {}
    for buffer in run.buffers:
        parts = found.get(buffer.buft.name, Parts())
        if buffer.usage == USAGE_WEIGHTS:
            parts = parts._replace(model=parts.model + buffer.size)
        else:
            parts = parts._replace(context=parts.context + buffer.size)
        found[buffer.buft.name] = parts
    for buft, size in _compute(plan):
        parts = found.get(buft, Parts())
        found[buft] = parts._replace(compute=parts.compute + size)
    return _by_device(placer, placement.model.backends, found)


def _reserve(run: ReservingRun, placement: Placement) -> Plan:
    """The plan of the graph of the prompt."""
    try:
        plan = run.reserve(next(iter(placement.model.graphs)))
    except GgmlFailed as failed:
        raise PlaceError(str(failed)) from None
    if plan.error is not None:
        raise PlaceError(f"ggml cannot plan it: {plan.error.get('message')}")
    return plan


def _compute(plan: Plan) -> list[tuple[str, int]]:
    """The compute buffer of each backend. Backends that share one are told its size each."""
    bufts = dict(plan.backends)
    sizes: dict[str, int] = {}
    for backend, size in plan.buffer_sizes:
        sizes[bufts[backend]] = max(size, sizes.get(bufts[backend], 0))
    return [(buft, sizes.get(buft, 0)) for buft in bufts.values()]


def _by_device(placer: Placer, backends: Sequence[BackendSpec], found: dict[str, Parts]) -> Measured:
    """Add up by device; all that is host memory is the host's, wherever it belongs."""
    gpus = [placer.devices[gpu.name].name for gpu in placer.gpus if gpu in backends]
    devices = dict.fromkeys(gpus, Parts())
    host = Parts()
    others: list[tuple[str, Parts]] = []
    for name, parts in found.items():
        buft = placer.bufts[name]
        if buft.host:
            host = _sum(host, parts)
        elif buft.device in devices:
            devices[buft.device] = _sum(devices[buft.device], parts)
        else:
            others.append((name, parts))
    return Measured(tuple(devices.values()), host, tuple(others))


def _sum(a: Parts, b: Parts) -> Parts:
    return Parts(*(x + y for x, y in zip(a, b, strict=True)))
