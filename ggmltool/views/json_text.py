"""JSON for programs that is still readable for people: one line per key of the top level and per item of its lists."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ggmltool.views.text import printable

if TYPE_CHECKING:
    from ggmltool.views.document import Document

_LAST = ("after", "error")
"""Keys of the head that stand at the end, where one looks for them."""


def json_text(document: Document) -> str:
    """The document as JSON. Half characters of cut names, and what would turn text, are written as escapes."""
    import msgspec

    fields = msgspec.to_builtins(document)
    fields |= {key: fields.pop(key) for key in _LAST if key in fields}
    lines = [f"{_dump(key)}: {_value(value)}" for key, value in fields.items()]
    return "{" + ",\n ".join(lines) + "}\n"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (dict, list, tuple)):
        return "[\n  " + ",\n  ".join(map(_dump, value)) + "]"
    if isinstance(value, dict) and any(isinstance(v, (dict, list, tuple)) for v in value.values()):
        return "{\n  " + ",\n  ".join(f"{_dump(k)}: {_dump(v)}" for k, v in value.items()) + "}"
    return _dump(value)


def _dump(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text == printable(text) else json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f")
