"""Devices that people name by what is printed on the box, `RTX 3090`, `M2 Ultra 192GB`; the key `rates` of backends."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from ggmltool.data import load
from ggmltool.ggml.bounds import free_memory
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.values import as_float, as_map, as_text, at, check_keys, key_names, keys_of, kind_of, read_keys

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu

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


FASTEST = 1e6
"""GB/s and tera operations a second, at most: some thousand times the fastest device."""


def _rate(value: object, what: str) -> float:
    rate = as_float(value, what)
    if not 0 < rate <= FASTEST:
        raise Mistake(f"{what} must be above 0 and at most {FASTEST:.0f}, not {rate:g}")
    return rate


Rate = Annotated[float, Meta(gt=0, le=FASTEST), _rate]


@dataclass(frozen=True, slots=True)
class OwnRates:
    """What is said of a device: GB/s of its memory, tera operations a second by type, GB/s to it and from it.

    What is None is as for the known device `like`.
    """

    like: Annotated[str | None, str] = None
    bandwidth: Annotated[float | None, Rate] = None
    f32: Annotated[float | None, Rate] = None
    f16: Annotated[float | None, Rate] = None
    bf16: Annotated[float | None, Rate] = None
    int8: Annotated[float | None, Rate] = None
    to_device: Annotated[float | None, Rate] = None
    from_device: Annotated[float | None, Rate] = None


RatesKeys = keys_of(OwnRates, "RatesKeys", "What its owner says of a device's speed.")


def read_rates(value: object) -> str | OwnRates:
    """A known device's own spelling of its name, or a map. Raises Mistake."""
    if isinstance(value, str):
        return known(as_text(value, "rates")).name
    if not isinstance(value, dict):
        raise Mistake(
            f"rates must be the name of a known device or a map, not {kind_of(value)}", "for example RTX 3090"
        )
    given = as_map(value, "rates")
    check_keys(given, key_names(RatesKeys), "rates")
    said = read_keys(given, RatesKeys)
    if "like" in said:
        said["like"] = at("like", lambda name: known(name).name, said["like"])
    else:
        for key in ("bandwidth", "f32"):
            if key not in said:
                raise Mistake(f"rates need {key}", "or `like: NAME`, a known device whose rates the others are")
    return OwnRates(**said)


def dump_rates(rates: OwnRates) -> dict[str, Any]:
    """The map that `read_rates` reads."""
    return {key: value for key, value in asdict(rates).items() if value is not None}


MIB = 1 << 20
BEYOND_CACHES = 256 * MIB
"""Bytes that all cores read together: more than the caches of nearly every machine hold."""
SIDE = 1024
"""Rows and columns of the matrices that a CPU multiplies."""
GPU_SIDE = 4096
INTEGERS_BESIDE_F32 = 2
"""How much faster than f32 a CPU's products of 8-bit integers are taken to be: numpy has none to measure."""
_REPEATS = 5


class MeasuredDevice(NamedTuple):
    """A backend of this machine: its name in llama.cpp, what it is, its free memory in bytes, and its rates."""

    backend: str
    hardware: str
    memory: int
    rates: OwnRates


def measure(progress: Callable[[str], None] = lambda text: None) -> list[MeasuredDevice]:
    """This machine's CPU, and before it every GPU that cupy finds; `progress` is told what is measured."""
    from ggmltool.ggml.devices.gpu import find

    out = []
    gpus = find().gpus
    for i in range(len(gpus)):
        progress(f"Measuring GPU {i} …")
        out.append(_measure_gpu(i, gpus[i]))
    progress("Measuring the CPU …")
    out.append(_measure_cpu())
    return out


def _measure_cpu() -> MeasuredDevice:
    import platform
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = [np.ones(BEYOND_CACHES // 8 // cores) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:

        def read() -> None:
            list(pool.map(np.sum, parts))

        memory = sum(part.nbytes for part in parts) / _fastest(read)
    f32 = _product_rate(np.ones((SIDE, SIDE), np.float32))
    rates = OwnRates(
        bandwidth=_rounded(memory / 1e9), f32=_rounded(f32 / 1e12), int8=_rounded(INTEGERS_BESIDE_F32 * f32 / 1e12)
    )
    names = (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return MeasuredDevice("CPU", name, free_memory() or 0, rates)


def _measure_gpu(number: int, gpu: Gpu) -> MeasuredDevice:
    """A GPU's memory by a copy within it, products of f32 and f16 matrices, and copies from pinned host memory."""
    cp = gpu.xp
    with cp.cuda.Device(number):
        free, _ = gpu.get_memory()
        a = cp.ones(min(BEYOND_CACHES, free // 4), cp.uint8)
        b = cp.empty_like(a)
        memory = 2 * a.nbytes / _fastest(lambda: cp.copyto(b, a), _wait(cp))
        rates: dict[str, float] = {"bandwidth": memory / 1e9}
        for key, type in (("f32", cp.float32), ("f16", cp.float16)):
            rates[key] = _product_rate(cp.ones((GPU_SIDE, GPU_SIDE), type), _wait(cp)) / 1e12
        host = cp.cuda.alloc_pinned_memory(64 * MIB)
        there = a[: 64 * MIB]
        seconds = _fastest(lambda: there.data.copy_from_host(host.ptr, there.nbytes), _wait(cp))
        rates["to_device"] = there.nbytes / seconds / 1e9
    like = None  # the known device of this name, for what was not measured
    with suppress(Mistake):
        like = known(gpu.name, any_size=True).name
    own = OwnRates(like=like, **{key: _rounded(rate) for key, rate in rates.items()})
    return MeasuredDevice(f"CUDA{number}", gpu.name, free, own)


@cache
def measured() -> Sequence[MeasuredDevice]:
    """This machine's devices, measured once."""
    return measure()


def _product_rate(square: Any, wait: Callable[[], None] = lambda: None) -> float:
    """Operations a second of a square matrix times itself."""
    return float(2 * square.shape[0] ** 3 / _fastest(lambda: square @ square, wait))


def _wait(cp: Any) -> Callable[[], None]:
    return cp.cuda.get_current_stream().synchronize  # type: ignore[no-any-return]


def _fastest(run: Callable[[], object], wait: Callable[[], None] = lambda: None, repeats: int = _REPEATS) -> float:
    """The shortest of several runs in seconds, after one that is not counted."""
    run()
    wait()
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        run()
        wait()
        times.append(perf_counter() - begin)
    return max(min(times), 1e-9)


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()
