"""Values as gdb prints C: `{type = GGML_TYPE_F32, buffer = 0x0, ne = {1, 1, 1, 1}, …}`."""

from __future__ import annotations

from collections.abc import Iterator

from ggmltool.debugger.expressions.characters import MOST_ELEMENTS, MOST_REPEATS, char, string
from ggmltool.debugger.expressions.formats import PRINT_LETTERS, floating, formatted
from ggmltool.debugger.expressions.held import Held
from ggmltool.debugger.expressions.memory import NOT_KNOWN
from ggmltool.debugger.expressions.wrapping import Piece
from ggmltool.structs.errors import ExpressionError, NoMemoryError
from ggmltool.structs.types import (
    Array,
    Enum,
    Float,
    Function,
    Int,
    Pointer,
    Struct,
    Void,
    bare,
    size_of,
    type_name,
)  # fmt: skip


def printed(value: Held, letter: str = "", typed: bool = True) -> Iterator[Piece]:
    """What `print` shows of a value behind `$1 = `; without `typed` a pointer has no type in front.

    Raises ExpressionError.
    """
    if letter and letter not in PRINT_LETTERS:
        if letter == "i":
            raise ExpressionError('Format letter "i" is meaningless in "print" command.')
        raise ExpressionError(f'Undefined output format "{letter}".')
    letter = "" if letter in ("r", "s") else letter
    t = value.bare
    if isinstance(t, Pointer) and typed and not letter and not _is_text(value):
        yield Piece(f"({value.type_name()}) ")
    yield from _printed(value, letter, 0)


def _is_text(value: Held) -> bool:
    """Whether a pointer is printed as a string, without its type."""
    return type_name(value.type).removeprefix("const ") == "char *"


def _printed(value: Held, letter: str, depth: int) -> Iterator[Piece]:
    t = value.bare
    match t:
        case Void():
            yield Piece("void")
        case Struct():
            yield from _struct(value, t, letter, depth)
        case Array(of, length):
            element = bare(of)
            if isinstance(element, Int) and element.char and not letter:
                yield from _text(value.raw(), depth)
            else:
                yield from _array(value, length, letter, depth)
        case Function():
            if letter:
                raise ExpressionError("Value can't be converted to integer.")
            yield Piece(f"{{{value.type_name()}}} {_address(value, value.address or 0, True)}")
        case _:
            yield from _scalar(value, letter, depth)


def _struct(value: Held, t: Struct, letter: str, depth: int) -> Iterator[Piece]:
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


def _array(value: Held, length: int, letter: str, depth: int) -> Iterator[Piece]:
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


def _text(raw: bytes, depth: int) -> Iterator[Piece]:
    """A char array: the zero that ends it is not printed."""
    codes = raw[:-1] if raw and raw[-1] == 0 else raw
    for i, part in enumerate(string(codes)):
        yield Piece(f", {part}" if i else part)


def _scalar(value: Held, letter: str, depth: int) -> Iterator[Piece]:
    t = value.bare
    raw = value.raw()
    if letter:
        signed = isinstance(t, Int) and t.signed
        letter = "x" if letter == "z" and isinstance(t, Pointer) else letter
        yield Piece(formatted(value.memory, raw, letter, signed))
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


def _pointer(value: Held, to: object, depth: int) -> Iterator[Piece]:
    address = value.integer()
    yield Piece(_address(value, address, isinstance(to, Function)))
    if isinstance(to, Int) and to.char and address:
        yield Piece(" ")
        try:
            codes, longer = zero_ended(value, address)
        except NoMemoryError as missing:
            yield Piece(f"<error: {missing}>")
            return
        for i, part in enumerate(string(codes, longer)):
            yield Piece(part if not i else f", {part}")


def zero_ended(value: Held, address: int) -> tuple[bytes, bool]:
    """The bytes before the first zero from an address on, and whether there are more than are printed.

    Raises NoMemoryError.
    """
    codes = b""
    while len(codes) < MOST_ELEMENTS:
        try:
            code = value.memory.read(address + len(codes), 1)
        except NoMemoryError:
            if not codes:
                raise
            return codes, True
        if code == b"\0":
            return codes, False
        codes += code
    return codes, value.memory.read(address + len(codes), 1) != b"\0"


def _address(value: Held, address: int, function: bool) -> str:
    symbol = value.memory.symbol(address)
    if symbol == NOT_KNOWN:
        return f"<{symbol}>"
    return f"{address:#x} <{symbol}>" if symbol else f"{address:#x}"
