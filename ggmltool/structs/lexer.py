"""The words of an expression: numbers, names, characters, strings, convenience variables, operators."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ggmltool.structs.errors import ExpressionError

LONGEST = 4096
"""How long an expression may be, in characters."""

Kind = Literal["number", "name", "quoted", "char", "string", "variable", "operator", "end"]


class Token(NamedTuple):
    """A word, where it begins, and what it is. The text of characters and strings is what they stand for."""

    kind: Kind
    text: str
    at: int


_OPERATORS = (
    "<<=", ">>=", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "::", "+", "-", "*", "/", "%", "&", "|", "^",
    "~", "!", "<", ">", "=", "?", ":", ",", ".", "(", ")", "[", "]", "{", "}", "@",
)  # fmt: skip
_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|\$?[0-9]*)")
_NUMBER = re.compile(r"(?:[0-9]|\.[0-9])(?:[eEpP][+-]|[0-9A-Za-z_.])*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)


def words(text: str) -> list[Token]:
    """The words of an expression, and an `end` behind them. Raises ExpressionError."""
    if len(text) > LONGEST:
        raise ExpressionError(f"The expression is longer than {LONGEST} characters.")
    out: list[Token] = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at >= len(text):
            return [*out, Token("end", "", at)]
        token, at = _word(text, at)
        out.append(token)


def _word(text: str, at: int) -> tuple[Token, int]:
    for kind, pattern in (("variable", _VARIABLE), ("number", _NUMBER), ("name", _NAME)):
        found = pattern.match(text, at)
        if found:
            return Token(kind, found.group(), at), found.end()  # type: ignore[arg-type]
    if text[at] in "'\"":
        return _quoted(text, at)
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token("operator", operator, at), at + len(operator)
    raise ExpressionError(f"Invalid character '{text[at]}' in expression.")


def _quoted(text: str, at: int) -> tuple[Token, int]:
    quote = text[at]
    end = at + 1
    while end < len(text) and text[end] != quote:
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        raise ExpressionError("Unmatched single quote." if quote == "'" else "Unterminated string in expression.")
    inside = _ESCAPE.sub(_unescape, text[at + 1 : end])
    if quote == '"':
        return Token("string", inside, at), end + 1
    if not inside:
        raise ExpressionError("Empty character constant.")
    return Token("char" if len(inside) == 1 else "quoted", inside, at), end + 1


def _unescape(found: re.Match[str]) -> str:
    octal, hexadecimal, letter = found.groups()
    if octal is not None:
        return chr(int(octal, 8) & 0xFF)
    if hexadecimal is not None:
        return chr(int(hexadecimal, 16))
    return _ESCAPES.get(letter, letter)
