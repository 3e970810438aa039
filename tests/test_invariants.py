"""The checker itself: it accepts what is right, and sees each kind of what is not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import ggmltool
from tests.conformance.fuzz import scenario
from tests.invariants import KNOWN_HAZARDS, Block, check_plan, overlaps, violations

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
    checked = 0
    for seed in range(first, first + 50):
        loaded = ggmltool.load(scenario(seed))
        for graph in loaded.model.graphs:
            plan = loaded.plan(graph)
            if plan.ok:
                kinds = {v.kind for v in violations(loaded.model, plan)}
                assert kinds <= KNOWN_HAZARDS, (seed, graph)
                checked += 1
    assert checked > 30
