"""A scenario's rules on ops, asked of tensors in the real library's memory with the library's own functions."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.devices.conditions import Conditions, SupportRule
from ggmltool.ggml.devices.operands import EVERY_SOURCE, RESULT
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Tensor


def decide(lib: Lib, rules: Sequence[SupportRule], key: int, address: int) -> bool | None:
    """What the rules say of the op at an address; None if it has none, and those for every op are kept."""
    if not all(_holds(lib, rule, address) for rule in rules if rule.keys is None):
        return False
    own = [rule for rule in rules if rule.keys is not None and key in rule.keys]
    return any(_holds(lib, rule, address) for rule in own) if own else None


def _holds(lib: Lib, rule: SupportRule, address: int) -> bool:
    for operand, conditions in rule.operands:
        for i in range(MAX_SRC) if operand == EVERY_SOURCE else (operand,):
            there = _operand(address, i)
            if conditions.present not in (None, there is not None):
                return False
            if there is not None and not _meets(lib, conditions, there):
                return False
    same_type = [Tensor.from_address(a).type for a in _given(address, rule.same_type)]
    shapes = _given(address, rule.same_shape)
    return len(set(same_type)) <= 1 and all(lib.ggml_are_same_shape(shapes[0], other) for other in shapes[1:])


def _operand(address: int, i: int) -> int | None:
    """The address of the result or a source; None for an empty slot."""
    source: int | None = address if i == RESULT else Tensor.from_address(address).src[i]
    return source


def _given(address: int, operands: Sequence[int]) -> list[int]:
    return [a for a in (_operand(address, i) for i in operands) if a is not None]


def _meets(lib: Lib, conditions: Conditions, address: int) -> bool:
    t = Tensor.from_address(address)
    if conditions.types is not None and all(t.type != type.id for type in conditions.types):
        return False
    if conditions.contiguous is not None and not _CONTIGUOUS[conditions.contiguous](lib, address):
        return False
    for number, (low, high, multiple, among) in conditions.numbers:
        n = _number(lib, t, address, number)
        if (low is not None and n < low) or (high is not None and n > high):
            return False
        if (multiple is not None and n % multiple) or (among is not None and n not in among):
            return False
    return True


def _number(lib: Lib, t: Tensor, address: int, number: str) -> int:
    if number == "rows":
        return int(lib.ggml_nrows(address))
    if number == "bytes":
        return int(lib.ggml_nbytes(address))
    return int((t.ne if number.startswith("ne") else t.nb)[int(number[2])])


_CONTIGUOUS = {
    "all": lambda lib, address: lib.ggml_is_contiguous(address),
    "from 1": lambda lib, address: lib.ggml_is_contiguous_1(address),
    "from 2": lambda lib, address: lib.ggml_is_contiguous_2(address),
    "rows": lambda lib, address: lib.ggml_is_contiguous_rows(address),
}
