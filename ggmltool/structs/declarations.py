"""Words of C and the types that they write: `struct ggml_tensor *`, `int64_t ne[4]`, `void (*free)(ggml_backend_t)`.

The debugger's expressions are made of the same words. pycparser knows none of gdb's (`$1`, `a@2`) and takes five times
as long to read a ggml's structs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Literal, NamedTuple, Protocol

from ggmltool.structs import types as c


class ExpressionError(Exception):
    """An expression that has no value: its text is what gdb would say."""


class NoMemoryError(ExpressionError):
    """There is nothing at an address."""

    def __init__(self, address: int) -> None:
        super().__init__(f"Cannot access memory at address {address & 0xFFFF_FFFF_FFFF_FFFF:#x}")
        self.address = address


LONGEST = 4096
"""How long an expression may be, in characters."""

Kind = Literal["number", "name", "quoted", "char", "string", "variable", "operator", "end"]


class Token(NamedTuple):
    """A word, and what it is. The text of characters and strings is what they stand for."""

    kind: Kind
    text: str


_WORD = re.compile(
    r"\s*(?:(?P<variable>\$(?:[A-Za-z_][A-Za-z0-9_]*|\$?[0-9]*))"
    r"|(?P<number>(?:[0-9]|\.[0-9])(?:[eEpP][+-]|[0-9A-Za-z_.])*)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator><<=|>>=|->|<<|>>|[<>=!]=|&&|\|\||::|[-+*/%&|^~!<>=?:,.()\[\]{}@])"
    r"|(?P<quote>['\"])|(?P<other>\S)|(?P<end>\Z))"
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)


def words(text: str) -> list[Token]:
    """The words of an expression, and an `end` behind them. Raises ExpressionError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"The expression is longer than {LONGEST} characters.")
    out: list[Token] = []
    at = 0
    while (found := _WORD.match(text, at)) and (kind := found.lastgroup) != "end":
        if kind == "other":
            raise ExpressionError(f"Invalid character '{found.group(kind)}' in expression.")
        if kind == "quote":
            token, at = _quoted(text, found.start(kind))
        else:
            token, at = Token(kind, found.group(kind)), found.end()  # type: ignore[arg-type]
        out.append(token)
    return [*out, Token("end", "")]


def _quoted(text: str, at: int) -> tuple[Token, int]:
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise ExpressionError("Unmatched single quote." if quote == "'" else "Unterminated string in expression.")
    inside = _ESCAPE.sub(_unescape, text[at + 1 : end])
    if quote == '"':
        return Token("string", inside), end + 1
    if not inside:
        raise ExpressionError("Empty character constant.")
    return Token("char" if len(inside) == 1 else "quoted", inside), end + 1


def _unescape(found: re.Match[str]) -> str:
    octal, hexadecimal, letter = found.groups()
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    if hexadecimal is not None:
        return chr(int(hexadecimal, 16))
    return _ESCAPES.get(letter, letter)


_LONG_LONG = c.Int("long long", 8)
_UNSIGNED_LONG_LONG = c.Int("unsigned long long", 8, signed=False)
_LONG_DOUBLE = c.Float("long double", 16)
_WORDS = frozenset(("void", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "_Bool", "bool"))
_BASIC: dict[str, c.CType] = {
    "void": c.VOID, "char": c.CHAR, "char signed": c.SIGNED_CHAR, "char unsigned": c.UNSIGNED_CHAR, "short": c.SHORT,
    "short unsigned": c.UNSIGNED_SHORT, "int": c.INT, "unsigned": c.UNSIGNED_INT, "long": c.LONG,
    "long unsigned": c.UNSIGNED_LONG, "long long": _LONG_LONG,
    "long long unsigned": _UNSIGNED_LONG_LONG, "float": c.FLOAT, "double": c.DOUBLE,
    "_Bool": c.BOOL, "bool": c.BOOL, "double long": _LONG_DOUBLE,
}  # fmt: skip
"""By the sorted words, without an `int` and a `signed` that say nothing."""

_NAMES = {
    "int8_t": c.SIGNED_CHAR, "uint8_t": c.UNSIGNED_CHAR, "int16_t": c.SHORT, "uint16_t": c.UNSIGNED_SHORT,
    "int32_t": c.INT, "uint32_t": c.UNSIGNED_INT, "int64_t": c.LONG, "uint64_t": c.UNSIGNED_LONG,
    "size_t": c.UNSIGNED_LONG, "ssize_t": c.LONG, "intptr_t": c.LONG, "uintptr_t": c.UNSIGNED_LONG,
}  # fmt: skip
STANDARD: dict[str, c.CType] = {**{name: c.Typedef(name, to) for name, to in _NAMES.items()}, "__int128": c.INT128}
"""The names of types that every program has."""

DEEPEST = 64
"""How deep an expression or a type may be nested."""
MOST_ELEMENTS = 1 << 40


class Types(Protocol):
    """Who knows types by name."""

    def struct(self, name: str) -> c.Struct:
        """A struct. Raises ExpressionError if there is none."""

    def enum(self, name: str) -> c.Enum:
        """An enum. Raises ExpressionError if there is none."""

    def typedef(self, name: str) -> c.CType | None:
        """What a name stands for, None if it is no type."""


class TokenCursor:
    """The words of an expression, read from left to right."""

    __slots__ = ("_at", "_depth", "_words")

    def __init__(self, text: str) -> None:
        self._words = words(text)
        self._at = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        """The word that comes next; the last one is `end`."""
        return self._words[self._at]

    @property
    def ended(self) -> bool:
        """Whether all words were read."""
        return self.next.kind == "end"

    @property
    def after(self) -> Token:
        """The word after the next."""
        return self._words[min(self._at + 1, len(self._words) - 1)]

    def take(self) -> Token:
        """The next word, which is read then."""
        token = self.next
        if token.kind != "end":
            self._at += 1
        return token

    def accept(self, operator: str) -> bool:
        """Whether the next word is this operator or name; then it is read."""
        if self.is_next(operator):
            self._at += 1
            return True
        return False

    def is_next(self, *texts: str) -> bool:
        """Whether the next word is one of these operators or names."""
        return self.next.kind in ("operator", "name") and self.next.text in texts

    def expect(self, operator: str) -> None:
        """Read this operator. Raises ExpressionError if another word comes."""
        if not self.accept(operator):
            raise self.syntax_error()

    def syntax_error(self) -> ExpressionError:
        """What gdb says of a word that cannot stand here."""
        rest = " ".join(word.text for word in self._words[self._at : -1])
        return ExpressionError(f"A syntax error in expression, near `{rest}'.")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level deeper. Raises ExpressionError if that is too deep."""
        self._depth += 1
        _check_depth(self._depth)
        try:
            yield
        finally:
            self._depth -= 1


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise ExpressionError(f"The expression is nested deeper than {DEEPEST} levels.")


def begins_type(token: Token, types: Types) -> bool:
    """Whether a type begins with this word."""
    if token.kind != "name":
        return False
    text = token.text
    return text in _WORDS or text in ("struct", "enum", "const", "union") or types.typedef(text) is not None


def read_type(cursor: TokenCursor, types: Types) -> c.CType:
    """A type without a name, as in a cast. Raises ExpressionError."""
    name, type = _read(cursor, types)
    if name:
        raise cursor.syntax_error()
    return type


def declaration(text: str, types: Types) -> tuple[str, c.CType, int]:
    """A field as a struct declares it: its name, its type, the alignment that it asks for (1: none). Raises
    ExpressionError."""
    cursor = TokenCursor(text)
    least = 1
    if cursor.accept("_Alignas"):
        cursor.expect("(")
        least = int(cursor.take().text)
        cursor.expect(")")
    name, type = _read(cursor, types)
    if not cursor.ended:
        raise cursor.syntax_error()
    return name, type, least


def _read(cursor: TokenCursor, types: Types) -> tuple[str, c.CType]:
    base = _base(cursor, types)
    return _declarator(cursor, types, base)


def _base(cursor: TokenCursor, types: Types) -> c.CType:
    const = cursor.accept("const")
    keyword = cursor.next.text
    if cursor.is_next("struct", "enum", "union"):
        cursor.take()
        tag = cursor.take()
        if tag.kind != "name":
            raise cursor.syntax_error()
        if keyword == "union":
            raise ExpressionError(f"No union type named {tag.text}.")
        base: c.CType = types.struct(tag.text) if keyword == "struct" else types.enum(tag.text)
    elif cursor.next.kind == "name" and keyword in _WORDS:
        said = []
        while cursor.next.kind == "name" and cursor.next.text in _WORDS:
            said.append(cursor.take().text)
        # By the sorted words, without an `int` and a `signed` that say nothing.
        plain = [word for word in said if word != "int"] or ["int"]
        if "char" not in plain:
            plain = [word for word in plain if word != "signed"] or ["int"]
        basic = _BASIC.get(" ".join(sorted(plain)))
        if basic is None:
            raise ExpressionError(f"No type is called {' '.join(said)}.")
        base = basic
    else:
        found = types.typedef(keyword) if cursor.next.kind == "name" else None
        if found is None:
            raise cursor.syntax_error()
        cursor.take()
        base = found
    const = cursor.accept("const") or const
    return c.Const(base) if const else base


def _declarator(cursor: TokenCursor, types: Types, base: c.CType) -> tuple[str, c.CType]:
    """The rest of a declaration of `base`: pointers before the name, arrays and parameters behind it."""
    with cursor.deeper():
        for stars in count(1):
            if not cursor.accept("*"):
                break
            _check_depth(stars)
            base = c.Pointer(base)
            if cursor.accept("const"):
                base = c.Const(base)
        inner = cursor.is_next("(") and (cursor.after.text in ("*", "("))
        if inner:
            cursor.take()
            name, shape = _declarator(cursor, types, c.VOID)
            cursor.expect(")")
            return name, c.with_innermost(shape, _suffixes(cursor, types, base))
        name = cursor.take().text if cursor.next.kind == "name" else ""
        return name, _suffixes(cursor, types, base)


def _suffixes(cursor: TokenCursor, types: Types, base: c.CType) -> c.CType:
    if cursor.accept("("):
        parameters = []
        while not cursor.accept(")"):
            parameters.append(_read(cursor, types)[1])
            if not cursor.is_next(")"):
                cursor.expect(",")
        return c.Function(base, () if parameters == [c.VOID] else tuple(parameters))
    lengths = []
    while cursor.accept("["):
        token = cursor.take()
        cursor.expect("]")
        if token.kind != "number" or not token.text.isdecimal() or int(token.text) > MOST_ELEMENTS:
            raise ExpressionError("An array's length is a number.")
        lengths.append(int(token.text))
        _check_depth(len(lengths))
    for length in reversed(lengths):
        base = c.Array(base, length)
    return base
