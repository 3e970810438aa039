"""Ops that a function of the program computes: map_custom1 to 3 and custom.

ggml keeps the address of a C function in op_params; here the node has a Python function (`Tensor.fun`), and the words
of the address are zero. The function is called once, with the sources as arrays of shape `ne` reversed (copies; float32
for every floating and quantized type; None for an empty slot), and returns the result's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ggmltool.ggml.context import Context
from ggmltool.ggml.dtypes import DType
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.op import Op
from ggmltool.ggml.ops.operands import requirer, same_as
from ggmltool.ggml.ops.registry import Arrays, Constructor, Raw, constructor, kernel, words
from ggmltool.ggml.tensor import MAX_SRC, Tensor, contiguous_nb

N_TASKS_MAX = -1
"""GGML_N_TASKS_MAX: as many threads as there are."""

N_TASKS = {"n_tasks": {"max": N_TASKS_MAX}}

_MEANS = {"n_tasks": "threads that call the function, max for all there are; here it is called once"}
_NOTE = "computed by a function that Python gives it: load(file).compute(custom={id: function})"


def _params(n_tasks: int) -> tuple[int, ...]:
    """ggml_custom_op_params: the function's address (two words), n_tasks, padding, the address of its data."""
    return words(0, 0, n_tasks)


def _map_custom(n: int, op: Op, ctx: Context, sources: Sequence[Tensor], n_tasks: int, inplace: bool) -> Tensor:
    condition = "n_tasks == GGML_N_TASKS_MAX || n_tasks > 0"
    why = "n_tasks is {}; it is the number of threads, or -1 for as many as there are"
    requirer(f"ggml_map_custom{n}_impl")(n_tasks == N_TASKS_MAX or n_tasks > 0, condition, why, n_tasks)
    return same_as(ctx, sources[0], inplace).set_op(op, _params(n_tasks), *sources)


def _read_n_tasks(raw: Raw) -> dict[str, int] | None:
    """The parameter of a captured map_custom; None for a node that was written without its words."""
    n_tasks = raw.word(2)
    return {"n_tasks": n_tasks} if n_tasks else None


_MAP = Constructor(
    Op.MAP_CUSTOM1,
    inplace=True,
    unpack=_read_n_tasks,
    choices=N_TASKS,
    shape="-> a.type[a.ne]",
    means=_MEANS,
    note=_NOTE,
)


@replace(_MAP, op=Op.MAP_CUSTOM1, example="x: f32[8, 4]; map_custom1(x)", prototype="tpip")
def map_custom1(ctx: Context, a: Tensor, n_tasks: int = N_TASKS_MAX, *, inplace: bool = False) -> Tensor:
    """ggml_map_custom1: what a function makes of a; the result has a's type and extents."""
    return _map_custom(1, Op.MAP_CUSTOM1, ctx, (a,), n_tasks, inplace)


@replace(_MAP, op=Op.MAP_CUSTOM2, example="a: f32[8, 4]; b: f32[8, 4]; map_custom2(a, b)", prototype="ttpip")
def map_custom2(ctx: Context, a: Tensor, b: Tensor, n_tasks: int = N_TASKS_MAX, *, inplace: bool = False) -> Tensor:
    """ggml_map_custom2: what a function makes of a and b; the result has a's type and extents."""
    return _map_custom(2, Op.MAP_CUSTOM2, ctx, (a, b), n_tasks, inplace)


@replace(
    _MAP,
    op=Op.MAP_CUSTOM3,
    example="a: f32[8, 4]; b: f32[8, 4]; c: f32[8, 4]; map_custom3(a, b, c)",
    prototype="tttpip",
)
def map_custom3(
    ctx: Context, a: Tensor, b: Tensor, c: Tensor, n_tasks: int = N_TASKS_MAX, *, inplace: bool = False
) -> Tensor:
    """ggml_map_custom3: what a function makes of a, b and c; the result has a's type and extents."""
    return _map_custom(3, Op.MAP_CUSTOM3, ctx, (a, b, c), n_tasks, inplace)


def _read_shape(raw: Raw) -> dict[str, Any] | None:
    """The parameters of a captured custom op; None where its strides are not those of a new tensor."""
    if raw.type is None or (raw.nb is not None and raw.nb != contiguous_nb(raw.type, raw.ne)):
        return None
    return {"type": raw.type, "ne": raw.ne, "n_tasks": raw.word(2)}


@constructor(
    Op.CUSTOM,
    canonical=True,
    unpack=_read_shape,
    choices=N_TASKS,
    since="2025-04-09",
    example="a: f32[8, 4]; b: f32[8, 4]; custom(a, b, type=f32, ne=[8, 4])",
    means=_MEANS,
    note=_NOTE,
    prototype="",
)
def custom(ctx: Context, *args: Tensor | None, type: DType, ne: Sequence[int], n_tasks: int = N_TASKS_MAX) -> Tensor:
    """ggml_custom_4d: what a function makes of at most 9 sources, in a type and extents of its own."""
    why = "a custom op takes at most {} sources, not {}"
    requirer("ggml_custom_4d")(len(args) < MAX_SRC, "n_args < GGML_MAX_SRC", why, MAX_SRC - 1, len(args))
    return ctx.new_tensor(type, ne).set_op(Op.CUSTOM, _params(n_tasks), *args)


@constructor(Op.CUSTOM, choices=N_TASKS, prototype="iqqqqpipip")
def custom_4d(
    ctx: Context,
    *args: Tensor | None,
    type: DType,
    ne0: int,
    ne1: int,
    ne2: int,
    ne3: int,
    n_tasks: int = N_TASKS_MAX,
) -> Tensor:
    """ggml_custom_4d, with an argument for each extent."""
    return custom(ctx, *args, type=type, ne=(ne0, ne1, ne2, ne3), n_tasks=n_tasks)


@constructor(Op.CUSTOM, choices=N_TASKS, prototype="tpipip")
def custom_inplace(ctx: Context, a: Tensor, *args: Tensor | None, n_tasks: int = N_TASKS_MAX) -> Tensor:
    """ggml_custom_inplace: what a function makes of a and at most 8 further sources, in the memory of a."""
    why = "a custom op in place takes at most {} sources beside a, not {}"
    requirer("ggml_custom_inplace")(len(args) < MAX_SRC - 1, "n_args < GGML_MAX_SRC - 1", why, MAX_SRC - 2, len(args))
    return ctx.view_tensor(a).set_op(Op.CUSTOM, _params(n_tasks), a, *args)


@kernel(Op.MAP_CUSTOM1, Op.MAP_CUSTOM2, Op.MAP_CUSTOM3, Op.CUSTOM)
def run_function(x: Arrays, dst: Tensor) -> None:
    """ggml_compute_forward_custom: the function is called as by the only thread."""
    function = f"ggml_compute_forward_{Op(dst.op).name.lower()}"
    if dst.fun is None:
        raise NotComputable(
            function,
            f"{dst.label} is computed by a function of the program, and there is none",
            explanation="a scenario's file cannot hold code: in Python, "
            f'ggmltool.load(file).compute(custom={{"{dst.label}": function}}); planning needs no function',
        )
    import numpy as np

    given = dst.fun(*[None if t is None else _values(x, t) for t in dst.src])
    shape = dst.ne[::-1]
    values = np.asarray(given)
    try:
        if values.dtype.kind in "OSU":
            raise TypeError
        values = np.broadcast_to(values, shape)
    except (TypeError, ValueError):
        found = f"an array of shape {list(values.shape)}" if values.ndim else repr(given)
        raise NotComputable(
            function,
            f"the function of {dst.label} gave {found}",
            explanation=f"it is to give the numbers of the result: an array of shape {list(shape)} (ne reversed), or "
            "one that broadcasts to it",
        ) from None
    x.put(dst, x.from_host(values))


def _values(x: Arrays, t: Tensor) -> Any:
    """A copy of a tensor's values: float32, or its own integers."""
    integers = t.type.name.startswith("i") and not t.type.quantized
    return x.to_host(x.raw(t) if integers else x.f32(t)).copy()
