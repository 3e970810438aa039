"""`meta`: facts about a scenario are kept, and say nothing to whoever plans."""

from __future__ import annotations

from typing import Any

import pytest

from ggmltool.scenario.dump import dump
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario

PLAIN: dict[str, Any] = {
    "ggmltool": 1,
    "backends": ["CPU"],
    "contexts": {"c": {"tensors": {"x": {"type": "f32", "ne": [4]}}}},
    "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
}
FACTS = {"model": "Gemma 3 270m", "n_layer": 18, "rope": 1e4, "flash_attn": True, "negative": -1, "empty": ""}


def test_facts_come_back_as_they_were() -> None:
    model = load_spec({**PLAIN, "meta": FACTS})
    assert model.meta == FACTS
    assert [type(value) for value in model.meta.values()] == [type(value) for value in FACTS.values()]
    assert load_spec(dump(model)) == model
    assert load_spec(PLAIN).meta == load_spec({**PLAIN, "meta": None}).meta == {}


def test_facts_do_not_change_the_plan() -> None:
    with_facts = LoadedScenario(load_spec({**PLAIN, "meta": {"backends": "CUDA0", "op_offload": False}}))
    assert with_facts.plan() == LoadedScenario(load_spec(PLAIN)).plan()


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ([1], "meta must be a map, not a list"),
        ({"a": [1]}, "a fact must be text, a number or a truth value, not a list"),
        ({"a": None}, "not null"),
        ({"a": float("nan")}, "not the number nan"),
        ({"a": 1 << 63}, "a fact must be"),
        ({1: "a"}, "a key that is not text"),
        ({"a": "\x1b[2J"}, "control character"),
        ({"\x1b[2J": 1}, "control character"),
        ({"a": "x" * 10_001}, "at most 10000"),
        ({str(i): i for i in range(1001)}, "at most 1000"),
    ],
)
def test_what_is_no_fact_is_refused(meta: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=r"meta|fact|character|key") as refused:
        load_spec({**PLAIN, "meta": meta})
    assert said in str(refused.value)
    assert "\x1b" not in str(refused.value)
