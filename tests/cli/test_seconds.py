"""`splits --seconds`, and the speeds that `place` and `sweep` tell where the hardware is named."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import ggmltool
from tests.cli.conftest import SAMPLES, Call

GPUS = ("--device", "2x RTX 3090", "--device", "CPU=Ryzen 9 7950X")
MODEL = "gemma-3-270m"


@pytest.fixture
def placed(call: Call, tmp_path: Path) -> Path:
    path = tmp_path / "placed.json.gz"
    assert call("place", "-ngl", "9", *GPUS, "-o", path, MODEL).status == 0
    return path


def seconds(call: Call, *args: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call("splits", "--seconds", "--json", *args).out)
    return found


def test_the_seconds_of_all_are_those_of_the_splits(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    plan = json.loads(call("plan", "--json", placed).out)
    assert [s["backend"] for s in found["splits"]] == [s["backend"] for s in plan["splits"]]
    for case in ("low", "mid", "high"):
        parts = [s[what][case] for s in found["splits"] for what in ("computes", "copies")]
        assert sum(parts) == pytest.approx(found["seconds"][case], rel=1e-2)
    assert found["rates"]["CPU"] == "Ryzen 9 7950X"
    assert found["assumed"] == []
    assert found["n_tokens"] == 512


def test_python_is_told_the_same(call: Call, placed: Path) -> None:
    result = ggmltool.load(placed).splits(seconds=True, n_depth=100)
    assert result.as_dict() == seconds(call, "-d", "100", placed)
    assert "copies" in str(result)
    assert [row.split for row in result.rows] == [split.id for split in result.plan.splits]


def test_every_estimate_has_a_range(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    for part in (found["seconds"], found["computes"], *(s["computes"] for s in found["splits"])):
        assert 0 < part["low"] < part["mid"] < part["high"]


def test_a_deeper_cache_takes_longer(call: Call, placed: Path) -> None:
    empty, full = seconds(call, placed), seconds(call, "-d", 700, placed)
    assert full["n_depth"] == 700
    assert full["seconds"]["mid"] > empty["seconds"]["mid"]


def test_the_other_op_offload_is_what_its_plan_takes(call: Call, placed: Path) -> None:
    other = seconds(call, placed)["without_op_offload"]
    assert other == pytest.approx(seconds(call, "--no-op-offload", placed)["seconds"], rel=1e-3)


def test_weights_from_pinned_memory_come_faster(call: Call, placed: Path) -> None:
    found = seconds(call, placed)
    assert any(s["nbytes"] > 1 << 20 for s in found["splits"])
    assert found["with_pinned_weights"]["mid"] < found["seconds"]["mid"]


def test_a_placement_is_as_fast_as_its_splits(call: Call, placed: Path) -> None:
    told = json.loads(call("place", "-ngl", "9", *GPUS, "-p", "512", "--json", MODEL).out)["speeds"]
    assert told["first_token"] == pytest.approx(seconds(call, placed)["seconds"], rel=1e-3)
    assert told["tokens_per_second"] is None
    assert told["prompt_tokens_per_second"]["mid"] == pytest.approx(512 / told["first_token"]["mid"], rel=1e-3)


def test_a_sweep_tells_what_place_tells(call: Call) -> None:
    rows = list(
        csv.DictReader(call("sweep", "-ngl", "0,9,all", *GPUS, "-d", "100", "-f", "csv", MODEL).out.splitlines())
    )
    assert [row["-ngl"] for row in rows] == ["0", "9", "19"]
    for row in rows:
        told = json.loads(call("place", "-ngl", row["-ngl"], *GPUS, "-d", "100", "--json", MODEL).out)["speeds"]
        assert float(row["prompt/s"]) == told["prompt_tokens_per_second"]["mid"]
        assert float(row["prompt/s low"]) == told["prompt_tokens_per_second"]["low"]
    out = call("sweep", "-ngl", "0,9,all", *GPUS, MODEL, columns=200).out
    assert "prompt/s" in out
    assert "\nfastest that fits, by an estimate of prompt/s: -ngl 19, " in out


def test_a_placement_says_its_speed_with_a_range_and_whose_it_is(call: Call) -> None:
    out = call("place", "--device", "RTX 3090", "-d", "100", "-p", "1024", MODEL, columns=200).out
    assert "estimate: first token of a prompt of 1024 with 100 in the cache after " in out
    assert "CUDA0 is RTX 3090; CPU not named, taken for some desktop's CPU" in out


@pytest.mark.parametrize("command", ["place", "sweep -ngl 0,9"])
def test_without_rates_no_seconds_are_told(call: Call, command: str) -> None:
    for device in (["CUDA0:24GiB"], ["CUDA0:24GiB", "CPU=Ryzen 9 7950X"]):
        named = [word for d in device for word in ("--device", d)]
        assert "/s" not in call(*command.split(), *named, MODEL, columns=200).out
        assert "speeds" not in json.loads(call(*command.split(), *named, "--json", MODEL).out)


def test_gpus_that_share_every_tensor_are_not_estimated(call: Call) -> None:
    """What they tell each other in every layer is not known."""
    assert "speeds" not in json.loads(call("place", "-sm", "tensor", *GPUS, "--json", MODEL).out)


def test_seconds_are_a_view_of_their_own(call: Call, placed: Path) -> None:
    assert "choose one" in call("splits", "--seconds", "--bytes", placed).err


def test_any_scenario_whose_hardware_is_named_has_seconds(call: Call, tmp_path: Path) -> None:
    """Rates of one's own are as good as known ones; a graph without tokens has no tokens a second."""
    sample = (SAMPLES / "moe.yaml").read_text("utf-8")
    own = "backends: [{name: CUDA0, rates: {bandwidth: 900, f32: 30}}, CPU]"
    path = tmp_path / "moe.yaml"
    path.write_text(sample.replace("backends: [CUDA0, CPU]", own), "utf-8")
    assert seconds(call, path)["n_tokens"] is None
    out = call("splits", "--seconds", path, columns=200).out
    assert "tokens/s" not in out
    assert "CPU not named, taken for some desktop's CPU" in out
