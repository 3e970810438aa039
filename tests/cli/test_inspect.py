"""The commands that look into the engine's state, at once and after a step, and the figures of gdb sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.inspect.gauges import limits_of
from tests.cli.conftest import SAMPLES, Call, Result
from tests.limits import AT, buffer, split_inputs
from tests.scenarios import scenario_of

WALK = yaml.safe_load((SAMPLES / "allocator.yaml").read_text("utf-8")) | {"steps": []}
"""A product of two inputs, and a second graph with one input and one node more."""
WALK_TEXT = json.dumps(WALK).encode()


def hash_nodes(call: Call, *args: str) -> dict[str, tuple[object, ...]]:
    document = json.loads(call("hash", "--json", *args, "-", stdin=WALK_TEXT).out)
    fields = ("n_children", "n_views", "buffer_id", "offset", "allocated")
    return {node["tensor"]: tuple(node[f] for f in fields) for node in document["nodes"]}


def test_context_shows_one_context(call: Call) -> None:
    result = call("context", "--only", "inputs", "--format", "ggml", "-", stdin=WALK_TEXT)
    lines = result.out.splitlines()
    assert lines[1] == " - ggml_object: type = 0, offset = 32, size = 336, next = 0x555500000170"
    assert lines[-2].endswith("next = (nil)")


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        ("f32[4, 2]", "| 0,0 | 1,0 | 2,0 | 3,0 | 0,1 | 1,1 | 2,1 | 3,1 |"),
        ({"type": "f32", "ne": [2, 3], "nb": [12, 4]}, "| 0,0 | 0,1 | 0,2 | 1,0 | 1,1 | 1,2 |"),
        ({"type": "f32", "ne": [2, 2], "nb": [4, 16]}, "| 0,0 | 1,0 | ··· | 0,1 | 1,1 |"),
        ("q4_0[64, 2]", "| 0,0 | 1,0 | 0,1 | 1,1 |"),
        ("f32[1]", "| 0 |"),
        ("f32[0, 4]", "It has no elements."),
    ],
)
def test_strides_show_who_follows_whom_in_memory(call: Call, tensor: object, order: str) -> None:
    scenario = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"buft": "CPU", "tensors": {"t": tensor, "u": "f32[1]"}}},
        "graphs": {"g": {"nodes": {"n": "sqr(u)"}}},
    }
    result = call("tensor", "--strides", "t", "-", stdin=json.dumps(scenario).encode())
    assert (result.status, result.err) == (0, "")
    assert order in [line.strip() for line in result.out.splitlines()]


def test_a_copy_is_a_tensor(call: Call) -> None:
    copy = json.loads(call("tensor", "--json", "CUDA0#x#0", SAMPLES / "transformer.yaml").out)["tensor"]
    assert copy["used_by"] == ["norm", "ffn_inp"]
    assert (copy["context"], copy["buffer"]) == ("scheduler", "CUDA0")


def test_before_a_node_its_sources_have_their_uses_and_their_memory(call: Call) -> None:
    assert hash_nodes(call, "--before", "mul") == {
        "a": (1, 0, 0, 0, True), "b": (1, 0, 0, 32, True), "mul": (0, 0, 0, 0, False),
    }  # fmt: skip
    assert "alloc one before mul" in call("hash", "--before", "mul", "-", stdin=WALK_TEXT).out


def test_gdb_is_shown_the_free_blocks_alone_where_others_were_in_use(call: Call) -> None:
    """An array that had two free blocks and has one still holds the second one behind it."""
    tensors = {name: {"type": "f32", "ne": [64], "flags": ["input"]} for name in ("x", "y")}
    nodes = {"a": "sum(x)", "b": "repeat(a, y)"}
    document = {"ggmltool": 1, "contexts": {"i": {"tensors": tensors}}, "graphs": {"main": {"nodes": nodes}}}
    text = json.dumps(document).encode()
    story = json.loads(call("allocs", "--trace", "--json", "-", stdin=text).out)["steps"]
    assert [len(s["free_blocks"]) for s in story if s["free_blocks"] is not None] == [1, 1, 2, 1, 1]
    out = call("allocs", "--format", "gdb", "-", stdin=text, columns=120).out
    assert "free_blocks = {{offset = 256, size = 9223372036854775551}}, n_free_blocks = 1" in " ".join(out.split())
    before = call("allocs", "--format", "gdb", "--free-blocks", "a", "-", stdin=text, columns=120).out
    assert "<repeats 255 times>" in before


STEPS = json.dumps({**WALK, "steps": ["alloc one", "reset", "alloc two", {"get": ["mul2"]}, "compute two"]}).encode()
REFUSED_VIEWS = (
    "hash", "hash --sched", "allocs --trace", "context", "plan", "splits -f table", "splits --by op", "buffers",
    "graph --sched", "tensor u", "dot --style ggmltool",
)  # fmt: skip
VIEWS = ("hash", "allocs", "context", "plan", "splits", "buffers", "graph --sched", "tensor w")

UNPLACED = json.dumps(
    {
        "ggmltool": 1,
        "backends": ["CUDA0", "CPU"],
        "contexts": {
            "c": {"tensors": {"x": {"type": "f32", "ne": [8, 8], "flags": ["input"]}, "u": "f32[8, 8]"}},
        },
        "graphs": {
            "fine": {"nodes": {"a": "sqr(x)"}},
            "main": {"nodes": {"y": "sqr(x)", "v": "reshape(u, ne=[64])", "w": "sqr(v)"}},
        },
        "steps": ["reserve fine", "alloc fine", "reset", "reserve main", "alloc main"],
    }
).encode()
"""u is used by a view only, so that it has no backend and the allocator will not place it."""


def hash_nodes_after(call: Call, number: int) -> dict[str, tuple[object, ...]]:
    document = json.loads(call("hash", "--json", "--after", number, "-", stdin=STEPS).out)
    assert document["after"] == number
    return {n["tensor"]: (n["n_children"], n["n_views"], n["offset"], n["allocated"]) for n in document["nodes"]}


def test_two_graphs_on_one_scheduler_leave_the_tables_of_a_gdb_session(call: Call) -> None:
    """After the second graph, which has an input and a node more, the first one's tensors are gone from the table."""
    assert hash_nodes_after(call, 1) == {"a": (0, 0, 0, False), "b": (0, 0, 32, False), "mul": (0, 0, 0, True)}
    second = hash_nodes_after(call, 3)
    assert set(second) == {"a2", "b2", "c", "mul1", "mul2"}
    assert [name for name, node in second.items() if node[3]] == ["mul2"]
    assert hash_nodes_after(call, 5) == second
    allocs = json.loads(call("allocs", "--json", "--after", 3, "-", stdin=STEPS).out)
    assert [node["tensor"] for node in allocs["node_allocs"]] == ["mul1", "mul2"]
    assert len(allocs["leaf_allocs"]) == 3


def test_a_plan_that_still_serves_is_named(call: Call) -> None:
    result = call("hash", "--after", 2, SAMPLES / "transformer.yaml")
    assert ", step 2 · alloc main, by the plan of step 1, reserve main · " in result.out
    ours = json.loads(call("hash", "--json", "--after", 2, SAMPLES / "transformer.yaml").out)
    fresh = json.loads(call("hash", "--json", SAMPLES / "transformer.yaml").out)
    assert ours["nodes"] == fresh["nodes"]


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_the_first_step_is_that_of_a_fresh_scheduler(call: Call, view: str) -> None:
    name = "wq" if view == "tensor w" else ""
    words = [*view.split()[:1], *([name] if name else view.split()[1:]), SAMPLES / "transformer.yaml"]
    fresh = call(*words, "--step", "reserve").out
    after = call(*words, "--after", "1").out
    assert after.replace(", step 1", "") == fresh


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--after", "9"), "there is no step 9, the scenario has 5 steps; the steps with a graph are 1 (alloc one), "),
        (("--after", "1", "--graph", "two"), "leave out --graph"),
        (("--after", "1", "--step", "alloc"), "leave out --step"),
        (("--after", "0"), "0 is not in the range x>=1"),
    ],
)
def test_a_step_that_cannot_be_looked_at_is_refused(call: Call, args: tuple[str, ...], said: str) -> None:
    result = call("hash", *args, "-", stdin=STEPS)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


def test_a_step_before_the_first_graph_is_refused(call: Call) -> None:
    early = json.dumps({**WALK, "steps": ["reset", "alloc one"]}).encode()
    result = call("hash", "--after", "1", "-", stdin=early)
    assert (result.status, result.out) == (2, "")
    assert "step 1 (reset) comes before the first graph; the steps with a graph are 2 (alloc one)" in result.err


RESET_VIEWS = (
    *VIEWS[:-1],
    "hash --sched",
    "tensor mul",
    "lifetime mul",
    "explain node mul",
    "explain split 0",
    "check",
    "dot",
)


@pytest.mark.parametrize("view", RESET_VIEWS)
def test_a_reset_is_a_moment(call: Call, view: str) -> None:
    result = call(*view.split(), "--after", 2, "-", stdin=STEPS)
    assert (result.status, result.err) == (0, "")
    if "dot" not in view and "--sched" not in view.split("graph")[-1]:
        assert json.loads(call(*view.split(), "--after", 2, "--json", "-", stdin=STEPS).out)["after"] == 2


def test_a_reset_empties_the_schedulers_table_and_leaves_the_allocators(call: Call) -> None:
    """ggml_backend_sched_reset clears backends and copies; splits, the plan and its hash nodes stay."""
    backends = {
        after: {row["tensor"]: row["backend"] for row in _json(call, "hash", "--sched", after)["tensors"]}
        for after in (1, 2)
    }
    assert set(backends[1].values()) == {"CPU"}
    assert set(backends[2].values()) == {None}
    assert hash_nodes_after(call, 2) == hash_nodes_after(call, 1)
    assert _json(call, "splits", "", 2)["splits"] == _json(call, "splits", "", 1)["splits"]


def _json(call: Call, command: str, option: str, after: int) -> Any:
    words = [command, *([option] if option else []), "--json", "--after", after, "-"]
    return json.loads(call(*words, stdin=STEPS).out)


@pytest.mark.parametrize("view", REFUSED_VIEWS)
@pytest.mark.parametrize("args", [("--graph", "main"), ("--after", "4"), ("--after", "5")])
def test_what_stood_when_ggml_refused_is_shown_and_then_its_words(call: Call, view: str, args: tuple[str, ...]) -> None:
    result = call(*view.split(), *args, "-", stdin=UNPLACED)
    assert result.status == 1
    assert result.out
    assert result.err.startswith(
        "GGML_ASSERT(buffer_id >= 0) failed\n  in ggml_gallocr_allocate_node\n  u has no backend"
    )
    if "dot" not in view and "--sched" not in view.split("graph")[-1]:
        document = json.loads(call(*view.replace("-f table", "").split(), *args, "--json", "-", stdin=UNPLACED).out)
        assert document["ok"] is False
        assert document["error"]["condition"] == "buffer_id >= 0"


def test_the_hash_table_ends_with_the_tensor_before_the_one_that_is_refused(call: Call) -> None:
    (only,) = json.loads(call("hash", "--json", "-g", "main", "-", stdin=UNPLACED).out)["nodes"]
    assert (only["tensor"], only["allocated"]) == ("x", True)


def test_where_ggml_makes_no_scheduler_there_is_nothing_to_show(call: Call) -> None:
    for view in VIEWS:
        words = view.replace("tensor w", "tensor x").split()
        result = call(*words, "-", stdin=UNPLACED.replace(b'["CUDA0", "CPU"]', b'["CUDA0"]'))
        assert result.status == 1
        assert result.err.count("which is no CPU; list the CPU last") == 1


def test_a_step_that_is_refused_at_once_leaves_the_state_of_the_one_before(call: Call) -> None:
    """alloc without a reset: the first graph stays allocated, its buffers too."""
    twice = STEPS.replace(b'"reset", "alloc two"', b'"alloc two"')
    for view in ("buffers", "plan", "allocs", "hash", "context", "splits -f table"):
        before, after = (call(*view.split(), "--after", n, "-", stdin=twice) for n in (1, 2))
        assert (before.status, after.status) == (0, 1)
        assert after.out.splitlines()[2:] == before.out.splitlines()[2:]
        assert after.err.startswith("GGML_ASSERT(!sched->is_alloc) failed\n")


def test_a_step_that_is_refused_while_its_graph_is_split_has_no_splits_yet(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "backends": [{"name": "CUDA0", "supports": {"except": ["set_rows"]}}, "CPU"],
        "contexts": {
            "cache": {"buft": "CUDA0", "tensors": {"kv": "f32[8, 16]"}},
            "c": {"tensors": {"x": "f32[8, 2]", "at": "i64[2]"}},
        },
        "graphs": {
            "long": {"nodes": {f"n{i}": f"sqr({f'n{i - 1}' if i else 'x'})" for i in range(9)}},
            "stored": {"nodes": {"y": "set_rows(kv, x, at)"}},
        },
        "steps": ["reserve long", "alloc stored"],
    }
    text = json.dumps(scenario).encode()
    plan = json.loads(call("plan", "--json", "--after", 2, "-", stdin=text).out)
    assert (plan["ok"], plan["splits"], plan["nodes"]) == (False, [], [])
    assert sum(plan["buffer_sizes"].values()) > 0
    for view in ("buffers", "plan", "allocs", "hash", "hash --sched", "context", "splits", "tensor y"):
        result = call(*view.split(), "--after", 2, "-", stdin=text)
        assert result.status == 1
        assert result.err.startswith("pre-allocated tensor (y) in a buffer (CUDA0) that cannot run the operation")


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (("splits", "--format", "table"), [{"set": {"y": {"fill": 1}}}, "alloc main", "alloc main"]),
        (("explain", "x"), [{"get": "y"}, "compute main", "reserve main", "compute main", "compute main"]),
        (("buffers",), [{"get": "y"}, "alloc main"]),
    ],
)
def test_a_step_that_is_refused_before_any_graph_says_why(
    call: Call, tmp_path: Path, command: tuple[str, ...], steps: list[object]
) -> None:
    """R4: `set` or `get` of a node without memory, before the first graph."""
    scenario = scenario_of({"x": "f32[8, 4]"}, {"y": "tanh(x)"}, steps=steps)
    (tmp_path / "a.json").write_text(json.dumps(scenario))
    result = call(*command, "--after", "2", "a.json")
    assert (result.status, result.out) == (1, "")
    assert 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed' in result.err


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
