"""Devices as a command line names them: `CUDA0:24GiB`, `RTX 3090`, `here`, `none`, a file of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ggmltool.ggml.devices.profiles import profile_of_name
from ggmltool.scenario.backends import BACKEND_KEYS, check_bufts, own_bufts, read_backends, read_device
from ggmltool.scenario.beside import files_beside
from ggmltool.scenario.device_listings import PROGRAMS, listed_devices, read_listing
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.known_devices import is_known, known
from ggmltool.scenario.own_rates import dump_rates
from ggmltool.scenario.spec import BackendSpec
from ggmltool.scenario.values import check_keys

PARAM_KEYS = tuple(key for key in BACKEND_KEYS if key not in ("name", "supports", "supports_bufts"))
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


def read_devices(texts: Iterable[str]) -> list[BackendSpec]:
    """Backends as `NAME` or `NAME:params`, the form that ggml's init from a string has, or as files of them.

    Instead of NAME there may be a known device, `RTX 3090`, which is then the next of its usual backend (CUDA0, CUDA1,
    …) with the memory that is free on it; several alike are `2x RTX 3090`, and `Vulkan0=RTX 3090` is another backend on
    it. `here` is this machine, measured.

    The params are `key=value`, separated by commas, with the keys of a backend whose values are no lists or maps; a
    size alone is the memory: `CUDA0:24GiB`, `CUDA0:memory=24GiB,events=false`. A text may name several devices by
    commas, `CUDA0:24GiB,CUDA1:8GiB`. `none`, alone, is the CPU. What nvidia-smi, rocm-smi and `llama-server
    --list-devices` print may stand for the devices, too, as lines or as a file. Raises Mistake, and ScenarioError for
    what stands in a file.
    """
    from ggmltool.scenario.device_files import SUFFIXES, is_device_file, read_device_file

    maps: list[dict[str, Any]] = []
    for text in texts:
        if is_device_file(text):
            maps += [written for written, _ in read_device_file(Path(text), read_device)]
        elif _is_listing(text):
            maps += read_listing(Path(text))
        elif "." in text and (meant := did_you_mean(text, files_beside(text, SUFFIXES))):
            raise Mistake(f"there is no file {quoted(text)}", meant)
        else:
            maps += listed_devices(text) or [given for device in _devices_of(text) for given in _device_maps(device)]
        if len(maps) > MOST_DEVICES:
            raise Mistake(f"{len(maps)} devices are too many; the limit is {MOST_DEVICES}")
    _number(maps)
    names = [given["name"] for given in maps]
    if NO_DEVICE in names:
        if len(names) > 1:
            raise Mistake(
                f"{NO_DEVICE} cannot be combined with other devices", f"{NO_DEVICE} alone is the CPU without any GPU"
            )
        maps = [{"name": "CPU"}]
    specs = read_backends(maps)
    check_bufts(specs, own_bufts(specs))
    return specs


def _is_listing(text: str) -> bool:
    """Whether a text is the name of a file, and of no device."""
    if text == HERE or profile_of_name(text.partition(":")[0]) != "custom":
        return False
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


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
        return [dict(given) for given in _measured()]
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


@cache
def _measured() -> list[dict[str, Any]]:
    """This machine's devices, measured once."""
    from ggmltool.scenario.measure import measure

    return [
        {"name": m.backend, "rates": dump_rates(m.rates)} | ({"memory": m.memory} if m.memory else {})
        for m in measure()
    ]


def _number(maps: list[dict[str, Any]]) -> None:
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
                raise Mistake(f"{quoted(text)}: {value[:_DIGITS]} has no unit", _unit_hint(name, value[:_DIGITS]))
        check_keys({key: value}, PARAM_KEYS, f"{quoted(name)}'s params")
        if key in given:
            raise Mistake(f"{quoted(name)} has {key} twice")
        given[key] = int(value) if value.isascii() and value.isdigit() and len(value) < _DIGITS else value
    return given


def _unit_hint(name: str, number: str) -> str:
    in_bytes = f"{name}:memory={number}"
    if int(number) > _MIB_AT_MOST:
        return f"in bytes it is {in_bytes}"
    return f"did you mean {name}:{_with_unit(number)}? ({in_bytes} is bytes)"


def _with_unit(size: str) -> str:
    """A size, a bare number with the unit that was probably meant: no card has 24 bytes, or 8192 GiB."""
    if not size.isdigit():
        return size
    return f"{size}GiB" if int(size) < _GIB_AT_MOST else f"{size}MiB"
