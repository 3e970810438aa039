"""JSON documents as comma-separated values (RFC 4180): the rows of one of their tables, a column for each key.

So a table has the rows and the exact numbers of the JSON, and no source of its own.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.views.document_tables import Column, Part, columns_of, head_of, own_columns, parts_of
from ggmltool.views.text import printable

if TYPE_CHECKING:
    from ggmltool.views.document import Document

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
    import msgspec

    fields = msgspec.to_builtins(document)
    parts = parts_of(type(document))
    there = [name for name, part in parts.items() if part.is_table]
    if table and table not in there:
        raise UnknownTableError(table, there)
    name = table or main_table(type(document))
    if name:
        found, typed = _rows(fields, name, parts), head_of(name, parts) + columns_of(parts[name])
    else:
        found, typed = iter([fields]), [column for column in own_columns(type(document)) if column.name not in _HEAD]
    rows = [dict(_flat(row)) for row in found]
    columns = _columns(typed, rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(map(cell, columns))
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return out.getvalue()


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


def _rows(fields: _Item, table: str, parts: Mapping[str, Part]) -> Iterator[_Item]:
    """The rows of a table; before those of an inner one stands what the rows around them say of themselves."""
    found: list[tuple[_Item, _Item]] = [({}, fields)]
    keys = table.split(".")
    for depth in range(1, len(keys) + 1):
        name = ".".join(keys[:depth])
        found = [
            ({**head, **_head(name, row)} if depth < len(keys) else head, row)
            for head, around in found
            for row in _items(around.get(keys[depth - 1]), parts[name])
        ]
    return ({**head, **row} for head, row in found)


def _head(name: str, row: _Item) -> _Item:
    return {f"{name}.{key}": value for key, value in row.items() if not isinstance(value, (list, dict))}


def _items(value: Any, part: Part) -> Iterable[_Item]:
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
        elif not (isinstance(value, list) and value and isinstance(value[0], dict)):
            yield f"{prefix}{key}", value


def _columns(typed: Sequence[Column], rows: Iterable[_Item]) -> list[str]:
    """The columns that rows of a type always have, in order, and where keys are free those that there are."""
    seen = dict.fromkeys(key for row in rows for key in row)
    out: dict[str, None] = {}
    for column in typed:
        out.update(dict.fromkeys(key for key in seen if column.covers(key)) if column.free else {column.name: None})
    return list(out)
