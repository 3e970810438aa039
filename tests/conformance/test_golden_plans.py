"""What the real ggml of January 2024 (8fb376b4) and of March 2025 (ffed2f04, a debug build with causes) decided, in
every field and byte: of scenarios that were written, and of random ones.

The files of random scenarios hold those that between them show every cause, line of a log, refusal and in-place op that
thousands of random ones did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ggmltool.scenario.dump import dump
from ggmltool.scenario.load import load_spec
from tests.conformance.golden import files, folders, random_scenarios, read
from tests.conformance.golden_2024 import Player
from tests.conformance.golden_2025_03 import Recorder

VERSIONS = ("2024-01", "2025-03")
FILES = [(version, file) for version in VERSIONS for file in files(version)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_golden_plans_are_there(version: str) -> None:
    some, every = folders(version)
    assert len(list(some.glob("*.json.gz"))) > 10
    if not every.exists():
        pytest.skip("most golden plans lie outside the repository, in ../shared/golden")
    assert len(files(version)) > 150


def check(version: str, golden: dict[str, Any], where: str = "") -> None:
    """Step by step and field by field, so that a failure names the first one that differs."""
    steps, results = golden["steps"], golden["results"]
    if version == "2024-01":
        player = Player(golden["scenario"], steps)
        assert player.contexts() == golden["contexts"], where
        assert load_spec(dump(player.run.model)) == player.run.model
        done = map(player.result, player.steps)
    else:
        recorder = Recorder(golden["scenario"])
        assert recorder.contexts() == golden["contexts"], where
        done = map(recorder.step, steps)
    for wanted, ours in zip(results, done, strict=False):
        assert set(ours) == set(wanted), (where, wanted["step"])
        for field, value in wanted.items():
            assert ours[field] == value, (where, wanted["step"], field)
    assert len(results) == len(steps) or not results[-1]["ok"]


@pytest.mark.parametrize(("version", "file"), FILES, ids=lambda x: getattr(x, "name", str(x)).removesuffix(".json.gz"))
def test_every_field_is_what_the_library_did(version: str, file: Path) -> None:
    golden = read(file)
    assert set(golden) == {"ggml", "name", "scenario", "steps", "contexts", "results"}
    assert golden["ggml"] == version
    check(version, golden)


@pytest.mark.parametrize("version", VERSIONS)
def test_random_scenarios(version: str) -> None:
    for number, golden in enumerate(random_scenarios(version)):
        assert len(golden["results"]) == len(golden["steps"])
        check(version, golden, str(number))
