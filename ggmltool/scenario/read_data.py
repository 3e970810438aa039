"""Reading the `data` of a tensor: everything is checked that can be checked without making the values."""

from __future__ import annotations

import base64
import binascii
from itertools import chain
from math import prod
from pathlib import Path
from typing import Annotated, Any

from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.tensor import Dims, contiguous_nb, nbytes_of
from ggmltool.ggml.values.extent import span
from ggmltool.scenario.data import (
    INTEGER_BITS,
    ArangeData,
    BytesData,
    Data,
    FillData,
    GgufData,
    ListData,
    NormalData,
    NpyData,
    Number,
    UniformData,
    check_npy_file,
    inside_folder,
)
from ggmltool.scenario.encoded import can_encode, check_gguf_file, read_gguf_tensor
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted
from ggmltool.scenario.values import (
    Count,
    Keys,
    as_float,
    as_int,
    as_map,
    as_text,
    at,
    check_keys,
    defined,
    key_names,
    kind_of,
    shape_text,
)
from ggmltool.scenario.values import Number as Value

MAX_ELEMENTS = 1 << 32
"""Elements that data can be given for, at most."""

_INF = float("inf")


def parse_data(value: object, type: DType, ne: Dims, folder: Path | None, nb: Dims | None = None) -> Data:
    """The data of a tensor of this type, shape and strides (None: contiguous). Raises Mistake."""
    data = _parse(value, type, ne, folder)
    _check_layout(type, ne, contiguous_nb(type, ne) if nb is None else nb)
    return data


def _parse(value: object, type: DType, ne: Dims, folder: Path | None) -> Data:
    n = prod(ne)
    if n > MAX_ELEMENTS:
        raise Mistake(f"data for {n} elements", f"at most {MAX_ELEMENTS}")
    if hasattr(value, "__array__") and hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return _parse_list(value, type, ne)
    if not isinstance(value, dict):
        raise Mistake(f"data must be a list or a map, not {kind_of(value)}", "for example {fill: 0} or [1, 2, 3]")
    given = as_map(value, "data")
    kinds = [key for key in given if key in KINDS]
    if not kinds:
        first = next(iter(given), None)
        hint = (did_you_mean(first, KINDS) if first is not None else "") or f"the kinds are {', '.join(KINDS)}"
        raise Mistake(f"data has no kind {quoted(first)}" if first is not None else "data is empty", hint)
    if len(kinds) > 1:
        raise Mistake(f"data cannot be both {kinds[0]} and {kinds[1]}", "", kinds[1], on_key=True)
    kind = kinds[0]
    check_keys(given, ("gguf", "tensor") if kind == "gguf" else (kind,), "data")
    if kind == "gguf":
        return _parse_gguf(given, type, ne, folder)
    data = at(kind, _parse_kind, kind, given[kind], type, ne, folder)
    if not isinstance(data, BytesData) and not can_encode(type):
        raise _no_encoding(type)
    return data


def _parse_kind(kind: str, value: object, type: DType, ne: Dims, folder: Path | None) -> Data:
    """What stands behind a kind of data."""
    match kind:
        case "fill":
            return FillData(_number(value, type))
        case "base64":
            return _parse_base64(value, type, ne)
        case "npy":
            return _parse_npy(value, type, ne, folder)
    options = as_map({} if value is None else value, kind)
    check_keys(options, key_names(GENERATED[kind]), kind)
    match kind:
        case "normal":
            std = _option(options, "std", 1.0)
            if not std >= 0:
                raise Mistake(f"std must be at least 0, not {std}", "", "std")
            return NormalData(_seed(options), _option(options, "mean", 0.0), abs(std))  # -0.0 is none for numpy
        case "uniform":
            low, high = _option(options, "low", -1.0), _option(options, "high", 1.0)
            if not low <= high or high - low == _INF:
                raise Mistake(f"low must not be above high: {low}, {high}", "", "low")
            if high - low != high - low:
                raise Mistake(f"low and high must be finite, not {low}", "", "low")
            return UniformData(_seed(options), low, high)
    start, step = (at(key, _number, options.get(key, default), type) for key, default in (("start", 0), ("step", 1)))
    bits = INTEGER_BITS.get(type.name)
    last = start + step * max(prod(ne) - 1, 0)
    if bits is not None and not -(1 << bits - 1) <= last < 1 << bits - 1:
        raise Mistake(f"the last value, {last}, does not fit into {type.name}")
    return ArangeData(start, step)


def _option(options: dict[str, Any], key: str, default: float) -> float:
    return at(key, as_float, options.get(key, default), key)


def _seed(options: dict[str, Any]) -> int:
    return at("seed", as_int, options.get("seed", 0), "seed")


def _check_layout(type: DType, ne: Dims, nb: Dims) -> None:
    """Raise where the values have no place in the bytes of the tensor."""
    if not all(ne):
        return
    if ne[0] % type.block_size:
        raise Mistake(
            f"there is no way to write a row of {ne[0]} elements in {type.name}",
            f"its blocks have {type.block_size} elements",
        )
    _, end = span((ne[0] // type.block_size, *ne[1:]), nb, type.type_size)
    size = nbytes_of(type, ne, nb)
    if end > size:
        raise Mistake(
            f"nb {list(nb)} gives {shape_text(type, ne)} {size} bytes (ggml_nbytes), and its last block ends at {end}",
            f"nb[0] is {type.type_size}, the bytes of a block, where a row has no gaps",
        )


def _no_encoding(type: DType) -> Mistake:
    return Mistake(
        f"values cannot be converted to {type.name} here",
        "give the tensor's own bytes as {base64: ...} or a tensor of that type as {gguf: file, tensor: name}",
    )


def _parse_list(value: list[Any] | tuple[Any, ...], type: DType, ne: Dims) -> ListData:
    if not can_encode(type):
        raise _no_encoding(type)
    flat, shape = _flatten(value)
    wanted = prod(ne)
    if len(flat) != wanted:
        raise Mistake(f"data has {len(flat)} values", f"{shape_text(type, ne)} has {wanted} elements")
    if len(shape) > 1 and _stripped(shape) != _stripped(ne[::-1]):
        raise Mistake(
            f"data is nested as {' x '.join(map(str, shape))}",
            f"{shape_text(type, ne)} is {' x '.join(map(str, _stripped(ne[::-1])))}, columns last",
        )
    kinds = {v.__class__ for v in flat}
    plain = kinds <= {int, float} and type.name not in INTEGER_BITS
    if plain and int in kinds:
        plain = all(-(1 << 1000) < v < 1 << 1000 or v != v or v in (_INF, -_INF) for v in flat)
    if not plain:
        for i, v in enumerate(flat):
            try:
                flat[i] = _number(v, type)
            except Mistake as mistake:
                raise mistake.below(*_position(i, shape)) from None
    return ListData(tuple(flat))


def _flatten(value: list[Any] | tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...]]:
    """The innermost values and the shape of a nested list."""
    level: list[Any] = list(value)
    shape = [len(level)]
    while level and isinstance(level[0], list | tuple):
        n = len(level[0])
        for i, item in enumerate(level):
            if not isinstance(item, list | tuple) or len(item) != n:
                found = f"{len(item)} values" if isinstance(item, list | tuple) else kind_of(item)
                raise Mistake(f"the lists differ in length: {found} beside {n}", "", *_position(i, tuple(shape)))
        level = list(chain.from_iterable(level))
        shape.append(n)
        if len(shape) > 8:
            raise Mistake("data is nested too deeply", "at most four dimensions")
    return level, tuple(shape)


def _position(i: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Where value number `i` stands in a nested list."""
    out: list[int] = []
    for n in reversed(shape):
        out.append(i % n if n else 0)
        i //= n or 1
    return tuple(reversed(out))


def _number(value: object, type: DType) -> Number:
    """A value as the type can hold it."""
    bits = INTEGER_BITS.get(type.name)
    if bits is not None:
        return as_int(value, f"an element of {type.name}", -(1 << bits - 1), (1 << bits - 1) - 1)
    number = as_float(value, "an element")
    return value if isinstance(value, int) and not isinstance(value, bool) else number


def _stripped(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without leading ones."""
    i = 0
    while i < len(shape) - 1 and shape[i] == 1:
        i += 1
    return shape[i:]


class NormalKeys(Keys):
    """numpy's normal."""

    seed: Count = 0
    mean: Value = 0
    std: Value = 1


class UniformKeys(Keys):
    """numpy's uniform."""

    seed: Count = 0
    low: Value = -1
    high: Value = 1


class ArangeKeys(Keys):
    """start, start + step, …"""

    start: Value = 0
    step: Value = 1


class DataKeys(Keys):
    """Values of a tensor: a list, flat or nested as the tensor is, or a map with one of these keys."""

    fill: Value = 0
    normal: NormalKeys | None = None
    uniform: UniformKeys | None = None
    arange: ArangeKeys | None = None
    npy: str = ""
    gguf: str = ""
    base64: str = ""
    tensor: str = ""


DATA = Annotated[Any, defined("data")]

KINDS = ("fill", "normal", "uniform", "arange", "npy", "gguf", "base64")
GENERATED: dict[str, type[Keys]] = {"normal": NormalKeys, "uniform": UniformKeys, "arange": ArangeKeys}
"""Kinds of data that are made up, with their options."""


def _parse_base64(value: object, type: DType, ne: Dims) -> Data:
    text = as_text(value, "base64")
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as e:
        raise Mistake(f"this is not base64: {str(e)[:1].lower()}{str(e)[1:]}") from None
    wanted = nbytes_of(type, ne, contiguous_nb(type, ne))
    if len(content) != wanted:
        raise Mistake(f"base64 gives {len(content)} bytes", f"{shape_text(type, ne)} has {wanted}")
    return BytesData(content)


def _parse_npy(value: object, type: DType, ne: Dims, folder: Path | None) -> Data:
    file = as_text(value, "npy")
    path = inside_folder(file, folder)
    shape = check_npy_file(path, file)
    if _stripped(shape or (1,)) != _stripped(ne[::-1]):
        raise Mistake(
            f"the array in {quoted(file)} has the shape {shape}",
            f"{shape_text(type, ne)} is {ne[::-1]} in numpy's order",
        )
    return NpyData(file, path)


def _parse_gguf(given: dict[str, Any], type: DType, ne: Dims, folder: Path | None) -> Data:
    file = at("gguf", as_text, given["gguf"], "gguf")
    path = at("gguf", inside_folder, file, folder)
    at("gguf", check_gguf_file, path, file)
    if "tensor" not in given:
        raise Mistake("data from a gguf file needs the tensor's name", "{gguf: file, tensor: name}")
    name = at("tensor", as_text, given["tensor"], "tensor")
    found = at("tensor", read_gguf_tensor, path, name)
    if found.ne != ne:
        raise Mistake(
            f"{quoted(name)} in {quoted(file)} has the extents {list(found.ne)}", f"the tensor has {list(ne)}", "tensor"
        )
    if found.type_id != type.id and not can_encode(type):
        raise _no_encoding(type)
    return GgufData(file, name, path)
