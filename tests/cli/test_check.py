"""check: every limit with its gauge; exit 1 where one is breached, 0 at the limit and where ggml makes do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.inspect.gauges import limits_of
from tests.cli.conftest import SAMPLES, Call, Result
from tests.limits import AT, buffer, split_inputs

LIMITS = limits_of(DEFAULT.name)


def gauge(result: Result, key: str) -> dict[str, Any]:
    """The gauge of a graph in the output of --json."""
    gauges: list[dict[str, Any]] = json.loads(result.out)["graphs"][0]["gauges"]
    return next(g for g in gauges if g["key"] == key)


def text(scenario: dict[str, Any]) -> bytes:
    return json.dumps(scenario).encode()


@pytest.mark.parametrize("key", AT)
def test_at_the_limit_all_is_well(call: Call, key: str) -> None:
    # The sixteenth chunk is larger than the device allows.
    ignored = {"buffer_size"} if key == "chunks" else set()
    result = call("check", "--step", "reserve", "--json", "-", stdin=text(AT[key][0]))
    found = gauge(result, key)
    if key == "sched_context":
        assert found["of"] - 5 * 368 < found["used"] <= found["of"]
    else:
        assert found["used"] == found["of"]
    gauges = json.loads(result.out)["graphs"][0]["gauges"]
    assert {g["key"] for g in gauges if g["status"] == "breached"} == ignored
    assert result.status == (1 if ignored else 0)


@pytest.mark.parametrize("key", AT)
def test_one_more_is_a_breach_with_ggmls_words(call: Call, key: str) -> None:
    result = call("check", "--step", "reserve", "--json", "-", stdin=text(AT[key][1]))
    found = gauge(result, key)
    document = json.loads(result.out)
    assert result.status == 1
    assert document["ok"] is False
    assert found["status"] == "breached"
    assert found["used"] > found["of"]
    assert document["graphs"][0]["breach"]["key"] == key
    shown = call("check", "--step", "reserve", "-", stdin=text(AT[key][1]), columns=100)
    assert shown.status == 1
    assert "breached" in shown.out
    assert document["graphs"][0]["error"]["message"] in shown.out
    assert f"the limit: {LIMITS[key].constant}" in shown.out


@pytest.mark.parametrize(("n", "at_once", "splits", "used"), [(29, 1, 1, 29), (30, 1, 1, 30), (31, 1, 2, 30)])
def test_the_thirty_first_input_began_a_split(call: Call, n: int, at_once: int, splits: int, used: int) -> None:
    result = call("check", "--json", "--ggml", "0.20.2", "-", stdin=text(split_inputs(n, at_once)))
    assert (result.status, gauge(result, "splits")["used"]) == (0, splits)
    found = gauge(result, "split_inputs")
    assert (found["used"], found["of"]) == (used, 30)
    assert found["where"] == "split #0 on G0"


@pytest.mark.parametrize(("ggml", "at_once", "logged"), [("0.20.2", 5, True), ("0.26", 5, False), ("0.26", 1, False)])
def test_more_inputs_are_over_the_limit_and_no_breach(call: Call, ggml: str, at_once: int, logged: bool) -> None:
    scenario = text(split_inputs(32, at_once))
    result = call("check", "--json", "--ggml", ggml, "-", stdin=scenario)
    found = gauge(result, "split_inputs")
    assert (result.status, found["status"], found["used"]) == (0, "over", 32)
    assert "capacity so far: 60" in found["where"]
    verbose = call("check", "-v", "--ggml", ggml, "-", stdin=scenario)
    assert ("increasing split inputs capacity from 30 to 60" in verbose.err) == logged


@pytest.mark.parametrize(
    ("given", "key", "status"),
    [
        ({"max_size": 4096}, "buffer_size", 0),
        ({"max_size": 4092}, "buffer_size", 1),
        ({"memory": 5120}, "device_memory", 0),
        ({"memory": 5119}, "device_memory", 1),
        ({"memory": 1000}, "device_memory", 1),
    ],
)
def test_a_device_has_so_much_memory(call: Call, given: dict[str, int], key: str, status: int) -> None:
    result = call("check", "--json", "-", stdin=text(buffer(4096, **given)))
    found = gauge(result, key)
    assert result.status == status
    assert found["status"] == ("breached" if status else "near")
    assert found["used"] == {"buffer_size": 4096, "device_memory": 5120}[key]
    if key == "device_memory":
        assert found["parts"] == {"contexts": 1024, "compute buffers": 4096}


def test_without_memory_in_the_scenario_there_is_no_such_gauge(call: Call) -> None:
    out = call("check", "-", stdin=text(buffer(4096))).out
    assert "memory of a device" not in out
    assert "size of a buffer" not in out


@pytest.mark.parametrize(("n", "status"), [(62, "near"), (63, "near"), (64, "over")])
def test_long_names_are_cut_which_is_no_breach(call: Call, n: int, status: str) -> None:
    scenario = buffer(4096)
    scenario["graphs"]["main"]["nodes"] = {"y" * n: "sqr(w)"}
    result = call("check", "--json", "-", stdin=text(scenario))
    found = gauge(result, "name")
    assert (result.status, found["used"], found["status"]) == (0, n, status)


def test_a_name_that_is_long_as_a_copy_only(call: Call) -> None:
    scenario = split_inputs(1)
    x = "x" * 60
    scenario["contexts"]["c"]["tensors"] = {x: scenario["contexts"]["c"]["tensors"]["x0"]}
    scenario["graphs"]["main"]["nodes"]["last"]["src"] = [x]
    found = gauge(call("check", "--json", "-", stdin=text(scenario)), "name")
    assert (found["used"], found["where"]) == (65, f"G0#{x}#0")


def test_all_graphs_at_once_show_the_one_that_is_closest(call: Call) -> None:
    scenario = split_inputs(9)
    scenario["graphs"]["small"] = {"nodes": {"s": {"op": "sqr", "src": ["x0"], "backend": "G0"}}}
    result = call("check", "--all", "-", stdin=text(scenario), columns=200)
    assert result.status == 0
    row = next(line for line in result.out.splitlines() if "inputs of a split" in line)
    assert "main: split #0 on G0" in row
    graphs = json.loads(call("check", "--all", "--json", "-", stdin=text(scenario)).out)["graphs"]
    assert [g["graph"] for g in graphs] == ["main", "small"]
    wrong = call("check", "--all", "--graph", "main", "-", stdin=text(scenario))
    assert wrong.status == 2
    assert "--all checks every graph" in wrong.err


def test_after_a_step_the_room_that_an_earlier_graph_made_is_still_there(call: Call) -> None:
    scenario = split_inputs(32, at_once=5)
    scenario["graphs"]["small"] = {"nodes": {"s": {"op": "sqr", "src": ["x0"], "backend": "G0"}}}
    scenario["steps"] = ["reserve main", "reserve small"]
    small = gauge(call("check", "--graph", "small", "--json", "-", stdin=text(scenario)), "split_inputs")
    assert (small["used"], small["where"]) == (1, "split #0 on G0")
    result = call("check", "--after", "2", "--json", "-", stdin=text(scenario))
    small = gauge(result, "split_inputs")
    assert (result.status, small["used"]) == (0, 1)
    assert small["where"] == "split #0 on G0, capacity so far: 60"
    assert json.loads(result.out)["after"] == 2
    assert "step 2 · reserve small" in call("check", "--after", "2", "-", stdin=text(scenario)).out
    assert call("check", "--after", "2", "--all", "-", stdin=text(scenario)).status == 2


def test_after_a_step_that_ggml_refuses_the_limit_is_shown(call: Call) -> None:
    scenario = AT["free_blocks"][1] | {"steps": ["reserve main", "alloc main"]}
    result = call("check", "--after", "2", "--json", "-", stdin=text(scenario))
    assert (result.status, gauge(result, "free_blocks")["status"]) == (1, "breached")


def test_a_refusal_that_is_no_limit_is_shown_too(call: Call) -> None:
    result = call("check", SAMPLES / "preallocated.yaml", columns=100)
    assert result.status == 1
    assert "pre-allocated tensor (stored)" in result.out
    assert "not reached" in result.out
    assert "the limit:" not in result.out


@pytest.mark.parametrize("key", LIMITS)
def test_every_limit_says_what_is_beyond_it(key: str) -> None:
    limit = LIMITS[key]
    assert limit.beyond
    assert limit.constant
