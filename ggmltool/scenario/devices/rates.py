"""The key `rates` of a backend: a known device by its name, or a map of what its owner measured or knows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from ggmltool.scenario.devices.known import known
from ggmltool.scenario.errors import Mistake
from ggmltool.scenario.kinds import key_names, keys_of, read_keys
from ggmltool.scenario.values import as_float, as_map, as_text, at, check_keys, kind_of

if TYPE_CHECKING:
    from ggmltool.ggml.devices.gpu import Gpu

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


class Measured(NamedTuple):
    """A backend of this machine: its name in llama.cpp, what it is, its free memory in bytes, and its rates."""

    backend: str
    hardware: str
    memory: int
    rates: OwnRates


def measure(progress: Callable[[str], None] = lambda text: None) -> list[Measured]:
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


def _measure_cpu() -> Measured:
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
        bandwidth=_rounded(memory / 1e9),
        f32=_rounded(f32 / 1e12),
        int8=_rounded(INTEGERS_BESIDE_F32 * f32 / 1e12),
    )
    names = (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    name = next(names, "") or platform.processor() or platform.machine()
    return Measured("CPU", name, _free_memory(), rates)


def _measure_gpu(number: int, gpu: Gpu) -> Measured:
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
    return Measured(f"CUDA{number}", gpu.name, free, own)


@cache
def measured() -> Sequence[Measured]:
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


def _free_memory() -> int:
    """The bytes of memory that a program could take without swapping, 0 where the system does not say."""
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _lines(path: Path) -> Iterable[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()
