"""The ggml of January 2024 (8fb376b4) against what its real library decided, in every field and byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggmltool.scenario.dump import dump
from ggmltool.scenario.load import load_spec
from tests.conformance.golden_2024 import ALL, SOME, Player, files, read


def test_the_golden_plans_are_there() -> None:
    assert len(list(SOME.glob("*.json.gz"))) > 10
    if not ALL.exists():
        pytest.skip("most golden plans lie outside the repository, in ../shared/golden/2024-01")
    assert len(files()) > 150


@pytest.mark.parametrize("file", files(), ids=lambda file: file.name.removesuffix(".json.gz"))
def test_every_field_is_what_the_library_did(file: Path) -> None:
    golden = read(file)
    assert set(golden) == {"ggml", "name", "scenario", "steps", "contexts", "results"}
    assert golden["ggml"] == "2024-01"
    player = Player(golden["scenario"], golden["steps"])
    assert player.contexts() == golden["contexts"]
    model = player.run.model
    assert load_spec(dump(model)) == model
    for step, expected in zip(player.steps, golden["results"], strict=False):
        assert player.result(step) == expected
    if len(golden["results"]) < len(golden["steps"]):
        assert not golden["results"][-1]["ok"]
