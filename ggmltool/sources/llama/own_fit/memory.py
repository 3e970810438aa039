"""What llama.cpp's --fit measures, from captured graphs: a model placed with its parameters, without any memory.

There, llama.cpp counts the compute buffers of the prompt's graph alone, with pipeline copies whether they fit or not,
and no buffer of outputs. It also forgets which nodes it assigned to devices (ggml_backend_sched_reserve_size resets the
scheduler after the graph was built), so that some buffers are measured a little other than they are allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ggmltool.ggml.op import Op
from ggmltool.scenario.scenario import Scenario
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.own_fit.records import FitDevice, FitModel, FitParams, Measured, Parts
from ggmltool.sources.llama.place.measurer import Measurer
from ggmltool.sources.llama.place.needs import Needs, lost_attention
from ggmltool.sources.llama.place.options import ALL, EXPERTS, PlaceOptions, chosen_gpus
from ggmltool.sources.llama.place.place import Placer

Captures = Callable[[int], Placer]
"""The graph of a prompt, captured for a context of so many tokens (0: the model's own)."""


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
            self._supported[n_ctx] = _attends_anywhere(placer)
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


def _attends_anywhere(placer: Placer) -> bool:
    """Whether every GPU supports flash attention as the captured graph has it."""
    model = placer.model
    nodes = [n for name in model.graphs for n in Scenario(model).start().build(name).nodes]
    attention = [n for n in nodes if n.op == Op.FLASH_ATTN_EXT]
    return all(placer.devices[gpu.name].supports_op(n) for gpu in placer.gpus for n in attention)


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
    devices = {gpu.name: Parts() for gpu in chosen_gpus(placer.gpus, options)}
    host = Parts()
    others: list[tuple[str, Parts]] = []
    for use in needs.uses:
        parts = Parts(use.weights, use.cache, use.compute)
        buft = placer.bufts[use.buft]
        if buft.host:
            host = _sum(host, parts)
        elif buft.device in devices:
            devices[buft.device] = _sum(devices[buft.device], parts)
        else:
            others.append((use.buft, parts))
    return Measured(tuple(devices.values()), host, tuple(others))


def _sum(a: Parts, b: Parts) -> Parts:
    return Parts(*(x + y for x, y in zip(a, b, strict=True)))
