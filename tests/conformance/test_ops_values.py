"""What tables of calls do not say: values known by hand, memory that changes, and what is not computed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ggmltool.ggml.errors import GgmlError, NotComputable
from ggmltool.ggml.ops.cpu.limits import check
from ggmltool.ggml.values.arrays import HostArrays, dequantize
from ggmltool.oracle.lib import Lib
from tests.conformance.ops import glu, unary
from tests.conformance.ops.limits_recurrent import CONV, DELTA, LINEAR, SCAN, gaps
from tests.conformance.ops.optimize import LAYOUTS, SGD, G, S, adamw
from tests.conformance.ops.recurrent import changed, delta, scan
from tests.conformance.ops.rope import HEADS, NORMAL, rope
from tests.conformance.ops.rows import ids
from tests.conformance.ops_case import (
    Call,
    Engine,
    Real,
    Src,
    agree,
    both_values,
    call,
    check_result,
    check_values,
    data_of,
    outcome_here,
)
from tests.conformance.releases import release_of

QUANTIZED = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq2_0", "mxfp4")
INTO_QUANTIZED = [
    *(call("cpy", Src(of, (256, 6)), Src(type, (256, 6))) for type in QUANTIZED for of in ("f32", "f16", "bf16")),
    *(call("set_rows", Src(type, (256, 9)), Src(ne=(256, 4)), ids("i64", 4, high=9)) for type in QUANTIZED),
]


@pytest.mark.parametrize("case", INTO_QUANTIZED, ids=str)
def test_values_are_quantized_as_in_the_library(case: Call, lib: Lib) -> None:
    got, expected = (dequantize(v, case.sources[case.fn == "cpy"].dtype) for v in both_values(lib, case))  # type: ignore[union-attr]
    assert np.square(got - expected).mean() / np.square(expected).mean() < 1e-4


def test_values_may_be_written_over_their_source(lib: Lib) -> None:
    values = np.float32([1, 2, 3, 4])
    check_values(lib, call("mul", Src(ne=(4,), data=values), Src(ne=(1,), data=np.float32([2])), inplace=True))


def test_keys_are_scored_as_their_definition_says(lib: Lib) -> None:
    case = call(
        "lightning_indexer",
        Src(ne=(2, 2, 1), data=[[1, 2], [-3, -4]]),
        Src(ne=(2, 1, 3), data=[[1, 1], [-1, -1], [0, 5]]),
        Src(ne=(2, 1), data=[0.5, 2]),
        Src("f16", (3, 1), data=[0, 1, -np.inf]),
    )
    for values in both_values(lib, case):
        assert values.reshape(-1).tolist() == [1.5, 15.0, -np.inf]


@pytest.mark.parametrize("name", glu.NAMES)
def test_a_gated_unit_of_bf16_is_computed_by_releases_that_do(name: str, lib: Lib) -> None:
    case = call(name, Src("bf16", (256, 5), data="wide"))
    engine = Engine(case, release_of(lib))
    if release_of(lib).ops.has_bf16_functions:
        check_values(lib, case)
    else:
        engine.place()
        with pytest.raises(GgmlError):
            check(engine.result, engine.ctx.rules)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_the_momenta_are_ggmls_too(layout: Src, lib: Lib) -> None:
    case = adamw(layout)
    data = data_of(lib, case)
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


@pytest.mark.parametrize(
    ("case", "written"),
    [
        (scan(128, 64, 16, 2, 2, 3, keep=4), 64 * 16 * 2 * 3 + 2 * 128 * 64 * 16 * 3),
        (scan(5, 3, 2, 1, 1, 1, keep=9), 3 * 2 + 5 * 3 * 2),
        (delta(4, 16, 2, 2, keep=5), 16 * 4 * (2 * 2 + 2 * 16 * 2)),
    ],
    ids=str,
)
def test_with_fewer_tokens_than_states_to_keep_the_older_ones_are_left_as_they_are(
    case: Call, written: int, lib: Lib
) -> None:
    got, expected = (values.reshape(-1) for values in both_values(lib, case))
    check_result(case, got[:written], expected[:written])
    assert got.size > written
    assert not got[written:].any()


@pytest.mark.parametrize("order", [0, 1])
def test_equal_elements_of_long_rows_are_ordered_somehow(order: int, lib: Lib) -> None:
    values = np.random.default_rng(3).integers(0, 9, (4, 100)).astype(np.float32)
    got, expected = both_values(lib, call("argsort", Src(ne=(100, 4), data=values), order))
    rows = np.arange(4)[:, None]
    assert np.array_equal(values[rows, got[0, 0]], values[rows, expected[0, 0]])
    assert np.array_equal(np.sort(got), np.sort(expected))


def test_without_a_pair_to_turn_the_row_is_copied_where_that_ends(lib: Lib) -> None:
    case = rope(HEADS, 0, NORMAL)
    if not release_of(lib).ops.rope_has_offset:
        check_values(lib, case)
        return
    engine = Engine(case, release_of(lib))
    with pytest.raises(NotComputable, match="never comes to an end"):
        engine.compute([bytes(t.nbytes) for t in engine.owners])


def test_a_row_number_out_of_range_aborts_in_the_librarys_words(lib: Lib) -> None:
    cases = [
        call("get_rows", Src(ne=(8, 5)), Src("i32", (2,), data=[1, 5])),
        call("get_rows", Src("q8_0", (32, 5)), Src("i32", (2,), data=[1, -1])),
        call("set_rows", Src(ne=(8, 5)), Src(ne=(8, 2)), Src("i64", (2,), data=[1, 5])),
    ]
    assert all(isinstance(outcome_here(release_of(lib), case, data_of(lib, case)), GgmlError) for case in cases)
    agree(lib, [(case, 1) for case in cases])


@pytest.mark.parametrize("name", ["gelu", "gelu_quick"])
def test_the_table_of_every_half_is_ggmls(name: str, lib: Lib) -> None:
    halves = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    got, expected = both_values(lib, call(name, Src("f16", (1 << 16,), data=halves)))
    assert np.array_equal(got, expected, equal_nan=True)


@pytest.mark.parametrize("name", unary.NAMES)
def test_a_wide_range_of_numbers_agrees_closely(name: str, lib: Lib) -> None:
    got, expected = both_values(lib, call(name, Src(ne=(40001,), data=np.linspace(-20, 20, 40001))))
    assert np.allclose(got, expected, rtol=2e-6, atol=1e-7)


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
    release = release_of(lib)
    data = [bytes(t.nbytes) for t in Engine(case, release).owners]
    if case.fn == "ssm_scan" and case.sources[6] is not None:
        data[6] = np.array(case.sources[6].data, dtype=np.int32).tobytes()
    got = outcome_here(release, case, data)
    assert isinstance(got, NotComputable)
    assert words in f"{got.message} {got.explanation}"


def test_larger_operands_than_needed_are_read_in_part(lib: Lib) -> None:
    """q and k with longer rows and more tokens, a gate with more heads."""
    case = changed(changed(DELTA, 0, Src(ne=(9, 4, 5, 2))), 3, Src(ne=(1, 5, 4, 3), data=[-0.1]))
    agree(lib, [(replace(c, nmse=1e-6), 1) for c in (case, changed(LINEAR[0], 3, Src(ne=(64, 3))))])
