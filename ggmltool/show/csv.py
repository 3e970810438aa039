"""JSON documents as comma-separated values (RFC 4180): the rows of one of their tables, a column for each key.

Which tables a document has says its type: lists of objects, objects by a key, and single objects. An inner one is named
by the keys on the way to it: `splits.nodes` are the nodes of every split. So a table has the rows and the exact numbers
of the JSON, and no source of its own.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import inspect, to_builtins

from ggmltool.show.text import printable

if TYPE_CHECKING:
    from ggmltool.show.document import Document

_HEAD = ("ggmltool", "kind")
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with; the last four are as wide as a letter of Chinese."""
_APOSTROPHE = "'"
_NO_FORMULA = re.compile("--?[A-Za-z][A-Za-z0-9-]*")
"""Options and -Infinity, which begin with a sign and in which a spreadsheet finds nothing that it could call."""

_Item = Mapping[str, Any]


class UnknownTableError(LookupError):
    """A document has no table of this name; `there` are those that it has."""

    def __init__(self, name: str, there: Sequence[str]) -> None:
        super().__init__(name)
        self.name = name
        self.there = tuple(there)


def csv_text(document: Document, table: str = "") -> str:
    """One table of a document, by default its main one, below a header; its lines end with CR LF.

    Raises UnknownTableError.
    """
    parts = parts_of(type(document))
    there = [name for name, part in parts.items() if part.is_table]
    if table and table not in there:
        raise UnknownTableError(table, there)
    name = table or main_table(type(document))
    if name:
        typed = head_of(name, parts) + columns_of(parts[name])
    else:
        typed = [column for column in own_columns(type(document)) if column.name not in _HEAD]
    rows = [dict(_flat(row)) for row in _items_of(document, name)]
    columns = _columns(typed, rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(map(cell, columns))
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return out.getvalue()


def main_rows(document: Document) -> tuple[_Item, ...]:
    """The rows of a document's main table."""
    return tuple(_items_of(document, main_table(type(document))))


def _items_of(document: Document, table: str) -> Iterator[_Item]:
    fields = to_builtins(document)
    return _rows(fields, table, parts_of(type(document))) if table else iter([fields])


def main_table(document: type[Document]) -> str:
    """The table that documents of a type are, where no other is asked for; "" for the document itself as one row."""
    if document.main_table is not None:
        return document.main_table
    return next((name for name, part in parts_of(document).items() if part.is_list), "")


def cell(value: Any) -> str:
    """A value as a cell: numbers and lists as in JSON, nothing for null, and texts so that no spreadsheet takes them
    for a formula and no terminal for a command.

    In a text a backslash escapes as in JSON; an apostrophe stands before what would begin a formula, and before an
    apostrophe. Options such as -ngl stay as they are.

    >>> cell(None), cell(True), cell(0.5), cell([4, 3]), cell("=1+1"), cell("a\\nb"), cell("'"), cell("kq-12")
    ('', 'true', '0.5', '[4,3]', "'=1+1", 'a\\\\nb', "''", 'kq-12')
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    text = _escaped(value.replace("\\", "\\\\"))
    begins = text.lstrip(" ").startswith(_FORMULA) and not _NO_FORMULA.fullmatch(text)
    return _APOSTROPHE + text if begins or text.startswith(_APOSTROPHE) else text


def _escaped(text: str) -> str:
    """Text with JSON's escapes for what is not seen as it is."""
    if text == printable(text):
        return text
    return "".join(c if c == printable(c) else json.dumps(c)[1:-1].replace("\x7f", "\\u007f") for c in text)


def _rows(fields: _Item, table: str, parts: Mapping[str, TablePart]) -> Iterator[_Item]:
    """The rows of a table; before those of an inner one stands what the rows around them say of themselves."""
    found: list[tuple[_Item, _Item]] = [({}, fields)]
    keys = table.split(".")
    for depth in range(1, len(keys) + 1):
        name = ".".join(keys[:depth])
        inner = [(head, row) for head, around in found for row in _items(around.get(keys[depth - 1]), parts[name])]
        if depth == len(keys):
            return ({**head, **row} for head, row in inner)
        found = []
        for head, row in inner:
            plain = {k: value for k, value in row.items() if not isinstance(value, (list, tuple, dict))}
            found.append(({**head, **{f"{name}.{key}": value for key, value in plain.items()}}, row))
    return iter(())


def _items(value: Any, part: TablePart) -> Iterable[_Item]:
    if value is None:
        return ()
    if part.is_mapping:
        return ({"key": k, **v} if isinstance(v, dict) else {"key": k, "value": v} for k, v in value.items())
    return [value] if isinstance(value, dict) else value


def _flat(row: _Item, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values of a row: those of an object within it with its key before theirs; not what is a table itself."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif not (isinstance(value, (list, tuple)) and value and isinstance(value[0], dict)):
            yield f"{prefix}{key}", value


def _columns(typed: Sequence[TableColumn], rows: Iterable[_Item]) -> list[str]:
    """The columns that rows of a type always have, in order, and where keys are free those that there are."""
    seen = dict.fromkeys(key for row in rows for key in row)
    out: dict[str, None] = {}
    for column in typed:
        out.update(dict.fromkeys(key for key in seen if column.covers(key)) if column.free else {column.name: None})
    return list(out)


_DEEPEST = 6
"""Parts within parts that are looked at: types may be within themselves."""
_OBJECT = inspect.StructType | inspect.DataclassType
_LIST = inspect.ListType | inspect.VarTupleType


class TablePart(NamedTuple):
    """A part of a document that has rows, of the types `rows`. `is_mapping`: each row has a key of its own; `is_table`:
    one can ask for its rows, and does not only pass through."""

    rows: tuple[Any, ...]
    is_mapping: bool
    is_table: bool
    is_list: bool = False


class TableColumn(NamedTuple):
    """A column of a table: the key, with those of the objects around it before. `free`: there are as many columns as
    keys below this one, for every row may have others."""

    name: str
    free: bool = False

    def covers(self, key: str) -> bool:
        """Whether a key of a row is one of this column."""
        return not self.name or key == self.name or key.startswith(f"{self.name}.")


@cache
def parts_of(document: type[Document]) -> Mapping[str, TablePart]:
    """The parts of documents of a type by name, outer ones first and the error last."""
    found = list(_within((inspect.type_info(document),), "", 0))
    return dict(sorted(found, key=lambda named: (named[0] == "error", named[0].count("."))))


def _within(rows: tuple[Any, ...], name: str, depth: int) -> Iterator[tuple[str, TablePart]]:
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


def _part(form: Any, depth: int) -> TablePart | None:
    match form:
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) if _is_object(item):
            return TablePart(tuple(_forms(item)), False, True, True)
        case inspect.DictType(value_type=value) if depth == 0:
            return TablePart(tuple(_forms(value)), True, True)
        case inspect.StructType() | inspect.DataclassType():
            return TablePart((form,), False, depth == 0)
        case _:
            return None


def _forms(type: Any) -> list[Any]:
    """The types that a value can have, without null."""
    types = type.types if isinstance(type, inspect.UnionType) else (type,)
    return [form for form in types if not isinstance(form, inspect.NoneType)]


def _is_object(type: Any) -> bool:
    return any(isinstance(form, _OBJECT | inspect.DictType) for form in _forms(type))


def own_columns(document: type[Document]) -> list[TableColumn]:
    """The columns of a document that is a row itself."""
    return list(_typed_columns((inspect.type_info(document),), ""))


def columns_of(part: TablePart) -> list[TableColumn]:
    """The columns of a part's rows."""
    key = [TableColumn("key")] if part.is_mapping else []
    if any(isinstance(row, _OBJECT) for row in part.rows):
        return [*key, *_typed_columns(part.rows, "")]
    return [*key, TableColumn("value" if part.is_mapping else "", free=True)]


def head_of(table: str, parts: Mapping[str, TablePart]) -> list[TableColumn]:
    """The columns with which rows of an inner table begin: what the parts around it say of themselves."""
    keys = table.split(".")
    names = [".".join(keys[:depth]) for depth in range(1, len(keys))]
    return [TableColumn(f"{name}.{key}") for name in names for key in _scalars(parts[name])]


def _scalars(part: TablePart) -> Iterator[str]:
    several = _LIST | inspect.TupleType | inspect.DictType | _OBJECT
    if part.is_mapping:
        yield "key"
    for field in _fields(part.rows):
        if not any(isinstance(form, several) for form in _forms(field.type)):
            yield field.encode_name


def _typed_columns(rows: tuple[Any, ...], prefix: str) -> Iterator[TableColumn]:
    for tag in {row.tag_field: None for row in rows if isinstance(row, inspect.StructType) and row.tag_field}:
        yield TableColumn(f"{prefix}{tag}")
    for field in _fields(rows):
        forms = _forms(field.type)
        name = f"{prefix}{field.encode_name}"
        structs = tuple(form for form in forms if isinstance(form, _OBJECT))
        if structs:
            yield from _typed_columns(structs, f"{name}.")
        elif not any(isinstance(form, _LIST) and _part(form, 1) for form in forms):
            yield TableColumn(name, any(isinstance(form, inspect.DictType | inspect.AnyType) for form in forms))


def _fields(rows: tuple[Any, ...]) -> Iterator[Any]:
    return (field for row in rows if isinstance(row, _OBJECT) for field in row.fields)
