"""Devices as other programs print them: nvidia-smi, rocm-smi, `llama-server --list-devices` and llama.cpp's log."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ggmltool.scenario.errors import Mistake, quoted
from ggmltool.scenario.known_devices import GIB, is_known, known

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
        free, total = (_mib(said.get(key, "")) for key in ("memory.free", "memory.total"))
        yield _device(f"CUDA{said['index'] if said.get('index', '').isdecimal() else i}", said["name"], free, total)


_QUERIES = ("name", "index", "memory", "uuid", "pci", "count", "driver", "timestamp", "gpu")


def _mib(text: str) -> int | None:
    number = text.removesuffix("MiB").strip()
    return int(number) * _MIB if number.isdecimal() and len(number) < 10 else None


def _of_smi_list(text: str) -> Iterator[dict[str, Any]]:
    """`nvidia-smi -L`."""
    return (_device(f"CUDA{int(found[1])}", found[2], None) for found in _SMI_LIST.finditer(text))


def _of_rocm(text: str) -> Iterator[dict[str, Any]]:
    """`rocm-smi --showproductname --showmeminfo vram`."""
    cards: dict[str, dict[str, str]] = {}
    for index, key, value in _ROCM.findall(text):
        cards.setdefault(index, {})[key.lower()] = value
    for index, said in cards.items():
        total, used = (_bytes(said, f"vram total {what}(b)") for what in ("memory ", "used memory "))
        free = None if total is None else total - (used or 0)
        yield _device(f"ROCm{int(index)}", said.get("card series", ""), free, total)


def _bytes(said: Mapping[str, str], key: str) -> int | None:
    value = said.get(key, "")
    return int(value) if value.isdecimal() and len(value) < 16 else None


def _device(name: str, what: str, free: int | None, total: int | None = None) -> dict[str, Any]:
    """A device as a map; of one with several sizes of memory, the one that is nearest to `total`, else to `free`."""
    given: dict[str, Any] = {"name": name}
    size = total if total is not None else free
    short = _FORM.sub("", what)
    said = [what, _FORM.sub("", what, count=1)]
    sized = [f"{short} {n}GB" for n in (_near(size) if size is not None else ())]
    for text in (*said, *sized, short):
        if is_known(text):
            try:
                given["rates"] = known(text).name
                break
            except Mistake:
                continue  # it comes with several sizes of memory
    return given if free is None else given | {"memory": free}


_FORM = re.compile(r"[- ](SXM\d?|PCIE|HBM\d?e?|NVL|\d+GB)\b| \([^()]*\)$", re.IGNORECASE)
"""What a driver adds to a name."""


def _near(size: int) -> list[int]:
    """GiB that may be printed on the box of a device with so many bytes, the likeliest first: some are taken away."""
    n = -(-size // GIB)
    return [n, n + 1, n - 1, n + 2, n + 3, n + 4]
