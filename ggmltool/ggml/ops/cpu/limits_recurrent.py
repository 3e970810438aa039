"""What the CPU refuses to compute of scans, linear attention and the lightning indexer (part of `cpu_limits`)."""

from __future__ import annotations

from collections.abc import Callable

from ggmltool.ggml.dtypes import F32
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import show, show_nb, sources_of
from ggmltool.ggml.tensor import Tensor

Check = Callable[[Tensor], None]

NO_TO_FLOAT = frozenset(("q8_1", "q8_K", "i8", "i16", "i32", "i64", "f64"))
"""Types that ggml cannot convert to f32."""


def _refuse(function: str, condition: str, t: Tensor) -> GgmlAssert:
    return GgmlAssert(function, condition, f"the CPU cannot compute with the layout or type of {show_nb(t)}")


def _require_f32(function: str, tensors: list[Tensor]) -> None:
    for t in tensors:
        if t.type is not F32:
            raise NotComputable(
                function, f"{t.label} is {t.type.name}", explanation=f"ggml reads {show(t)} as f32 whatever it is"
            )


def _first_is_f32(function: str, a: Tensor) -> None:
    if a.type is not F32:
        raise GgmlAbort(function, "fatal error", explanation=f"the CPU has no such kernel for {show(a)}, only for f32")


def _ssm_conv(dst: Tensor) -> None:
    sx, c = sources_of(dst)
    name = "ggml_compute_forward_ssm_conv"
    function = f"{name}_f32"
    _first_is_f32(name, sx)
    if sx.nb[0] != 4:
        raise _refuse(function, "src0->nb[0] == sizeof(float)", sx)
    if c.nb[0] != 4:
        raise _refuse(function, "src1->nb[0] == sizeof(float)", c)
    if sx.nb[1] != sx.ne[0] * 4:
        raise _refuse(function, "src0->nb[1] == src0->ne[0]*sizeof(float)", sx)
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
            raise _refuse(f"{name}_f32", f"src{i}->nb[0] == sizeof({c_type})", t)
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
        if t.nb[0] != t.type.type_size:
            raise _refuse(function, f"nb{name}0 == ggml_type_size( {name}->type)", t)
    k = sources_of(dst)[1]
    if k.type.name in NO_TO_FLOAT:
        condition = '(k->type == GGML_TYPE_F32 || k_to_float) && "lightning indexer: unsupported K-type"'
        raise _refuse(function, condition, k)


CHECKS: dict[int, Check] = {
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_SCAN: _ssm_scan,
    Op.RWKV_WKV6: _linear_attention("ggml_compute_forward_rwkv_wkv6"),
    Op.RWKV_WKV7: _linear_attention("ggml_compute_forward_rwkv_wkv7"),
    Op.GATED_LINEAR_ATTN: _linear_attention("ggml_compute_forward_gla"),
    Op.LIGHTNING_INDEXER: _lightning_indexer,
}
"""For each op what the CPU asks of its operands beyond what the constructor does."""
