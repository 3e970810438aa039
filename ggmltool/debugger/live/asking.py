"""`ggml print`, `ggml ptype`, `ggml x`: C over the program's memory, with ggml's structs as they are known here."""

from __future__ import annotations

import re

from ggmltool.debugger.errors import CommandError
from ggmltool.debugger.expressions import evaluate, examine, type_text
from ggmltool.debugger.expressions.examine import Examined
from ggmltool.debugger.expressions.printing import formatted
from ggmltool.debugger.live.desk import Asked, Visit

_FORMAT = re.compile(r"/(\S*)\s*")


def _formatted(argument: str) -> tuple[str, str]:
    """The format behind a slash, and the expression."""
    found = _FORMAT.match(argument)
    return ("", argument.strip()) if found is None else (found[1], argument[found.end() :].strip())


def _expression(text: str, usage: str) -> str:
    if not text:
        raise CommandError(f"Argument required: {usage}.")
    return text


def printed(visit: Visit, asked: Asked) -> str:
    """The value of an expression, as gdb prints it. Raises ExpressionError."""
    fmt, text = _formatted(asked.argument)
    value = evaluate(_expression(text, "an expression of C"), visit.scope)
    return formatted(value, fmt, asked.width) + "\n"


def type_of(visit: Visit, asked: Asked) -> str:
    """The type of an expression. Raises ExpressionError."""
    return type_text(_expression(asked.argument.strip(), "an expression or a type"), visit.scope) + "\n"


class Examining:
    """`ggml x`, which goes on where it ended when nothing is named."""

    def __init__(self) -> None:
        self._last: Examined | None = None

    def __call__(self, visit: Visit, asked: Asked) -> str:
        """Units of memory. Raises ExpressionError."""
        fmt, text = _formatted(asked.argument)
        if not text and self._last is None:
            raise CommandError("Argument required (starting display address).")
        said, self._last = examine(fmt, text, visit.scope, self._last)
        return said + "\n"
