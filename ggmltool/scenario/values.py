"""Values of a scenario as the user wrote them, checked and converted; the kinds of values that its structs' fields are.

Every function raises `Mistake` for a value that will not do. The annotation of a field is its kind: msgspec draws the
JSON Schema from it, and it is read by the function that stands in it, else as the type says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from operator import index
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    SupportsIndex,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import Meta, Struct, defstruct

from ggmltool.ggml.dtypes import TYPES, DType
from ggmltool.ggml.tensor import MAX_DIMS, Dims, dims, nbytes_of
from ggmltool.scenario.errors import Mistake, did_you_mean, quoted

P = ParamSpec("P")
T = TypeVar("T")

INT64_MAX = (1 << 63) - 1
MAX_ID = 1000
"""Characters an id may have (ggml cuts names at 63 bytes; ids are ours)."""

MAX_SIZE_LENGTH = 40
SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([kmgtKMGT]?)(i?)([bB]?)\s*")
NOT_FINITE = ("inf", "-inf", "+inf", "nan")
"""Numbers that are written as words."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def at(key: str | int, convert: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Convert what stands at `key`; a mistake's path then starts with the key."""
    try:
        return convert(*args, **kwargs)
    except Mistake as mistake:
        raise mistake.below(key) from None


def kind_of(value: object) -> str:
    """What a value is, in a user's words."""
    match value:
        case None:
            return "null"
        case bool():
            return f"{str(value).lower()} (a truth value)"
        case int():
            return f"the number {value}" if value.bit_length() < 200 else "a huge number"
        case float():
            return f"the number {value}"
        case str():
            return f"the text {quoted(value)}"
        case list() | tuple():
            return "a list"
        case dict():
            return "a map"
    return f"a {type(value).__name__}"


def as_map(value: object, what: str) -> dict[str, Any]:
    """A map with text as keys."""
    if not isinstance(value, dict):
        raise Mistake(f"{what} must be a map, not {kind_of(value)}")
    for key in value:
        if not isinstance(key, str):
            raise Mistake(f"{what} has a key that is not text: {kind_of(key)}", "", key, on_key=True)
    return cast("dict[str, Any]", value)


def check_keys(value: Mapping[str, object], valid: Iterable[str], what: str) -> None:
    """Raise for the first key that is not in `valid`."""
    valid = list(valid)
    for key in value:
        if key not in valid:
            hint = did_you_mean(key, valid) or f"its keys are {', '.join(valid)}"
            raise Mistake(f"{what} has no key {quoted(key)}", hint, key, on_key=True)


def as_list(value: object, what: str) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    raise Mistake(f"{what} must be a list, not {kind_of(value)}")


def as_int(value: object, what: str, low: int = 0, high: int = INT64_MAX) -> int:
    """An integer between `low` and `high`; also a float without a fraction (`2e3`)."""
    if type(value) is int:
        number = value
    elif value is None or isinstance(value, bool | str):
        raise Mistake(f"{what} must be an integer, not {kind_of(value)}")
    elif isinstance(value, float):
        if not value.is_integer():
            raise Mistake(f"{what} must be an integer, not {kind_of(value)}")
        number = int(value)
    else:
        try:
            number = index(cast("SupportsIndex", value))
        except TypeError:
            raise Mistake(f"{what} must be an integer, not {kind_of(value)}") from None
    if number < low:
        raise Mistake(f"{what} must be at least {low}, not {_shown(number)}")
    if number > high:
        raise Mistake(f"{what} must be at most {high}, not {_shown(number)}")
    return number


def _shown(number: int) -> str:
    return str(number) if number.bit_length() < 200 else f"a number of {number.bit_length()} bits"


def as_float(value: object, what: str) -> float:
    """A number; also `inf`, `-inf` and `nan` as words."""
    if isinstance(value, bool | None):
        raise Mistake(f"{what} must be a number, not {kind_of(value)}")
    if isinstance(value, str) and value.strip().lower() not in NOT_FINITE:
        raise Mistake(f"{what} must be a number, not {kind_of(value)}")
    try:
        return float(cast("float", value))
    except OverflowError:
        raise Mistake(f"{what} is too large for a number") from None
    except (TypeError, ValueError):
        raise Mistake(f"{what} must be a number, not {kind_of(value)}") from None


TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def as_bool(value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUTH:
        return TRUTH[value.lower()]
    raise Mistake(f"{what} must be true or false, not {kind_of(value)}")


def as_text(value: object, what: str, errors: str = "strict") -> str:
    """Text that can be encoded; `errors` "surrogateescape" lets half characters pass, which cut names have."""
    if not isinstance(value, str):
        raise Mistake(f"{what} must be text, not {kind_of(value)}")
    if not value.isascii():
        try:
            value.encode("utf-8", errors)
        except UnicodeEncodeError:
            raise Mistake(f"{what} has half a character in it (a lone surrogate)") from None
    return value


def as_id(value: object, what: str) -> str:
    """An id or a name that others refer to: text that is not empty and not endless."""
    text = as_text(value, what)
    if not text:
        raise Mistake(f"{what} must not be empty")
    if len(text) > MAX_ID:
        raise Mistake(f"{what} {quoted(text)} has {len(text)} characters", f"at most {MAX_ID} are allowed")
    return text


def as_word(value: object, what: str, valid: Iterable[str]) -> str:
    """One of the words in `valid`."""
    text = as_text(value, what)
    words = list(valid)
    if text not in words:
        hint = did_you_mean(text, words) or f"expected one of {', '.join(words)}"
        raise Mistake(f"{what} cannot be {quoted(text)}", hint)
    return text


def as_size(value: object, what: str) -> int:
    """Bytes: a number, or text such as `2GiB`, `512 MiB`, `24GB`, `16K` (K, M, G and T alone are powers of 1024)."""
    if not isinstance(value, str):
        return as_int(value, what)
    match = SIZE.fullmatch(value[:MAX_SIZE_LENGTH])
    if match is None or len(value) > MAX_SIZE_LENGTH:
        raise Mistake(f"{what} must be a size in bytes, not {kind_of(value)}", "for example 1024, 512MiB, 24GB")
    number, prefix, binary, unit = match.groups()
    base = 1000 if unit and not binary and prefix else 1024
    size = float(number) if "." in number else int(number)
    return as_int(math.floor(size * base ** _POWERS[prefix.lower()]), what)


def as_type(value: object, what: str = "type") -> DType:
    """A ggml type by its name, in ggml's spelling or another case."""
    if isinstance(value, str):
        found = TYPES.get(value)
        if found is not None:
            return found
        lower = value.lower()
        for name, dtype in TYPES.items():
            if name.lower() == lower:
                return dtype
        hint = did_you_mean(lower, TYPES) or f"the types are {', '.join(TYPES)}"
        raise Mistake(f"{what} {quoted(value)} is not a ggml type", hint)
    raise Mistake(f"{what} must be the name of a ggml type, not {kind_of(value)}", "for example f32, f16, q4_K")


def as_ne(value: object, what: str = "ne") -> Dims:
    """Extents: one to four integers, ne[0] first; what is missing is 1."""
    if type(value) is list and len(value) == MAX_DIMS:
        a, b, c, d = value
        if type(a) is type(b) is type(c) is type(d) is int and a >= 0 and b >= 0 and c >= 0 and d >= 0:
            count = a * b * c * d
            if count > INT64_MAX:
                raise Mistake(f"{what} {value} has more than 2^63-1 elements")
            if count or max(value) <= INT64_MAX:
                return (a, b, c, d)
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    values = as_list(value, what)
    if not 1 <= len(values) <= MAX_DIMS:
        raise Mistake(f"{what} must have 1 to {MAX_DIMS} extents, not {len(values)}")
    dims = [at(i, as_int, v, f"{what}[{i}]") for i, v in enumerate(values)]
    if math.prod(dims) > INT64_MAX:
        raise Mistake(f"{what} {dims} has more than 2^63-1 elements")
    dims += [1] * (MAX_DIMS - len(dims))
    return (dims[0], dims[1], dims[2], dims[3])


def as_nb(value: object, type: DType, ne: Dims, what: str = "nb") -> Dims:
    """Byte strides, nb[0] first; those that are missing follow from the last one given, without gaps."""
    values = as_list(value, what)
    if not 1 <= len(values) <= MAX_DIMS:
        raise Mistake(f"{what} must have 1 to {MAX_DIMS} strides, not {len(values)}")
    strides = [at(i, as_int, v, f"{what}[{i}]") for i, v in enumerate(values)]
    for i in range(len(strides), MAX_DIMS):
        count = ne[0] // type.block_size if i == 1 else ne[i - 1]
        strides.append(strides[-1] * count)
    nb: Dims = (strides[0], strides[1], strides[2], strides[3])
    check_bytes(type, ne, nb)
    return nb


def check_bytes(type: DType, ne: Dims, nb: Dims) -> None:
    """Raise where a tensor has more bytes than any memory."""
    if nbytes_of(type, ne, nb) > INT64_MAX or max(nb) > INT64_MAX:
        raise Mistake(f"a tensor {shape_text(type, ne)} has more than 2^63-1 bytes")


def check_blocks(type: DType, ne: Dims) -> None:
    """Raise where rows that lie in memory without gaps end within a block of a quantized type."""
    if ne[0] % type.block_size:
        raise Mistake(
            f"rows of {type.name} are made of blocks of {type.block_size} elements, and ne[0] is {ne[0]}",
            f"a multiple of {type.block_size}",
            0,
        )


def shape_text(type: DType, ne: Dims) -> str:
    """`f32[4, 3]`: the type and the extents without trailing ones."""
    return f"{type.name}{dims(ne)}"


Schema = dict[str, Any]
Reader = Callable[[Any, str], Any]
"""Takes a value and what messages call it, and raises Mistake."""


class Keys(Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of a map, in the order in which they are read. Those that need not be there may be null."""

    together: ClassVar[Schema] = {}
    """What the schema says of the map as a whole."""


def key_names(keys: type[Struct]) -> tuple[str, ...]:
    """The names of the keys, as a scenario has them."""
    return keys.__struct_encode_fields__


def read_keys(given: Mapping[str, Any], keys: type[Struct], **readers: Callable[[Any], object]) -> dict[str, Any]:
    """The converted values of those keys that are there and not null; some by `readers` of their own."""
    out: dict[str, Any] = {}
    for key, read in _readers(keys).items():
        value = given.get(key)
        if value is not None:
            reader = readers.get(key)
            out[key] = at(key, read, value, key) if reader is None else at(key, reader, value)
    return out


def keys_of(spec: type, name: str, about: str) -> type[Struct]:
    """The keys of a map that a spec is read from: its fields that are annotated with a kind besides their type, as
    `Annotated[int | None, Size]`. Those that have a default need not be there."""
    hints = get_type_hints(spec, include_extras=True)
    kinds = [(f, hints[f.name].__metadata__[0]) for f in fields(spec) if get_origin(hints[f.name]) is Annotated]
    keys = [(f.name, kind) if f.default is MISSING else (f.name, kind | None, None) for f, kind in kinds]
    return defstruct(name, keys, bases=(Keys,), module=__name__, namespace={"__doc__": about})


@cache
def _readers(keys: type[Struct]) -> dict[str, Reader]:
    hints = get_type_hints(keys, include_extras=True)
    return {key: reader_of(hints[name]) for name, key in zip(keys.__struct_fields__, key_names(keys), strict=True)}


def reader_of(kind: Any) -> Reader:
    """What reads a kind of value."""
    parts = [part for part in (kind, *get_args(kind)) if part is not type(None)]
    for part in parts:
        for about in getattr(part, "__metadata__", ()):
            if callable(about):
                return cast("Reader", about)
    for part in parts:
        is_annotated = get_origin(part) is Annotated
        plain = get_args(part)[0] if is_annotated else part
        if plain is int:
            bounds: Any = part.__metadata__[0] if is_annotated else Meta(ge=0, le=INT64_MAX)
            return partial(as_int, low=bounds.ge, high=bounds.le)
        if plain is str:
            about = [given.extra_json_schema or {} for given in (part.__metadata__ if is_annotated else ())]
            words = next((given["enum"] for given in about if "enum" in given), None)
            return as_text if words is None else partial(as_word, valid=words)
        if get_origin(plain) is Literal:
            return partial(as_word, valid=get_args(plain))
    return lambda value, what: value


def said(**schema: object) -> Meta:
    """What a schema says besides the type."""
    return Meta(extra_json_schema=schema)


def defined(name: str) -> Meta:
    """What has a definition of its own in the schema."""
    return Meta(extra_json_schema={"$ref": f"#/$defs/{name}"})


def any_case(words: Iterable[str]) -> str:
    """A pattern for words in any case."""
    return "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in w.lower()) for w in words)


NO_CONTROLS = r"^(?![\s\S]*[\u0000-\u001f\u007f-\u009f])"
"""Text without control characters."""

Count = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Bool = Annotated[bool | str, said(pattern=f"^(?:{any_case(TRUTH)})$"), as_bool]
Number = Annotated[float | str, said(pattern=rf"^\s*(?:{any_case(NOT_FINITE)})\s*$"), as_float]
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID), as_id]
PrintableId = Annotated[str, Meta(min_length=1, max_length=MAX_ID, pattern=NO_CONTROLS)]
_SIZE = {"maximum": INT64_MAX, "pattern": f"^{SIZE.pattern}$", "maxLength": MAX_SIZE_LENGTH}
Size = Annotated[int | str, said(minimum=0, **_SIZE), as_size]
AT_LEAST_ONE = said(minimum=1, **_SIZE)
"""Of a size that is not 0."""
