"""`trace` for Perfetto, what it says of its durations, and `record`, whose file stands in for a scenario."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import ggmltool
from ggmltool.state.errors import InspectError
from tests.cli.conftest import Call

RATED = "RTX 3090"


def test_the_extension_selects_it_and_json_stays_what_it_was(call: Call) -> None:
    wanted = call("trace", "--perfetto", "moe").out
    assert call("trace", "-o", "x.perfetto.json", "moe").err.endswith("Wrote x.perfetto.json\n")
    assert Path("x.perfetto.json").read_text("utf-8") == wanted
    call("trace", "-o", "x.perfetto.json.gz", "moe")
    assert gzip.decompress(Path("x.perfetto.json.gz").read_bytes()).decode() == wanted
    call("trace", "--perfetto", "-o", "any.json", "moe")
    assert Path("any.json").read_text("utf-8") == wanted
    call("trace", "-o", "events.json", "moe")
    assert json.loads(Path("events.json").read_text("utf-8"))["kind"] == "trace"


def test_it_says_what_its_durations_are(call: Call) -> None:
    assert "Durations: program order: each node and each copy takes 1 µs" in call("trace", "--perfetto", "moe").err
    measured = call("trace", "--measured", "--perfetto", "moe")
    assert "Durations: measured: ggmltool's engine on this machine" in measured.err
    assert json.loads(measured.out)["otherData"]["durations"] == "measured"
    assert call("place", "-ngl", "9", "--device", RATED, "-o", "placed.json.gz", "gemma-3-270m").status == 0
    estimated = call("trace", "--perfetto", "placed.json.gz")
    assert "Durations: estimated, the likely case: CUDA0 is RTX 3090; CPU not named" in estimated.err
    about = json.loads(estimated.out)["otherData"]
    assert about["durations"] == "estimated"
    assert about["graphs_no_step_computes"] == []
    deeper = call("trace", "--perfetto", "-d", "1024", "placed.json.gz")
    assert json.loads(deeper.out)["traceEvents"] != json.loads(estimated.out)["traceEvents"]


def test_a_graph_that_no_step_computes_is_drawn_as_if_one_did(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "contexts": {"c": {"buft": "CPU", "tensors": {"x": {"type": "f32", "ne": [4]}}}},
        "graphs": {"main": {"nodes": {"y": "sqr(x)"}}},
        "steps": [{"reserve": "main"}, {"alloc": "main"}],
    }
    document = json.loads(call("trace", "--perfetto", "-", stdin=json.dumps(scenario).encode()).out)
    assert document["otherData"]["graphs_no_step_computes"] == ["main"]
    assert [event["name"] for event in document["traceEvents"] if event.get("cat") == "node"] == ["y"]


def test_what_ggml_refuses_is_drawn_as_far_as_it_comes(call: Call) -> None:
    result = call("trace", "--perfetto", "preallocated")
    assert result.status == 1
    assert "cannot run the operation (SET_ROWS)" in result.err
    document = json.loads(result.out)
    assert "SET_ROWS" in document["otherData"]["error"]["message"]
    assert "reserve" in {event["name"].partition(" ")[0] for event in document["traceEvents"]}


def test_weights_without_values_are_not_measured(call: Call) -> None:
    result = call("trace", "--measured", "--perfetto", "gemma-3-270m")
    assert (result.status, result.out) == (2, "")
    assert "the weights have no values" in result.err


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
