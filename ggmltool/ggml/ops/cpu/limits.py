"""What ggml's CPU refuses when it computes: element types and layouts that its kernels do not have.

A constructor accepts these, and other devices may compute them. `check` is asked before a kernel runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.dtypes import F32, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlError, NotComputable
from ggmltool.ggml.op import GluOp, Op, OpRules, UnaryOp
from ggmltool.ggml.ops.cpu import limits_matrix
from ggmltool.ggml.ops.cpu.limits_matrix import Check, RuledCheck, ask, asserts, fatal, refuse
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
    if dst.op in _ASSERTS:
        asserts(dst, f"ggml_compute_forward_{Op(dst.op).name.lower()}_{a.type.name}", *_ASSERTS[dst.op])
    elif dst.op in _ALL:
        _ALL[dst.op](dst)
    elif dst.op in _RULED:
        _RULED[dst.op](dst, rules)


def _only_for(function: str, a: Tensor, types: Iterable[str]) -> GgmlAbort:
    return fatal(function, a, f"the CPU has no such kernel for {show(a)}, only for {', '.join(sorted(types))}")


def _binary(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if (a.type.name, b.type.name, dst.type.name) not in _BINARY:
        types = f"dst: {dst.type.name}, src0: {a.type.name}, src1: {b.type.name}\n"
        why = f"the CPU has no such kernel for {show(a)} and {show(b)}"
        raise fatal("binary_op", a, why, f"binary_op: unsupported types: {types}")
    asserts(dst, "apply_binary_op", "nb0 == sizeof(dst_t)", "nb00 == sizeof(src0_t)")


def _add(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if not a.type.quantized:
        _binary(dst)
        return
    function = "ggml_compute_forward_add_q_f32"
    ask(are_same_shape(a, b), function, "ggml_are_same_shape(src0, src1) && ggml_are_same_shape(src0, dst)", b)
    asserts(dst, function, "nb00 == ggml_type_size(type)", "nb10 == sizeof(float)")
    for i in range(3):
        ask(dst.nb[i] <= dst.nb[i + 1], function, f"nb{i} <= nb{i + 1}", dst)
    asserts(dst, function, _F32_1)


def _add1(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if a.type.quantized and b.type is not F32:
        raise refuse("ggml_compute_forward_add1_q_f32", _F32_1, b)
    if a.type.name in ("f16", "bf16") and b.type is not F32 and b.type is not a.type:
        raise fatal("ggml_compute_forward_add1", b)


_FLOAT_0, _FLOAT_1 = (f"src{i}->nb[0] == sizeof(float)" for i in (0, 1))
_F32_1 = "src1->type == GGML_TYPE_F32"


def _add_id(dst: Tensor) -> None:
    a, function = source(dst), "ggml_compute_forward_add_id"
    if a.type is not F32:
        raise fatal(function, a, message=f"unsupported type for {function}: {a.type.name}")
    asserts(dst, f"{function}_f32", _F32_1, _FLOAT_0, _FLOAT_1)


def _unary_rows(dst: Tensor) -> None:
    a = source(dst)
    function = "apply_unary_op"
    ask(
        is_contiguous_rows(a) and is_contiguous_rows(dst),
        function,
        "ggml_is_contiguous_rows(src0) && ggml_is_contiguous_rows(dst) && ggml_are_same_shape(src0, dst)",
        a,
    )
    asserts(dst, function, "nb0 == sizeof(dst_t)", "nb00 == sizeof(src0_t)")


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
    asserts(dst, function, "nb00 == sizeof(src0_t)")


_GLU_TYPES = {int(GluOp.SWIGLU_OAI): ("f32",), int(GluOp.SWIGLU_CLAMP): ("f32", "f16")}


def _glu(dst: Tensor, rules: OpRules) -> None:
    a, op = source(dst), param_i32(dst, 0)
    types = _GLU_TYPES.get(op) or _floats(rules)
    if 0 <= op < len(GluOp) and a.type.name not in types:
        raise fatal(f"ggml_compute_forward_{GluOp(op).name.lower()}", a)


def _set(dst: Tensor) -> None:
    a = source(dst)
    function = f"ggml_compute_forward_set_{a.type.name}"
    ask(is_contiguous(dst) and is_contiguous(a), function, "ggml_is_contiguous(dst) && ggml_is_contiguous(src0)", a)
    asserts(dst, function, "nb10 == sizeof(float)" if a.type is F32 else "nb10 == sizeof(int32_t)")


def _scale(dst: Tensor, rules: OpRules) -> None:
    a = source(dst)
    types = ("f32", "bf16") if rules.has_bf16_functions else ("f32",)
    if a.type.name not in types:
        raise _only_for("ggml_compute_forward_scale", a, types)
    ask(is_contiguous(a), f"ggml_compute_forward_scale_{a.type.name}", "ggml_is_contiguous(src0)", a)


def _clamp(dst: Tensor) -> None:
    a = source(dst)
    name = "float" if a.type is F32 else "ggml_fp16_t"
    asserts(dst, f"ggml_compute_forward_clamp_{a.type.name}", f"nb0 == sizeof({name})")


def _repeat(dst: Tensor) -> None:
    kind, c = ("f32", "float") if source(dst).type.type_size == 4 else ("f16", "ggml_fp16_t")
    asserts(dst, f"ggml_compute_forward_repeat_{kind}", f"nb00 == sizeof({c})")


def _rms_norm_back(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = "ggml_compute_forward_rms_norm_back_f32"
    ask(are_same_shape(a, b), function, "ggml_are_same_shape(src0, dst) && ggml_are_same_shape(src0, src1)", b)
    asserts(dst, function, _FLOAT_0, _FLOAT_1)


def _soft_max_back(dst: Tensor) -> None:
    function = "ggml_compute_forward_soft_max_ext_back_f32"
    asserts(dst, function, *(f"ggml_is_contiguous({name})" for name in ("src0", "src1", "dst")))
    ask(are_same_shape(source(dst, 1), dst), function, "ggml_are_same_shape(src1, dst)", source(dst, 1))


def _diag_mask(dst: Tensor) -> None:
    a = source(dst)
    function = "ggml_compute_forward_diag_mask_f32"
    ask(a.data == dst.data or is_contiguous(a), function, "ggml_is_contiguous(dst) && ggml_is_contiguous(src0)", a)
    asserts(dst, function, "dst->nb[0] == sizeof(float)", _FLOAT_0)


def _cross_entropy_loss_back(dst: Tensor) -> None:
    for name, t in (("dst", dst), *((name, source(dst, i)) for name, i in (("src0f", 1), ("src1f", 2), ("grad", 0)))):
        ask(is_contiguous(t), "ggml_compute_forward_cross_entropy_loss_back_f32", f"ggml_is_contiguous({name})", t)


def _opt_step_sgd(dst: Tensor) -> None:
    a, function = source(dst), "ggml_compute_forward_opt_step_sgd"
    if a.type is not F32:
        raise fatal(function, a, message="fatal error - sgd is F32 only")
    asserts(dst, f"{function}_f32", "nb00 == sizeof(float)")


_BY_ELEMENT = frozenset(("f32", "i32", "f16", "bf16", "i16", "i8"))
"""Types that CONCAT copies element by element in every ggml."""


def _concat(dst: Tensor, rules: OpRules) -> None:
    for i in (0, 1):
        t = source(dst, i)
        in_rows = t.type.name not in _BY_ELEMENT if rules.concat_takes_rows else t.type.quantized
        if in_rows and not is_contiguous_rows(t):
            function = "ggml_compute_forward_concat" + ("_any" if rules.concat_takes_rows else "")
            raise refuse(function, f"ggml_is_contiguous_rows(src{i})", t)


_ASSERTS: dict[int, list[str]] = {
    Op[name]: conditions
    for names, *conditions in (
        ("ACC", "nb10 == sizeof(float)"),
        ("SUM_ROWS CUMSUM RMS_NORM GROUP_NORM TIMESTEP_EMBEDDING", _FLOAT_0),
        ("REPEAT_BACK OPT_STEP_ADAMW DIAG", "nb00 == sizeof(float)"),
        ("COUNT_EQUAL", "src1->type == GGML_TYPE_I32"),
        ("CROSS_ENTROPY_LOSS", _F32_1, *(f"src{i}->nb[0] == ggml_type_size(src{i}->type)" for i in (0, 1))),
    )
    for name in names.split()
}
"""What ggml asserts of operands of an op, in its function for the first one's type."""

_CHECKS: dict[int, Check] = {
    Op.ADD: _add,
    Op.ADD1: _add1,
    Op.ADD_ID: _add_id,
    Op.SET: _set,
    **dict.fromkeys((Op.SUB, Op.MUL, Op.DIV), _binary),
    **dict.fromkeys(_UNARY_OPS, _unary_rows),
    Op.CLAMP: _clamp,
    Op.REPEAT: _repeat,
    Op.RMS_NORM_BACK: _rms_norm_back,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.DIAG_MASK_INF: _diag_mask,
    Op.DIAG_MASK_ZERO: _diag_mask,
    Op.CROSS_ENTROPY_LOSS_BACK: _cross_entropy_loss_back,
    Op.OPT_STEP_SGD: _opt_step_sgd,
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
