"""What an expression is made of, after parsing."""

from __future__ import annotations

from dataclasses import dataclass

from ggmltool.structs.types import CType


@dataclass(frozen=True, slots=True)
class Number:
    """A number or a character, with its type."""

    value: int | float
    type: CType


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name; `quoted` in single quotes."""

    name: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """`$1`, `$`, `$$`, `$$3`, `$name`: the text with its dollars."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type where a value could stand: `sizeof (struct hash_node)`, `ptype struct hash_node`."""

    type: CType


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator before its operand: `*`, `&`, `-`, `+`, `!`, `~`, `sizeof`."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two operands, `,`, `@`, `=` and `[` among them."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Field:
    """`of.name` and `of->name`, which gdb takes for the same."""

    of: Node
    name: str


@dataclass(frozen=True, slots=True)
class Cast:
    """`(type) operand`."""

    type: CType
    operand: Node


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)`."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | Text | Name | Variable | TypeName | Unary | Binary | Choice | Field | Cast | Call
