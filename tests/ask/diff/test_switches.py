"""`diff --ggml A,B` turns rules one at a time: what is named makes the difference."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ggmltool.ask.diff.plans import plan_diff
from ggmltool.ask.diff.rules import changes, rules_of
from ggmltool.ask.diff.side import scenario_side
from ggmltool.ask.diff.switches import SWITCHES, turned_plans
from ggmltool.ggml.releases.release import Rules
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.inspect.opened import Moment, Opened
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.samples import samples_folder
from ggmltool.scenario.scenario import Scenario

MARCH = RELEASES["2025-03"]


def opened(source: Any, ggml: str) -> Opened:
    return Opened(Scenario(load_spec(source, ggml=ggml)), "it.yaml")


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
