"""llama.cpp's test of a buffer type for a weight: does the device run the op that uses the weight, if it lies there?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.device import Device
from ggmltool.ggml.dtypes import F16, F32, I32, DType
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Dims, Tensor, contiguous_nb

_BATCH = 512
"""Tokens of the op that a buffer type is tested with."""
_SEQUENCES = 3


class Hparams(NamedTuple):
    """What the test needs to know of the model: experts that a token uses, heads and their size, the state's size."""

    n_expert_used: int = 1
    n_embd_head: int = 64
    n_head: int = 1
    ssm_d_state: int = 1
    ssm_head_dim: int = 1
    ssm_n_group: int = 1


def _tensor(type: DType, *ne: int) -> Tensor:
    dims: Dims = (*ne, 1, 1, 1, 1)[:4]  # type: ignore[assignment]
    return Tensor(type, dims, contiguous_nb(type, dims))


def _op(op: Op, ne: Sequence[int], *src: Tensor, type: DType = F32, op_params: tuple[int, ...] = ()) -> Tensor:
    t = _tensor(type, *ne)
    t.set_op(op, op_params, *src)
    return t


def _get_rows(w: Tensor, _: Hparams) -> Tensor:
    type = I32 if w.type is I32 else F32
    return _op(Op.GET_ROWS, (w.ne[0], _BATCH), w, _tensor(I32, _BATCH), type=type)


def _mul_mat(w: Tensor, _: Hparams) -> Tensor:
    x = _tensor(F32, w.ne[0], _BATCH, w.ne[2], w.ne[3])
    return _op(Op.MUL_MAT, (w.ne[1], _BATCH, w.ne[2], w.ne[3]), w, x)


def _mul_mat_id(w: Tensor, h: Hparams) -> Tensor:
    x, ids = _tensor(F32, w.ne[0], h.n_expert_used, _BATCH), _tensor(I32, h.n_expert_used, _BATCH)
    return _op(Op.MUL_MAT_ID, (w.ne[1], h.n_expert_used, _BATCH), w, x, ids)


def _add_id(w: Tensor, h: Hparams) -> Tensor:
    ne = (w.ne[0], h.n_expert_used, _BATCH)
    return _op(Op.ADD_ID, ne, _tensor(F32, *ne), w, _tensor(I32, h.n_expert_used, _BATCH))


def _binary(op: Op) -> Callable[[Tensor, Hparams], Tensor]:
    return lambda w, _: _op(op, w.ne, _tensor(F32, *w.ne), w)


def _div(w: Tensor, _: Hparams) -> Tensor:
    return _op(Op.DIV, (w.ne[0],), _tensor(F32, w.ne[0]), w)


def _rope(w: Tensor, h: Hparams) -> Tensor:
    ne = (h.n_embd_head, h.n_head, _BATCH)
    return _op(Op.ROPE, ne, _tensor(F32, *ne), _tensor(I32, _BATCH), w)


def _ssm_conv(w: Tensor, _: Hparams) -> Tensor:
    x = _tensor(F32, w.ne[0] - 1 + _BATCH, w.ne[1], _SEQUENCES)
    return _op(Op.SSM_CONV, (w.ne[1], _BATCH, _SEQUENCES), x, w)


def _ssm_scan(w: Tensor, h: Hparams) -> Tensor:
    d_state = h.ssm_d_state if w.ne[0] == 1 else w.ne[0]
    head, n_head, n = h.ssm_head_dim, w.ne[1], _BATCH * _SEQUENCES
    state = _tensor(F32, d_state, head, n_head, _SEQUENCES)
    x = _tensor(F32, head, n_head, _BATCH, _SEQUENCES)
    dt = _tensor(F32, n_head, _BATCH, _SEQUENCES)
    b, c = (_tensor(F32, d_state, h.ssm_n_group, _BATCH, _SEQUENCES) for _ in range(2))
    size = head * n_head * n + d_state * head * n_head * _SEQUENCES
    return _op(Op.SSM_SCAN, (size,), state, x, dt, w, b, c, _tensor(I32, _SEQUENCES), op_params=(1,))


def _rwkv_wkv6(w: Tensor, _: Hparams) -> Tensor:
    n = 123
    k, v, r, decay = (_tensor(F32, n, n, n) for _ in range(4))
    return _op(Op.RWKV_WKV6, (n * n, n + n * n), k, v, r, w, decay, _tensor(F32, n, n, n, n))


def _im2col(w: Tensor, h: Hparams) -> Tensor:
    columns = h.n_embd_head * h.n_head
    x = _tensor(F32, columns, w.ne[1])
    return _op(Op.IM2COL, (w.ne[0] * w.ne[1], columns - w.ne[0] + 1), w, x, type=F16, op_params=(1, 0, 0, 0, 1))


def _scale(w: Tensor, _: Hparams) -> Tensor:
    return _op(Op.SCALE, w.ne, w, type=w.type)


_TESTS: dict[Op, Callable[[Tensor, Hparams], Tensor]] = {
    Op.GET_ROWS: _get_rows,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.ADD: _binary(Op.ADD),
    Op.ADD_ID: _add_id,
    Op.MUL: _binary(Op.MUL),
    Op.DIV: _div,
    Op.ROPE: _rope,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_SCAN: _ssm_scan,
    Op.RWKV_WKV6: _rwkv_wkv6,
    Op.IM2COL: _im2col,
    Op.SCALE: _scale,
}


def weight_buft_supported(device: Device, buft: BufferType, op: Op, type: DType, ne: Dims, hparams: Hparams) -> bool:
    """weight_buft_supported: whether `device` runs `op` with a weight of this shape that lies in `buft`."""
    w = Tensor(type, ne, contiguous_nb(type, ne))
    t = _TESTS[op](w, hparams)
    if buft.ops is not None and t.src[0] is not w:
        return False
    w.buffer = Buffer(buft, 0, AddressSpace())
    return device.supports_op(t)
