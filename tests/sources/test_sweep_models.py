"""`sweep` of a model: its graph is captured with each size of ubatch, and placed."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.conftest import call as call
from tests.sources.library import needs_library
from tests.sources.models import cached

pytestmark = needs_library


@pytest.fixture
def model(tmp_path: Path) -> str:
    return shutil.copy(cached("llama"), tmp_path / "model.gguf")


def test_each_ubatch_is_captured_and_placed_as_by_hand(call: Call, model: str, tmp_path: Path) -> None:
    options = ("-ngl", "2,all", "--device", "CUDA0:64MiB", "--json")
    swept = json.loads(call("sweep", "-ub", "32,64", "-c", "512", *options, model).out)["placements"]
    files = []
    for n in ("32", "64"):
        files.append(str(tmp_path / f"ub{n}.json"))
        assert call("capture", "-ub", n, "-c", "512", "-o", files[-1], model).status == 0
    assert [(row["file"], row["-ub"]) for row in swept] == [("model.gguf", "32")] * 2 + [("model.gguf", "64")] * 2
    by_hand = json.loads(call("sweep", *options, *files).out)["placements"]
    assert [row | {"file": ""} for row in swept] == [row | {"file": ""} for row in by_hand]


def test_the_ubatch_of_the_largest_that_fits_is_told(call: Call, model: str) -> None:
    result = call(
        "sweep", "-ub", "32,512", "-c", "512", "-ngl", "all", "--device", "CUDA0:3MiB", "--margin", "0", model
    )
    told = [line for line in result.out.splitlines() if "fits:" in line or "nearest is" in line]
    assert len(told) == 1
    assert "-ub 32" in told[0]


def test_without_a_size_it_is_llama_cpps_own(call: Call, model: str) -> None:
    result = call("sweep", "-c", "512", "-ngl", "all", "--json", model)
    (row,) = json.loads(result.out)["placements"]
    assert (result.status, row["file"]) == (0, "model.gguf")


def test_a_damaged_model_is_capture_s_message(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 60)
    result = call("sweep", "-ub", "64", str(tmp_path / "bad.gguf"))
    assert (result.status, result.out) == (2, "")
    assert "bad.gguf" in result.err
    assert "Traceback" not in result.err


def test_place_takes_a_model_and_the_options_of_a_capture(call: Call, model: str) -> None:
    """U20: it is captured first, as by hand."""
    options = ("-c", "512", "-ub", "128", "-ctk", "q8_0", "-ctv", "q8_0", "-np", "2")
    device = ("-ngl", "3", "--device", "CUDA0:2GiB")
    assert call("capture", *options, "--phase", "both", "-o", "by-hand.json", model).status == 0
    by_hand = json.loads(call("place", *device, "--json", "by-hand.json").out)
    result = call("place", *device, *options, "--json", model)
    placed = json.loads(result.out)
    assert (result.status, result.err) == (0, "")
    assert placed["options"].pop("command_line") == "-ngl 3 -c 512 -ub 128 -np 2 -ctk q8_0 -ctv q8_0"
    by_hand["options"].pop("command_line")
    assert placed == by_hand
    text = call("place", *device, "-c", "512", model).out
    assert "for llama-server, 1 sequence: logits of 1 of 512 tokens" in text
    text = call("place", *device, "-c", "512", "--for", "library", model).out
    assert "for the library, 1 sequence: logits of 512 of 512 tokens" in text


def test_every_option_of_a_capture_can_be_swept(call: Call, model: str) -> None:
    """U19: a capture for each combination; U18: the command that shows the best one again."""
    options = ("-c", "512,1024", "-ctk", "f16,q8_0", "-ctv", "q8_0", "-np", "1,auto", "-fa", "on", "--outputs", "1")
    device = ("-ngl", "all", "--device", "CUDA0:2GiB")
    rows = json.loads(call("sweep", *options, *device, "--json", model).out)["placements"]
    assert [(r["-c"], r["-np"], r["-ctk"]) for r in rows] == [
        (c, np, k) for c in ("512", "1024") for np in ("1", "auto") for k in ("f16", "q8_0")
    ]
    assert len({r["parts"]["CUDA0"]["cache"] for r in rows}) == 4
    out = call("sweep", *options, *device, model, columns=200).out
    assert "8 placements · -ngl 7 -fa on -ctv q8_0 --outputs 1" in out
    assert "largest that fits: -c 1024 -np auto -ctk f16 -ngl 7" in out
    _, *command = shlex.split(out.splitlines()[-1])
    result = call(*command, "--json")
    assert result.status == 0
    placed = json.loads(result.out)
    best = next(r for r in rows if (r["-c"], r["-np"], r["-ctk"]) == ("1024", "auto", "f16"))
    assert placed["devices"][0]["total"] == best["needs"]["CUDA0"]


def test_kinds_of_files_are_swept_and_each_is_placed_alike(call: Call, model: str) -> None:
    options = ("-ngl", "all", "-c", "512", "--device", "CUDA0:64MiB", "--json")
    swept = json.loads(call("sweep", "--as", "q4_k,q8_0,f16:pure", *options, model).out)["placements"]
    assert [row["--as"] for row in swept] == ["Q4_K_M", "Q8_0", "F16:pure"]
    weights = [row["parts"]["CUDA0"]["weights"] for row in swept]
    assert weights == sorted(set(weights))
    for row in swept:
        placed = json.loads(call("place", "--as", row["--as"], *options, model).out)
        (total,) = [device["total"] for device in placed["devices"] if device["device"] == "CUDA0"]
        assert total == row["needs"]["CUDA0"]


def test_the_best_kind_of_file_is_told_with_its_line(call: Call, model: str) -> None:
    result = call(
        "sweep", "--as", "q4_0,q8_0", "-ngl", "all", "-c", "512", "--device", "CUDA0:64MiB", "--margin", "0", model
    )
    assert "--as Q8_0" in result.out
    line = next(line.strip() for line in result.out.splitlines() if "ggmltool place" in line)
    assert call(*shlex.split(line)[1:]).status == 0
