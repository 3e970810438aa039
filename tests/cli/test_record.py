"""`record` writes a file that every command takes in place of a scenario, and hostile files end in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

import ggmltool
from ggmltool.inspect.errors import InspectError
from tests.cli.conftest import Call


def test_a_record_stands_in_for_its_scenario(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "moe.ggtrace"
    done = call("record", "moe", "-o", str(path))
    assert done.status == 0
    assert done.err == f"Wrote {path}\n"
    for command in ("plan", "buffers", "splits", "allocs"):
        assert call(command, "--json", str(path)).out == call(command, "--json", "moe").out
    with path.open("rb") as stream:
        assert call("plan", "-", stdin=stream.read()).out == call("plan", str(path)).out


def test_it_keeps_the_release_and_what_was_refused(call: Call, tmp_path: Path) -> None:
    old = tmp_path / "old.ggtrace"
    assert call("record", "--ggml", "0.20.2", "versions-2026", "-o", str(old)).status == 0
    assert ggmltool.load(old).model.release.name == "0.20.2"
    refused = tmp_path / "refused.ggtrace"
    done = call("record", "preallocated", "-o", str(refused))
    assert done.status == 1
    assert "pre-allocated tensor" in done.err
    assert ggmltool.open_record(refused).error is not None


def test_a_terminal_and_other_names_are_refused(call: Call, tmp_path: Path) -> None:
    assert call("record", "moe", "-o", str(tmp_path / "x.json")).status == 2
    damaged = tmp_path / "x.ggtrace"
    damaged.write_bytes(b"\x93GGTRACE\x02")
    done = call("plan", str(damaged))
    assert done.status == 2
    assert "this is a record of version 2" in done.err
    assert "Traceback" not in done.err


def test_in_python(tmp_path: Path) -> None:
    history = ggmltool.load("inplace").record(tmp_path / "x.ggtrace", compute=True)
    again = ggmltool.open_record(tmp_path / "x.ggtrace")
    assert list(again.points) == list(history.points)
    end = len(history.points) - 1
    assert history.values(end, "used").tolist() == again.values(end, "used").tolist()
    with pytest.raises(InspectError, match="record it with compute"):
        ggmltool.load("inplace").record().values(3, "x")
    with pytest.raises(ggmltool.ScenarioError, match="this is no record"):
        ggmltool.open_record(_scenario(tmp_path))


def _scenario(folder: Path) -> Path:
    path = folder / "graph.yaml"
    path.write_text("ggmltool: 1\n", "utf-8")
    return path
