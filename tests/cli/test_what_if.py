"""--pipeline and --op-offload stand in for what the scenario says of its scheduler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Call

COMMANDS = [("plan",), ("splits", "--format", "table"), ("splits", "--bytes"), ("buffers",), ("buffers", "--chunks")]
COMMANDS += [("splits", "--pass", "5"), ("splits",), ("splits", "--by", "op,backend"), ("buffers", "--chart")]
OPTIONS = [
    ("pipeline", "--no-pipeline", b"{parallel: true}", b"{parallel: false}"),
    ("pipeline", "--pipeline", b"{parallel: true}", b"{parallel: true}"),
    ("offload", "--no-op-offload", b"name: op offload", b"name: op offload\nscheduler: {op_offload: false}"),
    ("offload", "--op-offload", b"name: op offload", b"name: op offload\nscheduler: {op_offload: true}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("sample", "option", "old", "new"), OPTIONS)
def test_it_is_as_if_the_scenario_said_so(
    call: Call, command: tuple[str, ...], sample: str, option: str, old: bytes, new: bytes
) -> None:
    text = (SAMPLES / f"{sample}.yaml").read_bytes()
    assert old in text
    Path("graph.yaml").write_bytes(text.replace(old, new))
    asked, written = call(*command, option, sample), call(*command, "graph.yaml")
    assert asked.status == written.status == 0
    assert asked.out.replace(f", {option}", "") == written.out


@pytest.mark.parametrize("command", ["plan", "buffers"])
def test_the_other_option_stays_as_the_scenario_says(call: Call, command: str) -> None:
    as_it_is = call(command, "--json", "pipeline").out
    assert call(command, "--json", "--op-offload", "pipeline").out == as_it_is
    assert call(command, "--json", "--no-pipeline", "pipeline").out != as_it_is


def test_headings_and_commands_to_paste_name_the_options(call: Call) -> None:
    out = call("plan", "--no-op-offload", "--pipeline", "offload").out
    assert out.startswith("op offload, --pipeline --no-op-offload · alloc prompt · ")
    assert "all of them: ggmltool splits --format table --pipeline gemma-3-270m-ngl9\n" in (
        call("plan", "--pipeline", "gemma-3-270m-ngl9").out
    )


def test_the_environment_can_say_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    there = json.loads(call("plan", "--json", "pipeline").out)
    monkeypatch.setenv("GGMLTOOL_PLAN_PIPELINE", "false")
    without = json.loads(call("plan", "--json", "pipeline").out)
    assert len(without["copies"]) < len(there["copies"])
    assert json.loads(call("plan", "--json", "--pipeline", "pipeline").out) == there


def test_copies_compares_already(call: Call) -> None:
    result = call("buffers", "--copies", "--pipeline", "pipeline")
    assert (result.status, result.out) == (2, "")
    assert "--copies plans with and without --pipeline" in result.err
    out = call("buffers", "--copies", "--no-op-offload", "offload").out
    assert out.startswith("op offload, --no-op-offload · alloc prompt · ")
