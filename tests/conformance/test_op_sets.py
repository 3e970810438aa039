"""Sets of calls of every op, computed or refused by the engine as by the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggmltool.ggml.dtypes import TYPES
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.values.quants import dequantize
from ggmltool.oracle.lib import Abort, Lib
from tests.conformance.op_sets import SETS
from tests.conformance.ops_case import Call, bytes_of
from tests.conformance.releases import release_of
from tests.conformance.test_ops_random import compare, outcome_here, outcome_there


def outcome(release: Release, case: Call, data: list[bytes]) -> Any:
    """As `outcome_here`, where the values decide whether ggml asserts."""
    try:
        return outcome_here(release, case, data)
    except GgmlError as error:
        return error.message


def floats(result: Any) -> Any:
    """The same outcome, quantized values as float32: the library's vector code rounds halves to even, others away."""
    if isinstance(result, tuple):
        type = TYPES[result[0]["type"]]
        if type.quantized:
            return result[0], dequantize(result[1], type)
    return result


@pytest.mark.parametrize("op", SETS)
def test_the_engine_computes_or_refuses_as_the_library_does(op: str, lib: Lib) -> None:
    rng = np.random.default_rng(1)
    cases = [(c, [bytes_of(lib, s, rng) for s in (*c.sources, c.sinks) if s is not None]) for c in SETS[op]]
    here = [outcome(release_of(lib), *c) for c in cases]
    computed = [c for c, h in zip(cases, here, strict=True) if not isinstance(h, str)]
    there = lib.run_forked(lambda: [outcome_there(lib, *c) for c in computed])
    assert not isinstance(there, Abort), f"the library refuses what the engine computes: {there}"
    assert computed
    rest = iter(there)
    wrong = []
    for c, h in zip(cases, here, strict=True):
        real = lib.run_forked(lambda c=c: outcome_there(lib, *c)) if isinstance(h, str) else next(rest)  # type: ignore[misc]
        try:
            compare(c[0], floats(h), floats(real))
        except AssertionError as error:
            wrong.append(str(error).splitlines()[0])
    assert wrong == []
