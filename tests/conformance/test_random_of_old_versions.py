"""Random scenarios that the real libraries of March 2025 and January 2024 were run on (debug builds, causes on).

The files hold what those did, in the form of the golden plans, with the scenarios that between them show every cause,
line of a log, refusal and in-place op that thousands of random ones did.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from tests.conformance.golden_2024 import Player
from tests.conformance.golden_2025_03 import Recorder

DATA = Path(__file__).parent / "data"


def scenarios(version: str) -> list[dict[str, Any]]:
    """What the file of a version holds: scenarios, their steps, and what the library did."""
    content: list[dict[str, Any]] = json.loads(lzma.decompress((DATA / f"random-{version}.json.xz").read_bytes()))
    return content


def test_march_2025() -> None:
    for number, real in enumerate(scenarios("2025-03")):
        recorder = Recorder(real["scenario"])
        assert recorder.contexts() == real["contexts"], number
        for text, wanted in zip(real["steps"], real["results"], strict=True):
            check(recorder.step(text), wanted, f"{number}: {text}")


def test_january_2024() -> None:
    for number, real in enumerate(scenarios("2024-01")):
        player = Player(real["scenario"], real["steps"])
        assert player.contexts() == real["contexts"], number
        for step, wanted in zip(player.steps, real["results"], strict=True):
            check(player.result(step), wanted, f"{number}: {step}")


def check(ours: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """Field by field, so that a failure names the first one that differs."""
    assert set(ours) == set(wanted), where
    for field, value in wanted.items():
        assert ours[field] == value, f"{where}: {field}"
