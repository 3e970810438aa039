"""Logs of llama.cpp's eval callback: what is read of them, and which nodes they are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import ggmltool
from ggmltool.scenario.errors import ScenarioError
from ggmltool.sources.values import files as module
from ggmltool.sources.values.files import EvalEntry, log_nodes, parse_eval_log, read_eval_log
from tests.scenarios import scenario_of
from tests.sources.eval_printer import printed

FIRST_DIALECT = """\
llama_new_context_with_model: graph splits = 2
ggml_debug:                 inp_embd = (f32)   GET_ROWS(embd{2560, 51200, 1, 1}, ids{1, 1, 1, 1}}) = {2560, 1, 1, 1}
                                     [
                                      [
                                       [ -0.0181,   0.0272,   0.0272, ...],
                                      ],
                                     ]
ggml_debug:                   norm-0 = (f32)       NORM(CUDA0#inp_embd#0{2560, 1, 1, 1}, }) = {2560, 1, 1, 1}
                                     [
                                      [
                                       [ -0.6989,   1.0636,   1.0636, ...],
                                      ],
                                     ]
"""


def parsed(text: str) -> list[EvalEntry]:
    return parse_eval_log(text.splitlines()).entries


def test_the_first_dialect_has_only_the_first_elements_and_no_sum() -> None:
    first, second = parsed(FIRST_DIALECT)
    assert (first.name, first.type, first.op, first.ne, first.line) == (
        "inp_embd",
        "f32",
        "GET_ROWS",
        (2560, 1, 1, 1),
        2,
    )
    assert first.points == [(0, -0.0181), (1, 0.0272), (2, 0.0272)]
    assert (second.name, second.total) == ("norm-0", None)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (1, 1, 3, 5), (1, 1, 9, 20), (2, 8, 7, 6), (3, 2, 30, 40), (1, 1, 1, 7)]
)
@pytest.mark.parametrize("prefix", ["", "0.00.123.456 I ", "\x1b[32m", "[12:00:01] out: "])
def test_printed_elements_come_back_at_their_places(shape: tuple[int, ...], prefix: str) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32) * 100
    text = printed("Qcur-0 (view)", "f32", "MUL_MAT", [("w", (4, 4, 1, 1)), ("x", (4, 8, 1, 1))], values)
    [entry] = parsed("\n".join(prefix + line for line in text.splitlines()))
    assert (entry.name, entry.op, entry.ne) == ("Qcur-0 (view)", "MUL_MAT", shape[::-1])
    assert len(entry.points) == math.prod(min(n, 6) for n in shape[1:]) * shape[0]
    for at, value in entry.points:
        assert value == pytest.approx(values.reshape(-1)[at], abs=5.1e-5, rel=1e-6)
    assert entry.total == pytest.approx(float(values.sum()), rel=1e-3, abs=1e-2)


def test_nan_and_infinities_are_values() -> None:
    values = np.array([[[[math.nan, math.inf, -math.inf, 1.0]]]], dtype=np.float32)
    [entry] = parsed(printed("x", "f32", "SQR", [("y", (4, 1, 1, 1))], values))
    assert [v for _, v in entry.points][1:] == [math.inf, -math.inf, 1.0]
    assert math.isnan(entry.points[0][1])


def test_a_sum_of_the_printed_elements_is_told_from_one_of_all() -> None:
    values = np.arange(1, 101, dtype=np.float32).reshape(1, 1, 1, 100)
    text = printed("x", "f32", "SQR", [], values)
    assert not parse_eval_log(text.splitlines()).totals_of_points
    few = text.replace("sum = 5050.000000", "sum = 303.000000")
    assert few != text
    assert parse_eval_log(few.splitlines()).totals_of_points


def test_what_does_not_belong_there_is_passed_over() -> None:
    values = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    lines = printed("x", "f32", "SQR", [], values).splitlines()
    lines[3:3] = ["llama_decode: something else", "", "]]]]" * 3, "1.5, 2.5"]
    entries = parse_eval_log([*lines, "sum of all evil", "] ] ["]).entries
    assert [e.name for e in entries] == ["x"]
    assert parsed("[[[[[[[[ 1.0, ...") == []


def test_a_log_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros((1, 1, 6, 6), dtype=np.float32)
    text = printed("x", "f32", "SQR", [], values) * 5
    monkeypatch.setattr(module, "MAX_ELEMENTS", 50)
    log = parse_eval_log(text.splitlines())
    assert log.left_out
    assert sum(len(e.points) for e in log.entries) <= 72
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    assert len(parse_eval_log(text.splitlines()).entries) == 2


def test_a_log_without_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("llama_model_loader: nothing\n")
    with pytest.raises(ScenarioError, match="there is no node in this log"):
        read_eval_log(tmp_path / "empty.log")


SCENARIO = scenario_of(
    {"x": {"type": "f32", "ne": [8, 2], "data": {"normal": {"seed": 1}}}},
    {
        "cur": {"op": "sqr", "src": ["x"], "name": "Qcur-0"},
        "cur~2": {"op": "scale", "src": ["cur"], "s": 2.0, "name": "Qcur-0"},
        "again": {"op": "scale", "src": ["cur~2"], "s": 2.0, "name": "Qcur-0"},
    },
)


def test_nodes_of_one_name_are_told_by_op_and_order() -> None:
    model = ggmltool.load(SCENARIO).model

    def of(op: str, value: float) -> str:
        return printed("Qcur-0", "f32", op, [], np.full((1, 1, 2, 8), value, dtype=np.float32))

    text = of("SQR", 1) + of("SCALE", 2) + of("SCALE", 3) + of("SCALE", 4) + of("SILU", 5)
    found = log_nodes(parse_eval_log(text.splitlines()), model, "main", "x.log")
    assert {id: s.values[0] for id, s in found.samples.items()} == {"cur": 1, "cur~2": 2, "again": 3}
    assert found.unknown == ["Qcur-0 (SILU [8, 2, 1, 1])"]


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("Qcur-0", (1, 1, 3, 8), r"Qcur-0 has ne \[8, 3, 1, 1\] in the log and \[8, 2, 1, 1\] in the graph"),
        ("embd", (1, 1, 2, 8), "the log begins with embd"),
    ],
)
def test_a_log_of_another_graph_says_why(name: str, shape: tuple[int, ...], message: str) -> None:
    text = printed(name, "f32", "SQR", [], np.zeros(shape, dtype=np.float32))
    with pytest.raises(ScenarioError) as caught:
        log_nodes(parse_eval_log(text.splitlines()), ggmltool.load(SCENARIO).model, "main", "x.log")
    assert "no node of this log is in graph main" in str(caught.value)
    import re

    assert re.search(message, caught.value.expected)


@pytest.mark.parametrize(
    "line",
    [
        "a" * 10**6,
        "[" * 10**6 + "x",
        "x: " * 300_000,
        "a: " + " " * 10**6 + "= (f32",
        "(" * 500_000,
        "[ 1.0, " * 10**5 + "x",
    ],
    ids=["letters", "brackets", "heads", "blanks", "parentheses", "elements"],
)
def test_lines_that_are_made_to_be_slow_are_read_at_once(line: str) -> None:
    import time

    start = time.process_time()
    parse_eval_log([*FIRST_DIALECT.splitlines(), line, f"sum = {'1' * 10**5}"])
    assert time.process_time() - start < 2
