"""The format of scenarios as structs, whose fields are the keys of a map: how each is read, and its JSON Schema.

The annotation of a field is its kind. msgspec draws the schema from it. It is read by the function that stands in the
annotation, else as the type says; what is neither is read by the part of the loader that knows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct, defstruct

from ggmltool.scenario.values import (
    INT64_MAX,
    MAX_ID,
    MAX_SIZE_LENGTH,
    NOT_FINITE,
    SIZE,
    TRUTH,
    as_bool,
    as_float,
    as_id,
    as_int,
    as_size,
    as_text,
    as_word,
    at,
)

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
