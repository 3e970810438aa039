"""Functions of ggml that no library exports, for they are inline or static: answered from the memory they look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ggmltool.debugger.expressions.memory import Memory
from ggmltool.debugger.expressions.values import CValue
from ggmltool.ggml.hash_set import FULL, hash_of
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.version import SIZE_MAX, hash_size
from ggmltool.structs.declarations import ExpressionError
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Struct, bare


class Looking(Protocol):
    """Where an expression is asked of a program, as far as these functions look."""

    @property
    def memory(self) -> Memory:
        """The program's memory."""

    @property
    def layout(self) -> Layout:
        """The structs of its ggml."""

    @property
    def release(self) -> Release:
        """The release that decides as its ggml does."""

    def field(self, value: CValue, name: str) -> CValue:
        """A field of a struct, or of what a pointer points to. Raises ExpressionError."""

    def pointer(self, struct: str, address: int) -> CValue:
        """A pointer to a struct."""


Answer = Callable[[Looking, list[CValue]], int]


def _hash(scope: Looking, values: list[CValue]) -> int:
    return hash_of(values[0].integer(), scope.release.hash_shift)


def _find(scope: Looking, values: list[CValue]) -> int:
    """ggml_hash_find: the slot of a key, or the free one where it would be."""
    size = scope.field(values[0], "size").integer()
    if size <= 0:
        raise ExpressionError("Division by zero")
    keys, used = scope.field(values[0], "keys").integer(), scope.field(values[0], "used").integer()
    address = values[1].integer()
    start = slot = _hash(scope, [values[1]]) % size
    while True:
        word = int.from_bytes(scope.memory.read(used + 4 * (slot >> 5), 4), "little")
        if not word >> (slot & 31) & 1:
            return slot
        if int.from_bytes(scope.memory.read(keys + 8 * slot, 8), "little") == address:
            return slot
        slot = (slot + 1) % size
        if slot == start:
            return FULL & SIZE_MAX


def _hash_node(scope: Looking, values: list[CValue]) -> int:
    """ggml_gallocr_hash_get, which does not add what is not there."""
    slot = _find(scope, [scope.field(values[0], "hash_set"), values[1]])
    return scope.field(values[0], "hash_values").integer() + slot * scope.layout.structs["hash_node"].size


def _can_inplace(scope: Looking, values: list[CValue]) -> int:
    number = values[0].integer()
    name = next((n for n, v in scope.layout.enums["ggml_op"].members.items() if v == number), "")
    op = name.removeprefix("GGML_OP_")
    return op in Op.__members__ and Op[op] in scope.release.rules.inplace_ops


def _is_allocated(scope: Looking, values: list[CValue]) -> int:
    if scope.field(values[1], "data").integer():
        return 1
    node = scope.pointer("hash_node", _hash_node(scope, values))
    members = bare(scope.layout.structs["hash_node"])
    known = isinstance(members, Struct) and "allocated" in (members.members or {})
    return int(known and scope.field(node, "allocated").truth())


INLINE: Mapping[str, Answer] = {
    "ggml_hash": _hash,
    "ggml_hash_find": _find,
    "ggml_gallocr_hash_get": _hash_node,
    "ggml_gallocr_is_allocated": _is_allocated,
    "ggml_op_can_inplace": _can_inplace,
    "ggml_hash_size": lambda scope, values: hash_size(values[0].integer()),
}
"""By name; how they are declared stands with the other functions."""
