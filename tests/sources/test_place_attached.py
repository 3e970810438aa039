"""Graphs that attach saw in a program are placed as others are: on other devices, without the places they had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.fuzz.attached import documents


@pytest.mark.parametrize(
    "options", [[], ["--device", "CUDA0:8GiB,Vulkan0:8GiB"], ["--device", "none"], ["-sm", "none"]]
)
def test_what_a_device_heard_of_others_is_gone_with_them(options: list[str], tmp_path: Path, call: Call) -> None:
    for n in (0, 8, -1):
        saved = tmp_path / "x.json"
        saved.write_text(json.dumps(documents()[n]))
        assert call("place", *options, str(saved)).status == 0
        placed = call("place", *options, "-f", "scenario", str(saved))
        saved.write_text(placed.out)
        assert call("plan", str(saved)).status == 0
