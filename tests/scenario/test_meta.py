"""`meta`: facts about a scenario are kept, and say nothing to whoever plans."""

from __future__ import annotations

from typing import Any

from ggmltool.scenario.dump import dump
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.scenario import LoadedScenario
from tests.scenarios import scenario_of

PLAIN: dict[str, Any] = scenario_of({"x": {"type": "f32", "ne": [4]}}, {"y": "sqr(x)"}, backends=["CPU"])
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
