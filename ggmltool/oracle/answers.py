"""What a mock device answers of tensors in the real library's memory, asked with the library's own functions."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Literal

from ggmltool.ggml.devices.cases import OwnSupports
from ggmltool.ggml.devices.conditions import EVERY_SOURCE, RESULT, Conditions, SupportRule
from ggmltool.ggml.devices.recorded import RECORDED
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.op import VIEW_OPS, Op, op_key
from ggmltool.ggml.tensor import MAX_SRC
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.structs import Tensor
from ggmltool.scenario.spec import BackendSpec

Rules = Literal["all", "cpu", "blas", "engine"]
"""Whose rules on ops hold where a scenario has none: none, the real CPU's, BLAS's, or the engine's table."""


def rules_of(spec: BackendSpec) -> Rules:
    """Who answers for a device."""
    if spec.profile == RECORDED or (spec.supports is not None and spec.supports.cases is not None):
        return "engine"
    known: dict[str, Rules] = {"cpu": "cpu", "blas": "blas", "custom": "all"}
    return known.get(spec.family.lower(), "engine")


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


_EMPTY = frozenset((Op.NONE, *VIEW_OPS))
_BLAS_MIN = 32
_HADAMARD = 1
_NO_TO_FLOAT = frozenset(("i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"))


def constant_true(lib: Lib) -> int:
    """A C function that answers 1 to everything, for callbacks whose answer never changes.

    It is the CPU registry's device count, which looks at no argument.
    """
    reg = lib.ggml_backend_cpu_reg()
    get_device_count = ctypes.c_void_p.from_address(reg + 16).value
    if get_device_count is None:
        raise ValueError("the CPU registry has no device count")
    function = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)(get_device_count)
    if function(None, None) != 1:
        raise ValueError("the CPU registry counts more than one device")
    return get_device_count


class Capabilities:
    """The answers of mock devices that need a look at the op."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.cpu_device: int = lib.ggml_backend_reg_dev_get(lib.ggml_backend_cpu_reg(), 0)

    def supports_op(
        self, rules: Rules, supports: OwnSupports | None, restricted: Mapping[int, frozenset[int]], address: int
    ) -> bool:
        """Whether a device runs the op, by what the scenario says of it; `restricted` are its buffer types with an op
        list."""
        op = Tensor.from_address(address)
        number: int = op.op
        if number in _EMPTY:
            return True
        key = op_key(number, tuple(op.op_params[:1]))
        if restricted and op.src[0]:
            buffer = Tensor.from_address(op.src[0]).buffer
            ops = restricted.get(structs.Buffer.from_address(buffer).buft) if buffer else None
            if ops is not None:
                return key in ops
        if supports is not None:
            decided = decide(self.lib, supports.rules, key, address)
            if decided is not None:
                return decided
            if not supports.profile:
                return (key in supports.keys) != supports.exclude
        if rules == "all":
            return True
        if rules == "cpu":
            return bool(self.lib.ggml_backend_dev_supports_op(self.cpu_device, address))
        return _blas(self.lib, address)

    def batch_size(self, address: int) -> int:
        """The batch size that `offload_min_batch` is compared with."""
        op = Tensor.from_address(address)
        ne = op.ne
        if op.op == Op.GET_ROWS:
            return 0
        if op.op == Op.MUL_MAT:
            return int(ne[1])
        if op.op in (Op.MUL_MAT_ID, Op.ROPE, Op.ROPE_BACK):
            return int(ne[2])
        return int(ne[1] * ne[2] * ne[3])

    def padded_size(self, address: int, row_padding: int) -> int:
        """Bytes of a tensor in a type that pads quantized rows to a multiple of `row_padding` elements."""
        size = int(self.lib.ggml_nbytes(address))
        tensor = Tensor.from_address(address)
        rest = tensor.ne[0] % row_padding if row_padding else 0
        if rest and self.lib.ggml_is_quantized(tensor.type):
            size += int(self.lib.ggml_row_size(tensor.type, row_padding - rest))
        return size


def _blas(lib: Lib, address: int) -> bool:
    op = Tensor.from_address(address)
    if op.op == Op.MUL_MAT:
        b = Tensor.from_address(op.src[1])
        return bool(
            op.op_params[1] != _HADAMARD
            and lib.ggml_is_contiguous(op.src[0])
            and lib.ggml_is_contiguous(op.src[1])
            and b.type == 0
            and min(op.ne[0], op.ne[1], b.ne[0]) >= _BLAS_MIN
            and TYPES_BY_ID[Tensor.from_address(op.src[0]).type].name not in _NO_TO_FLOAT
        )
    if op.op == Op.OUT_PROD:
        a, b = Tensor.from_address(op.src[0]), Tensor.from_address(op.src[1])
        return bool(
            a.type == 0
            and b.type == 0
            and max(a.ne[2], a.ne[3], b.ne[2], b.ne[3]) == 1
            and lib.ggml_is_contiguous(op.src[0])
            and (lib.ggml_is_contiguous(op.src[1]) or lib.ggml_is_transposed(op.src[1]))
        )
    return False
