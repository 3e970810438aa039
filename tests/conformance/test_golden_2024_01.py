"""The ggml of January 2024 against what its real library decided, in every field and byte."""

from __future__ import annotations

import pytest

from ggmltool.scenario.dump import dump
from ggmltool.scenario.load import load_model
from tests.conformance import golden_2024
from tests.conformance.golden_2024 import Player

NAMES = golden_2024.names()


@pytest.mark.skipif(not NAMES, reason="no golden plans beside the project")
@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_what_the_library_did(name: str) -> None:
    golden = golden_2024.read(name)
    player = Player(golden["scenario"], golden["steps"])
    assert player.contexts() == golden["contexts"]
    model = player.run.model
    assert load_model(dump(model)) == model
    for step, expected in zip(player.steps, golden["results"], strict=False):
        assert player.result(step) == expected
    assert golden["ggml"] == "2024-01"
    if len(golden["results"]) < len(golden["steps"]):
        assert not golden["results"][-1]["ok"]
