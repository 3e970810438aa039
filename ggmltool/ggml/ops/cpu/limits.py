"""What ggml's CPU refuses when it computes: element types and layouts that its kernels do not have.

A constructor accepts these, and other devices may compute them. `check` is asked before a kernel runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlError, NotComputable
from ggmltool.ggml.op import GluOp, Op, OpRules, UnaryOp
from ggmltool.ggml.ops.cpu import limits_matrix
from ggmltool.ggml.ops.cpu.limits_matrix import Check, RuledCheck, ask, fatal, refuse
from ggmltool.ggml.ops.operands import param_i32, show, source
from ggmltool.ggml.tensor import Tensor, are_same_shape, is_contiguous, is_contiguous_1, is_contiguous_rows, op_desc

_FLOATS = frozenset(("f32", "f16", "bf16"))
_QUANTIZED = frozenset(t.name for t in TYPES.values() if t.quantized and t.name not in ("q8_1", "q8_K"))
_BINARY = frozenset(
    (
        ("f32", "f32", "f32"),
        ("f16", "f16", "f16"),
        ("f16", "f32", "f16"),
        ("f16", "f32", "f32"),
        ("bf16", "bf16", "bf16"),
        ("bf16", "f32", "bf16"),
        ("bf16", "f32", "f32"),
    )
)
"""Types of the first operand, the second and the result."""

_TYPES: dict[int, frozenset[str]] = {
    Op[name]: frozenset(types)
    for types, names in (
        (_FLOATS | _QUANTIZED, "ADD"),
        (_FLOATS | _QUANTIZED | {"q8_1"}, "ADD1"),
        ({"f32", "i32"}, "SET"),
        (_FLOATS, "SQR SQRT LOG SIN COS SUM"),
        ({"f32", "f16"}, "CLAMP LEAKY_RELU SILU_BACK"),
        ({"i32"}, "COUNT_EQUAL"),
        (_FLOATS | {"i16", "i32"}, "REPEAT"),
        ({"f32"}, "SUM_ROWS MEAN ARGMAX REPEAT_BACK NORM RMS_NORM RMS_NORM_BACK GROUP_NORM L2_NORM SOFT_MAX"),
        ({"f32"}, "SOFT_MAX_BACK DIAG_MASK_INF DIAG_MASK_ZERO CROSS_ENTROPY_LOSS CROSS_ENTROPY_LOSS_BACK DIAG PAD"),
        ({"f32"}, "ROLL TIMESTEP_EMBEDDING ARGSORT TOP_K WIN_PART WIN_UNPART ADD_REL_POS OPT_STEP_ADAMW"),
        ({"f16", "bf16"}, "GET_REL_POS"),
    )
    for name in names.split()
}
"""For each op the types its first source may have: for another ggml aborts with "fatal error"."""

_UNARY_OPS = frozenset((Op.SQR, Op.SQRT, Op.LOG, Op.SIN, Op.COS))


def check(dst: Tensor, rules: OpRules) -> None:
    """Raise GgmlAssert or GgmlAbort, in ggml's words, where the CPU backend of this ggml would not compute `dst`."""
    try:
        _check(dst, rules)
    except NotComputable:
        raise
    except GgmlError as error:
        error.explanation += (
            f"\nthe CPU is to compute {dst.label} ({op_desc(dst)}): before it, `cont` gives a source a plain layout, "
            "`cast` another type; or leave the op to a device that takes it as it is"
        )
        raise


def _check(dst: Tensor, rules: OpRules) -> None:
    a = dst.src[0] if dst.src else None
    if a is None:
        return
    types = _TYPES.get(dst.op)
    if types is not None and a.type.name not in types:
        name = "soft_max_ext_back" if dst.op == Op.SOFT_MAX_BACK else Op(dst.op).name.lower()
        raise _only_for("unary_op" if dst.op in _UNARY_OPS else f"ggml_compute_forward_{name}", a, types)
    if dst.op in _ALL:
        _ALL[dst.op](dst)
    elif dst.op in _RULED:
        _RULED[dst.op](dst, rules)


def _only_for(function: str, a: Tensor, types: Iterable[str]) -> GgmlAbort:
    return fatal(function, a, f"the CPU has no such kernel for {show(a)}, only for {', '.join(sorted(types))}")


def _packed(function: str, t: Tensor, condition: str) -> None:
    """The elements of a row lie side by side."""
    ask(t.nb[0] == t.type.type_size, function, condition, t)


def _binary(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if (a.type.name, b.type.name, dst.type.name) not in _BINARY:
        raise GgmlAbort(
            "binary_op",
            f"binary_op: unsupported types: dst: {dst.type.name}, src0: {a.type.name}, src1: {b.type.name}\n",
            explanation=f"the CPU has no such kernel for {show(a)} and {show(b)}",
        )
    _packed("apply_binary_op", dst, "nb0 == sizeof(dst_t)")
    _packed("apply_binary_op", a, "nb00 == sizeof(src0_t)")


def _add(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if not a.type.quantized:
        _binary(dst)
        return
    function = "ggml_compute_forward_add_q_f32"
    ask(are_same_shape(a, b), function, "ggml_are_same_shape(src0, src1) && ggml_are_same_shape(src0, dst)", b)
    _packed(function, a, "nb00 == ggml_type_size(type)")
    ask(b.nb[0] == 4, function, "nb10 == sizeof(float)", b)
    for i in range(3):
        ask(dst.nb[i] <= dst.nb[i + 1], function, f"nb{i} <= nb{i + 1}", dst)
    ask(b.type is F32, function, "src1->type == GGML_TYPE_F32", b)


def _add1(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if a.type.quantized and b.type is not F32:
        raise refuse("ggml_compute_forward_add1_q_f32", "src1->type == GGML_TYPE_F32", b)
    if a.type.name in ("f16", "bf16") and b.type is not F32 and b.type is not a.type:
        raise fatal("ggml_compute_forward_add1", b)


def _add_id(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = "ggml_compute_forward_add_id_f32"
    if a.type is not F32:
        raise GgmlAbort(
            "ggml_compute_forward_add_id",
            f"unsupported type for ggml_compute_forward_add_id: {a.type.name}",
            explanation=f"the CPU has no such kernel for {show(a)}",
        )
    ask(b.type is F32, function, "src1->type == GGML_TYPE_F32", b)
    _packed(function, a, "src0->nb[0] == sizeof(float)")
    _packed(function, b, "src1->nb[0] == sizeof(float)")


def _unary_rows(dst: Tensor) -> None:
    a = source(dst)
    function = "apply_unary_op"
    ask(
        is_contiguous_rows(a) and is_contiguous_rows(dst),
        function,
        "ggml_is_contiguous_rows(src0) && ggml_is_contiguous_rows(dst) && ggml_are_same_shape(src0, dst)",
        a,
    )
    _packed(function, dst, "nb0 == sizeof(dst_t)")
    _packed(function, a, "nb00 == sizeof(src0_t)")


_HALF_ONLY: dict[int, str] = {
    UnaryOp.GELU: "ggml_compute_forward_gelu",
    UnaryOp.GELU_ERF: "ggml_compute_forward_gelu_erf",
    UnaryOp.GELU_QUICK: "ggml_compute_forward_gelu_quick",
    UnaryOp.SILU: "ggml_compute_forward_silu",
}
"""The unary functions that are computed row by row, and had no bf16 kernel at first."""


def _floats(rules: OpRules) -> tuple[str, ...]:
    """The types of the functions that got bf16 kernels late."""
    return ("f32", "f16", "bf16") if rules.has_bf16_functions else ("f32", "f16")


def _unary(dst: Tensor, rules: OpRules) -> None:
    a, op = source(dst), param_i32(dst, 0)
    function = _HALF_ONLY.get(op)
    if function is not None:
        if a.type.name not in _floats(rules):
            raise fatal(function, a)
        return
    if a.type.name not in _FLOATS:
        raise fatal("unary_op_functor" if op == UnaryOp.XIELU else "unary_op", a)
    if op != UnaryOp.XIELU:
        _unary_rows(dst)
        return
    function = "apply_unary_op_functor"
    if not is_contiguous_1(a):
        condition = "ggml_is_contiguous_1(src0) && ggml_is_contiguous_1(dst) && ggml_are_same_shape(src0, dst)"
        raise refuse(function, condition, a)
    _packed(function, a, "nb00 == sizeof(src0_t)")


_GLU_TYPES = {int(GluOp.SWIGLU_OAI): ("f32",), int(GluOp.SWIGLU_CLAMP): ("f32", "f16")}


def _glu(dst: Tensor, rules: OpRules) -> None:
    a, op = source(dst), param_i32(dst, 0)
    types = _GLU_TYPES.get(op) or _floats(rules)
    if 0 <= op < len(GluOp) and a.type.name not in types:
        raise fatal(f"ggml_compute_forward_{GluOp(op).name.lower()}", a)


def _set(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = f"ggml_compute_forward_set_{a.type.name}"
    ask(is_contiguous(dst) and is_contiguous(a), function, "ggml_is_contiguous(dst) && ggml_is_contiguous(src0)", a)
    ask(b.nb[0] == 4, function, "nb10 == sizeof(float)" if a.type is F32 else "nb10 == sizeof(int32_t)", b)


def _acc(dst: Tensor) -> None:
    b = source(dst, 1)
    ask(b.nb[0] == 4, "ggml_compute_forward_acc_f32", "nb10 == sizeof(float)", b)


def _scale(dst: Tensor, rules: OpRules) -> None:
    a = source(dst)
    types = ("f32", "bf16") if rules.has_bf16_functions else ("f32",)
    if a.type.name not in types:
        raise _only_for("ggml_compute_forward_scale", a, types)
    ask(is_contiguous(a), f"ggml_compute_forward_scale_{a.type.name}", "ggml_is_contiguous(src0)", a)


def _clamp(dst: Tensor) -> None:
    a = source(dst)
    name = "float" if a.type is F32 else "ggml_fp16_t"
    _packed(f"ggml_compute_forward_clamp_{a.type.name}", dst, f"nb0 == sizeof({name})")


def _packed_source(function: str, condition: str) -> Check:
    def check_rows(dst: Tensor) -> None:
        _packed(function, source(dst), condition)

    return check_rows


def _repeat(dst: Tensor) -> None:
    a = source(dst)
    kind, c = ("f32", "float") if a.type.type_size == 4 else ("f16", "ggml_fp16_t")
    _packed(f"ggml_compute_forward_repeat_{kind}", a, f"nb00 == sizeof({c})")


def _count_equal(dst: Tensor) -> None:
    b = source(dst, 1)
    ask(b.type.name == "i32", "ggml_compute_forward_count_equal_i32", "src1->type == GGML_TYPE_I32", b)


def _rms_norm_back(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = "ggml_compute_forward_rms_norm_back_f32"
    ask(are_same_shape(a, b), function, "ggml_are_same_shape(src0, dst) && ggml_are_same_shape(src0, src1)", b)
    _packed(function, a, "src0->nb[0] == sizeof(float)")
    _packed(function, b, "src1->nb[0] == sizeof(float)")


def _contiguous(function: str, *names: tuple[str, int]) -> Check:
    """The result and the sources (by their names in ggml and their slots) are contiguous, in this order."""

    def check_all(dst: Tensor) -> None:
        for name, i in names:
            t = dst if i < 0 else source(dst, i)
            ask(is_contiguous(t), function, f"ggml_is_contiguous({name})", t)

    return check_all


def _soft_max_back(dst: Tensor) -> None:
    function = "ggml_compute_forward_soft_max_ext_back_f32"
    _contiguous(function, ("src0", 0), ("src1", 1), ("dst", -1))(dst)
    ask(are_same_shape(source(dst, 1), dst), function, "ggml_are_same_shape(src1, dst)", source(dst, 1))


def _diag_mask(dst: Tensor) -> None:
    a = source(dst)
    function = "ggml_compute_forward_diag_mask_f32"
    ask(a.data == dst.data or is_contiguous(a), function, "ggml_is_contiguous(dst) && ggml_is_contiguous(src0)", a)
    _packed(function, dst, "dst->nb[0] == sizeof(float)")
    _packed(function, a, "src0->nb[0] == sizeof(float)")


def _cross_entropy_loss(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = "ggml_compute_forward_cross_entropy_loss_f32"
    ask(b.type is F32, function, "src1->type == GGML_TYPE_F32", b)
    _packed(function, a, "src0->nb[0] == ggml_type_size(src0->type)")
    _packed(function, b, "src1->nb[0] == ggml_type_size(src1->type)")


def _opt_step_sgd(dst: Tensor) -> None:
    a = source(dst)
    if a.type is not F32:
        raise GgmlAbort(
            "ggml_compute_forward_opt_step_sgd",
            "fatal error - sgd is F32 only",
            explanation=f"the CPU has no such kernel for {show(a)}",
        )
    _packed("ggml_compute_forward_opt_step_sgd_f32", a, "nb00 == sizeof(float)")


_BY_ELEMENT = frozenset(("f32", "i32", "f16", "bf16", "i16", "i8"))
"""Types that CONCAT copies element by element in every ggml."""


def _concat(dst: Tensor, rules: OpRules) -> None:
    for i in (0, 1):
        t = source(dst, i)
        in_rows = t.type.name not in _BY_ELEMENT if rules.concat_takes_rows else t.type.quantized
        if in_rows and not is_contiguous_rows(t):
            function = "ggml_compute_forward_concat" + ("_any" if rules.concat_takes_rows else "")
            raise refuse(function, f"ggml_is_contiguous_rows(src{i})", t)


_CHECKS: dict[int, Check] = {
    Op.ADD: _add,
    Op.ADD1: _add1,
    Op.ADD_ID: _add_id,
    Op.ACC: _acc,
    Op.SET: _set,
    Op.SUB: _binary,
    Op.MUL: _binary,
    Op.DIV: _binary,
    Op.SQR: _unary_rows,
    Op.SQRT: _unary_rows,
    Op.LOG: _unary_rows,
    Op.SIN: _unary_rows,
    Op.COS: _unary_rows,
    Op.CLAMP: _clamp,
    Op.SUM_ROWS: _packed_source("ggml_compute_forward_sum_rows_f32", "src0->nb[0] == sizeof(float)"),
    Op.CUMSUM: _packed_source("ggml_compute_forward_cumsum_f32", "src0->nb[0] == sizeof(float)"),
    Op.COUNT_EQUAL: _count_equal,
    Op.REPEAT: _repeat,
    Op.REPEAT_BACK: _packed_source("ggml_compute_forward_repeat_back_f32", "nb00 == sizeof(float)"),
    Op.RMS_NORM: _packed_source("ggml_compute_forward_rms_norm_f32", "src0->nb[0] == sizeof(float)"),
    Op.RMS_NORM_BACK: _rms_norm_back,
    Op.GROUP_NORM: _packed_source("ggml_compute_forward_group_norm_f32", "src0->nb[0] == sizeof(float)"),
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.DIAG_MASK_INF: _diag_mask,
    Op.DIAG_MASK_ZERO: _diag_mask,
    Op.CROSS_ENTROPY_LOSS: _cross_entropy_loss,
    Op.CROSS_ENTROPY_LOSS_BACK: _contiguous(
        "ggml_compute_forward_cross_entropy_loss_back_f32", ("dst", -1), ("src0f", 1), ("src1f", 2), ("grad", 0)
    ),
    Op.OPT_STEP_ADAMW: _packed_source("ggml_compute_forward_opt_step_adamw_f32", "nb00 == sizeof(float)"),
    Op.OPT_STEP_SGD: _opt_step_sgd,
    Op.DIAG: _packed_source("ggml_compute_forward_diag_f32", "nb00 == sizeof(float)"),
    Op.TIMESTEP_EMBEDDING: _packed_source(
        "ggml_compute_forward_timestep_embedding_f32", "src0->nb[0] == sizeof(float)"
    ),
}
"""What else ggml asserts of the layout and the other operands."""

_RULED: dict[int, RuledCheck] = {
    Op.UNARY: _unary,
    Op.GLU: _glu,
    Op.SCALE: _scale,
    Op.CONCAT: _concat,
    **limits_matrix.RULED,
}
"""What not every ggml refuses."""

_ALL = {**_CHECKS, **limits_matrix.CHECKS}
