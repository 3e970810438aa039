"""What ggml's CPU refuses to compute of copies, products, rows, rope, attention, convolutions, pooling and recurrences.

Part of `cpu_limits`, which says more. Where ggml's CPU would crash instead of asserting, the error is NotComputable.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ggmltool.ggml.dtypes import BF16, F16, F32, I32, TYPES
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, NotComputable
from ggmltool.ggml.op import Op, OpRules
from ggmltool.ggml.ops.conv import POOLS
from ggmltool.ggml.ops.matmul import HADAMARD, PREC
from ggmltool.ggml.ops.operands import param_i32, show, show_nb, source, sources_of
from ggmltool.ggml.ops.rope import IMROPE, MROPE, N_SECTIONS, NEOX, NORMAL, OFFSET, VISION
from ggmltool.ggml.tensor import Tensor, is_contiguous, is_contiguous_channels

Check = Callable[[Tensor], None]
RuledCheck = Callable[[Tensor, OpRules], None]

_C_TYPES = {"f32": "float", "f16": "ggml_fp16_t"}
_NO_TO_FLOAT = frozenset(("q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"))
"""Types the CPU cannot convert to f32."""
_DOTTED = frozenset(t.name for t in TYPES.values() if t.vec_dot_type and t.name != "q8_1")
"""Types the CPU has a dot product for."""
_OUT_PROD = frozenset(t.name for t in TYPES.values() if t.quantized) - _NO_TO_FLOAT | {"f32", "f16"}
_GET_ROWS = frozenset(t.name for t in TYPES.values() if t.quantized) - {"q8_K"} | {"f32", "f16", "bf16", "i32"}


def fatal(function: str, t: Tensor, why: str = "", message: str = "fatal error") -> GgmlAbort:
    return GgmlAbort(function, message, explanation=why or f"the CPU has no such kernel for {show(t)}")


def refuse(function: str, condition: str, t: Tensor, why: str = "") -> GgmlAssert:
    return GgmlAssert(function, condition, why or f"the CPU cannot compute with the layout or type of {show_nb(t)}")


def ask(holds: bool, function: str, condition: str, t: Tensor, why: str = "") -> None:
    """Assert something of a tensor in ggml's words."""
    if not holds:
        raise refuse(function, condition, t, why)


def _crash(function: str, t: Tensor) -> NotComputable:
    return NotComputable(
        function,
        f"the CPU has no conversion or dot product for {t.type.name}",
        explanation=f"ggml calls a function that is not there, and crashes, for {show(t)}",
    )


_OPERAND = re.compile(r"src\[?(\d)|nb(\d)0\b")
_SIZES = {"sizeof(float)": 4, "sizeof(int32_t)": 4, "sizeof(ggml_fp16_t)": 2}


def asserts(dst: Tensor, function: str, *conditions: str) -> None:
    """Assert what conditions of ggml say of an operand each: that it is contiguous, of a type, or that the elements of
    a row lie side by side."""
    for condition in conditions:
        operand = _OPERAND.search(condition)
        t = dst if operand is None else source(dst, int(operand[1] or operand[2]))
        if "ggml_is_contiguous(" in condition:
            holds = is_contiguous(t)
        elif "GGML_TYPE_" in condition:
            holds = condition.endswith(f"GGML_TYPE_{t.type.name.upper()}")
        else:
            holds = t.nb[0] == _SIZES.get(condition.rpartition(" ")[2], t.type.type_size)
        ask(holds, function, condition, t)


def _copy(dst: Tensor) -> None:
    a = source(dst)
    s, d = a.type, dst.type
    if s is d:
        return
    if s in (F32, F16, BF16):
        if d in (F32, F16, BF16) or (s is F32 and d is I32):
            return
        if not (d.from_float and is_contiguous(dst) and a.nb[0] == s.type_size):
            why = (
                f"the CPU cannot copy {show_nb(a)} to {show_nb(dst)}: what it quantizes must have contiguous rows, and "
                "where it goes must be contiguous"
            )
            raise fatal("ggml_compute_forward_dup_to_q", a, why, "not implemented")
        return
    if s is I32:
        if d is not F32:
            why = f"the CPU copies i32 to f32 only, not to {d.name}"
            raise fatal("ggml_compute_forward_dup", a, why, "not implemented")
        return
    if not (s.quantized and d is F32):
        raise fatal("ggml_compute_forward_dup", a, f"the CPU cannot copy {show(a)} to {show(dst)}")
    function = "ggml_compute_forward_dup_from_q"
    if s.name in _NO_TO_FLOAT:
        raise _crash(function, a)
    b = dst.src[1] if len(dst.src) > 1 else None
    if b is None:
        return
    ask(b.nb[0] == d.type_size, function, "nb10 == ggml_type_size(dst->type)", b)
    ask(b.ne[0] % s.block_size == 0 or is_contiguous(dst), function, "(ne10 % qk) == 0 || ggml_is_contiguous(dst)", dst)


def _transform(b: Tensor, rules: OpRules) -> None:
    """What a product with a Hadamard matrix asks of the other operand."""
    function = "ggml_compute_forward_fwht"
    if rules.transforms_halves:
        if b.type not in (F32, F16):
            raise fatal(function, b, message="fatal error - fwht supports F32 and F16 input")
    elif b.type is not F32:
        raise fatal(function, b, message="fatal error - fwht is F32 only")


def _product(function: str) -> RuledCheck:
    def check(dst: Tensor, rules: OpRules) -> None:
        a, b = source(dst), source(dst, 1)
        if dst.op == Op.MUL_MAT and param_i32(dst, 1) == HADAMARD:
            _transform(b, rules)
            return
        first = "nb00 == ggml_type_size(type)" if "id" in function else _NB00
        asserts(dst, function, first, "nb10 == ggml_type_size(src1->type)")
        _operand(function, a, b, rules.widens_operand and dst.op == Op.MUL_MAT)
        if a.type.name not in _DOTTED:
            raise _crash(function, a)

    return check


_NB00 = "nb00 == ggml_type_size(src0->type)"


def _operand(function: str, a: Tensor, b: Tensor, widens: bool) -> None:
    """Whether the CPU can convert `b` to what is multiplied with `a`; `widens`: halves become f32."""
    with_type = a.type.vec_dot_type or "f32"
    if b.type is F32 or b.type.name == with_type:
        return
    why = f"the CPU multiplies {a.type.name} with f32 or {a.type.vec_dot_type}, not with {b.type.name}"
    ask(widens, function, "src1->type == GGML_TYPE_F32", b, why)
    ask(with_type == "f32", function, "!widen || vec_dot_type == GGML_TYPE_F32", b, why)
    ask(
        b.type in (F16, BF16), function, "!widen || src1->type == GGML_TYPE_F16 || src1->type == GGML_TYPE_BF16", b, why
    )


def _out_prod(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if a.type.name not in _OUT_PROD:
        raise fatal("ggml_compute_forward_out_prod", a)
    kind = "q" if a.type.quantized else a.type.name
    function = f"ggml_compute_forward_out_prod_{kind}" + ("" if kind == "f32" else "_f32")
    if b.type is not F32:
        if kind == "q":
            raise NotComputable(
                function, f"{show(b)} is not f32", explanation="ggml reads the second operand as f32 whatever it is"
            )
        raise refuse(function, "src1->type == GGML_TYPE_F32", b)
    if kind != "f32":
        for i in (2, 3):
            if a.ne[i] != b.ne[i]:
                why = f"{show(a)} would be repeated over {show(b)}, which the CPU does for f32 only"
                raise refuse(function, f"ne0{i} == ne1{i}", a, why)
    asserts(dst, function, f"nb00 == {'ggml_type_size(type)' if kind == 'q' else f'sizeof({_C_TYPES[kind]})'}")


def _get_rows(dst: Tensor) -> None:
    a = source(dst)
    if a.type.name not in _GET_ROWS:
        raise fatal("ggml_compute_forward_get_rows", a)
    if a.type.name == "q8_1":
        raise _crash("ggml_compute_forward_get_rows_q", a)


def _set_rows(dst: Tensor) -> None:
    if not dst.type.from_float:
        raise _crash("ggml_compute_forward_set_rows_impl", dst)


def _get_rows_back(dst: Tensor) -> None:
    a = source(dst)
    if a.type not in (F32, F16):
        raise fatal("ggml_compute_forward_get_rows_back", a)
    function = "ggml_compute_forward_get_rows_back_f32" + ("_f16" if a.type is F16 else "")
    asserts(dst, function, f"src0->nb[0] == sizeof({_C_TYPES[a.type.name]})")


def _rope_offset(function: str, a: Tensor, offset: int, n_dims: int) -> None:
    if offset < 0:
        raise refuse(function, "n_offs >= 0", a, f"the offset is {offset}; it is a number of elements")
    if offset % 2:
        raise refuse(function, "n_offs % 2 == 0", a, f"pairs are turned, but the offset is {offset}")
    if offset + n_dims > a.ne[0]:
        why = f"{n_dims} elements to turn from {offset} on, but the rows of {show(a)} are shorter"
        raise refuse(function, "n_offs + n_dims <= ne0", a, why)


def _rope(dst: Tensor) -> None:
    a = source(dst)
    n_dims, mode = param_i32(dst, 1), param_i32(dst, 2)
    function = "ggml_compute_forward_rope_flt"
    if a.type not in (F32, F16):
        name = "ggml_compute_forward_rope" + ("_back" if dst.op == Op.ROPE_BACK else "")
        raise fatal(name, a, f"{show(a)} must be f32 or f16")
    ask(dst.nb[0] == a.nb[0], function, "nb0 == nb00", a)
    asserts(dst, function, "nb0 == sizeof(T)")
    if n_dims > a.ne[0]:
        raise refuse(function, "n_dims <= ne0", a, f"{n_dims} elements to turn, but the rows of {show(a)} are shorter")
    if n_dims % 2:
        raise refuse(function, "n_dims % 2 == 0", a, f"pairs are turned, but n_dims is {n_dims}")
    _rope_offset(function, a, param_i32(dst, OFFSET), n_dims)
    sections = [param_i32(dst, 11 + i) for i in range(N_SECTIONS)]
    if mode & MROPE and not any(s > 0 for s in sections[:3]):
        why = f"the mode {mode} needs its sections; they are {sections}"
        raise refuse(function, "sections[0] > 0 || sections[1] > 0 || sections[2] > 0", a, why)
    if mode == VISION and n_dims != a.ne[0] // 2:
        raise refuse(function, "n_dims == ne0/2", a, f"vision turns whole rows: n_dims {n_dims} of {show(a)}")
    ask(
        mode != VISION or not param_i32(dst, OFFSET),
        function,
        "n_offs == 0",
        a,
        "vision turns whole rows: there is no offset",
    )
    if mode & MROPE and sum(sections) > a.ne[0]:
        why = f"the sections {sections} are longer than the rows of {show(a)}"
        raise refuse("ggml_mrope_cache_init", "sect_dims <= ne0", a, why)
    if mode not in (NORMAL, NEOX, MROPE, VISION, IMROPE):
        raise fatal(function, a, f"the mode {mode} is none of those the CPU has", "rope type not supported")


def _flash_attn_ext(dst: Tensor) -> None:
    q, k, v = (source(dst, i) for i in range(3))
    function = "ggml_compute_forward_flash_attn_ext_f16"
    prec = param_i32(dst, 3)
    if prec not in (PREC["default"], PREC["f32"]):
        raise fatal("ggml_compute_forward_flash_attn_ext", q, f"prec is {prec}; the CPU has default and f32")
    for t, name in ((q, "q"), (k, "k"), (v, "v")):
        ask(t.nb[0] == t.type.type_size, function, f"nb{name}0 == ggml_type_size({name}->type)", t)
    if v.type is not F32 and v.type.name in _NO_TO_FLOAT:
        condition = '(v->type == GGML_TYPE_F32 || v_to_float ) && "fattn: unsupported V-type"'
        raise refuse(f"{function}_one_chunk", condition, v)
    if k.type.name not in _DOTTED:
        raise _crash(f"{function}_one_chunk", k)
    if q.type is not F32:
        raise NotComputable(
            function, f"{show(q)} is not f32", explanation="ggml reads the queries as f32 whatever they are"
        )


def _im2col(dst: Tensor) -> None:
    _, b = source(dst), source(dst, 1)
    name = f"ggml_compute_forward_{Op(dst.op).name.lower()}"
    if dst.type not in (F16, F32):
        raise fatal(name, dst, f"{show(dst)} must be f16 or f32")
    function = f"{name}_{dst.type.name}"
    halves = dst.op == Op.IM2COL and dst.type is F16
    if b.type is not F32 and not (halves and b.type is F16):
        condition = "src1->type == GGML_TYPE_F32"
        raise refuse(function, f"src1->type == GGML_TYPE_F16 || {condition}" if halves else condition, b)
    asserts(dst, function, "nb10 == ggml_type_size(src1->type)" if halves else "nb10 == sizeof(float)")


def _reads_as_f32(function: str, b: Tensor) -> None:
    if b.type is not F32:
        raise NotComputable(
            function, f"the image is {b.type.name}", explanation=f"ggml reads {show(b)} as f32 whatever it is"
        )


def _conv_2d(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = f"ggml_compute_forward_{Op(dst.op).name.lower()}_impl"
    ask(is_contiguous(a), function, "ggml_is_contiguous(kernel)", a)
    ask(a.type in (F16, F32), function, "kernel_type == GGML_TYPE_F16 || kernel_type == GGML_TYPE_F32", a)
    _reads_as_f32(function, b)


def _conv_2d_dw(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    function = "ggml_compute_forward_conv_2d_dw"
    ask(a.type in (F16, F32), function, "kernel->type == GGML_TYPE_F32 || kernel->type == GGML_TYPE_F16", a)
    if is_contiguous(b):
        pass
    elif is_contiguous_channels(b):
        if not a.nb[1] >= a.nb[0] >= a.nb[2]:
            why = f"the channels of {show_nb(a)} must lie innermost, as those of the image do"
            raise refuse(function, "kernel->nb[0] >= kernel->nb[2] && kernel->nb[1] >= kernel->nb[0]", a, why)
    else:
        raise fatal(function, b, show_nb(b), "non-contiguous memory layout not supported")
    _reads_as_f32(function, b)


def _conv_transpose_1d(dst: Tensor) -> None:
    a, b = source(dst), source(dst, 1)
    if a.type not in (F16, F32, BF16) or b.type is not F32:
        raise fatal("ggml_graph_plan", a, f"the CPU has no such kernel for {show(a)} and {show(b)}")
    if a.type is BF16:
        raise fatal("ggml_compute_forward_conv_transpose_1d", a)
    function = "ggml_compute_forward_conv_transpose_1d" + ("_f16_f32" if a.type is F16 else "_f32")
    asserts(dst, function, f"nb00 == sizeof({_C_TYPES[a.type.name]})", "nb10 == sizeof(float)")


def _conv_transpose_2d(dst: Tensor) -> None:
    a = source(dst)
    condition = "node->src[0]->type == GGML_TYPE_F16 || node->src[0]->type == GGML_TYPE_F32"
    ask(a.type in (F16, F32), "ggml_graph_plan", condition, a)
    asserts(dst, "ggml_graph_plan", "node->src[1]->type == GGML_TYPE_F32")
    asserts(dst, "ggml_compute_forward_conv_transpose_2d_impl", _NB00, "nb10 == sizeof(float)")


def _im2col_back(dst: Tensor) -> None:
    b = source(dst, 1)
    function = "ggml_compute_forward_im2col_back_f32"
    asserts(dst, function, "src0->type == GGML_TYPE_F32")
    ask(b.type in (F32, F16), function, "src1->type == GGML_TYPE_F32 || src1->type == GGML_TYPE_F16", b)


def _pool_back(dst: Tensor) -> None:
    a, af = source(dst), source(dst, 1)
    function = "ggml_compute_forward_pool_2d_back"
    if param_i32(dst, 0) not in POOLS.values():
        raise refuse(function, "false", a, f"the op of a pooling is one of {POOLS}, not {param_i32(dst, 0)}")
    for t in (a, af):
        if t.type is not F32:
            raise NotComputable(function, f"{show(t)} is not f32", explanation="ggml reads it as f32 whatever it is")


def _pool(dst: Tensor) -> None:
    a = source(dst)
    function = f"ggml_compute_forward_{Op(dst.op).name.lower()}"
    if param_i32(dst, 0) not in POOLS.values():
        raise fatal(function, a, f"the op of a pooling is one of {POOLS}, not {param_i32(dst, 0)}")
    if a.type not in (F32, F16):
        raise NotComputable(function, f"{show(a)} is not f32 or f16", explanation="ggml reads other types as f16")


def _require_f32(function: str, tensors: list[Tensor]) -> None:
    for t in tensors:
        if t.type is not F32:
            raise NotComputable(
                function, f"{t.label} is {t.type.name}", explanation=f"ggml reads {show(t)} as f32 whatever it is"
            )


def _first_is_f32(function: str, a: Tensor) -> None:
    if a.type is not F32:
        raise fatal(function, a, f"the CPU has no such kernel for {show(a)}, only for f32")


def _ssm_conv(dst: Tensor) -> None:
    sx, c = sources_of(dst)
    name = "ggml_compute_forward_ssm_conv"
    function = f"{name}_f32"
    _first_is_f32(name, sx)
    asserts(dst, function, "src0->nb[0] == sizeof(float)", "src1->nb[0] == sizeof(float)")
    ask(sx.nb[1] == sx.ne[0] * 4, function, "src0->nb[1] == src0->ne[0]*sizeof(float)", sx)
    _require_f32(function, [c])
    if c.ne[1] > 1 and c.nb[1] != c.ne[0] * 4:
        raise NotComputable(
            function,
            f"there are gaps between the rows of {c.label}",
            explanation=f"{show_nb(c)}: where ggml finds a row then depends on the number of its threads",
        )


def _ssm_scan(dst: Tensor) -> None:
    sources = sources_of(dst)
    name = "ggml_compute_forward_ssm_scan"
    _first_is_f32(name, sources[0])
    for i, t in enumerate(sources):
        if t.nb[0] != 4:
            c_type = "int32_t" if i == 6 else "float"
            raise refuse(f"{name}_f32", f"src{i}->nb[0] == sizeof({c_type})", t)
    _require_f32(f"{name}_f32", sources[:6])


def _linear_attention(function: str) -> Check:
    def check(dst: Tensor) -> None:
        sources = sources_of(dst)
        _first_is_f32(function, sources[0])
        _require_f32(f"{function}_f32", sources)

    return check


def _lightning_indexer(dst: Tensor) -> None:
    function = "ggml_compute_forward_lightning_indexer"
    for t, name in zip(sources_of(dst), "qkwm", strict=True):
        ask(t.nb[0] == t.type.type_size, function, f"nb{name}0 == ggml_type_size( {name}->type)", t)
    k = sources_of(dst)[1]
    if k.type.name in _NO_TO_FLOAT:
        condition = '(k->type == GGML_TYPE_F32 || k_to_float) && "lightning indexer: unsupported K-type"'
        raise refuse(function, condition, k)


CHECKS: dict[int, Check] = {
    Op.DUP: _copy,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.OUT_PROD: _out_prod,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    Op.FLASH_ATTN_EXT: _flash_attn_ext,
    Op.IM2COL: _im2col,
    Op.IM2COL_3D: _im2col,
    Op.IM2COL_BACK: _im2col_back,
    Op.CONV_2D: _conv_2d,
    Op.CONV_3D: _conv_2d,
    Op.CONV_2D_DW: _conv_2d_dw,
    Op.CONV_TRANSPOSE_1D: _conv_transpose_1d,
    Op.CONV_TRANSPOSE_2D: _conv_transpose_2d,
    Op.POOL_1D: _pool,
    Op.POOL_2D: _pool,
    Op.POOL_2D_BACK: _pool_back,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_SCAN: _ssm_scan,
    Op.RWKV_WKV6: _linear_attention("ggml_compute_forward_rwkv_wkv6"),
    Op.RWKV_WKV7: _linear_attention("ggml_compute_forward_rwkv_wkv7"),
    Op.GATED_LINEAR_ATTN: _linear_attention("ggml_compute_forward_gla"),
    Op.LIGHTNING_INDEXER: _lightning_indexer,
}
"""For each op what the CPU asks of its operands."""

RULED: dict[int, RuledCheck] = {
    Op.MUL_MAT: _product("ggml_compute_forward_mul_mat"),
    Op.MUL_MAT_ID: _product("ggml_compute_forward_mul_mat_id"),
}
"""The same of ops of which not every ggml asks the same."""
