"""Which tables a JSON document has, by its type: lists of objects, objects by a key, and single objects.

An inner one is named by the keys on the way to it: `splits.nodes` are the nodes of every split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import inspect

if TYPE_CHECKING:
    from ggmltool.views.document import Document

_DEEPEST = 6
"""Parts within parts that are looked at: types may be within themselves."""
_OBJECT = inspect.StructType | inspect.DataclassType
_LIST = inspect.ListType | inspect.VarTupleType


class Part(NamedTuple):
    """A part of a document that has rows, of the types `rows`. `is_mapping`: each row has a key of its own; `is_table`:
    one can ask for its rows, and does not only pass through."""

    rows: tuple[Any, ...]
    is_mapping: bool
    is_table: bool
    is_list: bool = False


class Column(NamedTuple):
    """A column of a table: the key, with those of the objects around it before. `free`: there are as many columns as
    keys below this one, for every row may have others."""

    name: str
    free: bool = False

    def covers(self, key: str) -> bool:
        """Whether a key of a row is one of this column."""
        return not self.name or key == self.name or key.startswith(f"{self.name}.")


@cache
def parts_of(document: type[Document]) -> Mapping[str, Part]:
    """The parts of documents of a type by name, outer ones first and the error last."""
    found = list(_within((inspect.type_info(document),), "", 0))
    return dict(sorted(found, key=lambda named: (named[0] == "error", named[0].count("."))))


def _within(rows: tuple[Any, ...], name: str, depth: int) -> Iterator[tuple[str, Part]]:
    """The parts of rows; below the first level only lists are tables, for the rest is in their rows."""
    for field in _fields(rows):
        inner = f"{name}.{field.encode_name}" if name else field.encode_name
        forms = [part for form in _forms(field.type) if (part := _part(form, depth)) is not None]
        if forms and depth < _DEEPEST:
            part = forms[0]._replace(rows=tuple(row for form in forms for row in form.rows))
            within = list(_within(part.rows, inner, depth + 1))
            if part.is_table or within:
                yield inner, part
                yield from within


def _part(form: Any, depth: int) -> Part | None:
    match form:
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) if _is_object(item):
            return Part(tuple(_forms(item)), False, True, True)
        case inspect.DictType(value_type=value) if depth == 0:
            return Part(tuple(_forms(value)), True, True)
        case inspect.StructType() | inspect.DataclassType():
            return Part((form,), False, depth == 0)
        case _:
            return None


def _forms(type: Any) -> list[Any]:
    """The types that a value can have, without null."""
    types = type.types if isinstance(type, inspect.UnionType) else (type,)
    return [form for form in types if not isinstance(form, inspect.NoneType)]


def _is_object(type: Any) -> bool:
    return any(isinstance(form, _OBJECT | inspect.DictType) for form in _forms(type))


def own_columns(document: type[Document]) -> list[Column]:
    """The columns of a document that is a row itself."""
    return list(_columns((inspect.type_info(document),), ""))


def columns_of(part: Part) -> list[Column]:
    """The columns of a part's rows."""
    key = [Column("key")] if part.is_mapping else []
    if any(isinstance(row, _OBJECT) for row in part.rows):
        return [*key, *_columns(part.rows, "")]
    return [*key, Column("value" if part.is_mapping else "", free=True)]


def head_of(table: str, parts: Mapping[str, Part]) -> list[Column]:
    """The columns with which rows of an inner table begin: what the parts around it say of themselves."""
    keys = table.split(".")
    names = [".".join(keys[:depth]) for depth in range(1, len(keys))]
    return [Column(f"{name}.{key}") for name in names for key in _scalars(parts[name])]


def _scalars(part: Part) -> Iterator[str]:
    several = _LIST | inspect.TupleType | inspect.DictType | _OBJECT
    if part.is_mapping:
        yield "key"
    for field in _fields(part.rows):
        if not any(isinstance(form, several) for form in _forms(field.type)):
            yield field.encode_name


def _columns(rows: tuple[Any, ...], prefix: str) -> Iterator[Column]:
    for tag in {row.tag_field: None for row in rows if isinstance(row, inspect.StructType) and row.tag_field}:
        yield Column(f"{prefix}{tag}")
    for field in _fields(rows):
        forms = _forms(field.type)
        name = f"{prefix}{field.encode_name}"
        structs = tuple(form for form in forms if isinstance(form, _OBJECT))
        if structs:
            yield from _columns(structs, f"{name}.")
        elif not any(isinstance(form, _LIST) and _part(form, 1) for form in forms):
            yield Column(name, any(isinstance(form, inspect.DictType | inspect.AnyType) for form in forms))


def _fields(rows: tuple[Any, ...]) -> Iterator[Any]:
    return (field for row in rows if isinstance(row, _OBJECT) for field in row.fields)
