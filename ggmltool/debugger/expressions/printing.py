"""Values as gdb prints C: `{type = GGML_TYPE_F32, buffer = 0x0, ne = {1, 1, 1, 1}, …}`: formats, characters, lines."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ggmltool.debugger.expressions.memory import NOT_KNOWN, ImageMemory
from ggmltool.debugger.expressions.values import CValue
from ggmltool.structs.declarations import ExpressionError, NoMemoryError
from ggmltool.structs.types import Array, Enum, Float, Function, Int, Pointer, Struct, Void, bare, size_of, type_name

PRINT_LETTERS = frozenset("xduotacfszr")
_DIGITS = {2: 5, 4: 9, 8: 17}
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def raw_formatted(memory: ImageMemory, raw: bytes, letter: str, signed: bool = True, padded: bool = False) -> str:
    """The bytes of a scalar in a format; `padded`: hexadecimal and binary numbers have all their digits, as those of
    `x` have. Raises ExpressionError for a format there is not."""
    size = len(raw)
    number = int.from_bytes(raw, "little")
    match letter:
        case "x":
            return f"0x{number:0{2 * size}x}" if padded else f"{number:#x}"
        case "z":
            return f"0x{number:0{2 * size}x}"
        case "t":
            return f"{number:0{8 * size}b}" if padded else f"{number:b}"
        case "o":
            if padded:
                return f"{number:0{-(-8 * size // 3)}o}" if number else "0" * -(-8 * size // 3)
            return f"0{number:o}" if number else "0"
        case "u":
            return str(number)
        case "d":
            return str(int.from_bytes(raw, "little", signed=True))
        case "c":
            code = int.from_bytes(raw[:1], "little", signed=signed)
            return f"{code} {char(code)}"
        case "a":
            return memory.named(number)
        case "f":
            if size not in _FLOATS:
                return str(int.from_bytes(raw, "little", signed=signed))
            return floating(raw)
    raise ExpressionError(f'Undefined output format "{letter}".')


def floating(raw: bytes) -> str:
    """The bytes of a floating number, in as many digits as tell it from its neighbors."""
    size = len(raw)
    number = float(struct.unpack(_FLOATS[size], raw)[0])
    if math.isnan(number):
        bits = int.from_bytes(raw, "little")
        mantissa = bits & ((1 << {2: 10, 4: 23, 8: 52}[size]) - 1)
        return f"{'-' if bits >> (8 * size - 1) else ''}nan({mantissa:#x})"
    return f"{number:.{_DIGITS[size]}g}"


MOST_ELEMENTS = 200
"""How many elements of an array or a string are printed: `set print elements`."""
MOST_REPEATS = 10
"""How many equal elements are printed one by one: `set print repeats`."""

_ESCAPED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}


def char(code: int) -> str:
    """A character in single quotes."""
    return f"'{_quoted([code], chr(39))}'"


def string(codes: Sequence[int], longer: bool = False) -> list[str]:
    """The parts of a string, to be joined by commas; `longer`: it goes on behind these codes. What is repeated stands
    apart."""
    if not codes:
        return ['""' + ("..." if longer else "")]
    parts: list[str] = []
    plain: list[int] = []
    left = MOST_ELEMENTS
    for code, same in groupby(codes):
        n = len(list(same))
        if left <= 0:
            break
        if n > MOST_REPEATS:
            if plain:
                parts.append(f'"{_quoted(plain, chr(34))}"')
                plain = []
            parts.append(f"{char(code)} <repeats {n} times>")
            left -= MOST_REPEATS
        else:
            taken = min(n, left)
            plain += [code] * taken
            left -= taken
            longer = longer or taken < n
    else:
        left = max(left, 1)
    if plain:
        parts.append(f'"{_quoted(plain, chr(34))}"')
    if longer or left <= 0:
        parts[-1] += "..."
    return parts


def _quoted(codes: Sequence[int], quote: str) -> str:
    out = []
    for code in codes:
        code &= 0xFF
        letter = chr(code)
        if code in _ESCAPED:
            out.append(_ESCAPED[code])
        elif 32 <= code < 127:
            out.append(f"\\{letter}" if letter in (quote, "\\") else letter)
        else:
            out.append(f"\\{code:03o}")
    return "".join(out)


class Piece(NamedTuple):
    """A text in front of which a line may be broken, with so many spaces on the new line (None: it may not)."""

    text: str
    indent: int | None = None


def wrapped(pieces: Iterable[Piece], width: int | None = None, taken: int = 0) -> str:
    """The pieces in lines of less than `width` columns (None: one line), the first of which begins at `taken`. A piece
    that no line has room for is not broken."""
    if width is None:
        return "".join(piece.text for piece in pieces)
    out: list[str] = []
    pending, indent, column = "", None, taken
    for piece in pieces:
        if piece.indent is not None:
            out.append(pending)
            pending, indent = "", piece.indent
        pending += piece.text
        column += len(piece.text)
        if column >= width and indent is not None:
            out.append("\n" + " " * indent)
            column, indent = indent + len(pending), None
        column %= width
    out.append(pending)
    return "".join(out)


def formatted(value: CValue, letter: str = "", width: int | None = None, indent: int = 0) -> str:
    """A value as gdb prints it, in a format of `print/FMT`; lines of at most `width` columns (None: one line), where
    `indent` are taken already. Raises ExpressionError."""
    if letter and letter not in PRINT_LETTERS:
        if letter == "i":
            raise ExpressionError('Format letter "i" is meaningless in "print" command.')
        raise ExpressionError(f'Undefined output format "{letter}".')
    letter = "" if letter in ("r", "s") else letter
    pieces = list(_printed(value, letter, 0))
    is_text = type_name(value.type).removeprefix("const ") == "char *"
    if isinstance(value.bare, Pointer) and not letter and not is_text:
        pieces.insert(0, Piece(f"({value.type_name()}) "))
    return wrapped(pieces, width, indent)


def _printed(value: CValue, letter: str, depth: int) -> Iterator[Piece]:
    t = value.bare
    match t:
        case Void():
            yield Piece("void")
        case Struct():
            yield from _struct(value, t, letter, depth)
        case Array(of, length):
            element = bare(of)
            if isinstance(element, Int) and element.char and not letter:
                yield from _text(string(value.raw().removesuffix(b"\0")))
            else:
                yield from _array(value, length, letter, depth)
        case Function():
            if letter:
                raise ExpressionError("Value can't be converted to integer.")
            yield Piece(f"{{{value.type_name()}}} {_address(value, value.address or 0)}")
        case _:
            yield from _scalar(value, letter, depth)


def _struct(value: CValue, t: Struct, letter: str, depth: int) -> Iterator[Piece]:
    if t.members is None:
        yield Piece("<incomplete type>")
        return
    before = "{"
    for member in t.members.values():
        yield Piece(before)
        yield Piece(f"{member.name} = ", 2 + 2 * depth)
        yield from _printed(value.part(member.type, member.offset), letter, depth + 1)
        before = ", "
    yield Piece("}")


def _array(value: CValue, length: int, letter: str, depth: int) -> Iterator[Piece]:
    t = value.bare
    assert isinstance(t, Array)
    size = size_of(t.of)
    raw = value.raw()
    before = "{"
    i = shown = 0
    while i < length and shown < MOST_ELEMENTS:
        n = _equal(raw, i, length, size)
        yield Piece(before)
        yield Piece("", 2 + 2 * depth)
        yield from _printed(value.part(t.of, i * size), letter, depth + 1)
        if n > MOST_REPEATS:
            yield Piece(f" <repeats {n} times>")
            i += n
            shown += MOST_REPEATS
        else:
            i += 1
            shown += 1
        before = ", "
    if not length:
        yield Piece(before)
    yield Piece("...}" if i < length else "}")


def _equal(raw: bytes, i: int, length: int, size: int) -> int:
    """How many elements from one on are the same."""
    first = raw[i * size : (i + 1) * size]
    n = 1
    while i + n < length and raw[(i + n) * size : (i + n + 1) * size] == first:
        n += 1
    return n


def _text(parts: Iterable[str]) -> Iterator[Piece]:
    for i, part in enumerate(parts):
        yield Piece(f", {part}" if i else part)


def _scalar(value: CValue, letter: str, depth: int) -> Iterator[Piece]:
    t = value.bare
    raw = value.raw()
    if letter:
        signed = isinstance(t, Int) and t.signed
        letter = "x" if letter == "z" and isinstance(t, Pointer) else letter
        yield Piece(raw_formatted(value.memory, raw, letter, signed))
        return
    match t:
        case Int(char=True):
            code = value.integer()
            yield Piece(f"{code} {char(code)}")
        case Int(bool=True):
            number = value.integer()
            yield Piece({0: "false", 1: "true"}.get(number, str(number)))
        case Enum():
            yield Piece(_enum(t, value.integer()))
        case Float() if t.size <= 8:
            yield Piece(floating(raw))
        case Pointer(to):
            yield from _pointer(value, bare(to), depth)
        case _:
            yield Piece(str(value.integer()))


def _enum(t: Enum, number: int) -> str:
    for name, member in t.members.items():
        if member == number:
            return name
    if not t.flags or number == 0:
        return str(number)
    names = [name for name, bit in t.members.items() if number & bit]
    rest = number & ~sum(t.members[name] for name in names) & 0xFFFF_FFFF
    if not names:
        return f"(unknown: {rest:#x})"
    return f"({' | '.join(names)}{f' | unknown: {rest:#x}' if rest else ''})"


def _pointer(value: CValue, to: object, depth: int) -> Iterator[Piece]:
    address = value.integer()
    yield Piece(_address(value, address))
    if isinstance(to, Int) and to.char and address:
        yield Piece(" ")
        try:
            codes, longer = zero_ended(value.memory, address)
        except NoMemoryError as missing:
            yield Piece(f"<error: {missing}>")
            return
        yield from _text(string(codes, longer))


def zero_ended(memory: ImageMemory, address: int) -> tuple[bytes, bool]:
    """The bytes before the first zero from an address on, and whether there are more than are printed. Raises
    NoMemoryError."""
    codes = b""
    while len(codes) < MOST_ELEMENTS:
        try:
            code = memory.read(address + len(codes), 1)
        except NoMemoryError:
            if not codes:
                raise
            return codes, True
        if code == b"\0":
            return codes, False
        codes += code
    return codes, memory.read(address + len(codes), 1) != b"\0"


def _address(value: CValue, address: int) -> str:
    return f"<{NOT_KNOWN}>" if value.memory.symbol(address) == NOT_KNOWN else value.memory.named(address)
