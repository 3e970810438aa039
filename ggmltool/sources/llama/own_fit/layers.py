"""Steps 3 and 4 of llama.cpp's --fit: how many layers each device gets, and which of them keep experts elsewhere.

Numbers are 32-bit and unsigned where llama.cpp's are, so that they wrap as its do.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from ggmltool.sources.llama.own_fit.records import FitError, FitFailed, FitParams, Fitting, div, mib, names, u32
from ggmltool.sources.llama.place.options import Override

MAX_LAYERS, MAX_OVERRIDES = 1000, 4096
"""The layers that llama.cpp has patterns for, and llama_max_tensor_buft_overrides()."""

CPU_BUFT = "CPU"
_ALL_EXPERTS = r"blk\.\d+\.ffn_(up|down|gate_up|gate)_(ch|)exps"


class Fraction(IntEnum):
    """What of a partial layer stays on its device (common_layer_fraction_t); the rest overflows."""

    ATTN = 1
    UP = 2
    GATE = 3
    MOE = 4


_OVERFLOWS = {
    Fraction.ATTN: r"ffn_(gate|up|gate_up|down).*",
    Fraction.UP: r"ffn_(gate|gate_up|down).*",
    Fraction.GATE: r"ffn_down.*",
    Fraction.MOE: r"ffn_(up|down|gate_up|gate)_(ch|)exps",
}


@dataclass(frozen=True, slots=True)
class Share:
    """The layers of a device (ngl_t): `n_part` of them are partial, the first one by `overflow`, all others MOE."""

    n_layer: int = 0
    n_part: int = 0
    overflow: Fraction = Fraction.MOE

    @property
    def n_full(self) -> int:
        return u32(self.n_layer - self.n_part)

    def more(self, layers: int = 0, parts: int = 0) -> Share:
        """With so many more of both."""
        return replace(self, n_layer=u32(self.n_layer + layers), n_part=u32(self.n_part + parts))


@dataclass(frozen=True, slots=True)
class Config:
    """Layers per device, the buffer types that first partial layers overflow to, what each device needs in bytes.

    `dense_start` is the first device with layers whose experts are in system memory.
    """

    shares: tuple[Share, ...]
    bufts: tuple[str, ...]
    mem: tuple[int, ...] = ()
    dense_start: int = 0

    def given(self, id: int, share: Share) -> Config:
        """With another share of one device."""
        return replace(self, shares=(*self.shares[:id], share, *self.shares[id + 1 :]))


def fill_layers(fitting: Fitting) -> None:
    """Set n_gpu_layers, the tensor split and the overrides. Raises FitFailed, FitError and FitCrash."""
    layers = _Layers(fitting)
    try:
        surplus = layers.surplus_without_experts() if fitting.model.has_experts else 0
        for id, target in enumerate(layers.targets):
            fitting.say(f"id={id}, target={mib(target)} MiB")
        n = len(fitting.devices)
        empty = Config((Share(),) * n, (CPU_BUFT,) * n)
        config = layers.dense(layers.measured(empty, "no layers"))
        if surplus > 0:
            config = layers.converted(config)
        fitting.params = layers.params(config)
    except (FitFailed, FitError):
        # What was tried last stays in the arrays that llama.cpp goes on with.
        fitting.params = layers.written
        raise


class _Layers:
    def __init__(self, fitting: Fitting) -> None:
        self.fitting = fitting
        self.say = fitting.say
        self.experts = fitting.model.has_experts
        self.n_layer = fitting.model.n_layer
        self.last = len(fitting.devices) - 1
        self.names = names(fitting.devices)
        margins = fitting.settings.margins
        self._array: list[Override | None] = [None]
        self._split = fitting.params.tensor_split
        self.targets = [d.free - margin for d, margin in zip(fitting.devices, margins, strict=True)]

    def surplus_without_experts(self) -> int:
        """What all devices have left together if the experts of all layers are in system memory, in bytes."""
        self.say("getting device memory data with all MoE tensors moved to system memory:")
        params = replace(self.fitting.params, overrides=(_override(_ALL_EXPERTS, CPU_BUFT),))
        found = self.fitting.measure("all experts in system memory", params)
        surplus = sum(t - parts.total for t, parts in zip(self.targets, found.devices, strict=True))
        if surplus > 0:
            self.say(f"with only dense weights in device memory there is a total surplus of {mib(surplus)} MiB")
        else:
            self.say(f"with only dense weights in device memory there is still a total deficit of {mib(-surplus)} MiB")
        return surplus

    @property
    def written(self) -> FitParams:
        """The parameters of before, with what the arrays of the split and of the overrides hold up to its end."""
        end = self._array.index(None) if None in self._array else len(self._array)
        overrides = tuple(o for o in self._array[:end] if o is not None)
        return replace(self.fitting.params, tensor_split=self._split, overrides=overrides)

    def params(self, config: Config) -> FitParams:
        """set_ngl_tensor_split_tbo: what llama.cpp would be told for these layers."""
        n_gpu_layers = u32(sum(share.n_layer for share in config.shares))
        if self.last > 0:
            self._split = tuple(ctypes.c_float(share.n_layer).value for share in config.shares)
        n = 0
        start = self.n_layer + 1 - n_gpu_layers
        for share, buft in zip(config.shares, config.bufts, strict=True):
            start = u32(start + share.n_full)
            for il in range(start, u32(start + share.n_part)):
                if n + 1 >= MAX_OVERRIDES:
                    self._array[n:] = [None]
                    raise FitFailed(f"llama_max_tensor_buft_overrides() == {MAX_OVERRIDES} is insufficient for model")
                if il >= MAX_LAYERS:
                    raise FitError(f"at most {MAX_LAYERS} model layers are supported")
                first = il == start
                pattern = rf"blk\.{il}\.{_OVERFLOWS[share.overflow if first else Fraction.MOE]}"
                self._array[n : n + 1] = [_override(pattern, buft if first else CPU_BUFT)]
                n += 1
            start = u32(start + share.n_part)
        self._array[n : n + 1] = [None]
        return replace(self.written, n_gpu_layers=n_gpu_layers)

    def measured(self, config: Config, why: str) -> Config:
        """get_memory_for_layers: what the devices need then."""
        found = self.fitting.measure(why, self.params(config))
        self.say("memory for test allocation by device:")
        for id, (share, parts) in enumerate(zip(config.shares, found.devices, strict=True)):
            self.say(
                f"id={id}, n_layer={share.n_layer:2d}, n_part={share.n_part:2d}, overflow_type={int(share.overflow)}, "
                f"mem={mib(parts.total):6d} MiB"
            )
        return replace(config, mem=tuple(parts.total for parts in found.devices))

    def dense(self, config: Config) -> Config:
        """Step 3: fill the devices from the last to the first, of a model with experts by layers without them."""
        self.say(f"filling {'dense-only' if self.experts else 'dense'} layers back-to-front:")
        for id in range(self.last, -1, -1):
            unassigned = u32(self.n_layer + 1 - sum(share.n_layer for share in config.shares[id + 1 :]))
            config = self._dense_of(config, id, unassigned)
            left = self.fitting.devices[id].free - config.mem[id]
            self.say(
                f"  - {self.names[id]}: {config.shares[id].n_layer:2d} layers, {mib(config.mem[id]):6d} MiB used, "
                f"{mib(left):6d} MiB free"
            )
        return config

    def _dense_of(self, low: Config, id: int, unassigned: int) -> Config:
        """As many of the unassigned layers as fit on a device."""
        share = low.shares[id]
        parts = share.n_part if not self.experts else unassigned if id < self.last else unassigned - 1
        high = low.given(id, replace(share, n_layer=unassigned, n_part=u32(parts)))
        if not unassigned:
            return low
        high = self.measured(high, f"all {unassigned} layers that are left on {self.fitting.devices[id].name}")
        if high.mem[id] <= self.targets[id]:
            self.say(f"set ngl_per_device[{id}].n_layer={unassigned}")
            return high
        self.say(f"start filling device {id}, delta={u32(unassigned - share.n_layer)}")

        def more(config: Config, step: int) -> Config:
            share = config.shares[id]
            # The output layer comes first, and cannot be partial.
            first = id == self.last and share.n_part == 0
            return config.given(id, share.more(step, step - first if self.experts else 0))

        def say(config: Config, high: str) -> None:
            self.say(f"set ngl_per_device{high}[{id}].n_layer={config.shares[id].n_layer}")

        return self._between(low, high, id, lambda share: share.n_layer, more, "more layers", say)

    def _between(
        self,
        low: Config,
        high: Config,
        id: int,
        layers: Callable[[Share], int],
        more: Callable[[Config, int], Config],
        what: str,
        say: Callable[[Config, str], None],
    ) -> Config:
        """The most layers from low to high that fit on a device, by the method of false position."""
        while (delta := u32(layers(high.shares[id]) - layers(low.shares[id]))) > 1:
            step = self._step(delta, low, high, id)
            test = self.measured(more(low, step), f"{step} {what}")
            fits = test.mem[id] <= self.targets[id]
            low, high = (test, high) if fits else (low, test)
            say(test, "" if fits else "_high")
        return low

    def _step(self, delta: int, low: Config, high: Config, id: int) -> int:
        """Where the line from low to high meets the target, as layers beyond low: between 1 and delta - 1."""
        step = u32(div(delta * (self.targets[id] - low.mem[id]), high.mem[id] - low.mem[id]))
        return min(max(step, 1), delta - 1)

    def converted(self, config: Config) -> Config:
        """Step 4: give the layers their experts, from the first device to the last, until all are full."""
        n = self.last + 1
        start = n
        while start > 0 and config.shares[start - 1].n_layer > 0:
            start -= 1
        config = replace(config, dense_start=start)
        self.say(
            "converting dense-only layers to full layers and filling them front-to-back with overflow to next "
            "device/system memory:"
        )
        id = 0
        while id <= config.dense_start < n:
            config = self._one_more(self._converted_of(config, id), id)
            self._say_layers(config, id)
            id += 1
        for id in range(config.dense_start + 1, n):
            self._say_layers(config, id)
        return config

    def _say_layers(self, config: Config, id: int) -> None:
        share, used = config.shares[id], config.mem[id]
        self.say(
            f"  - {self.names[id]}: {share.n_layer:2d} layers ({share.n_part:2d} overflowing), {mib(used):6d} MiB "
            f"used, {mib(self.fitting.devices[id].free - used):6d} MiB free"
        )

    def _all_full(self, config: Config, id: int) -> Config:
        """All layers that are still without experts as full ones on this device."""
        for jd in range(config.dense_start, self.last + 1):
            share = config.shares[jd]
            moved = share.n_layer if jd < self.last else u32(share.n_layer - 1)
            config = config.given(id, config.shares[id].more(moved))
            config = config.given(jd, replace(config.shares[jd].more(-moved), n_part=0))
        return replace(config, dense_start=self.last)

    def _converted_of(self, low: Config, id: int) -> Config:
        """As many full layers as fit on a device."""
        high = self.measured(self._all_full(low, id), f"all layers with experts on {self.fitting.devices[id].name}")
        if high.mem[id] <= self.targets[id]:
            self._say_set(high, id)
            return high

        def more(config: Config, step: int) -> Config:
            return _convert(config, id, step)

        def say(config: Config, high: str) -> None:
            self._say_set(config, id, high=high)

        return self._between(low, high, id, lambda share: share.n_full, more, "more layers with experts", say)

    def _say_set(self, config: Config, id: int, overflow: Fraction | None = None, high: str = "") -> None:
        share = config.shares[id]
        named, value = ("", "") if overflow is None else (", overflow_type", f", {overflow.name}")
        self.say(
            f"set ngl_per_device{high}[{id}].(n_layer, n_part{named})=({share.n_layer}, {share.n_part}{value}), "
            f"id_dense_start{high}={config.dense_start}"
        )

    def _one_more(self, config: Config, id: int) -> Config:
        """Part of one more layer: attention with up, and with gate if that fits too; else attention alone."""
        start = config.dense_start
        if config.shares[start].n_layer <= (0 if id < self.last else 1):
            return config
        test = config.given(start, config.shares[start].more(-1, -1))
        test = test.given(id, test.shares[id].more(1, 1))
        if test.shares[start].n_part == 0:
            test = replace(test, dense_start=start + 1)
        if id < self.last:
            next = self.fitting.devices[id + 1].buft
            test = replace(test, bufts=(*test.bufts[:id], next, *test.bufts[id + 1 :]))
        up = self._part(config, test, id, Fraction.UP)
        if up is config:
            return self._part(config, test, id, Fraction.ATTN)
        return self._part(up, test, id, Fraction.GATE)

    def _part(self, now: Config, test: Config, id: int, fraction: Fraction) -> Config:
        """One more layer of which so much is on the device, if it and what the rest overflows to have room."""
        self.say(f"trying to fit one extra layer with overflow_type=LAYER_FRACTION_{fraction.name}")
        test = test.given(id, replace(test.shares[id], overflow=fraction))
        test = self.measured(test, f"one more layer, {fraction.name}")
        fits = test.mem[id] < self.targets[id]
        if not fits or (id < self.last and test.mem[id + 1] >= self.targets[id + 1]):
            return now
        self._say_set(test, id, fraction)
        return test


def _convert(config: Config, id: int, step: int) -> Config:
    """So many partial layers, from `dense_start` on, as full ones of a device."""
    done = 0
    start = config.dense_start
    while start < len(config.shares):
        n = min(u32(step - done), config.shares[start].n_part)
        config = config.given(start, config.shares[start].more(-n, -n))
        config = config.given(id, config.shares[id].more(n))
        done += n
        if config.shares[start].n_part > 0:
            break
        start += 1
    return replace(config, dense_start=start)


def _override(pattern: str, buft: str) -> Override:
    return Override(re.compile(pattern), buft, f"-ot {pattern}={buft}")
