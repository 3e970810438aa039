"""The engine as it computes on another CPU: `pytest --another-cpu` runs tests with it.

What two CPUs disagree on is the last digit: BLAS adds products in the order that suits the processor, with or without
rounding each, and the functions of its math library are rounded well, not always to the nearest. Here what kernels read
are arrays whose operations do the same:

- a product, and a function such as `exp`, that float cannot hold exactly is rounded to one or the other of the two
  floats beside it, by chance;
- sums and the products of matrices are added up in another order.

What is exact on every CPU (small whole numbers, powers of two) stays exact, and the same operands give the same result:
chance is a hash of the value. Results that have to agree have to agree here, too; golden files hold what stays exact,
or are compared as numbers.

    python -m tests.another_cpu run transformer     # ggmltool's command line on that CPU
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from ggmltool.ggml.values.arrays import HostArrays

SEED = 20_261_122

ONE_BY_ONE = 1 << 18
"""A product of matrices with no more than so many products of elements moves each of them."""

_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_WIDER = {2: np.float32, 4: np.float64, 8: np.longdouble}
_MATRIX = (np.matmul, np.vecdot)
_ROUNDED: set[np.ufunc] = {
    np.multiply, np.power, np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sin, np.cos, np.tan,
    np.sinh, np.cosh, np.tanh, np.arctan, np.arctan2, np.cbrt, np.hypot,
}  # fmt: skip
"""Functions whose results are moved. IEEE 754 settles +, −, / and the square root of any CPU to the last digit."""


class MovedArray(np.ndarray[Any, Any]):
    """An array whose operations round and order as another CPU's would."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        args = [plain(x) for x in inputs]
        into = None if out is None else tuple(plain(x) for x in out)
        if method == "reduce" and ufunc is np.add and is_float(args[0]):
            args[0] = shuffled(args[0], kwargs.get("axis", 0))
        if ufunc in _MATRIX and method == "__call__" and all(map(is_float, args)):
            result = rows_times(*args) if ufunc is np.matmul else (args[0] * args[1]).sum(axis=-1)
            if into is not None and into[0] is not None:
                into[0][...] = result
                return out[0]
            return moved(result)
        rounds = ufunc in _ROUNDED and method in ("__call__", "outer")
        if rounds and into is not None:
            args = [x.copy() if isinstance(x, np.ndarray) and np.may_share_memory(x, into[0]) else x for x in args]
        result = getattr(ufunc, method)(*args, **({} if into is None else {"out": into}), **kwargs)
        if rounds and is_float(result):
            result = other_rounding(result, getattr(ufunc, method), args, into)
        if into is not None:
            return out[0] if len(out) == 1 else out
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.dot, np.inner, np.vdot, np.einsum, np.tensordot):
            raise TypeError(f"kernels multiply matrices with @; numpy.{function.__name__} would not be moved")
        result = super().__array_function__(function, types, args, kwargs)  # type: ignore[misc]
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)


def plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, MovedArray) else x


def moved(x: Any) -> Any:
    """The array as another CPU's; anything else as it is."""
    return x.view(MovedArray) if isinstance(x, np.ndarray) and is_float(x) and not isinstance(x, MovedArray) else x


def is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "f"


def by_chance(values: Any) -> Any:
    """For each float yes or no: a hash of its bits."""
    bits = np.asarray(values).view(_BITS[values.dtype.itemsize]).astype(np.uint64)
    return ((bits + np.uint64(SEED)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) & np.uint64(1) == 1


def other_rounding(result: Any, function: Callable[..., Any], args: list[Any], into: Any) -> Any:
    """The result, where it is not exact rounded to the float on the other side of the true value, or not, by chance."""
    if result.dtype.itemsize not in _WIDER or result.dtype == np.longdouble:
        return result
    wide = _WIDER[result.dtype.itemsize]
    with np.errstate(all="ignore"):
        true = function(*(a.astype(wide) if is_float(a) else a for a in args))
        beside = np.nextafter(result, np.where(true > result, np.inf, -np.inf).astype(result.dtype))
        moves = (true != result) & np.isfinite(true) & np.isfinite(result) & by_chance(result)
        rounded = np.where(moves, beside, result)
    if into is None:
        return rounded if isinstance(result, np.ndarray) else result.dtype.type(rounded)
    into[0][...] = rounded
    return into[0]


def order(n: int, *more: int) -> Any:
    """Another order of n summands."""
    return np.random.default_rng([SEED, n, *more]).permutation(n)


def shuffled(values: Any, axes: Any) -> Any:
    """The values in another order along the axes they are added up over."""
    if not isinstance(values, np.ndarray) or not values.ndim:
        return values
    for axis in range(values.ndim) if axes is None else axes if isinstance(axes, tuple) else (axes,):
        if not -values.ndim <= axis < values.ndim:
            raise AxisError(axis, values.ndim)
        values = np.take(values, order(values.shape[axis]), axis=axis)
    return values


def rows_times(a: Any, b: Any) -> Any:
    """a @ b: the products one after the other, each moved, in another order; of large matrices only the order."""
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    (m, n), k = (left.shape[-2], left.shape[-1]), right.shape[-1]
    at = order(n, m, k)
    if left.size * k * max(1, right.size // max(1, n * k)) > ONE_BY_ONE:
        result = left[..., at] @ right[..., at, :]
    else:
        shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        result = np.zeros((*shape, m, k), np.result_type(left, right))
        for i in at:
            result += plain(moved(left[..., :, i, None]) * right[..., None, i, :])
    if a.ndim == 1:
        result = result[..., 0, :]
    return result[..., 0] if b.ndim == 1 else result


_READ = ("raw", "decode")
_WRITE = ("encode",)
_PLAIN = {name: getattr(HostArrays, name) for name in (*_READ, *_WRITE)}


@contextmanager
def another_cpu() -> Iterator[None]:
    """While it lasts, what kernels and views read of tensors are moved arrays."""

    def reading(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args: moved(method(self, *map(plain, args)))

    def writing(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *args: method(self, *map(plain, args))

    before = {name: getattr(HostArrays, name) for name in _PLAIN}
    for name, method in _PLAIN.items():
        setattr(HostArrays, name, (reading if name in _READ else writing)(method))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(HostArrays, name, method)


@contextmanager
def reads_values() -> Iterator[list[bool]]:
    """While it lasts, the list gets its first element when values of a tensor are read."""
    found: list[bool] = []

    def decode(self: HostArrays, *args: Any) -> Any:
        if not found:
            found.append(True)
        return before(self, *args)

    before = HostArrays.decode
    HostArrays.decode = decode  # type: ignore[method-assign]
    try:
        yield found
    finally:
        HostArrays.decode = before  # type: ignore[method-assign]


if __name__ == "__main__":
    from ggmltool.cli.main import main

    with another_cpu():
        sys.exit(main())
