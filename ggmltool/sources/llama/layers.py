"""Which device each layer of a model goes to: llama.cpp's -ngl, -ts, -sm and -mg."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ggmltool.scenario.spec import BackendSpec
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.overrides import Override

ALL = -1
"""As n_gpu_layers: all layers, the output's too."""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """llama.cpp's settings of placement, under the names of its parameters.

    `tensor_split` empty: by the devices' free memory. `parallel` None: pipeline copies where llama.cpp makes them.
    `extra_bufts`: weights on the CPU may go to its further buffer types, such as CPU_REPACK. `lazy_mode`: weights that
    are read row by row, as they are needed, stay in the file's pages: all such, those above 4 GiB (auto), or none.
    Without `assigns`, the nodes that llama.cpp assigns itself are not: it forgets them where it only measures (--fit).
    """

    n_gpu_layers: int = ALL
    split_mode: Literal["layer", "row", "tensor", "none"] = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    overrides: tuple[Override, ...] = ()
    offload_kqv: bool = True
    op_offload: bool = True
    parallel: bool | None = None
    extra_bufts: bool = True
    lazy_mode: Literal["auto", "on", "off"] = "auto"
    assigns: bool = True

    def n_gpu(self, n_layer: int) -> int:
        """n_gpu_layers as a number: all layers are one more than the model has, for the output's."""
        return n_layer + 1 if self.n_gpu_layers < 0 else self.n_gpu_layers


@dataclass(frozen=True, slots=True)
class LayerDevices:
    """The device of every layer, by name; `output` is that of the output layer. The input's is always the CPU."""

    layers: tuple[str, ...]
    output: str

    def of(self, il: int) -> str:
        """The device of a layer; of one that the model does not count, that of its last."""
        return self.layers[min(il, len(self.layers) - 1)] if self.layers else self.output


def chosen_gpus(gpus: Sequence[BackendSpec], options: PlaceOptions) -> list[BackendSpec]:
    """The GPUs that llama.cpp uses: all, or with split mode none the main one. Raises PlaceError."""
    if options.split_mode != "none" or not gpus:
        return list(gpus)
    if not 0 <= options.main_gpu < len(gpus):
        raise PlaceError(f"-mg {options.main_gpu}: the GPUs are numbered from 0 to {len(gpus) - 1}")
    return [gpus[options.main_gpu]]


def layer_devices(n_layer: int, gpus: Sequence[BackendSpec], cpu: str, options: PlaceOptions) -> LayerDevices:
    """The last n_gpu_layers layers, the output layer being the very last, go to the GPUs in proportion to the split."""
    n_gpu = options.n_gpu(n_layer)
    first = max(n_layer + 1 - n_gpu, 0)
    n_act = min(n_gpu, n_layer + 1) if gpus else 0
    splits = split_points(gpus, options.tensor_split)
    devices = []
    for il in range(n_layer + 1):
        if il < first or il - first >= n_act:
            devices.append(cpu)
        else:
            devices.append(gpus[bisect_right(splits, f32((il - first) / n_act))].name)
    return LayerDevices(tuple(devices[:-1]), devices[-1])


def split_points(gpus: Sequence[BackendSpec], tensor_split: Sequence[float]) -> list[float]:
    """Where the share of each GPU ends, as a part of 1, in llama.cpp's single precision. Raises PlaceError."""
    shares = [tensor_split[i] if i < len(tensor_split) else 0.0 for i in range(len(gpus))]
    if not any(shares):
        # Where a device does not say what it has, equal shares are as good a guess as any.
        shares = [float(gpu.memory) if gpu.memory else 0.0 for gpu in gpus]
        if not all(shares):
            shares = [1.0] * len(gpus)
    total = 0.0
    points = []
    for share in shares:
        total = f32(total + f32(share))
        points.append(total)
    if gpus and not 0 < total < float("inf"):
        raise PlaceError("-ts needs a share above 0")
    return [f32(point / total) for point in points]


def f32(x: float) -> float:
    """The nearest single-precision number."""
    return ctypes.c_float(x).value
