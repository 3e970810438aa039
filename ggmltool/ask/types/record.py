"""The types of ggml: their blocks, sizes, what they are converted to and multiplied with; and its tables of values."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Literal

from ggmltool.ggml.dtypes import NO_FROM_FLOAT_REF, NO_TO_FLOAT, NO_VEC_DOT, TYPES, TYPES_BY_ID, DType
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.scenario.encoded import can_decode, can_encode
from ggmltool.scenario.errors import did_you_mean, quoted
from ggmltool.show.document import Number, ReleaseDocument, Row, document_of
from ggmltool.state.errors import InspectError

_FLOATS = {"f16": "He", "f32": "If"}
"""How the bits of a type are packed, and its value unpacked."""


class TypeInfo(Row, kw_only=True):
    """A type: elements and bytes of a block, what ggml can convert (`from_float` is the CPU's) and multiply it with
    (`vec_dot`: the type of the other operand, "" for none), what ggmltool `reads` and `writes` itself."""

    number: int
    name: str
    block_size: int
    type_size: int
    quantized: bool
    to_float: bool
    from_float_ref: bool
    from_float: bool
    vec_dot: str
    reads: bool
    writes: bool
    bits_per_element: float


class TypeList(ReleaseDocument, kw_only=True):
    """`types --json`: all types of ggml, by number."""

    view = "types"
    kind: Literal["types"] = "types"
    types: tuple[TypeInfo, ...]


class OneType(document_of(TypeInfo), kw_only=True):  # type: ignore[misc, call-arg]
    """`types NAME --json`: a type in full."""

    view = "type_in_full"
    kind: Literal["type"] = "type"


class TableEntry(Row):
    """An entry of a table: its index, the number `x` that has those bits (null where an index is none), the value and
    its bits."""

    index: int
    x: Number | None
    value: Number
    bits: int


class ValueTable(ReleaseDocument, kw_only=True):
    """`types --table NAME --json`: a table of values that ggml looks up, with exact bits."""

    view = "value_table"
    kind: Literal["table"] = "table"
    name: str
    symbol: str
    index_bits: int
    type: str
    text: str
    note: str
    entries: tuple[TableEntry, ...]


def find_type(name: str) -> DType:
    """The type of this name or number. Raises InspectError if there is none."""
    asked = name.lower().removeprefix("ggml_type_")
    by_name = {type.name.lower(): type for type in TYPES.values()}
    found = by_name.get(asked)
    if found is None and asked.isascii() and asked.isdigit() and len(asked) < 4:
        found = TYPES_BY_ID.get(int(asked))
    if found is None:
        near = next((name for name in TYPES if name.lower().replace("_", "") == asked.replace("_", "")), None)
        hint = f"did you mean {quoted(near)}?" if near else did_you_mean(asked, TYPES) or "`ggmltool types` lists them."
        raise InspectError(f"no type is called {quoted(name)}; {hint}")
    return found


def type_info(type: DType) -> TypeInfo:
    """What ggml can do with values of a type, and what is converted here."""
    return TypeInfo(
        number=type.id,
        name=type.name,
        block_size=type.block_size,
        type_size=type.type_size,
        quantized=type.quantized,
        to_float=type not in NO_TO_FLOAT,
        from_float_ref=type not in NO_FROM_FLOAT_REF,
        from_float=type.from_float,
        vec_dot="" if type in NO_VEC_DOT else type.vec_dot_type,
        reads=can_decode(type),
        writes=can_encode(type),
        bits_per_element=type.type_size * 8 / type.block_size,
    )


def value_table(name: str, indices: Iterable[int]) -> ValueTable:
    """The entries of one of ggml's tables at these indices."""
    from ggmltool.ggml.ops.cpu.tables import TABLES, table_bits

    table, bits = TABLES[name], table_bits(name)
    entries = tuple(
        TableEntry(
            index,
            value_of(index, "f16") if table.index_bits == 16 else None,
            value_of(int(bits[index]), table.type),
            int(bits[index]),
        )
        for index in indices
    )
    return ValueTable(
        ggml=DEFAULT.name,
        name=name,
        symbol=table.symbol,
        index_bits=table.index_bits,
        type=table.type,
        text=table.text,
        note=table.note,
        entries=entries,
    )


def value_of(bits: int, type: str) -> float:
    """The number with these bits, as f16 or f32."""
    return float(struct.unpack(f"<{_FLOATS[type][1]}", struct.pack(f"<{_FLOATS[type][0]}", bits))[0])
