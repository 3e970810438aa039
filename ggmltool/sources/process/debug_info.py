"""What a program's own debug information says of ggml's structs: where gdb has it, it knows better than any table."""

from __future__ import annotations

from typing import Any, Protocol

from ggmltool.layouts.layout import Layout, fresh
from ggmltool.layouts.types import Struct
from ggmltool.sources.process.link import LinkError


class Asks(Protocol):
    """Who answers requests, as `Link` does."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One request and its answer. Raises LinkError."""


def corrected(link: Asks, name: str) -> tuple[Layout | None, tuple[str, ...]]:
    """A layout with the sizes and offsets that gdb knows, and the structs in which they are others; None where gdb
    knows none of them. A field that the program's struct lacks is gone."""
    if _number(link, "sizeof(struct ggml_tensor)") is None:
        return None, ()
    layout = fresh(name)
    others = tuple(tag for tag, struct in layout.structs.items() if _correct(link, struct))
    return layout, others


def _correct(link: Asks, struct: Struct) -> bool:
    """Give a struct the program's own offsets; whether any was another."""
    size = _number(link, f"sizeof(struct {struct.name})")
    members = struct.members or {}
    if not size or not members:
        return False
    found = {}
    for name, member in members.items():
        offset = _number(link, f"(unsigned long)&((struct {struct.name} *)0)->{name}")
        if offset is not None:
            found[name] = member._replace(offset=offset)
    if not found or (found == members and size == struct.size):
        return False
    struct.members, struct.size = found, size
    return True


def _number(link: Asks, expression: str) -> int | None:
    try:
        return int(link.ask("evaluate", expression))
    except LinkError:
        return None
