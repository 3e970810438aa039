"""Kinds of values in a scenario: how one is read, and what its JSON Schema is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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

T = TypeVar("T")

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What may stand at a key.

    `read` takes the value and what messages call it, and raises Mistake. `schema` is made when it is asked for, as some
    words are known only to modules that are loaded late.
    """

    read: Callable[[Any, str], T]
    schema: Callable[[], Schema]


Keys = Mapping[str, Kind[Any]]
"""The keys of a map, in the order in which they are read."""


def read_keys(given: Mapping[str, Any], keys: Keys, **readers: Callable[[Any], object]) -> dict[str, Any]:
    """The converted values of those keys that are there and not null; some by `readers` of their own."""
    out: dict[str, Any] = {}
    for key, kind in keys.items():
        value = given.get(key)
        if value is not None:
            reader = readers.get(key)
            out[key] = at(key, kind.read, value, key) if reader is None else at(key, reader, value)
    return out


def any_case(words: Iterable[str]) -> str:
    """A pattern for words in any case."""
    return "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in w.lower()) for w in words)


def integer(low: int = 0, high: int = INT64_MAX) -> Kind[int]:
    return Kind(
        lambda value, what: as_int(value, what, low, high),
        lambda: {"type": "integer", "minimum": low, "maximum": high},
    )


def size(least: int = 0) -> Kind[int]:
    return Kind(
        as_size,
        lambda: {
            "type": ["integer", "string"],
            "minimum": least,
            "maximum": INT64_MAX,
            "pattern": f"^{SIZE.pattern}$",
            "maxLength": MAX_SIZE_LENGTH,
        },
    )


def word(words: Callable[[], Mapping[str, T]]) -> Kind[T]:
    """One of some words, read as what it stands for."""
    return Kind(
        lambda value, what: words()[as_word(value, what, words())],
        lambda: {"enum": list(words())},
    )


BOOL = Kind(as_bool, lambda: {"type": ["boolean", "string"], "pattern": f"^(?:{any_case(TRUTH)})$"})
NUMBER = Kind(as_float, lambda: {"type": ["number", "string"], "pattern": rf"^\s*(?:{any_case(NOT_FINITE)})\s*$"})
TEXT = Kind(as_text, lambda: {"type": "string"})
ID = Kind(as_id, lambda: {"type": "string", "minLength": 1, "maxLength": MAX_ID})


def defined(name: str) -> Kind[Any]:
    """What has a definition of its own in the schema, and is read by the part of the loader that knows it."""
    return Kind(_as_it_is, lambda: {"$ref": f"#/$defs/{name}"})


def _as_it_is(value: Any, what: str) -> Any:
    return value


def either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def one_or_list(schema: Schema, **bounds: int) -> Schema:
    """One of something, or a list of them."""
    return either(schema, {"type": "array", "items": schema, **bounds})


def nullable(schema: Schema) -> Schema:
    """The same, or null, as a key without a value has it in YAML."""
    match schema:
        case {"type": str(one)}:
            return {**schema, "type": [one, "null"]}
        case {"type": [*several]}:
            return {**schema, "type": [*several, "null"]}
        case {"enum": words}:
            return {**schema, "enum": [*words, None]}
        case {"anyOf": schemas}:
            return {**schema, "anyOf": [*schemas, {"type": "null"}]}
    return either(schema, {"type": "null"})
