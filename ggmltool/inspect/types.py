"""A type of ggml in full: its block, its size, what it is converted to and multiplied with."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.dtypes import NO_FROM_FLOAT_REF, NO_TO_FLOAT, NO_VEC_DOT, TYPES, TYPES_BY_ID, DType
from ggmltool.inspect.errors import InspectError
from ggmltool.scenario.encoded import can_decode, can_encode
from ggmltool.scenario.errors import did_you_mean, quoted


class TypeInfo(NamedTuple):
    """A ggml_type and what its traits have.

    `vec_dot` is the type of the other operand ("" for no vec_dot), `from_float` is the CPU's; `reads` and `writes` say
    what ggmltool can convert itself.
    """

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

    @property
    def bits(self) -> float:
        """Bits per element."""
        return self.type_size * 8 / self.block_size


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
        type.id,
        type.name,
        type.block_size,
        type.type_size,
        type.quantized,
        type not in NO_TO_FLOAT,
        type not in NO_FROM_FLOAT_REF,
        type.from_float,
        "" if type in NO_VEC_DOT else type.vec_dot_type,
        can_decode(type),
        can_encode(type),
    )
