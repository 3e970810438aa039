"""What a program's own debug information says of ggml's structs: where gdb has it, it knows better than any table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ggmltool.attach.link import LinkError
from ggmltool.structs.layout import MAX_NAME, Layout, fresh
from ggmltool.structs.types import Struct

_SCHEDULER = "ggml_backend_sched"
"""The struct that only debug information of ggml's own files knows."""


class Asks(Protocol):
    """Who answers requests, as `Link` does."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer. Raises LinkError."""


def corrected(link: Asks, name: str, file: str = "", max_name: int = MAX_NAME) -> tuple[Layout | None, tuple[str, ...]]:
    """A layout with the sizes and offsets that gdb knows, of a file where one is named, and the structs in which they
    are others; None where gdb does not know the scheduler. A field that the program's struct lacks is gone.
    `max_name` is its GGML_MAX_NAME."""
    layout = fresh(name, max_name)
    asked = [expression for struct in layout.structs.values() for expression in _expressions(struct)]
    try:
        told = dict(zip(asked, link.ask("evaluate_all", asked, f"sizeof(struct {_SCHEDULER})", file), strict=False))
    except LinkError:
        return None, ()
    if not told:
        return None, ()
    others = tuple(tag for tag, struct in layout.structs.items() if _correct(told, struct))
    return layout, others


def _expressions(struct: Struct) -> list[str]:
    """What gdb is asked of a struct: its size, and where its fields are."""
    return [_size(struct), *(_offset(struct, field) for field in struct.members or {})]


def _size(struct: Struct) -> str:
    return f"sizeof(struct {struct.name})"


def _offset(struct: Struct, field: str) -> str:
    return f"(unsigned long)&((struct {struct.name} *)0)->{field}"


def _correct(told: Mapping[str, int | None], struct: Struct) -> bool:
    """Give a struct the program's own offsets; whether any was another."""
    size = told[_size(struct)]
    members = struct.members or {}
    if not size or not members:
        return False
    found = {}
    for name, member in members.items():
        offset = told[_offset(struct, name)]
        if offset is not None:
            found[name] = member._replace(offset=offset)
    if not found or (found == members and size == struct.size):
        return False
    struct.members, struct.size = found, size
    return True
