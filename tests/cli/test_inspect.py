"""The commands that look into the engine's state, at once and after a step, and the figures of gdb sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import SAMPLES, Call

WALK = yaml.safe_load((SAMPLES / "allocator.yaml").read_text("utf-8")) | {"steps": []}
"""A product of two inputs, and a second graph with one input and one node more."""
WALK_TEXT = json.dumps(WALK).encode()


def hash_nodes(call: Call, *args: str) -> dict[str, tuple[object, ...]]:
    document = json.loads(call("hash", "--json", *args, "-", stdin=WALK_TEXT).out)
    fields = ("n_children", "n_views", "buffer_id", "offset", "allocated")
    return {node["tensor"]: tuple(node[f] for f in fields) for node in document["nodes"]}


@pytest.mark.parametrize("args", [("hash", "--at"), ("allocs", "--free-blocks")])
def test_a_node_that_the_allocator_does_not_know_is_said_to_be_unknown(call: Call, args: tuple[str, ...]) -> None:
    wrong = call(*args, "resuld", SAMPLES / "matmul.yaml")
    assert (wrong.status, wrong.out) == (2, "")
    assert 'did you mean "result"?' in wrong.err
    own = call(*args, "wq", SAMPLES / "transformer.yaml")
    assert own.status == 2
    assert "it is pre-allocated" in own.err


def test_context_shows_one_context_and_knows_their_names(call: Call) -> None:
    result = call("context", "--only", "inputs", "--format", "ggml", "-", stdin=WALK_TEXT)
    lines = result.out.splitlines()
    assert lines[1] == " - ggml_object: type = 0, offset = 32, size = 336, next = 0x555500000170"
    assert lines[-2].endswith("next = (nil)")
    wrong = call("context", "--only", "input", "-", stdin=WALK_TEXT)
    assert wrong.status == 2
    assert 'did you mean "inputs"?' in wrong.err


def test_trace_json_has_every_event(call: Call) -> None:
    document = json.loads(call("trace", "--json", SAMPLES / "matmul.yaml").out)
    assert [step["step"] for step in document["steps"]] == ["reserve main", "alloc main", "compute main"]
    events = [event["event"] for event in document["steps"][2]["events"]]
    assert events == ["Entered", "Entered", "Computed", "Left", "Synchronized", "Left"]


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


def test_a_tensor_that_is_not_there_and_a_copy_that_is(call: Call) -> None:
    wrong = call("tensor", "kqq", SAMPLES / "transformer.yaml")
    assert (wrong.status, wrong.out) == (2, "")
    assert 'did you mean "kq"?' in wrong.err
    assert call("tensor", "--strides", "-f", "gdb", "kq", SAMPLES / "transformer.yaml").status == 2
    copy = json.loads(call("tensor", "--json", "CUDA0#x#0", SAMPLES / "transformer.yaml").out)["tensor"]
    assert copy["used_by"] == ["norm", "ffn_inp"]
    assert (copy["context"], copy["buffer"]) == ("scheduler", "CUDA0")


def test_a_story_is_nothing_that_gdb_prints(call: Call) -> None:
    result = call("allocs", "--trace", "--format", "gdb", "-", stdin=WALK_TEXT)
    assert (result.status, result.out) == (2, "")
    assert "--trace and --format gdb are different views" in result.err


def test_before_a_node_its_sources_have_their_uses_and_their_memory(call: Call) -> None:
    assert hash_nodes(call, "--before", "mul") == {
        "a": (1, 0, 0, 0, True), "b": (1, 0, 0, 32, True), "mul": (0, 0, 0, 0, False),
    }  # fmt: skip
    assert "alloc one before mul" in call("hash", "--before", "mul", "-", stdin=WALK_TEXT).out


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [(("--before", "a"), 2, "it is not a node"), (("--before", "mull"), 2, 'did you mean "mul"?'),
     (("--before", "mul", "--at", "mul"), 2, "choose one"), (("--before", "mul", "--sched"), 2, "not for --sched")],
)  # fmt: skip
def test_there_is_no_moment_before_what_is_no_node(call: Call, args: tuple[str, ...], status: int, says: str) -> None:
    result = call("hash", *args, "-", stdin=WALK_TEXT)
    assert (result.status, result.out) == (status, "")
    assert says in result.err


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
    scenario = {
        "ggmltool": 1,
        "contexts": {"inputs": {"tensors": {"x": "f32[8, 4]"}}},
        "graphs": {"main": {"nodes": {"y": "tanh(x)"}}},
        "steps": steps,
    }
    (tmp_path / "a.json").write_text(json.dumps(scenario))
    result = call(*command, "--after", "2", "a.json")
    assert (result.status, result.out) == (1, "")
    assert 'GGML_ASSERT(buf != NULL && "tensor buffer not set") failed' in result.err
