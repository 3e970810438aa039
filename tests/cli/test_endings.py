"""U23: the ending of a file's name is its format, in every command, or the command says what it can write."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ggmltool.cli.output import FORMATS, refusal
from ggmltool.scenario.samples import sample_name, samples
from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_every_command import FEW, PRINTING, WITHOUT_JSON, formats, line
from tests.needs import draws_png, needs_resvg

NEEDS = {
    ("dot", "svg"): lambda: shutil.which("dot"),
    ("dot", "pdf"): lambda: shutil.which("dot"),
    ("dot", "png"): lambda: shutil.which("dot"),
    ("buffers", "png"): draws_png,
}
"""What writes a format, where it is no part of ggmltool, is there."""


@FEW
def test_a_json_file_has_json_and_a_packed_one_is_packed(call: Call, name: str) -> None:
    """U23 R12"""
    if name not in WITHOUT_JSON:
        wanted = call(*line(name), "--json").out
        assert call(*line(name), "-o", "out.json").err == "Wrote out.json\n"
        assert Path("out.json").read_text("utf-8") == wanted
        call(*line(name), "-o", "out.json.gz")
        assert gzip.decompress(Path("out.json.gz").read_bytes()).decode() == wanted
        call(*line(name), "--json", "-o", "again.json.gz")
        assert Path("again.json.gz").read_bytes() == Path("out.json.gz").read_bytes()
    call(*line(name), "-o", "out.txt.gz")
    assert gzip.decompress(Path("out.txt.gz").read_bytes()).decode("utf-8", "surrogateescape") == call(*line(name)).out


def test_a_name_that_contradicts_the_format_is_refused(call: Call) -> None:
    result = call("types", "--json", "-o", "types.csv", "moe")
    assert result.status == 2
    assert "types.csv would hold JSON" in result.err
    assert call("plan", "--json", "-o", "plan.txt", "moe").status == 0
    assert json.loads(Path("plan.txt").read_text())["kind"] == "plan"


def test_the_file_on_the_line_goes_before_the_format_in_the_environment(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGMLTOOL_TYPES_FORMAT", "csv")
    call("types", "-o", "types.json")
    assert json.loads(Path("types.json").read_text())["kind"] == "types"
    assert call("types").out.startswith("number,name,")


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".yaml.gz"])
def test_a_placed_scenario_is_packed_as_its_name_says(call: Call, ending: str) -> None:
    call("place", "-o", f"placed{ending}", "gemma-3-270m")
    data = Path(f"placed{ending}").read_bytes()
    assert json.loads(gzip.decompress(data) if ending.endswith("gz") else data)["meta"]["placed"]


def test_a_sample_is_written_as_what_it_is(call: Call) -> None:
    assert call("sample", "moe", "-o", "moe.json").status == 2
    assert call("sample", "moe", "-o", "moe.yaml").status == 0
    assert call("sample", "gemma-3-270m", "-o", "gemma.json.gz").status == 0
    assert call("sample", "-o", "list.json").status == 0
    assert json.loads(Path("list.json").read_text())["kind"] == "samples"
    assert call("ops", "-o", "ops.yaml").status == 2
    assert call("ops", "rope", "--example", "-o", "rope.yaml").status == 0
    assert call("plan", "-q", "rope.yaml").status == 0


@pytest.mark.parametrize("name", ["x.json", "x.txt", "x", "x.jpg"])
def test_a_command_without_text_takes_no_other_name(name: str) -> None:
    said = refusal(Path(name), [], None, [".html"], text=False)
    assert said is not None
    assert said.endswith("what can be written: .html, each also with .gz.")
    assert refusal(Path("x.html.gz"), [], None, [".html"], text=False) is None


def is_one(path: Path, format: str) -> bool:
    """Whether a file holds what its name says."""
    data = path.read_bytes()
    if format == "svg":
        return ElementTree.fromstring(data).tag == "{http://www.w3.org/2000/svg}svg"
    if format == "json":
        return bool(json.loads(data))
    if format == "csv":
        return len({len(row) for row in csv.reader(data.decode().splitlines())}) == 1
    starts = {"png": b"\x89PNG\r\n", "pdf": b"%PDF-", "html": b"<!doctype html>", "dot": b"digraph "}
    head = data[:20].lower() if format == "html" else data
    return bool(data) and head.startswith(starts.get(format, b""))


@PRINTING
def test_every_ending_is_what_the_file_holds_or_is_refused(call: Call, name: str) -> None:
    """U23: no file is written that holds something else than its name says; what can be written is said."""
    for ending, format in FORMATS.items():
        if (name, format) in NEEDS and not NEEDS[name, format]():
            continue
        result = call(*line(name), "-o", f"out{ending}")
        path = Path(f"out{ending}")
        assert result.status == (0 if path.exists() else 2), (ending, result.err)
        if path.exists():
            assert is_one(path, format), ending
        elif format not in formats(name) and (name, format) != ("ops", "yaml"):
            assert f"{ending} is not written here; what can be written: " in result.err
            assert ".gz" in result.err


def test_what_the_file_is_for_decides_what_is_drawn(call: Call) -> None:
    """U23: a picture of buffers is their chart."""
    assert call("buffers", "-o", "map.svg", "moe").err == "Wrote map.svg\n"
    assert call("buffers", "--chart", "-o", "chart.svg", "moe").err == "Wrote chart.svg\n"
    assert Path("map.svg").read_text("utf-8") == Path("chart.svg").read_text("utf-8")
    assert call("buffers", "--chart", "-f", "svg", "moe").out == Path("map.svg").read_text("utf-8")
    for wrong in (["--peak"], ["--chunks"], ["--copies"], ["--all"], ["--chart", "--ascii"]):
        result = call("buffers", *wrong, "-o", "no.svg", "moe")
        assert (result.status, result.out, Path("no.svg").exists()) == (2, "", False)
        assert "leave" in result.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("buffers -f png moe", "cannot be shown on a terminal"),
        ("buffers -f pickle transformer", "name a file with -o memory.pickle"),
        ("dot -f png matmul", "-o graph.png"),
        ("report moe", "-o report.html"),
    ],
)
def test_pixels_and_pages_are_not_for_terminals(call: Call, command: str, said: str) -> None:
    result = call(*command.split(), tty=True)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


@pytest.mark.parametrize(
    ("command", "file", "said"),
    [
        ("buffers", "map.png", ["pip install 'ggmltool[png]'", "-o map.svg"]),
        ("dot", "graph.svg", ["apt-get install graphviz"]),
    ],
)
def test_without_a_program_that_draws_it_is_told_which_there_are(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str, file: str, said: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setenv("PATH", "")
    result = call(command, "-o", file, "moe")
    assert (result.status, result.out) == (2, "")
    assert all(part in result.err for part in said)
    assert not Path(file).exists()


@needs_resvg
def test_a_png_has_the_pixels_of_the_drawing_twice(call: Call) -> None:
    call("buffers", "-o", "map.svg", "moe")
    call("buffers", "-o", "map.png", "moe")
    root = ElementTree.parse("map.svg").getroot()
    data = Path("map.png").read_bytes()
    size = [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)]
    assert size == [2 * int(root.attrib[name]) for name in ("width", "height")]


def test_a_page_is_the_drawing_and_nothing_that_runs(call: Call) -> None:
    call("buffers", "-o", "map.html", "moe")
    page = Path("map.html").read_text("utf-8")
    assert call("buffers", "-f", "svg", "moe").out.rstrip() in page
    assert "default-src 'none'" in page
    assert "<script" not in page


def test_every_sample_is_listed_as_data(call: Call) -> None:
    listed = json.loads(call("sample", "--json").out)["samples"]
    assert [(s["name"], s["file"]) for s in listed] == [(sample_name(p), p.name) for p in samples()]
    assert all(s["shows"] for s in listed)


@pytest.mark.parametrize("path", samples(), ids=sample_name)
def test_a_sample_is_printed_whole(call: Call, path: Path) -> None:
    data = path.read_bytes()
    expected = gzip.decompress(data) if path.suffix == ".gz" else data
    assert call("sample", sample_name(path)).out == expected.decode("utf-8")


def test_a_packed_sample_is_written_packed_or_unpacked_by_the_files_name(call: Call, tmp_path: Path) -> None:
    packed = (SAMPLES / "gemma-3-270m.json.gz").read_bytes()
    call("sample", "gemma-3-270m", "-o", "a.json.gz")
    call("sample", "gemma-3-270m", "-o", "a.json")
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == gzip.decompress(packed)
    assert (tmp_path / "a.json").read_bytes() == gzip.decompress(packed)


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
