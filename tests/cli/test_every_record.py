"""Every command says of a record what it says of its scenario, in every release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ggmltool
from ggmltool.ggml.releases.table import RELEASES
from ggmltool.scenario.dump import dump
from tests.cli.conftest import Call
from tests.cli.test_every_command import BYTES, PRINT, TRANSFORMER, line, takes_a_scenario

NAMES = [name for name in PRINT if takes_a_scenario(name) and name not in {"verify", *BYTES}]


@pytest.mark.parametrize("release", RELEASES)
def test_a_record_has_what_its_scenario_has(call: Call, release: str) -> None:

    steps = {} if RELEASES[release].reserves else {"steps": [{"measure": "main"}, {"compute": "main"}]}
    Path("x.json").write_text(json.dumps({**dump(ggmltool.load(TRANSFORMER).model), "ggml": release, **steps}))
    call("record", "x.json", "-o", "x.ggtrace")
    for name in NAMES:
        wanted, found = call(*line(name, "x.json"), "-q"), call(*line(name, "x.ggtrace"), "-q")
        assert found.status == wanted.status
        assert found.out.replace("x.ggtrace", "x.json") == wanted.out, name
