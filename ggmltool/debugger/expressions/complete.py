"""What can follow in an expression: names of the scope, and fields behind a dot or an arrow."""

from __future__ import annotations

import re

from ggmltool.debugger.expressions.evaluate import value_of
from ggmltool.debugger.expressions.functions import FUNCTIONS
from ggmltool.debugger.expressions.image.image import TABLE_NAMES
from ggmltool.debugger.expressions.parser import parse
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import dereferenced
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.types import Pointer, Struct

_LAST = re.compile(r"(?:^|(?<=[^A-Za-z0-9_$]))(\$?[A-Za-z_][A-Za-z0-9_]*|\$)?$")
_FIELD = re.compile(r"(.*?)(?:->|\.)\s*([A-Za-z_][A-Za-z0-9_]*)?$", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = frozenset(("sizeof", "struct", "enum", "const"))
_NUMBER = re.compile(r"(?:^|[^A-Za-z0-9_$])[0-9]+$")
MOST = 1000
"""How many names are offered at most."""


def complete(prefix: str, scope: Scope) -> list[str]:
    """What an expression that begins so can go on as: the whole text with each name that fits, sorted."""
    found = _FIELD.fullmatch(prefix)
    if found and not _NUMBER.search(found.group(1)):
        return _fields(prefix, found.group(1), found.group(2) or "", scope)
    last = _LAST.search(prefix)
    begun = (last.group(1) or "") if last else ""
    before = prefix[: len(prefix) - len(begun)]
    return [before + name for name in sorted(set(_names(begun, scope)))][:MOST]


def _names(begun: str, scope: Scope) -> list[str]:
    if begun.startswith("$"):
        return [f"${name}" for name in scope.variables if f"${name}".startswith(begun)]
    image = scope.image
    tensors = [cell.label for _, cell in image.tensors.all()]
    names = [*scope.arguments(), *scope.locals(), *(t for t in tensors if _NAME.fullmatch(t) and t not in _PLAIN)]
    names += [name for name in ("sched", "galloc", "graph") if image.there]
    names += [*image.program.graphs, *image.program.contexts, TABLE_NAMES[0], "ctx"]
    if begun:
        names += [*FUNCTIONS, *scope.layout.constants]
    return [name for name in names if name.startswith(begun) and _NAME.fullmatch(name)]


def _fields(prefix: str, of: str, begun: str, scope: Scope) -> list[str]:
    try:
        value = value_of(parse(of[_start(of) :], scope.layout), scope)
        value = dereferenced(value) if isinstance(value.bare, Pointer) else value
        t = value.bare
        if not isinstance(t, Struct) or not value.raw(0, t.size):
            return []
    except ExpressionError:
        return []
    before = prefix[: len(prefix) - len(begun)]
    return sorted(before + name for name in t.members or {} if name.startswith(begun))


def _start(text: str) -> int:
    """Where the operand begins that a dot at the end is behind."""
    depth, at = 0, len(text)
    while at > 0:
        char = text[at - 1]
        if char in ")]":
            depth += 1
        elif char in "([":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and not (char.isalnum() or char in "_$.>'" or (char == "-" and text[at : at + 1] == ">")):
            break
        at -= 1
    return at
