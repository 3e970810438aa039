"""Devices as a command line names them: `CUDA0:24GiB`, `none`, a file of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ggmltool.scenario.backends import BACKEND_KEYS, check_bufts, own_bufts, read_backends, read_device
from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.model import BackendSpec
from ggmltool.scenario.values import check_keys

PARAM_KEYS = tuple(key for key in BACKEND_KEYS if key not in ("name", "supports", "supports_bufts"))
NO_DEVICE = "none"
"""What stands for no GPU, as in llama.cpp's --device."""
_DIGITS = 25
_COMMA = re.compile(r",(?![^\[]*\])")
_SIZE = re.compile(r"[0-9.]+ ?([kmgtp]i?b?|b)?", re.IGNORECASE)
_GIB_AT_MOST, _MIB_AT_MOST = 512, 1 << 20


def read_devices(texts: Iterable[str]) -> list[BackendSpec]:
    """Backends as `NAME` or `NAME:params`, the form that ggml's init from a string has, or as files of them.

    The params are `key=value`, separated by commas, with the keys of a backend whose values are no lists or maps; a
    size alone is the memory: `CUDA0:24GiB`, `CUDA0:memory=24GiB,events=false`. A text may name several devices by
    commas, `CUDA0:24GiB,CUDA1:8GiB`. `none`, alone, is the CPU. Raises Mistake, and ScenarioError for what stands in a
    file.
    """
    from ggmltool.scenario.device_files import is_device_file, read_device_file

    maps: list[dict[str, Any]] = []
    for text in texts:
        if is_device_file(text):
            maps += [written for written, _ in read_device_file(Path(text), read_device)]
        else:
            maps += map(_device_map, _devices_of(text))
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


def _devices_of(text: str) -> list[str]:
    """The devices of a text: behind a comma comes another one, unless it is a param, which has a = or is a size."""
    out: list[str] = []
    for part in _COMMA.split(text):
        name, colon, _ = part.partition(":")
        param = "=" in name or (not colon and _SIZE.fullmatch(part.strip()) is not None)
        if out and param:
            out[-1] += f",{part}"
        else:
            out.append(part.strip())
    return out


def _device_map(text: str) -> dict[str, Any]:
    # An RPC device's name has its endpoint, and that a colon, in brackets.
    bracketed = text.find("]") if "[" in text.partition(":")[0] else 0
    end = text.find(":", max(bracketed, 0))
    name, params = (text[:end], text[end + 1 :]) if end >= 0 else (text, "")
    if _SIZE.fullmatch(name):
        raise Mistake(f"{quoted(text)} is a memory without a device", f"for example CUDA0:{_with_unit(name)}")
    given: dict[str, Any] = {"name": name}
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
