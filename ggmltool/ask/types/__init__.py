"""`types`: the types of ggml, one of them in full, and ggml's tables of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggmltool.ask.answer import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ggmltool.ask.types.record import TypeList, ValueTable


def types(name: str | None = None) -> Answer[TypeList] | Answer[Any]:
    """All types, or one in full: "q4_K". Raises InspectError if there is none of that name."""
    from msgspec.structs import asdict

    from ggmltool.ask.types.record import OneType, TypeList, find_type, type_info
    from ggmltool.ggml.dtypes import TYPES
    from ggmltool.ggml.releases.table import DEFAULT

    if name is None:
        return Answer(TypeList(ggml=DEFAULT.name, types=tuple(map(type_info, TYPES.values()))))
    info = type_info(find_type(name))
    return Answer(OneType(ggml=DEFAULT.name, **asdict(info)), info.name)


def table(name: str, indices: Iterable[int]) -> Answer[ValueTable]:
    """Entries of a table of values that ggml's CPU backend looks up."""
    from ggmltool.ask.types.record import value_table

    return Answer(value_table(name, indices), name)
