"""`sample` lists, prints and writes what ships with ggmltool."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ggmltool.scenario.samples import sample_name, samples
from tests.cli.conftest import SAMPLES, Call


def test_every_sample_is_listed_as_data(call: Call) -> None:
    listed = json.loads(call("sample", "--json").out)["samples"]
    assert [(s["name"], s["file"]) for s in listed] == [(sample_name(p), p.name) for p in samples()]
    assert all(s["shows"] for s in listed)


@pytest.mark.parametrize("path", samples(), ids=sample_name)
def test_a_sample_is_printed_whole(call: Call, path: Path) -> None:
    data = path.read_bytes()
    expected = gzip.decompress(data) if path.suffix == ".gz" else data
    assert call("sample", sample_name(path)).out == expected.decode("utf-8")


def test_a_sample_is_written_and_not_overwritten(call: Call, tmp_path: Path) -> None:
    result = call("sample", "priority", "-o", "graph.yaml")
    assert (result.status, result.out, result.err) == (0, "", "Wrote graph.yaml\n")
    assert (tmp_path / "graph.yaml").read_bytes() == (SAMPLES / "priority.yaml").read_bytes()
    assert call("sample", "views", "-o", "graph.yaml").status == 2
    assert call("sample", "views", "-o", "graph.yaml", "--force").status == 0


def test_a_packed_sample_is_written_packed_or_unpacked_by_the_files_name(call: Call, tmp_path: Path) -> None:
    packed = (SAMPLES / "gemma-3-270m.json.gz").read_bytes()
    call("sample", "gemma-3-270m", "-o", "a.json.gz")
    call("sample", "gemma-3-270m", "-o", "a.json")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == gzip.decompress(packed)
    assert (tmp_path / "a.json").read_bytes() == gzip.decompress(packed)


def test_a_mistyped_name_gets_the_nearest_one(call: Call) -> None:
    result = call("sample", "prioritty")
    assert result.status == 2
    assert "priority" in result.err
    assert "Traceback" not in result.err


def test_a_sample_is_a_scenario_by_its_name(call: Call) -> None:
    for name in ("moe", "gemma-3-270m-ngl9"):
        path = next(p for p in samples() if sample_name(p) == name)
        assert call("splits", "--format", "table", name) == call("splits", "--format", "table", path)
    assert call("tensor", "kq", "transformer").status == 0


def test_a_file_comes_before_the_sample_of_its_name(call: Call, tmp_path: Path) -> None:
    (tmp_path / "moe").write_bytes((SAMPLES / "matmul.yaml").read_bytes())
    assert call("plan", "moe") == call("plan", SAMPLES / "matmul.yaml")
    (tmp_path / "views").mkdir()
    assert "this is a directory" in call("plan", "views").err


def test_a_mistyped_scenario_is_answered_with_the_nearest_sample_or_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "attention.yaml").write_text("ggmltool: 1\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "layers.json.gz").write_bytes(b"")
    for wrong, right in {
        "moee": "moe",
        "transfomer.yaml": "transformer",
        "atention.yaml": "attention.yaml",
        "more/layer.json.gz": "more/layers.json.gz",
    }.items():
        result = call("plan", wrong)
        assert (result.status, result.out) == (2, "")
        assert result.err == f'{wrong}: there is no such file, and no such sample; did you mean "{right}"?\n'
    assert call("plan", "xyzzy").err == "xyzzy: there is no such file\n"
    assert call("plan", "no/such/folder.yaml").err == "no/such/folder.yaml: there is no such file\n"
