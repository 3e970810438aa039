"""Operands: in the words of failed assertions, the extents that are asked of them, and how kernels read them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import GgmlAssert, NotComputable
from ggmltool.ggml.ops.registry import Arrays, Build, Raw, float_bits, float_of
from ggmltool.ggml.tensor import Dims, Tensor, n_dims, op_desc
from ggmltool.ggml.version import SIZE_MAX


def show(t: Tensor) -> str:
    """A tensor as a scenario writes it: its name, type and extents, `kq f32[64, 8]`."""
    text = f"{t.type.name}{list(t.ne[: n_dims(t)])}"
    return f"{t.label} {text}".lstrip()


def show_nb(t: Tensor) -> str:
    """`show` with the byte strides."""
    return f"{show(t)} (nb {list(t.nb)})"


class _Shown:
    """A tensor in a format string: as `show`, and with `:nb` as `show_nb`."""

    def __init__(self, t: Tensor) -> None:
        self._t = t

    def __format__(self, spec: str) -> str:
        return show_nb(self._t) if spec == "nb" else show(self._t)


def requirer(function: str) -> Callable[..., None]:
    """The assertions of a ggml function, one call each: `require(holds, condition, words, *shown)`.

    `condition` is ggml's text, `words` say what it means, with a {} for each tensor or number, and {:nb} for a tensor
    with its strides. Raises GgmlAssert.
    """

    def require(holds: bool, condition: str, words: str, *shown: object) -> None:
        if not holds:
            said = words.format(*(_Shown(s) if isinstance(s, Tensor) else s for s in shown)) if shown else words
            raise GgmlAssert(function, condition, said)

    return require


def f32(x: float) -> float:
    """The float32 nearest to `x`."""
    return float_of(float_bits(x))


def sources_of(t: Tensor) -> list[Tensor]:
    """The sources of a node, without empty slots."""
    return [s for s in t.src if s is not None]


def source(t: Tensor, i: int = 0) -> Tensor:
    """Source `i` of a node, which must have it."""
    s = t.src[i]
    if s is None:
        raise ValueError(f"{t!r} lacks source {i}")
    return s


def operand(x: Arrays, dst: Tensor) -> Any:
    """The only operand of an op, as float32."""
    return x.f32(source(dst))


def operands(x: Arrays, dst: Tensor) -> tuple[Any, Any]:
    """The two operands of a binary op as float32, the second in a shape that broadcasts to the first."""
    a, b = source(dst), source(dst, 1)
    left, right = x.f32(a), x.f32(b)
    if any(n not in (1, m) for n, m in zip(b.ne, a.ne, strict=True)):
        right = x.xp.tile(right, [m // n for n, m in zip(right.shape, left.shape, strict=True)])
    return left, right


def same_as(ctx: Context, a: Tensor, inplace: bool) -> Tensor:
    """The result of an op that keeps its operand's type and extents: a view of it in place, else a new tensor."""
    return ctx.view_tensor(a) if inplace else ctx.dup_tensor(a)


def param_i32(t: Tensor, i: int) -> int:
    """Word `i` of op_params (zero if none is stored)."""
    return t.op_params[i] if i < len(t.op_params) else 0


def param_f32(t: Tensor, i: int) -> float:
    """The float32 in word `i` of op_params."""
    return float_of(t.op_params[i]) if i < len(t.op_params) else 0.0


def target_shape(function: str, b: Tensor | None, ne: list[int] | tuple[int, ...] | None) -> Dims:
    """The extents of repeat and repeat_back: those of the shape giver b, or `ne`."""
    if b is not None:
        return b.ne
    if ne is None:
        raise ValueError(f"{function} needs the tensor whose shape the result gets, or ne")
    dims = [*list(ne), 1, 1, 1]
    return (dims[0], dims[1], dims[2], dims[3])


def taking(build: Build, parameters: Iterable[inspect.Parameter], about: str) -> Build:
    """A constructor with these parameters, given in order or by name; the one that it calls gets them by name."""
    signature = inspect.Signature(list(parameters))

    def made(*args: Any, **params: Any) -> Tensor:
        given = dict(zip(signature.parameters, args, strict=False)) | params
        return build(**{name: given[name] for name in signature.parameters if name in given})

    made.__signature__ = signature  # type: ignore[attr-defined]
    made.__doc__ = about
    return made


def read_ne(raw: Raw) -> dict[str, Any]:
    """The parameter `ne` of a captured node."""
    return {"ne": raw.ne}


def new_tensor(ctx: Context, type: DType, ne: Sequence[int]) -> Tensor:
    """A tensor whose extents were computed and may be negative, which ggml lets pass: its strides wrap as size_t do."""
    result = ctx.new_tensor(type, ne)
    if min(ne) < 0:
        a, b, c, d = (nb & SIZE_MAX for nb in result.nb)
        result.set_layout(result.ne, (a, b, c, d))
    return result


def require_same(dst: Tensor, *tensors: Tensor) -> None:
    """What a constructor does not ask and a kernel takes for granted: that the tensors have the same extents."""
    for t in tensors[1:]:
        if t.ne != tensors[0].ne:
            raise not_computable(dst, f"{show(t)} has not the extents of {show(tensors[0])}")


def require_elements(dst: Tensor, *tensors: Tensor) -> None:
    """That there is something to read, where the result has elements of its own."""
    for t in tensors:
        if 0 in t.ne:
            raise not_computable(dst, f"{show(t)} has no elements")


def require_stride(dst: Tensor, stride: int) -> None:
    """That what a transposed convolution adds goes forward."""
    if stride < 1:
        raise not_computable(dst, f"its stride is {stride}")


def not_computable(dst: Tensor, why: str) -> NotComputable:
    """What to raise where the constructor of `dst` asks nothing, and its kernel does not look."""
    return NotComputable(
        "ggml_graph_compute",
        f"{dst.label} ({op_desc(dst)}) cannot be computed: {why}",
        explanation="ggml's constructor does not ask, and its kernels do not look and read or write elsewhere",
    )


def shadow(t: Tensor, type: DType, ne: Dims, nb: Dims, offset: int = 0) -> Tensor:
    """The memory of `t`, from `offset` bytes on, seen as another tensor."""
    other = Tensor(type, ne, nb, name=t.name, id=t.id)
    other.buffer, other.data = t.buffer, t.data + offset
    return other


def flat(x: Arrays, t: Tensor, dim: int = 1) -> Tensor:
    """`t` as such a kernel sees it: packed rows, and the strides above dimension `dim` follow from that one's.

    It is `t` itself where they do anyway, or where the rows would lie beyond the buffer (what ggml finds there is
    nobody's data).
    """
    ne, nb = t.ne, [t.type.type_size, *t.nb[1:]]
    for i in range(dim + 1, 4):
        nb[i] = nb[i - 1] * ne[i - 1]
    if all(n <= 1 or a == b for n, a, b in zip(ne, nb, t.nb, strict=True)):
        return t
    other = shadow(t, t.type, ne, (nb[0], nb[1], nb[2], nb[3]))
    try:
        x.raw(other)
    except NotComputable:
        return t
    return other


def memory(x: Arrays, t: Tensor, type: DType, n: int) -> Any:
    """The `n` elements of `type` from where `t` starts, whatever its own type and strides are."""
    size = n * type.type_size
    return x.raw(shadow(t, type, (n, 1, 1, 1), (type.type_size, size, size, size)))[0, 0, 0]


def flat_operand(x: Arrays, dst: Tensor, i: int = 0, dim: int = 1) -> Any:
    """Source `i` of `dst` as float32, as such a kernel reads it."""
    return x.f32(flat(x, source(dst, i), dim))


def packed_operand(x: Arrays, dst: Tensor) -> Any:
    """The only operand as float32, as kernels read it that take the elements of a row to lie side by side."""
    return flat_operand(x, dst, dim=3)
