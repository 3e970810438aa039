"""What a mock device can do, asked of tensors in the real library's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.op import VIEW_OPS, Op, op_key
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib
from ggmltool.oracle.profile import BackendProfile
from ggmltool.oracle.structs import Tensor
from ggmltool.oracle.support_rules import decide

_EMPTY = frozenset((Op.NONE, *VIEW_OPS))
_BLAS_MIN = 32
_HADAMARD = 1
_NO_TO_FLOAT = frozenset(("i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"))

Rule = Callable[[Lib, int], bool]


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

    def supports_op(self, profile: BackendProfile, restricted: Mapping[int, frozenset[int]], address: int) -> bool:
        """Whether a device of `profile` runs the op; `restricted` are its buffer types with an op list."""
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
        supports = profile.supports
        if supports is not None:
            decided = decide(self.lib, supports.rules, key, address)
            if decided is not None:
                return decided
            if not supports.profile:
                return (key in supports.keys) != supports.exclude
        if profile.rules == "all":
            return True
        if profile.rules == "cpu":
            return bool(self.lib.ggml_backend_dev_supports_op(self.cpu_device, address))
        return RULES[profile.rules](self.lib, address)

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


RULES: dict[str, Rule] = {"blas": _blas}
"""Op rules of profiles other than custom and CPU: whether the device runs the op at an address."""
