"""Comparing texts as numbers: what may differ on another CPU, and what may not (R9)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ggmltool
from tests.another_cpu import MovedArray, another_cpu
from tests.batches import each, in_batches
from tests.cli.conftest import SAMPLES
from tests.conformance.fuzz import scenario
from tests.drawn import Drawn
from tests.golden import FLOAT32, same_but_for_rounding
from tests.invariants import KNOWN_HAZARDS, Block, check_plan, overlaps, violations


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean 1.6731", "mean 1.6732"),
        ("  -0.94869   2.7757", "   -0.9487   2.7757"),
        ("y  0.999999\n──────────", "y  1\n──────"),
        ("1.0e-05 at [0, 3]", "1.00005e-05 at [0, 3]"),
        ('"nmse": 0.0013602147', '"nmse": 0.0013602091'),
        ("-0", "0"),
    ],
)
def test_texts_that_differ_in_a_last_digit_are_the_same(one: str, other: str) -> None:
    assert same_but_for_rounding(one, other, FLOAT32)
    assert same_but_for_rounding(other, one, FLOAT32)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("mean 1.6731", "mean 1.6741"),
        ("31 nodes", "32 nodes"),
        ("f32[32, 4]", "f32[32, 5]"),
        ("q4_0", "q4_1"),
        ("ggml 0.20.2", "ggml 0.20.3"),
        ("0.5 0.25", "0.5"),
        ("0.5 ok", "0.5 bad"),
        ('"nmse": 0.0013602147', '"nmse": 0.0013702147'),
        ("0.001", "-0.003"),
    ],
)
def test_other_values_names_and_counts_are_not(one: str, other: str) -> None:
    assert not same_but_for_rounding(one, other, FLOAT32)
    assert not same_but_for_rounding(other, one, FLOAT32)


def is_even(n: int) -> None:
    assert n % 2 == 0, "odd"


def test_every_case_is_checked_and_those_that_fail_are_named() -> None:
    with pytest.raises(AssertionError) as caught:
        each([1, 2, 3, 4], is_even)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[:2]] == ["2 of 4 fail", "1"]
    assert "\n3: AssertionError: odd" in str(caught.value)


def test_a_batch_of_none_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        each([], is_even)


@in_batches("n, half", [(2, 1), (4, 2), (5, 2)], by=lambda case: "even" if case[0] % 2 == 0 else "odd")
def test_an_item_has_all_cases_of_a_key(n: int, half: int, request: pytest.FixtureRequest) -> None:
    assert n // 2 == half
    assert request.node.callspec.id == ("even" if n % 2 == 0 else "odd")


RNG = np.random.default_rng(1)
A, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((40, 300), (300, 20)))


def on_it(values: Any) -> Any:
    return values.view(MovedArray)


def test_what_is_exact_stays_exact() -> None:
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.array_equal(on_it(whole) @ on_it(whole.T), whole @ whole.T)
    assert np.array_equal(on_it(whole) * np.float32(0.25), whole / 4)
    assert np.array_equal(on_it(whole).sum(axis=-1), [6, 22, 38])
    assert np.exp(on_it(np.zeros(3, np.float32))).tolist() == [1, 1, 1]


def test_products_are_moved_by_one_unit_in_the_last_place_and_not_all_of_them() -> None:
    for plain, moved in ((A * A, on_it(A) * A), (np.exp(A), np.exp(on_it(A)))):
        steps = np.abs(plain.view(np.int32) - np.asarray(moved).view(np.int32))
        assert steps.max() == 1
        assert 0.2 < steps.mean() < 0.7


@pytest.mark.parametrize("compute", [lambda a: a @ B, lambda a: a.sum(axis=-1), lambda a: np.exp(a).mean(axis=0)])
def test_sums_are_others_and_as_good(compute: Any) -> None:
    plain, moved = compute(A), np.asarray(compute(on_it(A)))
    assert moved.dtype == plain.dtype
    assert (plain != moved).any()
    assert np.allclose(plain, moved, rtol=1e-4, atol=1e-4)
    assert np.array_equal(moved, np.asarray(compute(on_it(A))))


def test_a_product_in_place_is_one_of_the_operands_that_it_had() -> None:
    a = on_it(A.copy())
    a *= B[:, :1].T
    assert np.allclose(a, A * B[:, :1].T, rtol=1e-6)


@pytest.mark.skipif("config.getoption('--another-cpu')", reason="there is no other one to compare with")
def test_a_graph_computes_other_values_and_nearly_the_same() -> None:
    scenario = ggmltool.load(SAMPLES / "transformer.yaml")
    plain = scenario.compute()["out"]
    with another_cpu():
        other = np.asarray(scenario.compute()["out"])
    assert (plain != other).any()
    assert np.allclose(plain, other, rtol=1e-3, atol=1e-4)
    assert np.array_equal(plain, scenario.compute()["out"])


SOURCE: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["GPU0", "CPU"],
    "contexts": {
        "w": {"buft": "GPU0", "usage": "weights", "tensors": {"w": "f32[64, 64]"}},
        "c": {"buft": "CPU", "usage": "weights", "tensors": {"u": "f32[64, 64]"}},
        "inputs": {"tensors": {"x": {"type": "f32", "ne": [64, 4], "flags": ["input"]}}},
    },
    "graphs": {
        "g": {
            "nodes": {
                "a": "mul_mat(w, x)",
                "b": "sin(a)",
                "c": "mul_mat(u, b)",
                "d": "mul_mat(w, c)",
                "e": "add(d, a)",
            }
        }
    },
}

Change = Callable[[dict[str, Any]], None]


def node(plan: dict[str, Any], id: str) -> dict[str, Any]:
    return next(n for n in plan["nodes"] if n["id"] == id)


def move(id: str, **fields: Any) -> Change:
    return lambda plan: node(plan, id).update(fields)


def copy_row(**fields: Any) -> Change:
    return lambda plan: plan["copies"][0].update(fields)


def reorder(plan: dict[str, Any]) -> None:
    plan["nodes"][0], plan["nodes"][1] = plan["nodes"][1], plan["nodes"][0]


def without_copies(plan: dict[str, Any]) -> None:
    plan["splits"][1]["inputs"] = []


def original_source(plan: dict[str, Any]) -> None:
    node(plan, "c")["src"] = ["u", "b"]


def splits_apart(plan: dict[str, Any]) -> None:
    plan["splits"][1]["i_start"] += 1


CHANGES: list[tuple[Change, str]] = [
    (move("b", offset=1024), "overlap"),
    (move("a", offset=0), "overlap"),
    (move("e", offset=128), "overlap"),
    (copy_row(offset=1024), "overlap"),
    (move("b", offset=1 << 20), "bounds"),
    (move("b", chunk=1), "bounds"),
    (move("b", offset=2049), "alignment"),
    (move("b", alloc_size=100), "size"),
    (reorder, "order"),
    (without_copies, "order"),
    (splits_apart, "order"),
    (original_source, "unreadable"),
    (copy_row(buffer="CPU"), "unreadable"),
]


def test_a_right_plan_has_no_violations() -> None:
    loaded = ggmltool.load(SOURCE)
    plan = loaded.plan()
    assert [n.offset for n in plan.nodes if n.id in "ab"] == [1024, 0]
    assert violations(loaded.model, plan) == []


@pytest.mark.parametrize(("change", "kind"), CHANGES)
def test_a_changed_plan_is_seen(change: Change, kind: str) -> None:
    loaded = ggmltool.load(SOURCE)
    plan = copy.deepcopy(loaded.plan().as_dict())
    change(plan)
    assert kind in {v.kind for v in violations(loaded.model, plan)}
    with pytest.raises(AssertionError, match=kind):
        check_plan(loaded.model, plan)


def block(name: str, start: int, end: int, first: int, last: int, *in_place: str, keep: bool = False) -> Block:
    return Block(name, ("B", 0), start, end, first, last, keep, None, set(in_place))


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        (block("a", 0, 10, 0, 5), block("b", 10, 20, 0, 5), []),
        (block("a", 0, 10, 0, 5), block("b", 0, 10, 6, 7), []),
        (block("a", 0, 10, 0, 5), block("b", 0, 10, 5, 7), ["overlap"]),
        (block("a", 0, 10, 0, 5), block("b", 0, 10, 5, 7, "a"), []),
        (block("a", 0, 10, 0, 5), block("b", 2, 10, 5, 7, "a"), ["overlap"]),
        (block("a", 0, 10, 0, 5), block("b", 0, 12, 5, 7, "a"), ["overlap"]),
        (block("a", 0, 10, 0, 6), block("b", 0, 10, 5, 7, "a"), ["overlap"]),
        (block("a", 0, 10, 0, 5, keep=True), block("b", 0, 10, 9, 9), ["overlap"]),
        (block("a", 0, 10, 0, 5), block("b", 5, 5, 0, 5), []),
        (block("a", 0, 100, 0, 9), block("b", 99, 120, 3, 4), ["overlap"]),
    ],
)
def test_blocks_overlap_in_bytes_and_time(a: Block, b: Block, kinds: list[str]) -> None:
    assert [v.kind for v in overlaps([a, b])] == kinds
    assert [v.kind for v in overlaps([b, a])] == kinds


def test_chunks_do_not_overlap() -> None:
    a, b = block("a", 0, 10, 0, 5), block("b", 0, 10, 0, 5)
    b.memory = ("B", 1)
    assert overlaps([a, b]) == []


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_the_plans_of_random_scenarios_have_known_hazards_only(first: int) -> None:
    for seed in (drawn := Drawn(range(first, first + 50), 30)):
        loaded = ggmltool.load(scenario(seed))
        for graph in loaded.model.graphs:
            plan = loaded.plan(graph)
            if plan.ok:
                kinds = {v.kind for v in violations(loaded.model, plan)}
                assert kinds <= KNOWN_HAZARDS, (seed, graph)
                drawn.found += 1
