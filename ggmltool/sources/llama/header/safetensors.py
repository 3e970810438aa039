"""The headers of a folder of safetensors: tables of tensors, without their data.

A file begins with the length of its header (eight bytes) and the header, which is JSON; its data follow. So the first
megabytes of each file are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from ggmltool.scenario.gguf import MAX_TENSORS
from ggmltool.sources.llama.errors import CaptureError

INDEX = "model.safetensors.index.json"
MAX_HEADER = 100_000_000
"""Bytes of a header, at most: the format's own limit."""

MAX_CONFIG = 16 << 20
_MAX_EXTENT = 1 << 40
_MAX_DIMS = 8
_SHOWN = 3


class StoredTensor(NamedTuple):
    """A tensor as it is stored: its type by safetensors' name, and its shape, the slowest dimension first."""

    dtype: str
    shape: tuple[int, ...]


def read_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of all files, by name. Raises CaptureError for what is missing, cut or damaged."""
    out: dict[str, StoredTensor] = {}
    for file in _files(folder):
        for name, tensor in _read_header(file):
            if name in out:
                raise CaptureError(f"{file}: there is a tensor {name[:100]!r} in another file, too")
            out[name] = tensor
            if len(out) > MAX_TENSORS:
                raise CaptureError(f"{folder} has more than {MAX_TENSORS} tensors")
    return out


def read_json(path: Path, most: int = MAX_CONFIG) -> dict[str, Any]:
    """A JSON object in a file. Raises CaptureError."""
    try:
        if path.stat().st_size > most:
            raise CaptureError(f"{path} has more than {most} bytes")
        return _object(path, path.read_bytes())
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CaptureError(f"{path} is not a JSON object")
    return cast("dict[str, Any]", value)


def _files(folder: Path) -> list[Path]:
    """The files with the weights, all of which are there. Raises CaptureError."""
    index = folder / INDEX
    if index.is_file():
        names = read_json(index, MAX_HEADER).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise CaptureError(f"{index} has no weight_map of tensors to files")
        files = [folder / Path(name).name for name in sorted(set(names.values()))]
    else:
        files = sorted(folder.glob("model*.safetensors"))
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        named = ", ".join(missing[:_SHOWN]) + (" …" if len(missing) > _SHOWN else "")
        raise CaptureError(
            f"{folder}: of {len(files)} files of safetensors {len(missing)} missing: {named}; the first megabytes of "
            "each are enough"
        )
    if not files:
        raise CaptureError(f"{folder} has no {INDEX} and no model.safetensors")
    return files


def _read_header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    """The tensors of one file. Raises CaptureError."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            if len(start) == 8 and size > MAX_HEADER:
                raise CaptureError(f"{path} is no file of safetensors: its header would have {size} bytes")
            content = file.read(size)
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from None
    if len(start) < 8 or len(content) < size:
        needed = 8 + size
        raise CaptureError(
            f"{path} ends in its header, after {len(start) + len(content)} bytes; it needs {needed} bytes "
            f"(curl -r 0-{needed - 1})"
        )
    for name, given in _object(path, content).items():
        match given:
            case _ if name == "__metadata__":
                pass
            case {"dtype": str(dtype), "shape": list(shape)} if len(shape) <= _MAX_DIMS and all(
                type(n) is int and 0 < n < _MAX_EXTENT for n in shape
            ):
                yield name, StoredTensor(dtype, tuple(shape))
            case _:
                raise CaptureError(f"{path}: the tensor {name[:100]!r} has no dtype and shape that safetensors knows")
