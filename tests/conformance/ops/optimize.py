"""Steps of the optimizers: the parameter, and the momenta that AdamW changes with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ggmltool.ggml.tensor import FLAG_PARAM
from tests.conformance.ops_case import Call, Src, call, cut, permuted

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


COMPUTED = [
    *(adamw(s) for s in LAYOUTS),
    adamw(Src(ne=(7, 3), data="wide"), params=Src(ne=(7,), data=np.float32([0.3, 0.5, 0.1, 1e-3, 0, 2, 3]))),
    adamw(Src(ne=(8, 5, 3)), OTHER_GRAD),
    *(call("opt_step_sgd", param(s), s, SGD) for s in LAYOUTS),
    call("opt_step_sgd", param(Src(ne=(8, 5, 3))), OTHER_GRAD, SGD),
]
S, G = param(Src(ne=(8,))), Src(ne=(8,))
REFUSED = [
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
SHAPED = [call("opt_step_sgd", param(Src("f16", (8,))), G, SGD)]
