"""The short forms: `f32[4, 3]` for a tensor, `mul_mat(a, x)` for a node.

An argument is a word (an id, a number, `null`, the word of an enumeration), a quoted text (always an id or text), or a
list in brackets; any of them may have a name in front (`eps=1e-6`). Ids may hold any character but `(),=[]`, quotes
at their start, and whitespace around them; quoted, any at all.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ggmltool.scenario.errors import Mistake, quoted

_TENSOR = re.compile(r"\s*([^\s\[\](),=]+)\s*\[")
_CALL = re.compile(r"\s*([^\s\[\](),=]+)\s*\(")
_WORD = re.compile(r"[^(),=\[\]]+")
NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[-+]?[0-9]+")
HEX = re.compile(r"0[xX][0-9a-fA-F]+")
_WORDS: dict[str, bool | float] = {"true": True, "false": False}
MAX_LENGTH = 100_000
_MAX_DIGITS = 400


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: its name (None: by position), what stands there, and where in the short form that starts.

    `value` is text for words and quoted texts (`quoted` tells which), a list of such values for a list.
    """

    name: str | None
    value: str | list[object]
    quoted: bool
    offset: int

    def literal(self) -> object:
        """The value as a parameter: numbers and truth values as such, other words as text."""
        if isinstance(self.value, list) or self.quoted:
            return self.value
        return literal(self.value)


@dataclass(frozen=True, slots=True)
class ShortCall:
    """`name(args)`; `offset` is where the name starts."""

    name: str
    args: tuple[Arg, ...]
    offset: int


def literal(word: str) -> object:
    """What a bare word stands for: a number, a truth value, or itself."""
    if word in _WORDS:
        return _WORDS[word]
    if word == "null":
        return None
    if len(word) <= _MAX_DIGITS:
        if _INTEGER.fullmatch(word):
            return int(word)
        if NUMBER.fullmatch(word):
            return float(word)
        if HEX.fullmatch(word):
            return int(word, 16)
    return word


def is_tensor(text: str) -> bool:
    """Whether a short form is meant as a tensor (`type[...]`) rather than as a call."""
    return _TENSOR.match(text) is not None


@dataclass(frozen=True, slots=True)
class ShortTensor:
    """`type[extents]`; `offset`, `bracket` and `offsets` are where the type, the bracket and each extent start."""

    type: str
    extents: tuple[object, ...]
    offset: int
    bracket: int
    offsets: tuple[int, ...]


def parse_tensor(text: str) -> ShortTensor:
    """`f32[4, 3]`. Raises Mistake, with its offset."""
    match = _TENSOR.match(text)
    if match is None:
        raise Mistake(f"{quoted(text)} is not a tensor", "write type[ne0, ne1, ...], for example f32[4, 3]", offset=0)
    scanner = _Scanner(text)
    scanner.i = match.end() - 1
    items = scanner.list_items()
    scanner.end()
    extents = tuple(value for value, _ in items)
    return ShortTensor(match.group(1), extents, match.start(1), match.end() - 1, tuple(offset for _, offset in items))


def parse_call(text: str) -> ShortCall:
    """`mul_mat(a, x)`. Raises Mistake, with its offset."""
    match = _CALL.match(text)
    if match is None:
        raise Mistake(f"{quoted(text)} is not a node", "write op(source, ..., parameter=value)", offset=0)
    scanner = _Scanner(text)
    scanner.i = match.end()
    args: list[Arg] = []
    scanner.space()
    if scanner.peek() == ")":
        scanner.i += 1
    else:
        while True:
            args.append(scanner.arg())
            if scanner.separator(")"):
                break
    scanner.end()
    return ShortCall(match.group(1), tuple(args), match.start(1))


class _Scanner:
    """A place in the text of a short form, and the steps that move it."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise Mistake(f"{quoted(text)} has {len(text)} characters", f"at most {MAX_LENGTH} in a short form")
        self.text = text
        self.i = 0

    def peek(self) -> str:
        return self.text[self.i : self.i + 1]

    def space(self) -> None:
        while self.peek().isspace():
            self.i += 1

    def fail(self, message: str, expected: str = "", at: int | None = None) -> Mistake:
        return Mistake(message, expected, offset=self.i if at is None else at)

    def arg(self) -> Arg:
        self.space()
        start = self.i
        value, is_quoted = self.value()
        self.space()
        if self.peek() != "=":
            return Arg(None, value, is_quoted, start)
        if is_quoted or isinstance(value, list):
            raise self.fail("only a parameter's name can stand before =", at=start)
        self.i += 1
        self.space()
        start = self.i
        name = value
        value, is_quoted = self.value()
        return Arg(name, value, is_quoted, start)

    def value(self) -> tuple[str | list[object], bool]:
        c = self.peek()
        if c == "[":
            return self.list_(), False
        if c in ('"', "'"):
            return self.quoted(c), True
        match = _WORD.match(self.text, self.i)
        if match is None or not match.group().strip():
            found = quoted(c) if c else "the end"
            hint = "write null for an empty source" if c in (",", ")") else ""
            raise self.fail(f"a value is missing before {found}", hint)
        self.i = match.end()
        if self.peek() == "(":
            raise self.fail("calls do not nest", f"give {match.group().strip()}(…) an id of its own", at=match.start())
        return match.group().rstrip(), False

    def quoted(self, quote: str) -> str:
        start = self.i
        self.i += 1
        while self.peek() not in (quote, ""):
            self.i += 2 if self.peek() == "\\" else 1
        if not self.peek():
            raise self.fail(f"the quote {quote} is not closed", at=start)
        self.i += 1
        body = self.text[start + 1 : self.i - 1]
        if "\\" not in body:
            return body
        if quote == "'":
            return re.sub(r"\\(.)", r"\1", body)
        try:
            return str(json.loads(f'"{body}"', strict=False))
        except ValueError:
            raise self.fail("this escape is unknown", "the escapes are those of JSON", at=start) from None

    def list_(self) -> list[object]:
        """`[1, 2]`, from the opening bracket to after the closing one."""
        return [value for value, _ in self.list_items()]

    def list_items(self) -> list[tuple[object, int]]:
        """The items of a list, and where each starts."""
        self.i += 1
        out: list[tuple[object, int]] = []
        self.space()
        if self.peek() == "]":
            self.i += 1
            return out
        while True:
            self.space()
            if self.peek() == "[":
                raise self.fail("lists do not nest here")
            start = self.i
            value, is_quoted = self.value()
            out.append((value if is_quoted or isinstance(value, list) else literal(value), start))
            if self.separator("]"):
                return out

    def separator(self, close: str) -> bool:
        """Step over a comma (False) or the closing bracket (True)."""
        self.space()
        c = self.peek()
        if c == close:
            self.i += 1
            return True
        if c == ",":
            self.i += 1
            return False
        if not c:
            hint = "" if "\n" in self.text else "inside { } in YAML, put a short form in quotes"
            raise self.fail(f"{quoted(close)} is missing", hint)
        raise self.fail(f"expected a comma or {quoted(close)}, not {quoted(c)}")

    def end(self) -> None:
        self.space()
        if self.i < len(self.text):
            raise self.fail(f"{quoted(self.text[self.i :])} does not belong here")
