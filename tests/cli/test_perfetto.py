"""`trace` for Perfetto: its file, and what it says of its durations. tests/inspect has the format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

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
