"""Custom ops against the real library: the tensors they make, and functions of Python behind both."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import NotComputable
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import (
    Call,
    Engine,
    Real,
    Src,
    bytes_of,
    call,
    check_result,
    cut,
    refuse,
)
from tests.conformance.releases import release_of

ADDRESSES = (0, 1, 3, 4, 5)
"""The words of op_params with the addresses of the function and of its data, and between them one that nobody sets."""

S, VIEW, BLOCKS = Src(ne=(5, 4, 3)), cut("f32", (5, 4), (8, 4)), Src("q8_0", (32, 2))


def mapped(n: int, *sources: Src, n_tasks: int = 1, inplace: bool = False) -> Call:
    name = f"map_custom{n}" + ("_inplace" if inplace else "")
    real = (name, *range(n), (_function,), (n_tasks,), (None,))
    return call(f"map_custom{n}", *sources, n_tasks, inplace=inplace, real=real)


def custom(*sources: Src, type: str = "f32", ne: tuple[int, int, int, int] = (5, 4, 3, 1)) -> Call:
    real = ("custom_4d", (type,), *((n,) for n in ne), (_array(0),), (len(sources),), (_function,), (1,), (None,))
    return call("custom", *sources, type=TYPES[type], ne=ne, n_tasks=1, real=real)


def custom_inplace(*sources: Src) -> Call:
    real = ("custom_inplace", 0, (_array(1),), (len(sources) - 1,), (_function,), (1,), (None,))
    return call("custom_inplace", *sources, n_tasks=1, real=real)


def _array(first: int) -> Callable[[Real], int]:
    """ggml's array of the sources from the given one on."""

    def make(real: Real) -> int:
        sources = real.sources[first:]
        kept.append((ctypes.c_void_p * (len(sources) + 1))(*sources))
        return ctypes.addressof(kept[-1])

    return make


def _function(real: Real) -> int:
    return ctypes.cast(kept[0], ctypes.c_void_p).value or 0 if kept else 0


kept: list[Any] = []
"""What the library refers to: the function (first, where there is one) and the arrays of sources."""


@pytest.fixture(autouse=True)
def nothing_is_kept() -> None:
    kept.clear()


CALLS = [
    *(mapped(n, *[S] * n, inplace=i) for n in (1, 2, 3) for i in (False, True)),
    mapped(1, VIEW),
    mapped(1, VIEW, inplace=True, n_tasks=-1),
    mapped(2, BLOCKS, S),
    custom(),
    custom(S, VIEW),
    custom(*[S] * 9, type="i32", ne=(3, 2, 1, 1)),
    custom_inplace(S),
    custom_inplace(VIEW, *[S] * 8),
]
ABORTS = [
    *(mapped(n, *[S] * n, n_tasks=t) for n in (1, 2, 3) for t in (0, -2)),
    custom(*[S] * 10),
    custom_inplace(*[S] * 10),
]


@pytest.mark.parametrize("case", CALLS, ids=str)
def test_the_tensor_is_ggmls_but_for_addresses(case: Call, lib: Lib) -> None:
    with lib.context() as ctx:
        expected = Real(lib, ctx, case).fields()
    words = [0 if i in ADDRESSES else word for i, word in enumerate(expected["op_params"])]
    assert Engine(case, release_of(lib)).fields() == {**expected, "op_params": tuple(words)}


@pytest.mark.parametrize("case", ABORTS, ids=str)
def test_ggml_refuses_for_the_same_reason(case: Call, lib: Lib) -> None:
    refuse(lib, [case])


def numbers(address: int) -> Any:
    """The elements of a contiguous f32 or i32 tensor of the library."""
    t = structs.Tensor.from_address(address)
    n = int(np.prod(t.ne))
    kind = ctypes.c_int32 if t.type == TYPES["i32"].id else ctypes.c_float
    return np.ctypeslib.as_array((kind * n).from_address(t.data)).reshape(tuple(t.ne)[::-1])


def weighted(*sources: Any) -> Any:
    return sum(((i + 1) * s for i, s in enumerate(sources)), np.float32(0.5))


def in_the_library(lib: Lib, case: Call, data: Sequence[bytes]) -> Any:
    """The values that the library computes with `weighted` behind a function of C."""
    n = int(case.fn[-1]) if case.fn.startswith("map") else 0

    def of_c(dst: int, *more: int) -> None:
        t = structs.Tensor.from_address(dst)
        numbers(dst)[...] = weighted(*(numbers(s) for s in t.src if s))

    kept.append(ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (n + 1), ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(of_c))
    with lib.context() as ctx:
        return Real(lib, ctx, case).compute(data)


COMPUTED = [
    *(mapped(n, *[S] * n, inplace=i) for n in (1, 2, 3) for i in (False, True)),
    custom(),
    custom(S, S),
    custom(*[Src("i32", (3, 2), data="ints")] * 9, type="i32", ne=(3, 2, 1, 1)),
    custom_inplace(S, S),
]


@pytest.mark.parametrize("case", COMPUTED, ids=str)
def test_a_function_of_python_computes_what_one_of_c_does(case: Call, lib: Lib) -> None:
    rng = np.random.default_rng(1)
    data = [bytes_of(lib, s, rng) for s in case.sources if s is not None]
    engine = Engine(case, release_of(lib))
    engine.result.fun = weighted
    check_result(case, engine.compute(data), in_the_library(lib, case, data))


def test_a_function_sees_floats_of_quantized_sources_and_cannot_change_them(lib: Lib) -> None:
    engine = Engine(custom(BLOCKS, ne=(32, 2, 1, 1)), release_of(lib))
    seen = []

    def fun(a: Any) -> Any:
        seen.append(a.copy())
        a[...] = 0
        return seen[0]

    engine.result.fun = fun
    data = bytes_of(lib, BLOCKS, np.random.default_rng(1))
    assert np.array_equal(engine.compute([data]), seen[0])
    assert seen[0].dtype == np.float32
    assert seen[0].any()


@pytest.mark.parametrize("given", [None, "text", np.zeros((2, 7)), {}, [None]])
def test_what_is_no_result_is_refused(given: Any, lib: Lib) -> None:
    engine = Engine(custom(S), release_of(lib))
    engine.result.fun = lambda a: given
    with pytest.raises(NotComputable, match="the function of"):
        engine.compute([bytes(240)])


def test_without_a_function_it_is_said_how_to_give_one(lib: Lib) -> None:
    with pytest.raises(NotComputable) as caught:
        Engine(mapped(1, S), release_of(lib)).compute([bytes(240)])
    assert "compute(custom=" in caught.value.explanation
