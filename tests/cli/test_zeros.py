"""Nothing is computed from weights that have no values, unless that is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SAMPLES, Call

CAPTURED = SAMPLES / "gemma-3-270m.json.gz"


def source(usage: str = "weights", **tensors: Any) -> bytes:
    weights = {"w": "f32[4, 4]", "gain": {"type": "f32", "ne": [4], "data": {"fill": 1}}}
    document = {
        "ggmltool": 1,
        "contexts": {
            "weights": {"buft": "CPU", "usage": usage, "tensors": weights},
            "cache": {"buft": "CPU", "tensors": {"cache": "f32[4, 2]"}},
            "inputs": {"tensors": {"x": {"type": "f32", "ne": [4, 2], "data": {"arange": {}}}, **tensors}},
        },
        "graphs": {
            "main": {
                "nodes": {"a": "mul_mat(w, x)", "kept": "cpy(a, cache)", "y": {"op": "mul", "src": ["kept", "gain"]}}
            }
        },
    }
    return json.dumps(document).encode()


@pytest.mark.parametrize("command", ["run", "trace", "compare"])
def test_weights_of_a_capture_without_values_stop_it_before_any_work(call: Call, command: str) -> None:
    """U3"""
    result = call(command, CAPTURED)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    for named in ("no values", "capture --weights", "--zeros", "output_norm.weight"):
        assert named in result.err
    assert ("--no-compute" in result.err) == (command != "compare")


@pytest.mark.parametrize("command", ["run", "trace", "compare"])
def test_zeros_are_computed_when_they_are_asked_for(call: Call, command: str) -> None:
    assert call(command, "-", stdin=source()).status == 2
    result = call(command, "--zeros", "-", stdin=source())
    assert (result.status, result.err) == (0, "")
    if command == "run":
        assert "y · f32 [4, 2]\n  0  0  0  0\n" in result.out


def test_no_compute_plans_only(call: Call) -> None:
    assert call("run", "--no-compute", CAPTURED).status == 0
    assert call("trace", "--no-compute", "-", stdin=source()).status == 0


def test_a_cache_begins_as_zeros_and_other_inputs_are_named(call: Call) -> None:
    document = json.loads(source("any"))
    result = call("run", "-", stdin=json.dumps(document).encode())
    assert (result.status, result.err) == (0, "no data, so zero: w\n")
    assert call("run", "-q", "-", stdin=json.dumps(document).encode()).err == ""


def test_a_step_can_give_weights_their_values(call: Call) -> None:
    document = json.loads(source())
    document["steps"] = [{"set": {"w": {"fill": 1}}}, "alloc main", "compute main"]
    assert call("run", "-", stdin=json.dumps(document).encode()).status == 0


def test_weights_that_no_computed_graph_reads_need_no_values(call: Call) -> None:
    document = json.loads(source())
    document["graphs"]["other"] = {"nodes": {"z": "sqr(x)"}}
    document["steps"] = ["reserve main", "alloc other", "compute other"]
    assert call("run", "-", stdin=json.dumps(document).encode()).status == 0


def test_a_seed_that_is_asked_for_makes_up_weights_too(call: Call) -> None:
    result = call("compare", "--seed", "3", "--json", "-", stdin=source())
    assert result.status == 0
    assert "w" in json.loads(result.out)["made_up"]


def test_python_computes_with_zeros_as_ever() -> None:
    import ggmltool

    assert not ggmltool.load(json.loads(source())).compute()["y"].any()


@pytest.mark.parametrize("command", ["run", "trace", "compare"])
def test_what_needs_more_memory_than_is_free_is_refused_before_any_is_taken(
    call: Call, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3: the estimate is said, and what can be done."""
    from ggmltool.ggml import bounds

    monkeypatch.setattr(bounds, "free_memory", lambda: 200)
    result = call(command, "--zeros", "-", stdin=source())
    assert (result.status, result.out) == (2, "")
    assert "computing needs about " in result.err
    assert "200 B is free here" in result.err
    assert call(command, "--zeros", "--no-memory-check", "-", stdin=source()).status == 0
    monkeypatch.setattr(bounds, "free_memory", lambda: None)
    assert call(command, "--zeros", "-", stdin=source()).status == 0


def test_the_estimate_is_of_the_plan_and_mapped_weights_take_none() -> None:
    import ggmltool
    from ggmltool.ggml.bounds import free_memory
    from ggmltool.inspect.need import need_of_compare, need_of_run

    scenario = ggmltool.load(json.loads(source()))
    rough, planned = need_of_run(scenario, ["main"], 1 << 40), need_of_run(scenario, ["main"], 1)
    assert rough.contexts == planned.contexts == 64 + 16 + 32 + 32
    assert planned.buffers == dict(scenario.plan().buffer_sizes)["CPU"]
    assert need_of_compare(scenario, "main").contexts == 2 * rough.contexts
    assert free_memory() is None or (free_memory() or 0) > 0


@pytest.mark.parametrize("command", ["run", "trace"])
def test_a_set_that_the_next_alloc_undoes_is_told(call: Call, command: str) -> None:
    """U22"""
    document = json.loads(source())
    document["contexts"]["weights"]["tensors"]["w"] = {"type": "f32", "ne": [4, 4], "data": {"fill": 1}}
    document["steps"] = [
        "alloc main",
        "compute main",
        "reset",
        {"set": {"x": {"fill": 7}}},
        "alloc main",
        "compute main",
    ]
    result = call(command, "-", stdin=json.dumps(document).encode())
    assert result.status == 0
    assert result.err.startswith("alloc main creates x anew, so what `set` wrote is gone. Put `set` after the `alloc`")
    if command == "run":
        assert "undoes set x" in result.out
    document["steps"][3:5] = reversed(document["steps"][3:5])
    assert call(command, "-", stdin=json.dumps(document).encode()).err == ""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to know what it has")
def test_a_bound_of_the_shell_counts_as_memory_that_there_is() -> None:
    """R5: `ulimit -v` before a graph that needs more is told before any memory is taken."""
    nodes = {"y": "sqr(x)"}
    tensors = {"x": {"type": "f32", "ne": [1 << 30], "data": {"fill": 1}}}
    given = {"ggmltool": 1, "contexts": {"c": {"tensors": tensors}}, "graphs": {"g": {"nodes": nodes}}}
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 4000000; exec {sys.executable} -m ggmltool run -"],
        input=json.dumps(given), capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(SAMPLES.parent)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "computing needs about 12 GiB" in done.stderr


@pytest.mark.parametrize("sample", ["four-passes", "priority"])
def test_no_compute_plans_the_steps_of_a_ggml_that_measures(call: Call, sample: str) -> None:
    """S5"""
    result = call("run", "--no-compute", "--ggml", "2024-01", "--json", sample)
    assert result.status == 0
    plans = json.loads(result.out)["plans"]
    assert [(plan["step"], plan["ok"]) for plan in plans] == [("measure", True), ("compute", True)]


@pytest.mark.parametrize("release", ["2024-01", "2025-03", "0.26"])
def test_no_compute_meets_the_assertions_of_steps(call: Call, release: str) -> None:
    """S5: nothing is written, and a tensor that has no memory is one all the same."""
    result = call("run", "--no-compute", "--ggml", release, "buffer-not-set")
    assert result.status == 1
    assert "in ggml_backend_tensor_set" in result.out + result.err
    assert "not written" in result.out


def test_no_compute_meets_the_assertion_of_a_graph_that_measures(call: Call) -> None:
    """S5"""
    text = (
        "{ggmltool: 1, ggml: 2024-01, backends: [CPU], contexts: {c: {tensors: {x: 'f32[4]'}}}, "
        "graphs: {main: {nodes: {y: sqr(x)}}}}"
    )
    result = call("run", "--no-compute", "-", stdin=text.encode())
    assert result.status == 1
    assert "node_allocr != NULL" in result.out + result.err
