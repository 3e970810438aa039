"""Scans, linear attention, the indexer: what the library's CPU refuses, by type and layout of each source."""

from __future__ import annotations

import numpy as np
import pytest

from ggmltool.ggml.errors import NotComputable
from ggmltool.oracle.lib import Lib
from tests.conformance.ops_case import Call, Engine, Src, call, cut, for_each_apart, permuted
from tests.conformance.releases import release_of
from tests.conformance.small import each_apart
from tests.conformance.test_ops_cpu_limits_matrix import attempt, check_outcome, engine_outcome
from tests.conformance.test_ops_deepseek import indexer
from tests.conformance.test_ops_recurrent import changed, conv, delta, gla, scan, wkv6, wkv7

PLAIN = ("f16", "bf16", "i32", "i64")
TYPES = (*PLAIN, "q8_0", "q4_0")
CONV, SCAN, DELTA = conv(32, 4, 32), scan(32, 32, 4, 2, 3, 2), delta(4, 8, 3, 2)
LINEAR = (wkv6(2, 64, 3, 2), wkv7(2, 64, 3, 2), gla(2, 64, 3, 2))
INDEXER = indexer(32, 32, 4, d=32)


def retyped(case: Call, i: int, type: str) -> Call:
    old = case.sources[i]
    assert old is not None
    return changed(case, i, Src(type, old.ne, data="ints"))


def spread(case: Call, i: int) -> Call:
    """The elements of a row of source `i` lie apart."""
    old = case.sources[i]
    assert old is not None
    swapped = (old.dims[1], old.dims[0], *old.dims[2:])
    return changed(case, i, permuted(old.type, swapped, (1, 0, 2, 3)))


def gaps(case: Call, i: int) -> Call:
    """There are gaps between the rows of source `i`."""
    old = case.sources[i]
    assert old is not None
    return changed(case, i, cut(old.type, old.dims, (old.dims[0] + 32, *old.dims[1:])))


CASES = [
    *(retyped(CONV, 0, t) for t in PLAIN),
    *(retyped(CONV, 1, t) for t in TYPES),
    *(spread(CONV, i) for i in (0, 1)),
    gaps(CONV, 0),
    *(retyped(SCAN, i, t) for i in range(6) for t in (PLAIN if i in (2, 3) else TYPES)),
    changed(SCAN, 6, Src("i32", (2,), (8, 16, 16, 16), data=[0, 0, 1, 1])),
    *(retyped(c, i, t) for c in LINEAR for i in range(len(c.sources)) for t in TYPES),
    *(retyped(INDEXER, 1, t) for t in (*TYPES, "i8", "f64", "iq4_nl", "mxfp4")),
    *(spread(INDEXER, i) for i in range(4)),
    *(gaps(INDEXER, i) for i in (0, 2, 3)),
    scan(8, 4, 6, 4, 3, 2),
]


test_the_cpu_computes_or_refuses_as_ggml_does = for_each_apart(attempt, check_outcome)(CASES)


BEYOND = [
    (gaps(CONV, 1), "depends on the number of its threads"),
    (changed(SCAN, 6, Src("i32", (2,), data=[0, 3])), "names it"),
    (changed(SCAN, 6, Src("i32", (2,), data=[-1, 0])), "names it"),
    *((changed(c, len(c.sources) - 1, Src(ne=(64 * 64 * 2, 4))), "the same number for each of 4") for c in LINEAR),
    (changed(LINEAR[0], 3, Src(ne=(64,))), "must have 128 elements"),
    (changed(LINEAR[1], 0, Src(ne=(64, 2, 5))), "must have 768 elements"),
    (changed(DELTA, 0, Src(ne=(7, 4, 3, 2))), "rows of 8"),
    (changed(DELTA, 1, Src(ne=(8, 4, 2, 2))), "3 tokens"),
    (changed(DELTA, 1, Src(ne=(8, 4, 3, 3))), "divide the 2"),
    (changed(DELTA, 3, Src(ne=(1, 3, 3, 2))), "[…, 4, 3, 2]"),
    (changed(DELTA, 4, Src(ne=(1, 4, 3, 1))), "[…, 4, 3, 2]"),
]
"""What ggml builds and does not check: it would read or write elsewhere."""


@pytest.mark.parametrize(("case", "words"), BEYOND, ids=str)
def test_what_leads_ggml_out_of_a_tensor_is_not_computed(case: Call, words: str, lib: Lib) -> None:
    engine = Engine(case, release_of(lib))
    data = [bytes(t.nbytes) for t in engine.owners]
    if case.fn == "ssm_scan" and case.sources[6] is not None:
        data[6] = np.array(case.sources[6].data, dtype=np.int32).tobytes()
    got = engine_outcome(release_of(lib), case, data)
    assert isinstance(got, NotComputable)
    assert words in f"{got.message} {got.explanation}"


def test_larger_operands_than_needed_are_read_in_part(lib: Lib) -> None:
    """q and k with longer rows and more tokens, a gate with more heads."""
    case = changed(DELTA, 0, Src(ne=(9, 4, 5, 2)))
    cases = [
        changed(case, 3, Src(ne=(1, 5, 4, 3), data=[-0.1])),
        call(LINEAR[0].fn, *LINEAR[0].sources[:3], Src(ne=(64, 3)), *LINEAR[0].sources[4:]),
    ]
    for each, outcome in zip(cases, each_apart(release_of(lib).name, attempt, cases), strict=True):
        check_outcome(lib, each, outcome)
