"""A library is compared with a release from which it differs by what we know: that is what has to be found."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("libggml")

import ggmltool
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.oracle.lib import OracleUnavailable
from tests.conformance.ops.sets import SETS
from tests.follow import tables
from tests.follow.__main__ import main
from tests.follow.calls import calls
from tests.follow.layouts import Field, sched_fields, table_fields
from tests.follow.library import Library, library_at, library_of
from tests.follow.report import Report
from tests.follow.scenarios import Kind, compared, random_case, sign, switches_to_turn
from tests.follow.search import Found, Search
from tests.follow.shrink import without_nodes

OURS = RELEASES["0.20.2"]


class Here(Executor):
    """Does everything at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Any:
        return map(fn, *iterables)


@pytest.fixture(scope="module")
def library() -> Library:
    found = library_of(OURS)
    assert found is not None
    return found


def otherwise(**rules: Any) -> Release:
    """0.20.2 with switches in another position."""
    return replace(OURS, rules=replace(OURS.rules, **rules))


def search(library: Library, like: Release, kind: Kind, seed: int) -> Found:
    return Search(library, like, Here(), 8, lambda _: None).run({kind: range(seed, seed + 1)})


CASES: list[tuple[dict[str, Any], Kind, int]] = [
    ({"max_split_inputs": 10}, "plans", 44),
    ({"ignores_weights": frozenset()}, "plans", 14),
    ({"copies_leafs_last": True}, "plans", 28),
    ({"records_every_split": True}, "calls", 5),
]


@pytest.mark.parametrize(("rules", "kind", "seed"), CASES, ids=[next(iter(rules)) for rules, *_ in CASES])
def test_a_switch_that_is_turned_is_named(library: Library, rules: dict[str, Any], kind: Kind, seed: int) -> None:
    like = otherwise(**rules)
    found = search(library, like, kind, seed)
    (name,) = rules
    assert [[turn.field for turn in rule.turns] for rule in found.rules] == [[name]]
    assert getattr(found.found.rules, name) == getattr(OURS.rules, name)
    (rule,) = found.rules
    assert OURS.name in rule.turns[0].releases
    small = rule.smallest
    assert compared(small.case, like, small.real) == list(small.told) != []
    assert compared(small.case, OURS, small.real) == []
    assert small.size < len(str(random_case(kind, seed, OURS).document)) / 2


def test_where_no_switch_helps_the_first_difference_is_shown(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.follow.search.switches_to_turn", lambda release: ())
    found = search(library, otherwise(copies_leafs_last=True), "plans", 28)
    (rule,) = found.rules
    assert (rule.turns, rule.seeds) == ((), ("plans 28",))
    text = Report("ggml", OURS, search=found).text()
    assert "1. no known rule\n" in text
    assert rule.smallest.told[0] in text


def test_structs_are_found_where_they_are(library: Library) -> None:
    fields = [*table_fields(library.lib), *sched_fields(library.lib)]
    assert [f for f in fields if f.differs or (f.found is None and f.expected is not None)] == []
    assert {f.name: f.found for f in fields if f.struct == "ggml_backend_buffer_type"} == {
        "get_name": 0, "alloc_buffer": 8, "alloc_buffer_n": None, "get_alignment": 16, "get_max_size": 24,
        "get_alloc_size": 32, "get_alloc_size_n": None, "is_host": 40, "device": 48,
    }  # fmt: skip


def test_a_struct_that_is_laid_out_otherwise_is_named() -> None:
    report = Report("ggml 1", OURS, [Field("ggml_backend_sched", "debug", 0x414, 0x41C), Field("s", "x", 8, 8)])
    assert report.differs
    assert "  ggml_backend_sched.debug is at 0x41c; ggmltool has it at 0x414\n" in report.text()
    assert report.document()["structs"] == [
        {"struct": "ggml_backend_sched", "name": "debug", "expected": 0x414, "found": 0x41C}
    ]


def test_rules_that_tables_show_are_read_out(library: Library) -> None:
    rules = replace(OURS.rules, expanding_ops=frozenset((Op.MUL_MAT,)), inplace_ops=OURS.rules.inplace_ops | {Op.SUM})
    other = replace(OURS, rules=rules, tensor_size=OURS.tensor_size + 16, date="2026-12-01")
    found = dict(tables.tables(library.lib, other))
    assert found["expanding_ops"] == "a device may ask for more than a result's bytes for all"
    assert found["sizes"] == "a tensor in a context has 368, not 384"
    assert found["inplace_ops"] == "SUM cannot be computed in place"
    assert found["failed-reserve"].startswith("of a graph that gets no memory ")


def test_a_constructor_that_makes_another_tensor_is_named(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.follow.calls.SETS", {op: SETS[op] for op in ("sum", "one number")})
    other = replace(OURS, ops=replace(OURS.ops, clamp_is_new=True))
    found = dict(calls(library.lib, other))
    assert found.keys() == {"one number, view_src", "one number, name"}
    assert found["one number, view_src"].endswith("calls; clamp(f32[10, 5, 4, 3], -0.5, 0.5): 0, not None")


def test_switches_are_turned_to_what_other_releases_have() -> None:
    turns = {(t.field, t.value): t.releases for t in switches_to_turn(OURS)}
    assert "0.26" in turns["copies_leafs_last", True]
    assert turns["max_split_inputs", 10] == ("2025-03",)
    assert turns["reserve_waits_first", False]


def test_differences_are_grouped_by_what_they_are_about() -> None:
    assert sign("plan 0 (alloc g0) nodes[12].offset: 0, not 512") == "alloc: nodes[].offset"
    assert sign("plan 3 (reserve g1) buffer_sizes.CPU: 1, not 2") == "reserve: buffer_sizes"
    assert sign("call 7: event_wait CUDA0 1, not synchronize CUDA0") == "call: event_wait, not synchronize"
    assert sign("get 0: n3: NMSE 1.0e+00") == "get"


def test_a_node_is_left_out_with_what_needs_it() -> None:
    nodes = {"a": {"op": "sqr", "src": ["x"]}, "b": {"op": "add", "src": ["a", "x"]}, "c": "sqr(b)", "d": "sqr(x)"}
    document = {"graphs": {"g": {"nodes": nodes, "expand": ["c", "d"]}}, "steps": ["alloc g", {"get": ["c"]}]}
    without_nodes("g", ["a"], document)
    assert document == {"graphs": {"g": {"nodes": {"d": "sqr(x)"}, "expand": ["d"]}}, "steps": ["alloc g", {"get": []}]}


def run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out):
        status = main(arguments)
    return status, out.getvalue()


def test_the_command_line_says_that_nothing_differs(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.follow.calls.SETS", {op: SETS[op] for op in ("sum", "one number", "mul_mat")})
    status, text = run("--library", str(library.files.base.parent), "--like", "0.20.2", "--seeds", "10")
    assert (status, max(map(len, text.splitlines())) <= 80) == (0, True)
    assert "compared with ggmltool's ggml 0.20.2" in " ".join(text.split())
    assert text.endswith("Random scenarios (10 planned, 2 computed): no difference\n")


def test_the_report_has_the_smallest_scenario_which_runs(library: Library) -> None:
    found = search(library, otherwise(copies_leafs_last=True), "plans", 28)
    report = Report("ggml 0.20.2 (libggml-base.so)", OURS, search=found)
    text = report.text()
    assert max(map(len, text.splitlines())) <= 80
    assert "1. copies_leafs_last: False, as in 0.21, 0.20.2" in text
    document = json.loads(json.dumps(report.document()))
    assert document["differs"]
    assert document["rules"][0]["switches"][0]["rule"] == "copies_leafs_last"
    shown = text.partition("the smallest found:\n")[2].partition("     ggmltool: 1")[2]
    scenario = yaml.safe_load("     ggmltool: 1" + shown)
    assert {**scenario, "name": None} == {**document["rules"][0]["scenario"], "name": None}
    assert ggmltool.load(scenario).run()


def test_what_is_no_library_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "libx.so").write_bytes(b"no library")
    with pytest.raises(OracleUnavailable, match="exports ggml_backend_sched_new"):
        library_at(tmp_path)
    assert main(["--library", str(tmp_path)]) == 2
    assert "There is no library at" in capsys.readouterr().err
