"""What the parts of an estimate tell each other: the rates of a device, how much of them is reached, and seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ggmltool.ggml.devices.profiles import PROFILES


class ShareRange(NamedTuple):
    """A share of what a device could do at best: what is reached at least, likely, and at most."""

    low: float
    mid: float
    high: float


class Estimate(NamedTuple):
    """Seconds: at least about `low`, likely `mid`, at most about `high`."""

    low: float
    mid: float
    high: float

    def __add__(self, other: object) -> Estimate:
        """The seconds of one after the other."""
        if not isinstance(other, Estimate):
            return NotImplemented
        return Estimate(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def times(self, n: float) -> Estimate:
        """The seconds of doing it `n` times."""
        return Estimate(n * self.low, n * self.mid, n * self.high)

    def rate(self, n: float) -> Estimate:
        """How many of `n` things, say tokens, are done in a second: at least, likely, at most."""
        return Estimate(*(n / s if s > 0 else 0.0 for s in (self.high, self.mid, self.low)))


def lasting(fixed: float, amount: float, rate: float, reached: ShareRange) -> Estimate:
    """The seconds of `amount` bytes or operations by a share of a rate per second, `fixed` seconds besides."""
    return Estimate(*(fixed + amount / (rate * share) for share in reversed(reached)))


NOTHING = Estimate(0.0, 0.0, 0.0)


def added(estimates: Iterable[Estimate]) -> Estimate:
    """The seconds of all, one after the other."""
    return sum(estimates, NOTHING)


class Link(NamedTuple):
    """The way between host memory and a device's own, in one direction, in bytes per second; `latency` in seconds.

    From `pinned` host memory the device itself copies, while it and the host do something else; from `pageable` memory,
    such as a file's pages, the driver first copies into pinned memory, and the caller waits.
    """

    pinned: float
    pageable: float
    latency: float = 20e-6


class Efficiency(NamedTuple):
    """How much of its rates a device reaches; fitted to published measurements, for each family of devices.

    `matvec`: of the memory's rate, when quantized weights are multiplied by few columns; `stream`: when anything else
    is read or written (f16 and f32 weights, caches, elements). `matmul_quantized`: of the rate for 8-bit integers, when
    quantized weights are multiplied by many columns; `matmul_float`: of the rate for f16, bf16 or f32 when such weights
    are; `attention`: of the rate for f16 in flash attention and products with caches. `vector`: of the rate for f32 or
    8-bit integers when few columns are multiplied, which seldom matters beside the memory. `link`: of the rate of a
    way to host memory. `launch`: how much longer or shorter than `Rates.launch` a node's launch is, 1 as it is.
    """

    matvec: ShareRange = ShareRange(0.55, 0.70, 0.85)
    stream: ShareRange = ShareRange(0.65, 0.80, 0.92)
    matmul_quantized: ShareRange = ShareRange(0.15, 0.25, 0.40)
    matmul_float: ShareRange = ShareRange(0.30, 0.50, 0.70)
    attention: ShareRange = ShareRange(0.15, 0.30, 0.50)
    vector: ShareRange = ShareRange(0.20, 0.40, 0.70)
    link: ShareRange = ShareRange(0.65, 0.82, 0.95)
    launch: ShareRange = ShareRange(0.60, 1.00, 1.50)


_HOSTS = ("CPU", "BLAS", "ZDNN")

UNFITTED = Efficiency()
"""What is likely of a device of which nothing was measured."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What one device can do, as its maker says or as it was measured.

    `memory`: bytes per second, read or written. Operations (a multiply-add is two) per second: `f32` without matrix
    units, `f16` and `bf16` with them where there are some (dense, accumulated as ggml does), `int8` products of 8-bit
    integers (dp4a or matrix units); where a type is no faster than another, the same number. `launch`: seconds that
    each node costs beside its work: the launch of a kernel, or the barrier of a CPU's threads; `launch_captured` the
    same where the backend captures graphs and starts them as one (None: it does not). `to_device`, `from_device`: the
    way to host memory and back, None where the memory is the same (CPUs, Macs, integrated GPUs).

    `fuses`: its backend computes some chains of nodes in one kernel. `many`: columns from which a product runs as a
    matrix times a matrix, fewer as vectors. `filling`: further columns that a product with many costs, because tiles
    are not full. `family`: the profile whose kernels these rates are for, such as `CUDA`. `sources`: where each number
    is from.
    """

    name: str
    memory: float
    f32: float
    f16: float
    bf16: float
    int8: float
    launch: float = 4e-6
    launch_captured: float | None = None
    to_device: Link | None = None
    from_device: Link | None = None
    efficiency: Efficiency = UNFITTED
    fuses: bool = True
    many: int = 9
    filling: float = 0.0
    family: str = ""
    sources: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def waits(self) -> bool:
        """Whether who starts a graph waits until it is computed: the host itself computes."""
        return self.family in _HOSTS

    def queues_copy(self, source: Rates) -> bool:
        """Whether a copy from another device goes into their queues, so that the host waits for neither
        (ggml_backend_tensor_copy_async)."""
        profile = PROFILES.get(self.family)
        return self.family == source.family and profile is not None and profile.copies_async


class SplitCopy(NamedTuple):
    """A tensor that a split copies before it begins: its id, the backend that has it, and its bytes, where counted."""

    id: str
    source: str
    nbytes: int = 0


class PlacedSplit(NamedTuple):
    """A run of nodes `[i_start, i_end)` on one backend, and what is copied there before it.

    The numbers are those of the graph's nodes in ggml's order. A device that orders nodes its own way does so within a
    split, so that the nodes of each are the same.
    """

    backend: str
    i_start: int
    i_end: int
    inputs: tuple[SplitCopy, ...]
