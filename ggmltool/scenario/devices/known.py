"""Devices that people name by what is printed on the box: `RTX 3090`, `M2 Ultra 192GB`, `Ryzen 9 7950X`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from ggmltool.data import load
from ggmltool.scenario.errors import Mistake, quoted

GIB = 1 << 30
SMALL = 36 * GIB
"""Up to this much memory a Mac leaves its GPU a smaller share (`usable_small`)."""
_VENDORS = re.compile(
    r"\((r|tm|c)\)|[™®]|\b(nvidia|geforce|amd|ati|radeon|instinct|tesla|intel|core|apple|graphics|gpu|cpu|"
    r"processor|\d+-core|\d+th gen)\b"
)
_SIZE = re.compile(r" \d+GB$")
_SHOWN = 3
LIST = "`ggmltool backends --rates` lists the known devices"


@dataclass(frozen=True)
class Generation:
    """What GPUs of one generation have alike; f16, bf16 and int8 by how much they are faster than f32."""

    families: tuple[str, ...]
    f16: float
    bf16: float
    int8: float
    source: str
    features: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Isa:
    """Operations that a core does in a cycle, by type."""

    f32: float
    f16: float
    bf16: float
    int8: float
    source: str


@dataclass(frozen=True)
class GpuData:
    """A GPU as the file has it: GiB, GB/s, tera operations a second, and the PCIe's generation and lanes."""

    generation: str
    memory: float | tuple[float, ...]
    bandwidth: float
    f32: float
    source: str
    pcie: tuple[int, int] | None = None
    f16: float | None = None
    bf16: float | None = None
    int8: float | None = None


@dataclass(frozen=True)
class CpuData:
    """A CPU as the file has it: cores, GHz, channels of memory and mega transfers a second."""

    cores: int
    clock: float
    channels: int
    speed: float
    isa: str
    source: str
    efficient: int = 0
    efficient_clock: float = 0.0


@dataclass(frozen=True)
class Family:
    """What the kernels of one backend have alike: the share of memory that is free, and microseconds of a launch.

    `usable_small`: the share where there are at most 36 GiB; `fuses`: some chains of nodes are one kernel.
    """

    usable: float
    launch: float
    free_source: str
    launch_source: str
    launch_captured: float | None = None
    fuses: bool = True
    usable_small: float | None = None


@dataclass(frozen=True)
class Pcie:
    """GB/s of a lane by generation, and the share that copies reach."""

    lane: tuple[float, ...]
    pinned: float
    pageable: float
    source: str
    share_source: str


@dataclass(frozen=True)
class RatesData:
    """The file rates.toml."""

    sources: dict[str, str]
    pcie: Pcie
    families: dict[str, Family]
    generations: dict[str, Generation]
    isas: dict[str, Isa]
    gpus: dict[str, GpuData]
    cpus: dict[str, CpuData]


@dataclass(frozen=True)
class KnownDevice:
    """A device that can be named.

    `families`: the backends that run on it, the usual one first. `memory`: its bytes, None for a CPU, whose memory is
    its owner's choice. `features`: what the profile of the first knows of its hardware, None if that is nothing.
    `data`: its numbers.
    """

    name: str
    families: tuple[str, ...]
    data: GpuData | CpuData = field(repr=False)
    memory: int | None = None
    features: tuple[str, ...] | None = None

    def free(self, family: str) -> int | None:
        """The bytes that a backend finds free on it when nothing else runs there."""
        if self.memory is None:
            return None
        of = rates_data().families[family]
        small = of.usable_small is not None and self.memory <= SMALL
        return int(self.memory * (of.usable_small if small and of.usable_small else of.usable)) >> 20 << 20


@cache
def rates_data() -> RatesData:
    """The file, read once."""
    return load("rates.toml", RatesData)


@cache
def known_devices() -> Mapping[str, KnownDevice]:
    """Every device by its name; a Mac once for each size of its memory."""
    data = rates_data()
    out: dict[str, KnownDevice] = {}
    for name, gpu in data.gpus.items():
        generation = data.generations[gpu.generation]
        sizes = gpu.memory if isinstance(gpu.memory, tuple) else (gpu.memory,)
        for size in sizes:
            full = f"{name} {size:g}GB" if isinstance(gpu.memory, tuple) else name
            out[full] = KnownDevice(full, generation.families, gpu, int(size * GIB), generation.features)
    for name, cpu in data.cpus.items():
        out[name] = KnownDevice(name, ("CPU",), cpu)
    return out


def is_known(text: str) -> bool:
    """Whether a text names a device, maybe without the size of its memory."""
    key = _squashed(text)
    return bool(key) and (key in _by_key() or key in _by_base())


def known(text: str, any_size: bool = False) -> KnownDevice:
    """The device of that name, in any case, with or without the maker's name.

    With `any_size` a Mac need not say how much memory it has. Raises Mistake with the nearest names.
    """
    key = _squashed(text)
    found = _by_key().get(key)
    if found is not None:
        return found
    sizes = _by_base().get(key, ())
    if any_size and sizes and all(d.data is sizes[0].data for d in sizes):
        return sizes[-1]
    if sizes:
        names = ", ".join(d.name for d in sizes)
        raise Mistake(f"{quoted(text)} comes with several sizes of memory", f"name one: {names}")
    keys = _by_key()
    close = [keys[k].name for k in difflib.get_close_matches(key, keys, n=_SHOWN, cutoff=0.6)]
    raise Mistake(
        f"{quoted(text)} is not a known device",
        f"did you mean {' or '.join(map(quoted, close))}? {LIST}" if close else LIST,
    )


@cache
def _by_key() -> Mapping[str, KnownDevice]:
    return {_squashed(name): device for name, device in known_devices().items()}


@cache
def _by_base() -> Mapping[str, Sequence[KnownDevice]]:
    """The devices by their names without the size of their memory, where that is part of the name."""
    out: dict[str, list[KnownDevice]] = {}
    for name, device in known_devices().items():
        base, size = _SIZE.subn("", name)
        if size:
            out.setdefault(_squashed(base), []).append(device)
    return out


def _squashed(text: str) -> str:
    """A name as names are compared: without makers, case, spaces; sizes in one spelling."""
    text = _VENDORS.sub(" ", text[:200].casefold()).partition("@")[0]
    return re.sub(r"(\d)gi?b?$", r"\1gb", re.sub(r"[^a-z0-9+.]", "", text))
