"""The format letters of `print/FMT` and `x/FMT`: a scalar's bytes as text."""

from __future__ import annotations

import math
import struct

from ggmltool.debugger.expressions.characters import char
from ggmltool.debugger.expressions.memory import Memory
from ggmltool.structs.errors import ExpressionError

PRINT_LETTERS = frozenset("xduotacfszr")
_DIGITS = {2: 5, 4: 9, 8: 17}
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def formatted(memory: Memory, raw: bytes, letter: str, signed: bool = True, padded: bool = False) -> str:
    """The bytes of a scalar in a format; `padded`: hexadecimal and binary numbers have all their digits, as those of
    `x` have. Raises ExpressionError for a format there is not.
    """
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
            symbol = memory.symbol(number)
            return f"{number:#x} <{symbol}>" if symbol else f"{number:#x}"
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
