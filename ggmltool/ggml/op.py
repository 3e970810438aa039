"""ggml_op, ggml_unary_op and ggml_glu_op: the operations, their names and symbols, and what releases do otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self


class Op(IntEnum):
    """ggml_op, with ggml's numbers, each with its `symbol` in ggml's dot files (ggml_op_symbol)."""

    symbol: str

    def __new__(cls, number: int, symbol: str = "") -> Self:
        """The op of a number."""
        op = int.__new__(cls, number)
        op._value_, op.symbol = number, symbol
        return op

    NONE = 0, "none"
    DUP = 1, "x"
    ADD = 2, "x+y"
    ADD_ID = 3, "x[i]+y"
    ADD1 = 4, "x+y"
    ACC = 5, "view(x,nb,offset)+=y->x"
    SUB = 6, "x-y"
    MUL = 7, "x*y"
    DIV = 8, "x/y"
    SQR = 9, "x^2"
    SQRT = 10, "√x"
    LOG = 11, "log(x)"
    SIN = 12, "sin(x)"
    COS = 13, "cos(x)"
    SUM = 14, "Σx"
    SUM_ROWS = 15, "Σx_k"
    CUMSUM = 16, "cumsum(x)"
    MEAN = 17, "Σx/n"
    ARGMAX = 18, "argmax(x)"
    COUNT_EQUAL = 19, "count_equal(x)"
    REPEAT = 20, "repeat(x)"
    REPEAT_BACK = 21, "repeat_back(x)"
    CONCAT = 22, "concat(x, y)"
    SILU_BACK = 23, "silu_back(x)"
    NORM = 24, "norm(x)"
    RMS_NORM = 25, "rms_norm(x)"
    RMS_NORM_BACK = 26, "rms_norm_back(x)"
    GROUP_NORM = 27, "group_norm(x)"
    L2_NORM = 28, "l2_norm(x)"
    MUL_MAT = 29, "X*Y"
    MUL_MAT_ID = 30, "X[i]*Y"
    OUT_PROD = 31, "X*Y"
    SCALE = 32, "x*v"
    SET = 33, "y-\\>view(x)"
    CPY = 34, "x-\\>y"
    CONT = 35, "cont(x)"
    RESHAPE = 36, "reshape(x)"
    VIEW = 37, "view(x)"
    PERMUTE = 38, "permute(x)"
    TRANSPOSE = 39, "transpose(x)"
    GET_ROWS = 40, "get_rows(x)"
    GET_ROWS_BACK = 41, "get_rows_back(x)"
    SET_ROWS = 42, "set_rows(x)"
    DIAG = 43, "diag(x)"
    DIAG_MASK_INF = 44, "diag_mask_inf(x)"
    DIAG_MASK_ZERO = 45, "diag_mask_zero(x)"
    SOFT_MAX = 46, "soft_max(x)"
    SOFT_MAX_BACK = 47, "soft_max_back(x)"
    ROPE = 48, "rope(x)"
    ROPE_BACK = 49, "rope_back(x)"
    CLAMP = 50, "clamp(x)"
    CONV_TRANSPOSE_1D = 51, "conv_transpose_1d(x)"
    IM2COL = 52, "im2col(x)"
    IM2COL_BACK = 53, "im2col_back(x)"
    IM2COL_3D = 54, "im2col_3d(x)"
    COL2IM_1D = 55, "col2im_1d(x)"
    CONV_2D = 56, "conv_2d(x)"
    CONV_3D = 57, "conv_3d(x)"
    CONV_2D_DW = 58, "conv_2d_dw(x)"
    CONV_TRANSPOSE_2D = 59, "conv_transpose_2d(x)"
    POOL_1D = 60, "pool_1d(x)"
    POOL_2D = 61, "pool_2d(x)"
    POOL_2D_BACK = 62, "pool_2d_back(x)"
    UPSCALE = 63, "upscale(x)"
    PAD = 64, "pad(x)"
    PAD_REFLECT_1D = 65, "pad_reflect_1d(x)"
    ROLL = 66, "roll(x)"
    ARANGE = 67, "arange(start, stop, step)"
    TIMESTEP_EMBEDDING = 68, "timestep_embedding(timesteps, dim, max_period)"
    ARGSORT = 69, "argsort(x)"
    TOP_K = 70, "top_k(x)"
    LEAKY_RELU = 71, "leaky_relu(x)"
    TRI = 72, "tri(x)"
    FILL = 73, "fill(x, c)"
    FLASH_ATTN_EXT = 74, "flash_attn_ext(x)"
    FLASH_ATTN_BACK = 75, "flash_attn_back(x)"
    SSM_CONV = 76, "ssm_conv(x)"
    SSM_SCAN = 77, "ssm_scan(x)"
    WIN_PART = 78, "win_part(x)"
    WIN_UNPART = 79, "win_unpart(x)"
    GET_REL_POS = 80, "get_rel_pos(x)"
    ADD_REL_POS = 81, "add_rel_pos(x)"
    RWKV_WKV6 = 82, "rwkv_wkv6(k, v, r, tf, td, s)"
    GATED_LINEAR_ATTN = 83, "gated_linear_attn(k, v, q, gate, s)"
    RWKV_WKV7 = 84, "rwkv_wkv7(r, w, k, v, a, b, s)"
    SOLVE_TRI = 85, "A X = B, A triangular, solve X"
    GATED_DELTA_NET = 86, "gated_delta_net(q, k, v, g, beta, s)"
    LIGHTNING_INDEXER = 87, "lightning_indexer(q, k, weights, mask)"
    DSV4_HC_COMB = 88, "dsv4_hc_comb(mixes, scale, base)"
    DSV4_HC_PRE = 89, "dsv4_hc_pre(x, weights)"
    DSV4_HC_POST = 90, "dsv4_hc_post(x, residual, post, comb)"
    UNARY = 91, "unary(x)"
    MAP_CUSTOM1 = 92, "map_custom(x)"
    MAP_CUSTOM2 = 93, "map_custom(x,y)"
    MAP_CUSTOM3 = 94, "map_custom(x,y,z)"
    CUSTOM = 95, "custom(x)"
    CROSS_ENTROPY_LOSS = 96, "cross_entropy_loss(x,y)"
    CROSS_ENTROPY_LOSS_BACK = 97, "cross_entropy_loss_back(x,y)"
    OPT_STEP_ADAMW = 98, "adamw(x)"
    OPT_STEP_SGD = 99, "sgd(x)"
    GLU = 100, "glu(x)"


class UnaryOp(IntEnum):
    """ggml_unary_op: op_params[0] of a UNARY node."""

    ABS = 0
    SGN = 1
    NEG = 2
    STEP = 3
    TANH = 4
    ELU = 5
    RELU = 6
    SIGMOID = 7
    GELU = 8
    GELU_QUICK = 9
    SILU = 10
    HARDSWISH = 11
    HARDSIGMOID = 12
    EXP = 13
    EXPM1 = 14
    SOFTPLUS = 15
    GELU_ERF = 16
    XIELU = 17
    FLOOR = 18
    CEIL = 19
    ROUND = 20
    TRUNC = 21


class GluOp(IntEnum):
    """ggml_glu_op: op_params[0] of a GLU node."""

    REGLU = 0
    GEGLU = 1
    SWIGLU = 2
    SWIGLU_OAI = 3
    GEGLU_ERF = 4
    GEGLU_QUICK = 5
    SWIGLU_CLAMP = 6


VIEW_OPS = frozenset((Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE))
"""The ops that compute nothing: views of their source."""

EMPTY_OPS = frozenset((Op.NONE, *VIEW_OPS))
"""ggml_op_is_empty: the ops that every device has, since they compute nothing."""

IS_VIEW_OP = bytes(op in VIEW_OPS for op in Op)
"""ggml_is_view_op, by op number."""

CUSTOM_OPS = frozenset((Op.MAP_CUSTOM1, Op.MAP_CUSTOM2, Op.MAP_CUSTOM3, Op.CUSTOM))
"""The ops that a function of the program computes."""

INPLACE_OPS = frozenset((Op.FILL, Op.SCALE, Op.DIAG_MASK_ZERO, Op.DIAG_MASK_INF, Op.ADD, Op.ADD_ID, Op.ADD1, Op.SUB,
                         Op.MUL, Op.DIV, Op.SQR, Op.SQRT, Op.LOG, Op.UNARY, Op.ROPE, Op.ROPE_BACK, Op.SILU_BACK,
                         Op.RMS_NORM, Op.RMS_NORM_BACK, Op.SOFT_MAX, Op.SOFT_MAX_BACK))  # fmt: skip
"""ggml_op_can_inplace: ops the graph allocator may compute in the memory of a source."""

CAN_INPLACE = bytes(op in INPLACE_OPS for op in Op)

FIRST_UNARY_KEY = len(Op)
FIRST_GLU_KEY = FIRST_UNARY_KEY + len(UnaryOp)
N_OP_KEYS = FIRST_GLU_KEY + len(GluOp)

KEY_NAMES: tuple[str, ...] = tuple(e.name.lower() for enum in (Op, UnaryOp, GluOp) for e in enum)
"""The lower-case name of every op key."""


def op_key(op: int, op_params: tuple[int, ...]) -> int:
    """The number that tells apart everything a device may support: the op, or the function of UNARY and GLU."""
    if op == Op.UNARY or op == Op.GLU:
        first, n = (FIRST_UNARY_KEY, len(UnaryOp)) if op == Op.UNARY else (FIRST_GLU_KEY, len(GluOp))
        function = op_params[0] if op_params else 0
        return first + function if 0 <= function < n else op
    return op


_KEYS_BY_NAME: dict[str, tuple[int, ...]] = {name: (key,) for key, name in enumerate(KEY_NAMES)}
_KEYS_BY_NAME["unary"] = (int(Op.UNARY), *range(FIRST_UNARY_KEY, FIRST_GLU_KEY))
_KEYS_BY_NAME["glu"] = (int(Op.GLU), *range(FIRST_GLU_KEY, N_OP_KEYS))


def keys_of(name: str) -> tuple[int, ...]:
    """The op keys a name in a `supports` list stands for: one, or all of a family (`unary`, `glu`).

    Raises KeyError for a name that is no op.
    """
    return _KEYS_BY_NAME[name]


@dataclass(frozen=True, slots=True)
class OpRules:
    """What a ggml's constructors and kernels do one way, and another's the other way; by default as 0.20.2."""

    rope_has_offset: bool = False
    """Rows that ROPE turns have an offset, and without a pair to turn its kernel never ends."""
    clamp_is_new: bool = False
    """ggml_clamp makes a tensor of its own, where it was a view of its source, and ggml_clamp_inplace is the view; the
    kernel goes by all strides since then."""
    permute_is_int: bool = True
    """ggml_permute's extents and strides go through a C int."""
    streams_are_scaled: bool = False
    """ggml_dsv4_hc_pre leaves the scale of its sum and whether its weights are gates in op_params, and its kernel reads
    them."""
    comb_is_optional: bool = False
    """ggml_dsv4_hc_post can go without a comb."""
    counts_elements: bool = False
    """An assertion: a tensor's elements are counted."""
    bounds_acc: bool = False
    """An assertion: ggml_acc's offset is less than 1 GiB."""
    inputs_are_leafs: bool = False
    """An assertion: only a tensor without an op is flagged as an input."""
    has_bf16_functions: bool = False
    """The CPU has bf16 kernels for SCALE, the GLU functions of before and four of UNARY's."""
    widens_operand: bool = False
    """The CPU's MUL_MAT converts an operand of f16 or bf16 where the product is one of f32."""
    transforms_halves: bool = False
    """The CPU's product with a Hadamard matrix takes one of f16."""
    concat_takes_rows: bool = False
    """The CPU's CONCAT takes whole rows only."""
    checks_rows_back: bool = False
    """The CPU's GET_ROWS_BACK looks at its indices."""
    transposes_batches: bool = False
    """The CPU's CONV_TRANSPOSE_2D computes every image of a batch, not only the first."""


SHARED = OpRules()
"""Those of the shared engine, which is 0.20.2."""
