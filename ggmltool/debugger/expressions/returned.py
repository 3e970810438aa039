"""What a function returned that has just been left, as `finish` shows it."""

from __future__ import annotations

from typing import Any

from ggmltool.debugger.expressions.image.galloc import Galloc
from ggmltool.debugger.expressions.scope import Scope
from ggmltool.debugger.expressions.values import CValue
from ggmltool.ggml.events import Allocated, Assigned, Grown, Left, Logged, PassedOver, ReallocNeeded, Refused
from ggmltool.inspect.history.calls import calls_of
from ggmltool.inspect.history.frames import key_at
from ggmltool.structs.declarations import Cursor, read_type
from ggmltool.structs.types import BOOL, CType, Function, Pointer, Struct, Void, bare

_NO = ("ggml_gallocr_node_needs_realloc",)
"""Functions that answer no where they are told of: this one's yes is that no more memory is needed."""


def returned_value(scope: Scope) -> CValue | None:
    """What the function returned that was left at the moment of a scope; None of one that returns nothing."""
    event: Any = scope.event
    key = event.function if isinstance(event, Left) else key_at(scope.history, scope.at, scope.phase - 1)
    type = _result(scope, key)
    if type is None:
        return None
    if isinstance(bare(type), Struct) and isinstance(event, Allocated):
        return scope.address(event.chunk, event.offset)
    number = _number(scope, key, type, event)
    return None if number is None else scope.of(type, number)


def _result(scope: Scope, key: str) -> CType | None:
    """The type of what a function returns, None for void and where it is not known."""
    table, _, field = key.partition(".")
    if field:
        member = (scope.layout.struct(table).members or {}).get(field)
        pointer = None if member is None else bare(member.type)
        function = bare(pointer.to) if isinstance(pointer, Pointer) else None
        type = function.result if isinstance(function, Function) else None
        return None if isinstance(type, Void) else type
    declared = calls_of(scope.history.release).returns.get(key)
    return None if declared is None else read_type(Cursor(declared), scope.layout)


def _number(scope: Scope, key: str, type: CType, event: Any) -> int | None:
    """The result as a number: a backend, an answer, or where something lies."""
    answers = bare(type) is BOOL
    match event:
        case Allocated():
            return int(event.offset)
        case Grown() if isinstance(bare(type), Pointer):
            return _buffer(scope, key, event.buft)
        case Assigned() | PassedOver() | Refused() if not answers:
            return _chosen(scope, type, event)
        case PassedOver() | Refused():
            return 0
        case ReallocNeeded() | Logged() if key in (*_NO, "ggml_gallocr_alloc_graph"):
            return 0
    return 1 if answers else 0


def _chosen(scope: Scope, type: CType, event: Assigned | PassedOver | Refused) -> int:
    """The backend that a rule gave to a tensor, in January 2024 its allocator."""
    decided = event.backend if isinstance(event, Assigned) else ""
    number = next((i for i, b in enumerate(scope.history.backends) if b.name == decided), -1)
    if not isinstance(bare(type), Pointer):
        return number
    return scope.image.galloc.tallocr(number) if number >= 0 else 0


def _buffer(scope: Scope, key: str, buft: str) -> int:
    """Where a buffer for computing lies that was just made."""
    number = next((i for i, b in enumerate(scope.history.backends) if buft in (b.memory, b.buft)), -1)
    galloc = scope.image.galloc
    if key == "ggml_tallocr_new_from_buft":
        return galloc.tallocr(number)
    if key == "ggml_vbuffer_alloc" and isinstance(galloc, Galloc):
        return galloc.buffer(number)
    return scope.image.devices.chunk(number, 0)
