"""From the text of an expression to its parts, as gdb's parser of C reads it."""

from __future__ import annotations

import re

import msgspec

from ggmltool.structs.declarations import ExpressionError, TokenCursor, Types, begins_type, read_type
from ggmltool.structs.types import CHAR, DOUBLE, FLOAT, INT, LONG, UNSIGNED_INT, UNSIGNED_LONG, CType, Int, Struct


class Number(msgspec.Struct, frozen=True):
    """A number or a character, with its type."""

    value: int | float
    type: CType


class StringLiteral(msgspec.Struct, frozen=True):
    """A string."""

    value: str


class Name(msgspec.Struct, frozen=True):
    """A name; `quoted` in single quotes."""

    name: str
    quoted: bool = False


class Variable(msgspec.Struct, frozen=True):
    """`$1`, `$`, `$$`, `$$3`, `$name`: the text with its dollars."""

    name: str


class TypeName(msgspec.Struct, frozen=True):
    """A type where a value could stand: `sizeof (struct hash_node)`, `ptype struct hash_node`."""

    type: CType


class Operation(msgspec.Struct, frozen=True):
    """An operator before its operand (`*`, `&`, `-`, `+`, `!`, `~`, `sizeof`), between two (`,`, `@`, `=` and `[` among
    them), or `?`, whose operands are the condition, and what it is then and otherwise."""

    operator: str
    operands: tuple[Node, ...]


class Field(msgspec.Struct, frozen=True):
    """`of.name` and `of->name`, which gdb takes for the same."""

    of: Node
    name: str


class Cast(msgspec.Struct, frozen=True):
    """`(type) operand`."""

    type: CType
    operand: Node


class CallExpression(msgspec.Struct, frozen=True):
    """`function(arguments)`."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | StringLiteral | Name | Variable | TypeName | Operation | Field | Cast | CallExpression

_BINARY = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("@",), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
"""The operators between two operands, those that bind least first."""
_FLOATING = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?([fFlL]?)")
_WHOLE = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)([uUlL]{0,3})")


def parse(text: str, types: Types) -> Node:
    """The parts of an expression. Raises ExpressionError."""
    cursor = TokenCursor(text)
    if not text.strip():
        raise ExpressionError("Argument required (expression to compute).")
    node = _comma(cursor, types)
    if not cursor.ended:
        if cursor.is_next(")", "]", "}"):
            raise ExpressionError("Junk after end of expression.")
        raise cursor.syntax_error()
    return node


def _comma(cursor: TokenCursor, types: Types) -> Node:
    node = _assignment(cursor, types)
    while cursor.accept(","):
        node = Operation(",", (node, _assignment(cursor, types)))
    return node


def _assignment(cursor: TokenCursor, types: Types) -> Node:
    with cursor.deeper():
        left = _choice(cursor, types)
        if cursor.accept("="):
            return Operation("=", (left, _assignment(cursor, types)))
        return left


def _choice(cursor: TokenCursor, types: Types) -> Node:
    condition = _binary(cursor, types, 0)
    if not cursor.accept("?"):
        return condition
    with cursor.deeper():
        then = _comma(cursor, types)
        cursor.expect(":")
        return Operation("?", (condition, then, _choice(cursor, types)))


def _binary(cursor: TokenCursor, types: Types, level: int) -> Node:
    if level == len(_BINARY):
        return _unary(cursor, types)
    left = _binary(cursor, types, level + 1)
    while cursor.next.kind == "operator" and cursor.next.text in _BINARY[level]:
        operator = cursor.take().text
        left = Operation(operator, (left, _binary(cursor, types, level + 1)))
    return left


def _unary(cursor: TokenCursor, types: Types) -> Node:
    with cursor.deeper():
        if cursor.next.kind == "operator" and cursor.next.text in ("*", "&", "-", "+", "!", "~"):
            return Operation(cursor.take().text, (_unary(cursor, types),))
        is_sizeof = cursor.is_next("sizeof")
        if is_sizeof:
            cursor.take()
        if cursor.is_next("(") and begins_type(cursor.after, types):
            cursor.take()
            type = read_type(cursor, types)
            cursor.expect(")")
            if is_sizeof:
                return Operation("sizeof", (TypeName(type),))
            if cursor.ended or cursor.is_next(")", "]", ",", ":"):
                return TypeName(type)
            return Cast(type, _unary(cursor, types))
        return Operation("sizeof", (_unary(cursor, types),)) if is_sizeof else _postfix(cursor, types)


def _postfix(cursor: TokenCursor, types: Types) -> Node:
    node = _primary(cursor, types)
    while True:
        if cursor.accept("->") or cursor.accept("."):
            if cursor.next.kind != "name":
                raise cursor.syntax_error()
            node = Field(node, cursor.take().text)
        elif cursor.accept("["):
            with cursor.deeper():
                node = Operation("[", (node, _comma(cursor, types)))
            cursor.expect("]")
        elif cursor.is_next("(") and isinstance(node, Name):
            cursor.take()
            node = CallExpression(node.name, _arguments(cursor, types))
        else:
            return node


def _arguments(cursor: TokenCursor, types: Types) -> tuple[Node, ...]:
    arguments: list[Node] = []
    with cursor.deeper():
        while not cursor.accept(")"):
            arguments.append(_assignment(cursor, types))
            if not cursor.is_next(")"):
                cursor.expect(",")
    return tuple(arguments)


def _primary(cursor: TokenCursor, types: Types) -> Node:
    token = cursor.next
    match token.kind:
        case "number":
            return number(cursor.take().text)
        case "char":
            code = ord(cursor.take().text)
            return Number(code - 256 if 128 <= code < 256 else code, CHAR)
        case "string":
            parts = []
            while cursor.next.kind == "string":
                parts.append(cursor.take().text)
            return StringLiteral("".join(parts))
        case "quoted":
            return Name(cursor.take().text, quoted=True)
        case "variable":
            return Variable(cursor.take().text)
        case "name" if begins_type(token, types):
            type = read_type(cursor, types)
            if isinstance(type, Struct) and type.members is None:  # what stands alone has to have fields
                raise ExpressionError(f"No struct type named {type.name}.")
            return TypeName(type)
        case "name":
            return Name(cursor.take().text)
    if cursor.accept("("):
        with cursor.deeper():
            node = _comma(cursor, types)
        cursor.expect(")")
        return node
    raise cursor.syntax_error()


def number(text: str) -> Number:
    """A number as C writes it. Raises ExpressionError."""
    floating = _FLOATING.fullmatch(text)
    if floating:
        suffix = floating.group(1)
        return Number(float(text.rstrip("fFlL")), FLOAT if suffix in ("f", "F") and suffix else DOUBLE)
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ExpressionError(f'Invalid number "{text}".')
    digits, suffix = whole.group(1), whole.group(2).lower()
    octal = len(digits) > 1 and digits.isdecimal() and digits[0] == "0"
    try:
        value = int(digits, 8) if octal else int(digits, 0)
    except ValueError:
        raise ExpressionError(f'Invalid number "{text}".') from None
    if value >= 1 << 64:
        raise ExpressionError("Numeric constant too large.")
    return Number(value, _type_of(value, suffix, octal or not digits.isdecimal()))


def _type_of(value: int, suffix: str, any_sign: bool) -> Int:
    """The first type that has room for a constant, of those that its spelling allows."""
    if "l" not in suffix:
        if "u" not in suffix and value < 1 << 31:
            return INT
        if ("u" in suffix or any_sign) and value < 1 << 32:
            return UNSIGNED_INT
    if "u" not in suffix and value < 1 << 63:
        return LONG
    return UNSIGNED_LONG
