"""The structs that are not the same in every library: which fields there are more of, and which function tells so."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from ggmltool.oracle import structs


class Added(NamedTuple):
    """Fields (pointers all) that a library has behind the field `after` if it exports a function."""

    struct: type[ctypes.Structure]
    after: str
    names: tuple[str, ...]
    function: str


ADDED = (
    Added(structs.BufferTypeI, "alloc_buffer", ("alloc_buffer_n",), "ggml_backend_buft_alloc_buffer_n"),
    Added(structs.BufferTypeI, "get_alloc_size", ("get_alloc_size_n",), "ggml_backend_buft_get_alloc_size_n"),
    Added(
        structs.Sched,
        "callback_eval_user_data",
        ("callback_copy", "callback_copy_user_data"),
        "ggml_backend_sched_set_copy_callback",
    ),
    Added(
        structs.Sched,
        "callback_copy_user_data",
        ("callback_realloc", "callback_realloc_user_data"),
        "ggml_backend_sched_set_realloc_callback",
    ),
)

LAST = {"debug_realloc": "ggml_backend_sched_set_realloc_callback"}
"""Fields that stand at the end of their struct in libraries that export a function."""


class Layout(NamedTuple):
    """These structs of one library, as ctypes classes."""

    buffer_type_i: Any
    buffer_type: Any
    sched: Any


def layout_of(exports: Callable[[str], bool]) -> Layout:
    """The structs of the library that exports these functions."""
    asked = {added.function for added in ADDED}
    return _layout(frozenset(filter(exports, asked)))


@cache
def _layout(functions: frozenset[str]) -> Layout:
    table = _struct("BufferTypeI", _fields(structs.BufferTypeI, functions))
    return Layout(
        table,
        _struct("BufferType", [("iface", table), *structs.BufferType._fields_[1:]]),
        _struct("Sched", _fields(structs.Sched, functions)),
    )


def _fields(struct: type[ctypes.Structure], functions: frozenset[str]) -> list[Any]:
    fields: list[Any] = list(struct._fields_)
    for added in ADDED:
        if added.struct is struct and added.function in functions:
            at = [field[0] for field in fields].index(added.after) + 1
            fields[at:at] = [(name, ctypes.c_void_p) for name in added.names]
    moved = [field for field in fields if LAST.get(field[0]) in functions]
    return [field for field in fields if field not in moved] + moved


def _struct(name: str, fields: Sequence[Any]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": tuple(fields), "__doc__": f"{name} of this library."})
