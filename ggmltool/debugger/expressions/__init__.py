"""Expressions of C over a program that is looked at: parsed, evaluated in a scope, printed as gdb prints them.

Nothing of an expression is ever run as Python. What is wrong with one is an ExpressionError, in gdb's words.
"""

from __future__ import annotations

from functools import lru_cache

from ggmltool.debugger.expressions.complete import complete
from ggmltool.debugger.expressions.evaluate import Place, value_of
from ggmltool.debugger.expressions.examine import Examined, examine
from ggmltool.debugger.expressions.parser import Node, parse
from ggmltool.debugger.expressions.ptype import type_text
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import CValue
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import Layout

__all__ = [
    "CValue", "Examined", "ExpressionError", "Scope", "complete", "evaluate", "examine", "truth", "type_text",
]  # fmt: skip


def evaluate(text: str, scope: Place) -> CValue:
    """The value of an expression. Raises ExpressionError."""
    return value_of(_parsed(text, scope.layout), scope)


@lru_cache(256)
def _parsed(text: str, layout: Layout) -> Node:
    return parse(text, layout)


def truth(text: str, scope: Place) -> bool:
    """Whether a condition holds. Raises ExpressionError."""
    return evaluate(text, scope).truth()
