"""ggml_op, ggml_unary_op and ggml_glu_op: the operations, their names and symbols, and what releases do otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Op(IntEnum):
    """ggml_op, with ggml's numbers."""

    NONE = 0
    DUP = 1
    ADD = 2
    ADD_ID = 3
    ADD1 = 4
    ACC = 5
    SUB = 6
    MUL = 7
    DIV = 8
    SQR = 9
    SQRT = 10
    LOG = 11
    SIN = 12
    COS = 13
    SUM = 14
    SUM_ROWS = 15
    CUMSUM = 16
    MEAN = 17
    ARGMAX = 18
    COUNT_EQUAL = 19
    REPEAT = 20
    REPEAT_BACK = 21
    CONCAT = 22
    SILU_BACK = 23
    NORM = 24
    RMS_NORM = 25
    RMS_NORM_BACK = 26
    GROUP_NORM = 27
    L2_NORM = 28
    MUL_MAT = 29
    MUL_MAT_ID = 30
    OUT_PROD = 31
    SCALE = 32
    SET = 33
    CPY = 34
    CONT = 35
    RESHAPE = 36
    VIEW = 37
    PERMUTE = 38
    TRANSPOSE = 39
    GET_ROWS = 40
    GET_ROWS_BACK = 41
    SET_ROWS = 42
    DIAG = 43
    DIAG_MASK_INF = 44
    DIAG_MASK_ZERO = 45
    SOFT_MAX = 46
    SOFT_MAX_BACK = 47
    ROPE = 48
    ROPE_BACK = 49
    CLAMP = 50
    CONV_TRANSPOSE_1D = 51
    IM2COL = 52
    IM2COL_BACK = 53
    IM2COL_3D = 54
    COL2IM_1D = 55
    CONV_2D = 56
    CONV_3D = 57
    CONV_2D_DW = 58
    CONV_TRANSPOSE_2D = 59
    POOL_1D = 60
    POOL_2D = 61
    POOL_2D_BACK = 62
    UPSCALE = 63
    PAD = 64
    PAD_REFLECT_1D = 65
    ROLL = 66
    ARANGE = 67
    TIMESTEP_EMBEDDING = 68
    ARGSORT = 69
    TOP_K = 70
    LEAKY_RELU = 71
    TRI = 72
    FILL = 73
    FLASH_ATTN_EXT = 74
    FLASH_ATTN_BACK = 75
    SSM_CONV = 76
    SSM_SCAN = 77
    WIN_PART = 78
    WIN_UNPART = 79
    GET_REL_POS = 80
    ADD_REL_POS = 81
    RWKV_WKV6 = 82
    GATED_LINEAR_ATTN = 83
    RWKV_WKV7 = 84
    SOLVE_TRI = 85
    GATED_DELTA_NET = 86
    LIGHTNING_INDEXER = 87
    DSV4_HC_COMB = 88
    DSV4_HC_PRE = 89
    DSV4_HC_POST = 90
    UNARY = 91
    MAP_CUSTOM1 = 92
    MAP_CUSTOM2 = 93
    MAP_CUSTOM3 = 94
    CUSTOM = 95
    CROSS_ENTROPY_LOSS = 96
    CROSS_ENTROPY_LOSS_BACK = 97
    OPT_STEP_ADAMW = 98
    OPT_STEP_SGD = 99
    GLU = 100


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


SYMBOLS: tuple[str, ...] = (
    "none",
    "x",
    "x+y",
    "x[i]+y",
    "x+y",
    "view(x,nb,offset)+=y->x",
    "x-y",
    "x*y",
    "x/y",
    "x^2",
    "√x",
    "log(x)",
    "sin(x)",
    "cos(x)",
    "Σx",
    "Σx_k",
    "cumsum(x)",
    "Σx/n",
    "argmax(x)",
    "count_equal(x)",
    "repeat(x)",
    "repeat_back(x)",
    "concat(x, y)",
    "silu_back(x)",
    "norm(x)",
    "rms_norm(x)",
    "rms_norm_back(x)",
    "group_norm(x)",
    "l2_norm(x)",
    "X*Y",
    "X[i]*Y",
    "X*Y",
    "x*v",
    "y-\\>view(x)",
    "x-\\>y",
    "cont(x)",
    "reshape(x)",
    "view(x)",
    "permute(x)",
    "transpose(x)",
    "get_rows(x)",
    "get_rows_back(x)",
    "set_rows(x)",
    "diag(x)",
    "diag_mask_inf(x)",
    "diag_mask_zero(x)",
    "soft_max(x)",
    "soft_max_back(x)",
    "rope(x)",
    "rope_back(x)",
    "clamp(x)",
    "conv_transpose_1d(x)",
    "im2col(x)",
    "im2col_back(x)",
    "im2col_3d(x)",
    "col2im_1d(x)",
    "conv_2d(x)",
    "conv_3d(x)",
    "conv_2d_dw(x)",
    "conv_transpose_2d(x)",
    "pool_1d(x)",
    "pool_2d(x)",
    "pool_2d_back(x)",
    "upscale(x)",
    "pad(x)",
    "pad_reflect_1d(x)",
    "roll(x)",
    "arange(start, stop, step)",
    "timestep_embedding(timesteps, dim, max_period)",
    "argsort(x)",
    "top_k(x)",
    "leaky_relu(x)",
    "tri(x)",
    "fill(x, c)",
    "flash_attn_ext(x)",
    "flash_attn_back(x)",
    "ssm_conv(x)",
    "ssm_scan(x)",
    "win_part(x)",
    "win_unpart(x)",
    "get_rel_pos(x)",
    "add_rel_pos(x)",
    "rwkv_wkv6(k, v, r, tf, td, s)",
    "gated_linear_attn(k, v, q, gate, s)",
    "rwkv_wkv7(r, w, k, v, a, b, s)",
    "A X = B, A triangular, solve X",
    "gated_delta_net(q, k, v, g, beta, s)",
    "lightning_indexer(q, k, weights, mask)",
    "dsv4_hc_comb(mixes, scale, base)",
    "dsv4_hc_pre(x, weights)",
    "dsv4_hc_post(x, residual, post, comb)",
    "unary(x)",
    "map_custom(x)",
    "map_custom(x,y)",
    "map_custom(x,y,z)",
    "custom(x)",
    "cross_entropy_loss(x,y)",
    "cross_entropy_loss_back(x,y)",
    "adamw(x)",
    "sgd(x)",
    "glu(x)",
)
"""ggml_op_symbol, by op number (used in ggml's dot files)."""

VIEW_OPS = frozenset((Op.VIEW, Op.RESHAPE, Op.PERMUTE, Op.TRANSPOSE))
"""The ops that compute nothing: views of their source."""

EMPTY_OPS = frozenset((Op.NONE, *VIEW_OPS))
"""ggml_op_is_empty: the ops that every device has, since they compute nothing."""

IS_VIEW_OP = bytes(op in VIEW_OPS for op in Op)
"""ggml_is_view_op, by op number."""

CUSTOM_OPS = frozenset((Op.MAP_CUSTOM1, Op.MAP_CUSTOM2, Op.MAP_CUSTOM3, Op.CUSTOM))
"""The ops that a function of the program computes."""

INPLACE_OPS = frozenset(
    (
        Op.FILL,
        Op.SCALE,
        Op.DIAG_MASK_ZERO,
        Op.DIAG_MASK_INF,
        Op.ADD,
        Op.ADD_ID,
        Op.ADD1,
        Op.SUB,
        Op.MUL,
        Op.DIV,
        Op.SQR,
        Op.SQRT,
        Op.LOG,
        Op.UNARY,
        Op.ROPE,
        Op.ROPE_BACK,
        Op.SILU_BACK,
        Op.RMS_NORM,
        Op.RMS_NORM_BACK,
        Op.SOFT_MAX,
        Op.SOFT_MAX_BACK,
    )
)
"""ggml_op_can_inplace: ops the graph allocator may compute in the memory of a source."""

CAN_INPLACE = bytes(op in INPLACE_OPS for op in Op)

FIRST_UNARY_KEY = len(Op)
FIRST_GLU_KEY = FIRST_UNARY_KEY + len(UnaryOp)
N_OP_KEYS = FIRST_GLU_KEY + len(GluOp)

KEY_NAMES: tuple[str, ...] = tuple(e.name.lower() for enum in (Op, UnaryOp, GluOp) for e in enum)
"""The lower-case name of every op key."""


def op_key(op: int, op_params: tuple[int, ...]) -> int:
    """The number that tells apart everything a device may support: the op, or the function of UNARY and GLU."""
    if op == Op.UNARY:
        sub = op_params[0] if op_params else 0
        return FIRST_UNARY_KEY + sub if 0 <= sub < len(UnaryOp) else op
    if op == Op.GLU:
        sub = op_params[0] if op_params else 0
        return FIRST_GLU_KEY + sub if 0 <= sub < len(GluOp) else op
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
