"""`run` and what shares its options: values, `--watch`, `--dump`, zeros, times, `verify`, what-if options."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import ggmltool
from ggmltool.cli.run import MANIFEST, file_name
from ggmltool.debugger.screen.story import when_text
from tests.cli.conftest import SAMPLES, Call, bash
from tests.debugger.screen.screens import app_of
from tests.golden import check_golden
from tests.needs import library
from tests.scenarios import scenario_of

GOLDEN = Path(__file__).parent / "golden"
SAMPLE = SAMPLES / "wrong-kernel.yaml"
TRANSFORMER = SAMPLES / "transformer.yaml"

VALUES: dict[str, Any] = scenario_of(
    {
        "x": {"type": "f32", "ne": [4], "data": [1, float("nan"), float("-inf"), 3]},
        "none": {"type": "f32", "ne": [2], "data": [float("nan"), float("inf")]},
        "q": {"type": "q8_0", "ne": [32, 2], "data": {"fill": 2}, "flags": ["input"]},
    },
    {
        "y": "dup(x)",
        "order": "argsort(y, order=asc)",
        "bad": "dup(none)",
        "turned": "transpose(q)",
        "part": "view(y, ne=[2], offset=8)",
        "half": "cast(y, type=f16)",
    },
    expand=["order", "bad", "turned", "part", "half"],
)


def files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_values_that_are_not_finite_are_counted(call: Call) -> None:
    text = yaml.safe_dump(VALUES, sort_keys=False).encode()
    result = call("run", "--watch", "*", "-", stdin=text, columns=100)
    assert result.status == 0
    check_golden(GOLDEN / "watch_values.txt", result.out)
    watched = {w["id"]: w for w in json.loads(call("run", "--watch", "*", "--json", "-", stdin=text).out)["watched"]}
    assert list(watched) == ["y", "order", "bad", "turned", "part", "half"]
    assert watched["y"] | {"src": []} == {
        "step": 3, "graph": "main", "id": "y", "op": "DUP", "op_desc": "DUP", "type": "f32",
        "ne": [4, 1, 1, 1], "src": [],
        "backend": "CPU", "min": 1.0, "max": 3.0, "mean": 2.0, "nan": 1, "inf": 1,
        "first": [1.0, "NaN", "-Infinity"], "last": ["NaN", "-Infinity", 3.0],
    }  # fmt: skip
    assert (watched["bad"]["min"], watched["bad"]["nan"], watched["bad"]["inf"]) == (None, 1, 1)
    assert watched["order"]["type"] == "i32"
    assert "first" not in watched["turned"]


def test_nodes_are_shown_in_the_order_they_are_computed_each_when_it_is(call: Call) -> None:
    result = call("run", "--watch", "*", "--json", TRANSFORMER)
    scenario = ggmltool.load(TRANSFORMER)
    assert [w["id"] for w in json.loads(result.out)["watched"]] == [n.id for n in scenario.plan().nodes]
    assert "watched" not in json.loads(call("run", "--json", TRANSFORMER).out)


def test_all_nodes_but_views_are_dumped_with_their_values(call: Call) -> None:
    result = call("run", "--dump", "tensors", TRANSFORMER)
    assert (result.status, result.err) == (0, "Wrote 23 tensors to tensors\n")
    manifest = json.loads(Path("tensors", MANIFEST).read_text())
    assert len(manifest["tensors"]) == 23
    assert files("tensors") == sorted([MANIFEST, *(t["file"] for t in manifest["tensors"])])
    ids = [t["id"] for t in manifest["tensors"]]
    values = ggmltool.load(TRANSFORMER).compute(outputs=ids)
    for t in manifest["tensors"]:
        array = np.load(Path("tensors", t["file"]), allow_pickle=False)
        assert (list(array.shape), str(array.dtype), t["ne"]) == (t["shape"], t["dtype"], t["shape"][::-1])
        np.testing.assert_array_equal(array, values[t["id"]])


def test_only_what_is_watched_is_dumped_views_too(call: Call) -> None:
    text = yaml.safe_dump(VALUES, sort_keys=False).encode()
    assert call("run", "--dump", "d", "--watch", "part", "--watch", "order", "-", stdin=text).status == 0
    assert files("d") == [MANIFEST, "order.npy", "part.npy"]
    assert np.load("d/order.npy").dtype == np.int32
    assert np.load("d/part.npy").ravel().tolist() == [-np.inf, 3.0]


def test_files_of_several_compute_steps_say_their_step(call: Call) -> None:
    text = yaml.safe_dump({**VALUES, "steps": ["alloc main", "compute main", "compute main"]}, sort_keys=False).encode()
    result = call("run", "--dump", "d", "--watch", "y", "-", stdin=text, columns=100)
    assert result.status == 0
    assert files("d") == [MANIFEST, "step2-y.npy", "step3-y.npy"]
    assert "CPU · step 2" in result.out


def test_files_that_are_there_are_kept_unless_forced(call: Call) -> None:
    Path("d").mkdir()
    Path("d/act.npy").write_text("mine")
    result = call("run", "--dump", "d", SAMPLE)
    assert (result.status, result.out) == (2, "")
    assert "d/act.npy exists; --force overwrites" in result.err
    assert files("d") == ["act.npy"]
    assert call("run", "--dump", "d", "--force", SAMPLE).status == 0
    assert np.load("d/act.npy").shape == (1, 1, 4, 32)


def test_a_link_in_the_folder_is_replaced_not_followed(call: Call) -> None:
    Path("d").mkdir()
    Path("outside.npy").write_text("mine")
    Path("d/act.npy").symlink_to("../outside.npy")
    assert call("run", "--dump", "d", SAMPLE).status == 2
    assert call("run", "--dump", "d", "--force", SAMPLE).status == 0
    assert Path("outside.npy").read_text() == "mine"
    assert not Path("d/act.npy").is_symlink()


NAMES = [
    "../../up",
    "/etc/x",
    ".",
    "..",
    "a/b",
    "a b",
    "new\nline",
    "\x1b[31m",
    "é" * 40,
    "z" * 200,
    "C:\\x",
    "%2F",
    "~",
]


def test_names_of_files_stay_in_the_folder_and_apart() -> None:
    made = [file_name(name) for name in [*NAMES, "z" * 201, "é" * 41, "A" * 149]]
    assert len(set(made)) == len(made)
    for name in made:
        assert len(name) < 200
        assert name.isascii()
        assert Path(name).name == name
        assert not name.startswith(".")
        assert "/" not in name
        assert "\\" not in name


def test_hostile_names_are_written_inside_the_folder_and_escaped_on_the_screen(call: Call) -> None:
    nodes: dict[str, Any] = {}
    names = [name for name in NAMES if name.isprintable()]
    for i, name in enumerate(names):
        nodes[name] = {"op": "sqr", "src": ["x"], "name": f"n{i}"}
    source = scenario_of({"x": {"type": "f32", "ne": [2], "data": [1, 2]}}, nodes)
    result = call("run", "--watch", "*", "--dump", "d", "-", stdin=json.dumps(source).encode())
    assert result.status == 0
    assert "\x1b" not in result.out
    assert files(".") == ["d"]
    assert len(files("d")) == len(names) + 1


def test_nothing_is_written_where_nothing_is_computed(call: Call) -> None:
    result = call("run", "--dump", "d", SAMPLES / "preallocated.yaml")
    assert (result.status, result.err) == (1, "")
    assert not Path("d").exists()


def test_what_was_computed_before_ggml_refused_is_kept(call: Call) -> None:
    text = yaml.safe_dump({**VALUES, "steps": ["alloc main", "compute main", "alloc main"]}, sort_keys=False).encode()
    result = call("run", "--dump", "d", "--watch", "y", "-", stdin=text)
    assert result.status == 1
    assert "!sched->is_alloc" in result.out
    assert files("d") == [MANIFEST, "y.npy"]


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
    from ggmltool.inspect.ready import need_of_compare, need_of_run

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
    done = bash("ulimit -v 4000000; exec ggmltool run -", input=json.dumps(given))
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


CASES = [
    ("transformer", "kq"),
    ("transformer", "down"),
    ("moe", "h"),
    ("pipeline", "y"),
    ("four-passes", "out"),
    ("node-order", "wide_b"),
]


def number_of(call: Call, sample: str, node: str) -> int:
    nodes = json.loads(call("graph", "--json", sample).out)["nodes"]
    return [n["id"] for n in nodes].index(node)


@pytest.mark.parametrize(("sample", "node"), CASES)
def test_every_view_has_the_number_of_the_graph(call: Call, sample: str, node: str) -> None:
    number = number_of(call, sample, node)
    shown = {
        "explain": rf"\bnode {number} of \d+",
        "lifetime": rf"\b(?:at|from) node {number} {node}\b",
        "allocs": rf"(?m)^ *{number}  {node} ",
    }
    for command, pattern in shown.items():
        arguments = [node, sample] if command != "allocs" else [str(SAMPLES / f"{sample}.yaml")]
        assert re.search(pattern, call(command, *arguments, columns=200).out), command
    trace = call("allocs", "--trace", str(SAMPLES / f"{sample}.yaml"), columns=200).out
    assert re.search(rf"(?m)^ *{number}  [A-Z_0-9]+ +{node} ", trace)
    assert call("buffers", "-o", "map.svg", str(SAMPLES / f"{sample}.yaml")).status == 0
    assert f"from node {number} {node} to " in Path("map.svg").read_text("utf-8")


def test_the_screen_has_the_number_of_the_graph() -> None:
    scene = app_of("transformer", False).scene
    scene.walker.goto(scene.last)
    now = scene.now(scene.last)
    plan = scene.timeline.plannings[-1]
    (span,) = plan.by_tensor["kq"]
    assert when_text(plan, span, now.program) == "at node 14 kq only"
    (copied,) = plan.by_tensor["CUDA0#mask#0"]
    assert when_text(plan, copied, now.program) == "from node CUDA0#mask#0 to node 15 probs"


def test_run_json_has_the_plans_and_the_outputs(call: Call) -> None:
    document = json.loads(call("run", "--json", SAMPLES / "matmul.yaml").out)
    assert (document["ggmltool"], document["kind"], document["ok"]) == (1, "run", True)
    assert [plan["step"] for plan in document["plans"]] == ["reserve", "alloc"]
    assert document["outputs"]["result"] == [[[[60, 55, 50, 110], [90, 54, 54, 126], [42, 29, 28, 64]]]]


def test_run_shows_the_tensors_that_are_asked_for(call: Call) -> None:
    document = json.loads(call("run", "--json", "-t", "gate", "-t", "x", SAMPLES / "transformer.yaml").out)
    assert list(document["outputs"]) == ["gate", "x"]


def test_run_without_computing_only_plans(call: Call) -> None:
    document = json.loads(call("run", "--json", "--no-compute", SAMPLES / "gemma-3-270m.json.gz").out)
    assert [plan["step"] for plan in document["plans"]] == ["reserve", "alloc"]
    assert document["outputs"] == {}


@pytest.mark.parametrize("step", ["reserve", "alloc"])
def test_plan_json_is_the_plan_of_the_python_interface(call: Call, step: str) -> None:
    path = SAMPLES / "transformer.yaml"
    document = json.loads(call("plan", "--json", "--step", step, path).out)
    assert document == json.loads(json.dumps(ggmltool.load(path).plan(step=step).as_dict()))


@pytest.mark.parametrize("sample", ["matmul.yaml", "transformer.yaml", "moe.yaml", "gemma-3-270m-ngl9.json.gz"])
def test_the_real_library_agrees_with_the_samples(call: Call, sample: str) -> None:
    library()
    result = call("verify", SAMPLES / sample)
    assert result.status == 0
    assert "does the same" in result.out


@pytest.mark.parametrize(("option", "outputs"), [("--values", 1), ("--no-values", 0)])
def test_verify_compares_values_where_it_is_told_to(call: Call, option: str, outputs: int) -> None:
    library()
    compared = json.loads(call("verify", "--json", option, SAMPLES / "transformer.yaml").out)["compared"]
    assert compared == {"plans": 2, "nodes": 62, "outputs": outputs}
    assert ("the values of" in call("verify", option, SAMPLES / "transformer.yaml").out) == bool(outputs)


def test_verify_says_what_differs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    library()
    from ggmltool import oracle

    def lying(model: object) -> object:
        run = oracle.OracleRun(*[getattr(real, name) for name in ("plans", "debug", "values", "trace")])
        run.plans[0]["nodes"][0]["offset"] = 7
        run.values[0]["result"] = run.values[0]["result"] + 1
        return run

    from ggmltool.scenario.spec import Step

    model = ggmltool.load(SAMPLES / "matmul.yaml").model
    model.steps.append(Step("get", tensors=("result",)))
    real = oracle.run(model)
    monkeypatch.setattr(oracle, "run", lying)
    result = call("verify", SAMPLES / "matmul.yaml", columns=100)
    assert result.status == 1
    assert "2 differences from the real ggml" in result.out
    assert "reserve main: nodes[0] (result).offset" in result.out
    assert "values of result" in result.out


def test_verify_without_the_library_says_how_to_get_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from ggmltool import oracle

    def missing(model: object) -> None:
        raise oracle.OracleUnavailable("The real ggml library is missing. Get it with …")

    monkeypatch.setattr(oracle, "run", missing)
    result = call("verify", SAMPLES / "matmul.yaml")
    assert result.status == 2
    assert "The real ggml library is missing. Get it with" in result.err


def test_scenarios_come_from_standard_input_too(call: Call) -> None:
    text = (SAMPLES / "matmul.yaml").read_bytes()
    assert "60   55   50  110" in call("run", "-", stdin=text).out
    assert "60   55   50  110" in call("run", "-", stdin=gzip.compress(text)).out


def test_another_graph_of_the_file_by_name(call: Call) -> None:
    scenario = {
        "ggmltool": 1,
        "backends": ["CPU"],
        "contexts": {"c": {"tensors": {"x": "f32[4]"}}},
        "graphs": {"one": {"nodes": {"a": "sqr(x)"}}, "two": {"nodes": {"b": "sqrt(x)"}}},
    }
    text = json.dumps(scenario).encode()
    assert json.loads(call("plan", "--json", "-", stdin=text).out)["graph"] == "one"
    assert json.loads(call("plan", "--json", "--graph", "two", "-", stdin=text).out)["nodes"][0]["id"] == "b"
    wrong = call("plan", "--graph", "twoo", "-", stdin=text)
    assert wrong.status == 2
    assert "two" in wrong.err
    assert "did you mean" in wrong.err


COMMANDS = [("plan",), ("splits", "--format", "table"), ("splits", "--bytes"), ("buffers",), ("buffers", "--chunks")]
COMMANDS += [("splits", "--pass", "5"), ("splits",), ("splits", "--by", "op,backend"), ("buffers", "--chart")]
OPTIONS = [
    ("pipeline", "--no-pipeline", b"{parallel: true}", b"{parallel: false}"),
    ("pipeline", "--pipeline", b"{parallel: true}", b"{parallel: true}"),
    ("offload", "--no-op-offload", b"name: op offload", b"name: op offload\nscheduler: {op_offload: false}"),
    ("offload", "--op-offload", b"name: op offload", b"name: op offload\nscheduler: {op_offload: true}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("sample", "option", "old", "new"), OPTIONS)
def test_it_is_as_if_the_scenario_said_so(
    call: Call, command: tuple[str, ...], sample: str, option: str, old: bytes, new: bytes
) -> None:
    text = (SAMPLES / f"{sample}.yaml").read_bytes()
    assert old in text
    Path("graph.yaml").write_bytes(text.replace(old, new))
    asked, written = call(*command, option, sample), call(*command, "graph.yaml")
    assert asked.status == written.status == 0
    assert asked.out.replace(f", {option}", "") == written.out


@pytest.mark.parametrize("command", ["plan", "buffers"])
def test_the_other_option_stays_as_the_scenario_says(call: Call, command: str) -> None:
    as_it_is = call(command, "--json", "pipeline").out
    assert call(command, "--json", "--op-offload", "pipeline").out == as_it_is
    assert call(command, "--json", "--no-pipeline", "pipeline").out != as_it_is


def test_the_environment_can_say_it(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    there = json.loads(call("plan", "--json", "pipeline").out)
    monkeypatch.setenv("GGMLTOOL_PLAN_PIPELINE", "false")
    without = json.loads(call("plan", "--json", "pipeline").out)
    assert len(without["copies"]) < len(there["copies"])
    assert json.loads(call("plan", "--json", "--pipeline", "pipeline").out) == there


@pytest.mark.parametrize("command", ["run", "plan", "trace"])
def test_every_split_is_printed_with_its_nodes(call: Call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    printed = call("splits", "--debug", "2", "--no-causes", "--format", "text", "pipeline").out
    assert printed.startswith("\n## SPLIT #0: GPU0 # 1 inputs: [x (   2K)] \nnode #  0 (   MUL_MAT)")
    monkeypatch.setenv("GGML_SCHED_DEBUG", "2")
    err = call(command, "-v", "pipeline").err
    assert printed in err
    if command == "run":
        assert err.count("## SPLIT #0") == 2


def test_level_1_prints_headers(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_SCHED_DEBUG", "1")
    err = call("plan", "-v", "pipeline").err
    assert "## SPLIT #1: GPU1 # 1 inputs: [act (   2K)] " in err
    assert "node #" not in err


@pytest.mark.parametrize(("value", "words"), [("2", ["plan", "pipeline"]), ("no", ["plan", "-v", "pipeline"])])
def test_nothing_is_printed_unless_asked(
    call: Call, monkeypatch: pytest.MonkeyPatch, value: str, words: list[str]
) -> None:
    monkeypatch.setenv("GGML_SCHED_DEBUG", value)
    assert "SPLIT" not in call(*words).err


def test_times_and_outputs_go_into_one_file(call: Call) -> None:
    assert call("run", "--times", "-o", "out.txt", "four-passes").err == "Wrote out.txt\n"
    assert Path("out.txt").read_text().startswith("sched_compute_splits times")


def test_times_are_printed_as_ggml_does(call: Call) -> None:
    out = call("run", "--times", "four-passes").out
    lines = out.splitlines()
    assert lines[0] == "sched_compute_splits times (3 splits):"
    assert all(re.fullmatch(r"\t( CUDA0|CUDA0|  CPU): \d+ us copy, \d+ us compute", line) for line in lines[1:3])
    document = json.loads(call("run", "--times", "--json", "four-passes").out)
    assert [b["backend"] for b in document["times"][0]["backends"]] == ["CUDA0", "CPU"]


def test_a_plan_as_json_has_the_allocators(call: Call) -> None:
    plan = json.loads(call("plan", "--json", "--step", "reserve", "four-passes").out)
    assert (plan["step"], plan["measured"]) == ("measure", {"CUDA0": 1024, "CPU": 1088})
    assert [t["buffer_size"] for t in plan["tallocs"]] == [1, 65]
    assert plan["inplace"] == ["masked", "sum", "norm", "k_half", "act", "shifted", "result"]
