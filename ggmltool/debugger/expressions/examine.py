"""Memory as `x/NFU` shows it: units of bytes from an address on, in a format."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ggmltool.debugger.expressions.evaluate import Place, value_of
from ggmltool.debugger.expressions.parser import parse
from ggmltool.debugger.expressions.printing import raw_formatted, string, zero_ended
from ggmltool.debugger.expressions.values import CValue
from ggmltool.structs.declarations import ExpressionError, NoMemoryError
from ggmltool.structs.types import Float, Function, Pointer, Struct, bare, size_of

_SIZES = {"b": 1, "h": 2, "w": 4, "g": 8}
_IN_A_LINE = {1: 8, 2: 8, 4: 4, 8: 2}
_FORMAT = re.compile(r"(-?\d*)([a-z]*)")
MOST_UNITS = 65536


@dataclass(frozen=True, slots=True)
class Examined:
    """The format that `x` used last, which the next one takes over, and where it ended: `address`, None before any."""

    letter: str = "x"
    size: int = 4
    address: int | None = None


def examine(format: str, text: str, scope: Place, last: Examined | None = None) -> tuple[str, Examined]:
    """What `x/FORMAT text` prints, in lines, and what it leaves for the next. Without a text it goes on where the last
    one ended. Raises ExpressionError.
    """
    last = last or Examined()
    count, letter, size = _read(format)
    address, type_size = _address(text, scope) if text.strip() else (last.address, None)
    if address is None:
        raise ExpressionError("The history is empty.") if not scope.values else ExpressionError("Argument required.")
    letter = letter or last.letter
    if letter in ("s", "i"):
        size = 1
    elif letter == "a":
        size = 8
    elif size is None:
        size = 1 if letter == "c" else last.size
        if letter == "f":
            size = _float_size(type_size, last)
    if letter == "i":
        raise ExpressionError("There are no instructions here.")
    lines, end = _strings(scope, address, count) if letter == "s" else _units(scope, address, count, letter, size)
    return "\n".join(lines), replace(last, letter=letter, size=size if letter not in "sa" else last.size, address=end)


def _float_size(type_size: int | None, last: Examined) -> int:
    if type_size is not None:
        return type_size
    return last.size if last.size in (4, 8) and last.letter == "f" else 8


def _read(format: str) -> tuple[int, str, int | None]:
    found = _FORMAT.fullmatch(format)
    if found is None:
        raise ExpressionError(f'Undefined output format "{format[-1:]}".')
    count = int(found.group(1) or 1) if found.group(1) != "-" else -1
    if count < 0:
        raise ExpressionError("Only addresses that follow can be examined.")
    if count > MOST_UNITS:
        raise ExpressionError(f"At most {MOST_UNITS} units can be examined at once.")
    letter, size = "", None
    for char in found.group(2):
        if char in _SIZES:
            size = _SIZES[char]
        elif char in "xduotacfszi":
            letter = char
        else:
            raise ExpressionError(f'Undefined output format "{char}".')
    return count, letter, size


def _address(text: str, scope: Place) -> tuple[int, int | None]:
    """Where to look, and how large the floating numbers are that the expression is of (None: it is of none).

    A tensor stands for its data where it is a struct, or a pointer to one, without `&`.
    """
    value = value_of(parse(text, scope.layout), scope)
    tensor = scope.layout.structs["ggml_tensor"]
    t = value.bare
    if isinstance(t, Pointer) and bare(t.to) is tensor and not text.lstrip().startswith(("&", "(")):
        return _data_of(value, scope)
    if isinstance(t, Struct):
        if t is tensor:
            return _data_of(value, scope)
        raise ExpressionError("Value can't be converted to integer.")
    if isinstance(t, Function):
        return value.address or 0, None
    of = getattr(t, "of", None) or getattr(t, "to", None)
    element = bare(of) if of is not None else None
    return value.integer(), size_of(element) if isinstance(element, Float) else None


def _data_of(tensor: CValue, scope: Place) -> tuple[int, int | None]:
    """Where the data of a tensor lies."""
    type = scope.field(tensor, "type").integer()
    sizes = {"GGML_TYPE_F32": 4, "GGML_TYPE_F64": 8, "GGML_TYPE_F16": 2}
    return scope.field(tensor, "data").integer(), sizes.get(next(
        (name for name, number in scope.layout.enums["ggml_type"].members.items() if number == type), ""
    ))  # fmt: skip


def _units(scope: Place, address: int, count: int, letter: str, size: int) -> tuple[list[str], int]:
    in_line = 8 if letter == "c" else _IN_A_LINE.get(size, 4)
    lines: list[str] = []
    for i in range(count):
        try:
            raw = scope.memory.read(address, size)
        except NoMemoryError as missing:
            raise ExpressionError(str(missing)) from None
        if i % in_line == 0:
            lines.append(f"{_where(scope, address)}:")
        lines[-1] += "\t" + raw_formatted(scope.memory, raw, letter, padded=True)
        address += size
    return lines, address


def _strings(scope: Place, address: int, count: int) -> tuple[list[str], int]:
    lines = []
    for _ in range(count):
        codes, longer = zero_ended(CValue(bare(scope.layout.structs["ggml_tensor"]), scope.memory), address)
        lines.append(f"{_where(scope, address)}:\t{', '.join(string(codes, longer))}")
        address += len(codes) + (0 if longer else 1)
    return lines, address


def _where(scope: Place, address: int) -> str:
    symbol = scope.memory.symbol(address)
    return f"{address:#x} <{symbol}>" if symbol else f"{address:#x}"
