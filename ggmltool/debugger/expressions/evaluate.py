"""The value of an expression: its parts, computed in a scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ggmltool.debugger.expressions import parser
from ggmltool.debugger.expressions.memory import ImageMemory
from ggmltool.debugger.expressions.values import (
    CValue,
    binary,
    cast,
    dereferenced,
    field_of,
    fraction,
    subscript,
    truth_value,
    unary,
    whole,
)
from ggmltool.ggml.releases.release import Release
from ggmltool.structs import types as c
from ggmltool.structs.declarations import ExpressionError, NoMemoryError, TokenCursor, read_type
from ggmltool.structs.layout import Layout

MOST_REPEATED = 65536
"""The bytes of an array made by `@`, at most: `max-value-size`."""


class EvalScope:
    """Where an expression is asked: the structs that there are, and what names and functions stand for; `release`
    decides as the program's ggml does. `values` are those of `$1`, `$2` and so on, `variables` the convenience
    variables by name. What stands for nothing raises ExpressionError."""

    layout: Layout
    release: Release
    values: Sequence[CValue] = ()
    variables: dict[str, CValue]

    @property
    def memory(self) -> ImageMemory:
        """The program's memory, by addresses."""
        raise NotImplementedError

    @property
    def language(self) -> c.Language:
        """What the function is written in that is looked at."""
        return "c"

    def name(self, name: str, quoted: bool = False) -> CValue:
        """The value of a name."""
        raise NotImplementedError

    def variable(self, text: str) -> CValue:
        """The value of `$`, `$$`, `$3`, `$$3` or `$name`."""
        raise NotImplementedError

    def call(self, name: str, arguments: list[CValue]) -> CValue:
        """The result of a function."""
        raise NotImplementedError

    def set_variable(self, text: str, value: CValue) -> bool:
        """`$name = value`; False of what is no convenience variable."""
        name = text.removeprefix("$")
        if not name or name[0].isdigit() or name.startswith("$"):
            return False
        self.variables[name] = value.fetched()
        return True

    def of(self, type: c.CType, number: int) -> CValue:
        """A number or an address as a value of a type."""
        return whole(self.memory, type, number, self.language)

    def typed(self, declared: str, number: int) -> CValue:
        """The same of a type that is declared in C."""
        return self.of(_type(declared, self.layout), number)

    def constant(self, name: str) -> CValue | None:
        """The value of `true`, `false`, `NULL` and of the constants that ggml's enums declare; None of other names."""
        if name in ("true", "false"):
            return truth_value(name == "true", self.of(c.INT, 0))
        if name == "NULL":
            return self.of(c.Pointer(c.VOID), 0)
        found = self.layout.constants.get(name)
        return None if found is None else self.of(*found)


@lru_cache(1024)
def _type(declared: str, layout: Layout) -> c.CType:
    return read_type(TokenCursor(declared), layout)


_parsed = lru_cache(256)(parser.parse)


def evaluate(text: str, scope: EvalScope) -> CValue:
    """The value of an expression, of which nothing is ever run as Python. Raises ExpressionError, in gdb's words."""
    return value_of(_parsed(text, scope.layout), scope)


def value_of(node: parser.Node, scope: EvalScope) -> CValue:
    """The value of a part of an expression. Raises ExpressionError."""
    match node:
        case parser.Number(value, type):
            if isinstance(c.bare(type), c.Float):
                return fraction(scope.memory, type, value, scope.language)
            return scope.of(type, int(value))
        case parser.StringLiteral(text):
            raw = text.encode("utf-8", "surrogateescape") + b"\0"
            return CValue(c.Array(c.CHAR, len(raw)), scope.memory, own=raw, language=scope.language)
        case parser.Name(name, quoted):
            return scope.name(name, quoted)
        case parser.Variable(name):
            return scope.variable(name)
        case parser.TypeName():
            raise ExpressionError("Attempt to use a type name as an expression")
        case parser.Field(of, name):
            return field_of(value_of(of, scope), name)
        case parser.Operation(operator, (operand,)):
            return _unary(operator, operand, scope)
        case parser.Operation(operator, (left, right)):
            return _binary(operator, left, right, scope)
        case parser.Operation(_, operands):
            condition, then, otherwise = operands
            return value_of(then if value_of(condition, scope).truth() else otherwise, scope)
        case parser.Cast(type, operand):
            return cast(_complete(type), value_of(operand, scope))
        case parser.CallExpression(function, arguments):
            return scope.call(function, [value_of(argument, scope) for argument in arguments])


def _complete(type: c.CType) -> c.CType:
    if isinstance(type, c.Struct) and type.members is None:
        raise ExpressionError(f"No struct type named {type.name}.")
    return type


def _unary(operator: str, operand: parser.Node, scope: EvalScope) -> CValue:
    if operator == "sizeof":
        type = operand.type if isinstance(operand, parser.TypeName) else value_of(operand, scope).type
        return scope.of(c.UNSIGNED_LONG, c.size_of(_complete(type)))
    value = value_of(operand, scope)
    if operator == "*":
        return dereferenced(value)
    if operator != "&":
        return unary(operator, value)
    if value.address is None:
        raise ExpressionError("Attempt to take address of value not located in memory.")
    return whole(value.memory, c.Pointer(value.type), value.address, value.language)


def _binary(operator: str, left: parser.Node, right: parser.Node, scope: EvalScope) -> CValue:
    if operator == "=":
        return _assigned(left, value_of(right, scope), scope)
    a = value_of(left, scope)
    if operator in ("&&", "||"):
        if a.truth() == (operator == "||"):
            return truth_value(operator == "||", a)
        return truth_value(value_of(right, scope).truth(), a)
    b = value_of(right, scope)
    match operator:
        case ",":
            return b
        case "@":
            return _repeated(a, b)
        case "[":
            return subscript(a, b)
    same = _texts(a, b) if operator in ("==", "!=") else None
    if same is not None:
        return truth_value(same == (operator == "=="), a)
    return binary(operator, a, b)


def _assigned(to: parser.Node, value: CValue, scope: EvalScope) -> CValue:
    """What `to = value` gives: only convenience variables can be set."""
    if isinstance(to, parser.Variable) and scope.set_variable(to.name, value):
        return value
    target = value_of(to, scope)
    if target.address is None:
        raise ExpressionError("Left operand of assignment is not an lvalue.")
    raise NoMemoryError(target.address)


def _texts(a: CValue, b: CValue) -> bool | None:
    """Whether two char arrays say the same, where one of them is a string of the expression; None of others."""
    if a.address is not None and b.address is not None:
        return None
    texts = []
    for value in (a, b):
        t = value.bare
        if not isinstance(t, c.Array) or c.bare(t.of) != c.CHAR:
            return None
        texts.append(value.raw().partition(b"\0")[0])
    return texts[0] == texts[1]


def _repeated(a: CValue, b: CValue) -> CValue:
    """`a@n`: an array of so many values, the first of which is `a`."""
    if a.address is None:
        raise ExpressionError("Only values in memory can be extended with '@'.")
    n = b.integer()
    if n <= 0:
        raise ExpressionError(f"Invalid number {n} of repetitions.")
    size = n * c.size_of(a.type)
    made = replace(a, type=c.Array(a.type, n), own=None)
    if size > MOST_REPEATED:
        raise ExpressionError(
            f"value of type `{made.type_name()}' requires {size} bytes, which is more than max-value-size"
        )
    return made
