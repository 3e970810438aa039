"""Devices as a command line names them: `CUDA0:24GiB`, `RTX 3090`, `here`, `none`, a file of them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ggmltool.ggml.devices.profiles import profile_of_name
from ggmltool.ggml.releases.release import Release
from ggmltool.scenario.devices.backends import devices_of, is_device_file, read_device_file
from ggmltool.scenario.devices.rates import GIB, dump_rates, is_known, known, measured
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.samples import FILES
from ggmltool.scenario.spec import BackendKeys, BackendSpec
from ggmltool.scenario.text.text import files_beside
from ggmltool.scenario.values import check_keys, key_names

PROGRAMS = "nvidia-smi, rocm-smi or llama-server --list-devices"
MOST_BYTES = 1 << 20
_MIB = 1 << 20

_LLAMA = re.compile(
    r"^[ \t]*(?P<name>\w+): (?P<what>.+) \(\d+ MiB, (?P<free>\d{1,9}) MiB free\)[ \t]*$"
    r"|using device (?P<name2>\w+) \((?P<what2>[^()]+(?:\([^()]*\)[^()]*)*)\).* (?P<free2>\d{1,9}) MiB free",
    re.MULTILINE,
)
"""`CUDA0: NVIDIA GeForce RTX 3090 (24245 MiB, 23971 MiB free)`, and the same as it stands in a log."""
_SMI_NAME = re.compile(
    r"^\|\s+(\d{1,4})\s+(\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*[0-9A-Fa-f]{4,8}:", re.MULTILINE
)
_SMI_MEMORY = re.compile(r"\|\s*(\d{1,9})MiB\s*/\s*(\d{1,9})MiB\s*\|")
_SMI_LIST = re.compile(r"^GPU (\d{1,4}): (\S.*?) \(UUID: ", re.MULTILINE)
_ROCM = re.compile(
    r"^GPU\[(\d{1,4})\]\s*:\s*(Card [Ss]eries|VRAM Total Memory \(B\)|VRAM Total Used Memory \(B\)):\s*(\S.*?)\s*$",
    re.MULTILINE,
)


def listed_devices(text: str) -> list[dict[str, Any]]:
    """The devices that a program has printed, as maps of a scenario; [] if these are no such lines.

    The memory of each is what is free on it now. A name that is not known gives a device without rates.
    """
    for read in (_of_llama, _of_smi_table, _of_smi_query, _of_smi_list, _of_rocm):
        if found := list(read(text)):
            return found
    return []


def read_listing(path: Path) -> list[dict[str, Any]]:
    """The devices in a file that a program's output was saved in. Raises Mistake."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise Mistake(f"{quoted(str(path))}: {error.strerror or error}") from None
    found = listed_devices(text)
    if not found:
        raise Mistake(
            f"{quoted(str(path))} is a file without devices",
            f"save what {PROGRAMS} prints, or describe a device in a file that ends in .yaml (`ggmltool help devices`)",
        )
    return found


def _of_llama(text: str) -> Iterator[dict[str, Any]]:
    for found in _LLAMA.finditer(text):
        parts = [found[name] or found[f"{name}2"] for name in ("name", "what", "free")]
        if parts[0] != "Device":
            yield _device(parts[0], parts[1], int(parts[2]) * _MIB)


def _of_smi_table(text: str) -> Iterator[dict[str, Any]]:
    for found in _SMI_NAME.finditer(text):
        if memory := _SMI_MEMORY.search(text, found.end()):
            used, total = (int(n) * _MIB for n in memory.groups())
            yield _device(f"CUDA{int(found[1])}", found[2], total - used, total)


def _of_smi_query(text: str) -> Iterator[dict[str, Any]]:
    """`nvidia-smi --query-gpu=name,memory.free --format=csv`."""
    head, *rows = csv.reader(text.splitlines(), skipinitialspace=True) if text.startswith(_QUERIES) else [[]]
    columns = [name.partition(" [")[0].strip() for name in head]
    for i, row in enumerate(rows if "name" in columns else ()):
        said = dict(zip(columns, row, strict=False))
        mib = [_number(said.get(f"memory.{key}", "").removesuffix("MiB").strip(), 9) for key in ("free", "total")]
        free, total = (None if n is None else n * _MIB for n in mib)
        yield _device(f"CUDA{said['index'] if said.get('index', '').isdecimal() else i}", said["name"], free, total)


_QUERIES = ("name", "index", "memory", "uuid", "pci", "count", "driver", "timestamp", "gpu")


def _of_smi_list(text: str) -> Iterator[dict[str, Any]]:
    """`nvidia-smi -L`."""
    return (_device(f"CUDA{int(found[1])}", found[2], None) for found in _SMI_LIST.finditer(text))


def _number(text: str | None, digits: int) -> int | None:
    """A number of at most so many digits, None for anything else."""
    return int(text) if text is not None and text.isdecimal() and len(text) <= digits else None


def _of_rocm(text: str) -> Iterator[dict[str, Any]]:
    """`rocm-smi --showproductname --showmeminfo vram`."""
    cards: dict[str, dict[str, str]] = {}
    for index, key, value in _ROCM.findall(text):
        cards.setdefault(index, {})[key.lower()] = value
    for index, said in cards.items():
        total, used = (_number(said.get(f"vram total {what}memory (b)"), 15) for what in ("", "used "))
        free = None if total is None else total - (used or 0)
        yield _device(f"ROCm{int(index)}", said.get("card series", ""), free, total)


def _device(name: str, what: str, free: int | None, total: int | None = None) -> dict[str, Any]:
    """A device as a map; of one with several sizes of memory, the one that is nearest to `total`, else to `free`."""
    given: dict[str, Any] = {"name": name}
    size = total if total is not None else free
    short = _FORM.sub("", what)
    said = [what, _FORM.sub("", what, count=1)]
    # GiB that may be printed on the box, the likeliest first: some are taken away.
    n = -(-(size or 0) // GIB)
    sized = [f"{short} {near}GB" for near in (n, n + 1, n - 1, n + 2, n + 3, n + 4)] if size is not None else []
    for text in filter(is_known, (*said, *sized, short)):
        with suppress(Mistake):  # it comes with several sizes of memory
            given["rates"] = known(text).name
            break
    return given if free is None else given | {"memory": free}


_FORM = re.compile(r"[- ](SXM\d?|PCIE|HBM\d?e?|NVL|\d+GB)\b| \([^()]*\)$", re.IGNORECASE)
"""What a driver adds to a name."""


PARAM_KEYS = tuple(key for key in key_names(BackendKeys) if key not in ("name", "supports", "supports_bufts"))
NO_DEVICE = "none"
"""What stands for no GPU, as in llama.cpp's --device."""
HERE = "here"
"""What stands for this machine's devices, as fast as they are measured to be."""
_DIGITS = 25
_COMMA = re.compile(r",(?![^\[]*\])")
_SIZE = re.compile(r"[0-9.]+ ?([kmgtp]i?b?|b)?", re.IGNORECASE)
_GIB_AT_MOST, _MIB_AT_MOST = 512, 1 << 20
_TIMES = re.compile(r"(\d{1,4}) *[x×] *(.+)", re.DOTALL)
_HARDWARE = re.compile(
    r"\S+ +\S|(rtx|gtx|rx|mi|arc|radeon|geforce|ryzen|epyc|threadripper|xeon|i[3579]-|tesla|instinct)-?\d",
    re.IGNORECASE,
)
"""What looks like a device's name on the market: several words, or a series with a number."""
_PREFIXES = {"CUDA": "CUDA", "ROCm": "ROCm", "Vulkan": "Vulkan", "Metal": "MTL", "SYCL": "SYCL", "CPU": "CPU"}
"""How llama.cpp calls the devices of a backend, before their number."""
MOST_ALIKE = 64
"""Devices that one text may stand for."""
MOST_DEVICES = 64
"""Devices of all texts together."""
_NO_NAME = re.compile(r"[\s./\\(){}<>|]")
"""What stands in the name of no backend."""


def read_devices(texts: Iterable[str], release: Release | None = None) -> list[BackendSpec]:
    """Backends as `NAME` or `NAME:params`, the form that ggml's init from a string has, or as files of them.

    Instead of NAME there may be a known device, `RTX 3090`, which is then the next of its usual backend (CUDA0, CUDA1,
    …) with the memory that is free on it; several alike are `2x RTX 3090`, and `Vulkan0=RTX 3090` is another backend on
    it. `here` is this machine, measured.

    The params are `key=value`, separated by commas, with the keys of a backend whose values are no lists or maps; a
    size alone is the memory: `CUDA0:24GiB`, `CUDA0:memory=24GiB,events=false`. A text may name several devices by
    commas, `CUDA0:24GiB,CUDA1:8GiB`. `none`, alone, is the CPU. What nvidia-smi, rocm-smi and `llama-server
    --list-devices` print may stand for the devices, too, as lines or as a file. `release` is that whose profiles they
    have (None: any). Raises Mistake, and ScenarioError for what stands in a file.
    """
    maps: list[dict[str, Any]] = []
    for text in texts:
        if is_device_file(text):
            maps += read_device_file(Path(text))
        elif _is_listing(text):
            maps += read_listing(Path(text))
        elif "." in text and (meant := did_you_mean(text, files_beside(text, FILES))):
            raise Mistake(f"there is no file {quoted(text)}", meant)
        else:
            maps += listed_devices(text) or [given for device in _devices_of(text) for given in _device_maps(device)]
        if len(maps) > MOST_DEVICES:
            raise Mistake(f"{len(maps)} devices are too many; the limit is {MOST_DEVICES}")
    _name_known(maps)
    names = [given["name"] for given in maps]
    if NO_DEVICE in names:
        if len(names) > 1:
            raise Mistake(
                f"{NO_DEVICE} cannot be combined with other devices", f"{NO_DEVICE} alone is the CPU without any GPU"
            )
        maps = [{"name": "CPU"}]
    return devices_of({"backends": maps}, release=release).backends


def _is_listing(text: str) -> bool:
    """Whether a text is the name of a file, and of no device."""
    return text != HERE and profile_of_name(text.partition(":")[0]) == "custom" and os.path.isfile(text)  # noqa: PTH113


def _devices_of(text: str) -> list[str]:
    """The devices of a text: behind a comma comes another one, unless it is a param, which has a = or is a size."""
    out: list[str] = []
    for part in _COMMA.split(text):
        name, colon, _ = part.partition(":")
        key, equals, _ = name.partition("=")
        param = bool(equals) and (key.strip() in PARAM_KEYS or profile_of_name(key.strip()) == "custom")
        param = param or (not colon and _SIZE.fullmatch(part.strip()) is not None)
        if out and param:
            out[-1] += f",{part}"
        else:
            out.append(part.strip())
    return out


def _device_maps(text: str) -> list[dict[str, Any]]:
    """The devices that a text without commas between devices stands for: one, several alike, or this machine's."""
    if text == HERE:
        return [
            {"name": m.backend, "rates": dump_rates(m.rates)} | ({"memory": m.memory} if m.memory else {})
            for m in measured()
        ]
    times = _TIMES.fullmatch(text)
    if times is None:
        return [_device_map(text)]
    count = int(times[1])
    if not 1 <= count <= MOST_ALIKE:
        raise Mistake(f"{quoted(text)}: there must be 1 to {MOST_ALIKE} devices alike")
    given = _device_map(times[2])
    if count > 1 and given["name"] is not None:
        raise Mistake(
            f"{quoted(text)}: {count} devices cannot be called {quoted(given['name'])}", "for example 2x RTX 3090"
        )
    return [dict(given) for _ in range(count)]


def _name_known(maps: list[dict[str, Any]]) -> None:
    """Give known devices without a name the next one of their backend."""
    taken = {given["name"] for given in maps}
    for given in maps:
        if given["name"] is None:
            prefix = _PREFIXES[known(given["rates"]).families[0]]
            names = (f"{prefix}{i}" for i in range(len(maps)))
            given["name"] = prefix if prefix == "CPU" else next(name for name in names if name not in taken)
            taken.add(given["name"])


def _named(text: str, params: str) -> tuple[str | None, str | None]:
    """The backend and the known device that a text without params names, None for what it does not."""
    name, equals, hardware = (part.strip() for part in text.partition("="))
    if not equals and not (is_known(name) or _HARDWARE.match(name)):
        if _NO_NAME.search(name.partition("[")[0]):
            raise Mistake(
                f"{quoted(name)} is neither a device nor a file",
                f"name it as CUDA0:24GiB or RTX 3090, or save what {PROGRAMS} prints in a file",
            )
        return name, None
    if equals and not hardware:
        raise Mistake(f"{quoted(text)} names no device behind the =", f"for example {name}=RTX 3090")
    device = known(hardware or name, any_size=bool(params))
    return (name if equals else None), device.name


def _device_map(text: str) -> dict[str, Any]:
    # An RPC device's name has its endpoint, and that a colon, in brackets.
    bracketed = text.find("]") if "[" in text.partition(":")[0] else 0
    end = text.find(":", max(bracketed, 0))
    name, params = (text[:end], text[end + 1 :]) if end >= 0 else (text, "")
    if _SIZE.fullmatch(name):
        raise Mistake(f"{quoted(text)} is a memory without a device", f"for example CUDA0:{_with_unit(name)}")
    backend, hardware = _named(name, params)
    given: dict[str, Any] = {"name": backend} if hardware is None else {"name": backend, "rates": hardware}
    for param in params.split(",") if params else ():
        key, equals, value = (part.strip() for part in param.partition("="))
        if not equals:
            key, value = "memory", key
            if value.isascii() and value.isdigit():
                number = value[:_DIGITS]
                in_bytes = f"{name}:memory={number}"
                hint = f"did you mean {name}:{_with_unit(number)}? ({in_bytes} is bytes)"
                hint = f"in bytes it is {in_bytes}" if int(number) > _MIB_AT_MOST else hint
                raise Mistake(f"{quoted(text)}: {number} has no unit", hint)
        check_keys({key: value}, PARAM_KEYS, f"{quoted(name)}'s params")
        if key in given:
            raise Mistake(f"{quoted(name)} has {key} twice")
        given[key] = int(value) if value.isascii() and value.isdigit() and len(value) < _DIGITS else value
    return given


def _with_unit(size: str) -> str:
    """A size, a bare number with the unit that was probably meant: no card has 24 bytes, or 8192 GiB."""
    if not size.isdigit():
        return size
    return f"{size}GiB" if int(size) < _GIB_AT_MOST else f"{size}MiB"
