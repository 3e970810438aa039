"""Finding the tensors of one graph again in another."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggmltool.ask.diff.matching import Item, in_order, match
from ggmltool.ask.diff.plans import plan_diff
from ggmltool.ask.diff.rules import changes, rules_of
from ggmltool.ask.diff.side import SWITCHES, scenario_side, turned_plans
from ggmltool.ggml.releases.release import Rules
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.samples import samples_folder
from ggmltool.scenario.scenario import LoadedScenario

F32, OTHER = ("f32", (4, 1, 1, 1)), ("f32", (8, 1, 1, 1))
LEAFS = [Item("w", "w", "NONE", F32), Item("x", "x", "NONE", F32)]


def node(id: str, op: str, *src: str, name: str | None = None, shape: object = F32) -> Item:
    return Item(id, id if name is None else name, op, shape, src)  # type: ignore[arg-type]


def test_tensors_with_the_same_id_and_op_are_partners_wherever_they_stand() -> None:
    a = [*LEAFS, node("p", "MUL_MAT", "w", "x"), node("q", "SILU", "x")]
    assert match(a, [*LEAFS, a[3], a[2]]) == {"w": "w", "x": "x", "p": "p", "q": "q"}


def test_the_same_id_with_another_op_is_another_node() -> None:
    assert "p" not in match([*LEAFS, node("p", "ADD", "w", "x")], [*LEAFS, node("p", "MUL", "w", "x")])


def test_nodes_with_one_name_are_partners_in_their_order() -> None:
    a = [*LEAFS, node("k", "ADD", "x"), node("k~1", "ROPE", "k", name="k")]
    b = [*LEAFS, node("k", "RESHAPE", "x"), node("k~1", "ADD", "k", name="k"), node("k~2", "ROPE", "k~1", name="k")]
    assert match(a, b) == {"w": "w", "x": "x", "k": "k~1", "k~1": "k~2"}


def test_numbers_that_ggml_gives_say_nothing() -> None:
    """Behind an additional node all numbers are others."""
    a = [
        *LEAFS,
        node("node_1", "ADD", "w", "x"),
        node("node_2", "ADD", "node_1", "x"),
        node("node_3", "SILU", "node_2"),
    ]
    b = [
        *LEAFS,
        node("node_1", "SQR", "x"),
        node("node_2", "ADD", "w", "x"),
        node("node_3", "ADD", "node_2", "x"),
        node("node_4", "SILU", "node_3"),
    ]
    assert match(a, b) == {"w": "w", "x": "x", "node_1": "node_2", "node_2": "node_3", "node_3": "node_4"}


def test_renamed_nodes_are_known_by_their_sources_and_then_without_their_shapes() -> None:
    a = [*LEAFS, node("p", "MUL_MAT", "w", "x"), node("q", "MUL_MAT", "x", "w")]
    b = [*LEAFS, node("other", "MUL_MAT", "x", "w", shape=OTHER), node("mine", "MUL_MAT", "w", "x")]
    assert match(a, b) == {"w": "w", "x": "x", "p": "mine", "q": "other"}


def test_leafs_that_are_numbered_are_known_by_their_shape() -> None:
    a = [Item("leaf_5", "leaf_5", "NONE", F32), Item("leaf_7", "leaf_7", "NONE", OTHER)]
    b = [Item("leaf_6", "leaf_6", "NONE", F32), Item("leaf_5", "leaf_5", "NONE", OTHER)]
    assert match(a, b) == {"leaf_5": "leaf_6", "leaf_7": "leaf_5"}


def test_what_is_left_is_known_by_its_place_behind_partners() -> None:
    a = [*LEAFS, node("p", "SQR", "x"), node("node_1", "ADD", "p", "w"), node("q", "SQRT", "node_1")]
    b = [*LEAFS, node("p", "SQR", "x"), node("node_1", "ADD", "p", "x"), node("q", "SQRT", "node_1")]
    assert match(a, b)["node_1"] == "node_1"


def test_leafs_with_other_names_and_shapes_are_known_by_what_uses_them() -> None:
    a = [*LEAFS, Item("few", "few", "NONE", F32), node("p", "MUL_MAT", "w", "few")]
    b = [*LEAFS, Item("many", "many", "NONE", OTHER), node("p", "MUL_MAT", "w", "many", shape=OTHER)]
    assert match(a, b)["few"] == "many"


GRAPHS = st.lists(
    st.tuples(st.sampled_from(["ADD", "MUL", "SQR"]), st.integers(0, 30), st.integers(0, 30), st.booleans()),
    max_size=30,
)


def graph_of(rows: list[tuple[str, int, int, bool]]) -> list[Item]:
    items = list(LEAFS)
    for op, first, second, is_named in rows:
        src = items[first % len(items)].id, items[second % len(items)].id
        n = len(items)
        items.append(node(f"t{n}" if is_named else f"node_{n}", op, *src))
    return items


@given(GRAPHS)
def test_every_tensor_of_a_graph_is_its_own_partner(rows: list[tuple[str, int, int, bool]]) -> None:
    items = graph_of(rows)
    found = match(items, items)
    by_id = {item.id: item for item in items}
    assert found.keys() == by_id.keys()

    def same(a: Item, b: Item) -> bool:
        return a.op == b.op and all(found[s] == t for s, t in zip(a.src, b.src, strict=True))  # type: ignore[index]

    assert all(same(by_id[a], by_id[b]) for a, b in found.items())


@given(GRAPHS, GRAPHS)
def test_a_tensor_has_one_partner_of_its_kind(
    a: list[tuple[str, int, int, bool]], b: list[tuple[str, int, int, bool]]
) -> None:
    one, other = graph_of(a), graph_of(b)
    found = match(one, other)
    assert len(set(found.values())) == len(found)
    ops_a, ops_b = ({item.id: item.op for item in items} for items in (one, other))
    assert all(ops_a[x] == ops_b[y] for x, y in found.items())


@given(st.permutations(range(8)))
def test_no_longer_run_is_in_order(values: list[int]) -> None:
    kept = sorted(in_order(values))
    chosen = [values[i] for i in kept]
    assert chosen == sorted(chosen)
    longer = combinations(values, len(kept) + 1)
    assert not any(list(some) == sorted(some) for some in longer)


@pytest.mark.parametrize("values", [[], [3], [3, 2, 1]])
def test_at_most_one_of_a_falling_row_stays(values: list[int]) -> None:
    assert len(in_order(values)) == min(1, len(values))


MARCH = RELEASES["2025-03"]


def opened(source: Any, ggml: str) -> Opened:
    return Opened(LoadedScenario(load_spec(source, ggml=ggml)), "it.yaml")


def named(source: Any, moment: Moment, older: str = "2025-03") -> list[tuple[str | None, list[str]]]:
    """The rules behind the difference of two releases, each with what it did."""
    a, b = (scenario_side(opened(source, ggml), moment) for ggml in (older, "0.20.2"))
    return [(rule.rule, [f.what for f in rule.changed]) for rule in rules_of(plan_diff(a, b))]


def test_a_switch_is_a_rule_and_its_change_is_listed() -> None:
    assert SWITCHES.keys() <= {field.name for field in fields(Rules)}
    assert set(SWITCHES.values()) <= {change.key for change in changes()}


def test_only_rules_that_change_the_plan_are_turned_plans() -> None:
    path = samples_folder() / "versions-splits.yaml"
    turned = turned_plans(opened(path, DEFAULT.name), Moment(graph="split_inputs"), MARCH)
    assert turned is not None
    assert list(turned) == ["split-inputs-30"]
    older = opened(path, MARCH.name).scenario.plan("split_inputs")
    assert [s.inputs for s in turned["split-inputs-30"].splits] == [s.inputs for s in older.splits]


def test_what_follows_from_a_switch_is_named_with_it() -> None:
    found = named(samples_folder() / "versions-splits.yaml", Moment(graph="split_inputs"))
    assert [key for key, _ in found] == ["split-inputs-30"]
    assert any("tensors elsewhere" in what for what in found[0][1])


def test_between_two_schedulers_there_are_no_switches() -> None:
    path = samples_folder() / "versions-splits.yaml"
    january = RELEASES["2024-01"]
    assert turned_plans(opened(path, DEFAULT.name), Moment(graph="split_inputs"), january) is None


def test_a_node_without_a_backend_is_not_blamed_on_the_pass_that_would_not_have_found_one() -> None:
    """March 2025's CPU refuses a node that reads a GPU's memory: taking the first able would have found none either."""
    source = {
        "ggmltool": 1,
        "backends": [{"name": "GPU0", "profile": "custom", "supports": {"only": ["mul_mat"]}}, "CPU"],
        "contexts": {"w": {"buft": "GPU0", "usage": "weights", "tensors": {"a": "f32[64, 64]", "b": "f32[64, 64]"}}},
        "graphs": {"main": {"nodes": {"s": "add(a, b)"}}},
    }
    (found,) = named(source, Moment())
    assert found[0] == "host-sources"
    assert "Assertion" in found[1][0]
