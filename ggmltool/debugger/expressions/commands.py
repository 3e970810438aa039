"""What `x`, `ptype`, `whatis` and completion make of an expression."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ggmltool.debugger.expressions.evaluate import EvalScope, evaluate, value_of
from ggmltool.debugger.expressions.functions import FUNCTIONS
from ggmltool.debugger.expressions.image.image import TABLE_NAMES
from ggmltool.debugger.expressions.parser import TypeName, parse
from ggmltool.debugger.expressions.printing import raw_formatted, string, zero_ended
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import CValue, dereferenced, field_of
from ggmltool.structs import types as c
from ggmltool.structs.declarations import ExpressionError, NoMemoryError

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


def examine(format: str, text: str, scope: EvalScope, last: Examined | None = None) -> tuple[str, Examined]:
    """What `x/FORMAT text` prints, in lines: units of bytes from an address on; and what it leaves for the next.
    Without a text it goes on where the last one ended. Raises ExpressionError."""
    last = last or Examined()
    count, letter, size = _read(format)
    address, type_size = _address(text, scope) if text.strip() else (last.address, None)
    if address is None:
        raise ExpressionError("The history is empty.") if not scope.values else ExpressionError("Argument required.")
    letter = letter or last.letter
    if letter == "i":
        raise ExpressionError("There are no instructions here.")
    if letter in "sa":
        size = 1 if letter == "s" else 8
    elif size is None and letter == "f":
        size = type_size or (last.size if last.size in (4, 8) and last.letter == "f" else 8)
    elif size is None:
        size = 1 if letter == "c" else last.size
    lines, end = _strings(scope, address, count) if letter == "s" else _units(scope, address, count, letter, size)
    return "\n".join(lines), replace(last, letter=letter, size=size if letter not in "sa" else last.size, address=end)


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


def _address(text: str, scope: EvalScope) -> tuple[int, int | None]:
    """Where to look, and how large the floating numbers are that the expression is of (None: it is of none). A tensor
    stands for its data where it is a struct, or a pointer to one, without `&`."""
    value = evaluate(text, scope)
    tensor, t = scope.layout.structs["ggml_tensor"], value.bare
    is_pointer = isinstance(t, c.Pointer) and c.bare(t.to) is tensor and not text.lstrip().startswith(("&", "("))
    if t is tensor or is_pointer:
        type = field_of(value, "type").integer()
        names = (name for name, number in scope.layout.enums["ggml_type"].members.items() if number == type)
        sizes = {"GGML_TYPE_F32": 4, "GGML_TYPE_F64": 8, "GGML_TYPE_F16": 2}
        return field_of(value, "data").integer(), sizes.get(next(names, ""))
    if isinstance(t, c.Struct):
        raise ExpressionError("Value can't be converted to integer.")
    if isinstance(t, c.Function):
        return value.address or 0, None
    of = getattr(t, "of", None) or getattr(t, "to", None)
    element = c.bare(of) if of is not None else None
    return value.integer(), c.size_of(element) if isinstance(element, c.Float) else None


def _units(scope: EvalScope, address: int, count: int, letter: str, size: int) -> tuple[list[str], int]:
    in_line = 8 if letter == "c" else _IN_A_LINE.get(size, 4)
    lines: list[str] = []
    for i in range(count):
        try:
            raw = scope.memory.read(address, size)
        except NoMemoryError as missing:
            raise ExpressionError(str(missing)) from None
        if i % in_line == 0:
            lines.append(f"{scope.memory.named(address)}:")
        lines[-1] += "\t" + raw_formatted(scope.memory, raw, letter, padded=True)
        address += size
    return lines, address


def _strings(scope: EvalScope, address: int, count: int) -> tuple[list[str], int]:
    lines = []
    for _ in range(count):
        codes, longer = zero_ended(scope.memory, address)
        lines.append(f"{scope.memory.named(address)}:\t{', '.join(string(codes, longer))}")
        address += len(codes) + (0 if longer else 1)
    return lines, address


def type_text(text: str, scope: EvalScope, whatis: bool = False) -> str:
    """`type = …` of an expression or a type, a struct with its fields; `whatis`: by its name alone. Raises
    ExpressionError."""
    node = parse(text, scope.layout)
    type = node.type if isinstance(node, TypeName) else value_of(node, scope).type
    if not whatis:
        return f"type = {written_out(type, scope.language)}"
    if isinstance(node, TypeName) and isinstance(type, c.Typedef):
        type = type.to  # of the name of a type, what it is another name of
    return f"type = {c.type_name(type, language=scope.language)}"


def written_out(type: c.CType, language: c.Language) -> str:
    """A type as `ptype` writes it behind `type = `."""
    type = c.bare(type) if c.innermost(c.bare(type)) is not c.innermost(type) else type
    inner = c.bare(c.innermost(type))
    while inner is not c.innermost(inner):
        type = c.with_innermost(type, inner)
        inner = c.bare(c.innermost(type))
    type = c.with_innermost(type, inner)
    head = c.base_name(inner, language)
    before, _, after = c.type_name(type, language=language).partition(head)
    return f"{before}{_body(inner, head, language)}{after}"


def _body(type: c.CType, head: str, language: c.Language) -> str:
    match type:
        case c.Struct(name=name, members=None):
            return f"struct {name} {{\n    <incomplete type>\n}}"
        case c.Struct(name=name, members=members):
            lines = [f"    {c.type_name(m.type, m.name, language)};" for m in (members or {}).values()]
            return "\n".join((f"struct {name} {{", *lines, "}"))
        case c.Enum(name=name, members=members):
            said, following = [], 0
            for member, value in members.items():
                said.append(member if value == following else f"{member} = {value}")
                following = value + 1
            colon = " : unsigned int" if language == "c++" else ""
            return f"enum {name}{colon} {{{', '.join(said)}}}"
        case _:
            return head


_LAST = re.compile(r"(?:^|(?<=[^A-Za-z0-9_$]))(\$?[A-Za-z_][A-Za-z0-9_]*|\$)?$")
_FIELD = re.compile(r"(.*?)(?:->|\.)\s*([A-Za-z_][A-Za-z0-9_]*)?$", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = frozenset(("sizeof", "struct", "enum", "const"))
_NUMBER = re.compile(r"(?:^|[^A-Za-z0-9_$])[0-9]+$")
MOST_NAMES = 1000
"""How many names are offered at most."""


def complete(prefix: str, scope: Scope) -> list[str]:
    """What an expression that begins so can go on as: the whole text with each name that fits, sorted."""
    found = _FIELD.fullmatch(prefix)
    if found and not _NUMBER.search(found.group(1)):
        begun = found.group(2) or ""
        names = _fields(found.group(1), begun, scope)
    else:
        last = _LAST.search(prefix)
        begun = (last.group(1) or "") if last else ""
        names = sorted(set(_names(begun, scope)))[:MOST_NAMES]
    return [prefix[: len(prefix) - len(begun)] + name for name in names]


def _names(begun: str, scope: Scope) -> list[str]:
    if begun.startswith("$"):
        return [f"${name}" for name in scope.variables if f"${name}".startswith(begun)]
    image = scope.image
    tensors = [cell.label for _, cell in image.tensors.all]
    names = [*scope.arguments(), *scope.locals(), *(t for t in tensors if t not in _PLAIN)]
    names += [name for name in ("sched", "galloc", "graph") if image.there]
    names += [*image.program.graphs, *image.program.contexts, TABLE_NAMES[0], "ctx"]
    if begun:
        names += [*FUNCTIONS, *scope.layout.constants]
    return [name for name in names if name.startswith(begun) and _NAME.fullmatch(name)]


def _fields(of: str, begun: str, scope: Scope) -> list[str]:
    depth, at = 0, len(of)
    while at > 0:
        char = of[at - 1]
        if char in ")]":
            depth += 1
        elif char in "([":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and not (char.isalnum() or char in "_$.>'" or (char == "-" and of[at : at + 1] == ">")):
            break
        at -= 1
    try:
        value: CValue = evaluate(of[at:], scope)
        value = dereferenced(value) if isinstance(value.bare, c.Pointer) else value
        t = value.bare
        if not isinstance(t, c.Struct) or not value.raw(0, t.size):
            return []
    except ExpressionError:
        return []
    return sorted(name for name in t.members or {} if name.startswith(begun))
