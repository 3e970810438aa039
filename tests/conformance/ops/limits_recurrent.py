"""Scans, linear attention, the indexer: what the library's CPU refuses, by type and layout of each source."""

from __future__ import annotations

from tests.conformance.ops.deepseek import indexer
from tests.conformance.ops.recurrent import changed, conv, delta, gla, scan, wkv6, wkv7
from tests.conformance.ops_case import Call, Src, cut, permuted

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
