"""Steps of the optimizers against the real library: the parameter, and the momenta that AdamW changes with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.tensor import FLAG_PARAM
from ggmltool.ggml.values.arrays import HostArrays
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
    permuted,
    same_refusal,
    same_tensor,
    same_values,
)
from tests.conformance.releases import release_of

ADAMW = Src(ne=(7,), data=np.float32([1e-2, 0.9, 0.999, 1e-8, 1e-1, 1.1, 1.2]))
SGD = Src(ne=(2,), data=np.float32([1e-2, 1e-1]))


def param(s: Src) -> Src:
    return replace(s, flags=FLAG_PARAM)


LAYOUTS = [
    Src(ne=(1,)),
    Src(ne=(10, 5, 4, 3)),
    cut("f32", (8, 5, 3), (10, 6, 3)),
    permuted("f32", (6, 4, 5), (0, 2, 1, 3)),
]
OTHER_GRAD = cut("f32", (8, 5, 3), (8, 7, 3))


def adamw(a: Src, grad: Src | None = None, params: Src = ADAMW) -> Call:
    return call("opt_step_adamw", param(a), grad or a, a, replace(a, data="positive"), params)


CALLS = [
    *(adamw(s) for s in LAYOUTS),
    adamw(Src(ne=(7, 3), data="wide"), params=Src(ne=(7,), data=np.float32([0.3, 0.5, 0.1, 1e-3, 0, 2, 3]))),
    adamw(Src(ne=(8, 5, 3)), OTHER_GRAD),
    *(call("opt_step_sgd", param(s), s, SGD) for s in LAYOUTS),
    call("opt_step_sgd", param(Src(ne=(8, 5, 3))), OTHER_GRAD, SGD),
]
S, G = param(Src(ne=(8,))), Src(ne=(8,))
ABORTS = [
    call("opt_step_adamw", G, G, G, G, ADAMW),
    call("opt_step_adamw", S, Src(ne=(9,)), G, G, ADAMW),
    call("opt_step_adamw", S, G, Src(ne=(9,)), G, ADAMW),
    call("opt_step_adamw", S, G, G, Src(ne=(9,)), ADAMW),
    call("opt_step_adamw", S, G, G, G, Src("f16", (7,))),
    call("opt_step_adamw", S, G, G, G, Src(ne=(8,))),
    call("opt_step_sgd", G, G, SGD),
    call("opt_step_sgd", S, Src(ne=(9,)), SGD),
    call("opt_step_sgd", S, G, Src("f16", (2,))),
    call("opt_step_sgd", S, G, Src(ne=(3,))),
]
HALF = [call("opt_step_sgd", param(Src("f16", (8,))), G, SGD)]

test_the_tensor_is_ggmls = same_tensor(CALLS + HALF)
test_ggml_refuses_for_the_same_reason = same_refusal(ABORTS)
test_the_values_are_ggmls = same_values(CALLS)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_momenta_are_ggmls_too(layout: Src, lib: Lib) -> None:
    case = adamw(layout)
    rng = np.random.default_rng(1)
    data = [bytes_of(lib, s, rng) for s in case.sources if s is not None]
    engine = Engine(case, release_of(lib))
    engine.compute(data)
    ours = [HostArrays().get_bytes(t).view(np.float32) for t in engine.owners]
    with lib.context() as ctx:
        theirs = [np.frombuffer(raw, np.float32) for raw in Real(lib, ctx, case).memory_after(data)]
    for a, b in zip(ours, theirs, strict=True):
        check_result(case, a, b)
    assert not np.array_equal(theirs[2], np.frombuffer(data[2], np.float32))


def test_the_memory_of_the_parameter_is_the_results(lib: Lib) -> None:
    engine = Engine(call("opt_step_sgd", S, G, SGD), release_of(lib))
    engine.compute([np.ones(8, np.float32).tobytes()] * 2 + [np.float32([0.5, 0]).tobytes()])
    assert HostArrays().raw(engine.owners[0]).reshape(-1).tolist() == [0.5] * 8
    assert engine.result.op in KERNELS
