"""The steps of a scenario."""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.scenario.data import FillData, ListData
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.spec import Step


def steps(*written: Any) -> list[Step]:
    return load_spec(
        {
            "ggmltool": 1,
            "contexts": {"c": {"tensors": {"x": "f32[2]"}}},
            "graphs": {"main": {"nodes": {"h": "sqr(x)"}}, "two words": {"nodes": {"h": "concat(x, x, dim=0)"}}},
            **({"steps": list(written)} if written else {}),
        }
    ).steps


def test_the_default_is_to_reserve_allocate_and_compute_the_first_graph() -> None:
    assert steps() == [Step("reserve", "main"), Step("alloc", "main"), Step("compute", "main")]


def test_steps_are_a_word_and_a_graph() -> None:
    assert steps("alloc main", "  compute   two words ", "reset") == [
        Step("alloc", "main"),
        Step("compute", "two words"),
        Step("reset"),
    ]
    assert steps({"alloc": "main"}, {"reset": None}) == [Step("alloc", "main"), Step("reset")]


def test_set_and_get_name_tensors() -> None:
    assert steps("alloc main", {"set": {"x": [1, 2], "h": {"fill": 0}}}, {"get": ["h"]}, {"get": "x"})[1:] == [
        Step("set", data=(("x", ListData((1, 2))), ("h", FillData(0)))),
        Step("get", tensors=("h",)),
        Step("get", tensors=("x",)),
    ]


def test_a_node_is_that_of_the_newest_graph() -> None:
    assert len(steps("alloc main", "alloc two words", {"set": {"h": [1, 2, 3, 4]}})) == 3
    with pytest.raises(ScenarioError, match=r"steps\[1\].set.h: data has 4 values"):
        steps("alloc main", {"set": {"h": [1, 2, 3, 4]}})
