"""Every command has its counterpart in Python, and the two say the same."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import json
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ggmltool
from ggmltool import load
from ggmltool.cli.main import COMMANDS
from ggmltool.state.story.history import History
from tests.cli.conftest import Call
from tests.needs import library
from tests.scenarios import scenario_of
from tests.sources.library import HAS_LIBRARY, needs_library
from tests.sources.models import cached

SAID = dict(
    line.split(" => ")
    for line in Path(__file__).with_name("said.txt").read_text("utf-8").splitlines()
    if " => " in line
)
"""A command, and the same question in Python."""

TITLES = {"diff": ("a", "b")}
"""What a command calls by the words of the command line, where Python has values."""


@cache
def answer(words: str) -> Any:
    return eval(SAID[words], {"load": load, "ggmltool": ggmltool})


@pytest.mark.parametrize("words", SAID)
def test_python_says_what_the_command_says(call: Call, words: str) -> None:
    from shlex import split

    command = split(words)
    if "--json" not in command and "--format" not in command:
        command.append("--json")
    told = json.loads(call(*command).out)
    answered = json.loads(json.dumps(answer(words).as_dict()))
    for side in TITLES.get(command[0], ()):
        assert told[side].pop("title")
        assert answered[side].pop("title")
    assert answered == told


ELSEWHERE = {
    "run": "test_python.py",
    "capture": "test_python.py",
    "dot": "test_the_drawing_is_that_of_the_command",
    "import": "test_a_log_is_read_as_the_command_reads_it",
    "verify": "test_the_real_ggml_is_asked_as_the_command_asks_it",
    "record": "cli/test_trace.py",
}
"""Commands that a test of their own is for."""

WITHOUT = {"attach", "debug", "help", "man", "schema", "tui"}
"""Commands that are about the command line and its output, or talk: with a user, with a program that runs."""


def test_every_command_is_there() -> None:
    asked = {words.split()[0] for words in SAID} | set(ELSEWHERE)
    assert asked | WITHOUT == set(COMMANDS)


def test_a_log_is_read_as_the_command_reads_it(call: Call) -> None:
    log = Path(__file__).parent / "sources" / "logs" / "2025-03.log"
    whole = ggmltool.import_log(log)
    assert whole.as_dict() == json.loads(call("import", "--json", log).out)
    assert "<pre" in whole._repr_html_()
    first = ggmltool.import_log(log, graph=1)
    assert first.as_dict() == json.loads(call("import", "--graph", 1, "--json", log).out)
    assert first.plan is not None
    assert len(first.rows) == len(first.plan.nodes) > 0
    differs = load("moe").diff(first)
    assert differs.facts.has_log
    with pytest.raises(ggmltool.InspectError, match="name a graph of the log"):
        load("moe").diff(whole)
    with pytest.raises(ggmltool.ScenarioError, match="99"):
        ggmltool.import_log(log, graph=99)


def test_the_real_ggml_is_asked_as_the_command_asks_it(call: Call) -> None:
    library()
    same = load("matmul").verify()
    assert same.as_dict() == json.loads(call("verify", "--json", "matmul").out)
    assert same.facts.differences == []
    with pytest.raises(ggmltool.InspectError, match="No package carries the real library of ggml 2024-01"):
        load("matmul", ggml="2024-01").verify()


def test_a_placed_scenario_is_one_to_go_on_with(call: Call) -> None:
    gemma = load("gemma-3-270m")
    placed = gemma.placed(9, device="CUDA0:2GiB")
    use = next(u for u in gemma.place(9, device="CUDA0:2GiB").facts.needs.uses if u.buft == "CUDA0")
    assert dict(placed.plan(step="reserve").buffer_sizes)["CUDA0"] == use.compute
    best = gemma.sweep("0,9", device="CUDA0:2GiB").facts.best()
    assert best is not None
    assert best.options["-ngl"] == "9"
    for wrong in ({"n_gpu_layers": "many"}, {"margin": "1"}, {"tensor_split": "a"}, {"device": "CUDA0:x"}, {"ngl": 1}):
        with pytest.raises(ggmltool.InspectError):
            gemma.place(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ggmltool.InspectError, match="too many"):
        gemma.sweep("0..18", n_cpu_moe="0..18", tensor_split=["1,1"] * 100)
    with pytest.raises(ggmltool.InspectError, match="rules here belong to ggml"):
        load("matmul", ggml="2024-01").place()


@needs_library
def test_a_model_is_loaded_as_it_is_captured() -> None:
    model = cached("llama")
    assert ggmltool.load(model).plan(step="reserve") == ggmltool.capture(model).plan(step="reserve")
    token = ggmltool.capture(model, n_ctx=64, phase="token")
    assert token.model.meta["n_tokens"] == 1
    said = ggmltool.capture(model, n_ctx=64, tokens=(2, 5, 7), n_outputs=1)
    values = said.compute()
    next_token = said.next_token(values)
    assert next_token is not None
    assert next_token.likely[0].token == int(values[next_token.id][0, 0, -1].argmax())
    assert load("matmul").next_token() is None
    with pytest.raises(TypeError, match="n_context"):
        ggmltool.capture(model, n_context=64)
    with pytest.raises(ggmltool.CaptureError, match="nowhere"):
        ggmltool.capture("nowhere.gguf")


def test_a_plan_after_a_step_is_that_of_the_command(call: Call) -> None:
    told = json.loads(call("plan", "--after", 2, "--json", "outgrown").out)
    assert told.pop("after") == 2
    assert load("outgrown").plan(after=2).as_dict() == told


def test_ggmls_own_text_is_that_of_the_command(call: Call) -> None:
    assert load("moe").sched_debug() == call("splits", "moe").out
    assert load("moe").sched_debug(1, step="reserve") == call("splits", "--debug", 1, "--step", "reserve", "moe").out
    old = load("four-passes")
    assert old.sched_debug(after_pass=2) == call("splits", "--pass", 2, "--format", "text", "four-passes").out
    with pytest.raises(ggmltool.InspectError, match="prints no single passes"):
        load("moe").sched_debug(after_pass=2)


def test_the_drawing_is_that_of_the_command(call: Call) -> None:
    moe = ggmltool.load("moe")
    assert moe.dot() == call("dot", "--style", "ggmltool", "moe").out
    assert moe.dot(fold=True) == call("dot", "--style", "ggmltool", "--fold", "moe").out
    assert moe.dot(style="ggml", around="up", radius=1) == call("dot", "--around", "up", "--radius", 1, "moe").out
    with pytest.raises(ggmltool.InspectError, match="draws the whole graph"):
        moe.dot(fold=True, split=1)


@pytest.mark.parametrize("words", SAID)
def test_a_result_shows_itself(words: str) -> None:
    result = answer(words)
    assert re_line(repr(result))
    page = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
    if isinstance(result, ggmltool.Result):
        text = "".join(page.itertext())
        assert [line.rstrip() for line in text.splitlines()] == [line.rstrip() for line in str(result).splitlines()]
        for row in result.rows:
            assert isinstance(row, dict) or hasattr(row, "_fields") or dataclasses.is_dataclass(row), type(row)
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.facts = None


def re_line(text: str) -> bool:
    """Whether it is one short line in brackets."""
    return text.startswith("<") and text.endswith(">") and "\n" not in text and len(text) < 200


def test_rows_make_a_data_frame() -> None:
    scenario = ggmltool.load("moe")
    rows = {
        "limits": (scenario.limits().rows, {"key", "used", "limit", "where"}),
        "lifetimes": (scenario.buffers().rows, {"tensor", "buft", "offset", "size", "start", "end"}),
        "copied": (scenario.splits(bytes=True).rows, {"split", "tensor", "nbytes"}),
        "splits": (scenario.splits().rows, {"id", "backend", "i_start"}),
        "supports": (scenario.supports().rows, {"id", "op", "backend", "answers"}),
        "counts": (scenario.splits(by=["op", "backend"]).rows, {"op", "backend", "nodes"}),
    }
    for found, wanted in rows.values():
        assert found
        assert wanted <= set(columns(found[0]))
        if importlib.util.find_spec("pandas") is not None:
            assert wanted <= set(importlib.import_module("pandas").DataFrame(list(found)).columns)


def columns(row: Any) -> list[str]:
    """What pandas names the columns of a list of such rows."""
    if isinstance(row, dict):
        return list(row)
    return list(row._fields) if hasattr(row, "_fields") else [f.name for f in dataclasses.fields(row)]


def test_hostile_names_are_text_in_a_notebook() -> None:
    hostile = "</script><img src=x onerror=alert(1)>\ufe0f"
    nodes = {hostile: {"op": "relu", "src": ["x"]}}
    source = {"ggmltool": 1, "contexts": {"c": {"tensors": {"x": "f32[4]"}}}, "graphs": {"main": {"nodes": nodes}}}
    scenario = ggmltool.load(source)
    for result in (scenario.explain(hostile), scenario.lifetime(hostile), scenario.tensor(hostile), scenario.allocs()):
        page = result._repr_html_()
        assert "<img" not in page
        assert "\ufe0f" not in page + repr(result)
        assert "&lt;img src=x onerror=alert(1)&gt;" in page


def test_what_is_public_is_documented() -> None:
    assert ggmltool.__all__ == sorted(ggmltool.__all__, key=lambda name: (not name[0].isupper(), name))
    for name in ggmltool.__all__:
        thing = getattr(ggmltool, name)
        assert name == "__version__" or (thing.__doc__ or "").strip(), name
    for name, method in inspect.getmembers(ggmltool.Scenario, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name
            takes = [p for p in inspect.signature(method).parameters if p != "self"]
            assert not takes or "Raises" in method.__doc__ or name in FINE, name


FINE = ("graph_name", "start", "run", "steps", "outputs")
"""Methods of the scenario itself, which say what they raise in other words."""


def test_all_errors_are_of_one_kind_and_are_pickled() -> None:
    kinds = [thing for name in ggmltool.__all__ if isinstance(thing := getattr(ggmltool, name), type)]
    errors = [kind for kind in kinds if issubclass(kind, Exception)]
    assert len(errors) == 9
    assert all(issubclass(kind, ggmltool.Error) for kind in errors)
    for ask in (
        lambda: load("moe").tensor("gatee"),
        lambda: load("nowhere.yaml"),
        lambda: load("preallocated").explain(0),
    ):
        with pytest.raises(ggmltool.Error) as caught:
            ask()
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_errors_say_where_and_what_to_do() -> None:
    moe = ggmltool.load("moe")
    with pytest.raises(ggmltool.InspectError, match='did you mean "up'):
        moe.tensor("upp")
    with pytest.raises(ggmltool.InspectError, match="there is no split 99"):
        moe.explain(99)
    with pytest.raises(ggmltool.InspectError, match="exclude each other"):
        moe.splits(by="op", bytes=True)
    with pytest.raises(ggmltool.ScenarioError, match="graph"):
        moe.explain("up", graph="nowhere")
    with pytest.raises(ggmltool.InspectError, match="has no parallel"):
        ggmltool.load("moe", ggml="2024-01").plan(parallel=True)
    with pytest.raises(ggmltool.StepRefused, match="cannot run the operation"):
        ggmltool.load("preallocated").explain(0)
    with pytest.raises(ggmltool.InspectError, match="no type is called"):
        ggmltool.types("q9")


MANUAL = (Path(ggmltool.__file__).parent / "docs" / "python.md").read_text("utf-8")


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL))
def test_an_example_of_the_manual_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "model.gguf" in example:
        if not HAS_LIBRARY:
            pytest.skip("xllamacpp is not installed")
        (tmp_path / "model.gguf").symlink_to(cached("llama"))
    (tmp_path / "llama.log").symlink_to(Path(__file__).parent / "sources" / "logs" / "2025-03.log")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "python.md", "exec"), {})


def test_the_manual_names_all_that_is_public() -> None:
    methods = {name for name, _ in inspect.getmembers(ggmltool.Scenario, inspect.isfunction) if name[0] != "_"}
    for name in methods - {"graph_name", "start", "steps", "outputs", "prepared"}:
        assert re.search(rf"^\| `{name}\(|`{name}\(", MANUAL, re.MULTILINE), name
    for name in set(ggmltool.__all__) - {"__version__", "Result", "Scenario"}:
        assert re.search(rf"\b{name}\b", MANUAL), name


LOG = Path(__file__).parent / "sources" / "logs" / "2025-03.log"
ODD: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 99, 2**31, -(2**63), 2**70, 1.5, float("nan"), float("inf"), "", " ", "\0",
    "a" * 100_000, "\ud800", "\x1b[2J", "nobody", "main", "reserve", "alloc", "compute", "gate", "node", "op",
    "op,backend", "yes", "0..3", "9..1", "1:2", "all", "auto", "3,1", "CUDA0:2GiB", ".*=CPU", "(=CPU", "1GiB",
    "f16", "2024-01", "../nothing", "/", "/dev/null", "moe", "transformer", b"x", (), [], {}, [1], ["a"], ("a",),
    ("a", "b"), (None, None), (1, 2), {"a": 1}, {1: 2}, set(), object(), Path("nothing"), Path("/"), len, print,
    str, 1j,
]  # fmt: skip
SLOW = {"capture", "fit", "verify", "compare", "sweep"}
"""What computes, searches or starts a library: a few examples are enough."""
MODULE = [name for name in ggmltool.__all__ if inspect.isfunction(getattr(ggmltool, name))]
METHODS = [name for name, _ in inspect.getmembers(ggmltool.Scenario, inspect.isfunction) if not name.startswith("_")]
HISTORY = [name for name, _ in inspect.getmembers(History, inspect.isfunction) if not name.startswith("_")]


@cache
def moe() -> Any:
    return ggmltool.load("moe")


@cache
def captured() -> Any:
    return ggmltool.load("gemma-3-270m-ngl9")


@cache
def history() -> Any:
    return ggmltool.load("matmul").record(compute=True)


@st.composite
def calls(draw: st.DrawFn, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    """Odd arguments for some of the parameters of a function."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    odd = st.one_of(st.sampled_from(ODD), st.lists(st.sampled_from(ODD), max_size=2))
    for p in list(inspect.signature(function).parameters.values()):
        if p.name == "self":
            continue
        if p.kind is p.VAR_KEYWORD:
            names = ("graph", "step", "after", "parallel", "op_offload", "device", "margin", "main_gpu", "n_depth", "x")
            kwargs |= draw(st.dictionaries(st.sampled_from(names), odd, max_size=2))
        elif p.kind is p.VAR_POSITIONAL:
            args += draw(st.lists(odd, max_size=2))
        elif p.default is p.empty or draw(st.booleans()):
            value = draw(odd)
            if p.kind is p.KEYWORD_ONLY or (len(args) < len(kwargs)):
                kwargs[p.name] = value
            else:
                args.append(value)
    return args, kwargs


def attempt(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        function(*args, **kwargs)
    except ggmltool.Error as error:
        str(error)


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def examples(name: str) -> settings:
    few = 8 if name in SLOW else 60
    return settings(max_examples=few, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


FUZZED: list[tuple[str, Callable[[], Any]]] = [
    *((name, lambda: ggmltool) for name in MODULE),
    *((name, moe) for name in METHODS),
    *((name, captured) for name in ("place", "placed", "sweep", "splits", "diff", "supports", "plan")),
    *((name, history) for name in HISTORY),
]


@pytest.mark.parametrize(("name", "of"), FUZZED)
def test_any_arguments_are_taken_or_refused(name: str, of: Callable[[], Any]) -> None:
    function = getattr(of(), name)

    @examples(name)
    @given(calls(function))
    def check(call: tuple[list[Any], dict[str, Any]]) -> None:
        attempt(function, *call)

    check()


@given(width=st.sampled_from(ODD))
@examples("")
def test_the_width_of_a_result(width: Any) -> None:
    attempt(moe().splits().text, [width], {})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moe().explain(()), "explain: what must be str or int or tuple"),
        (lambda: moe().plan(after=float("nan")), "plan: after must be int or None, not nan"),
        (lambda: moe().record("\0"), "record: path must be str or Path or None"),
        (lambda: moe().diff("a" * 100_000), "File name too long"),
        (lambda: moe().splits(grap="x"), "splits: there is no option 'grap'; did you mean \"graph\""),
        (lambda: moe().tensor(), "tensor: missing a required argument: 'name'"),
        (lambda: moe().record("nowhere/x.ggtrace"), 'nowhere/x.ggtrace": No such file or directory'),
        (lambda: history().cells(10**9), "there is no point 1000000000"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ggmltool.InspectError) as caught:
        call()
    assert message in str(caught.value)


ANSWERS: dict[str, Callable[[], Any]] = {
    "a plan that ggml refuses": lambda: ggmltool.load("missing-op").plan(),
    "after": lambda: ggmltool.load("outgrown").buffers(after=2),
    "map": lambda: moe().memory_map(),
    "trace": lambda: moe().trace(zeros=True),
    "sweep": lambda: captured().sweep("0..18:9", device="CUDA0:2GiB"),
    "log": lambda: ggmltool.import_log(LOG),
    "graph of a log": lambda: ggmltool.import_log(LOG, graph=1),
    "scenario": lambda: moe(),
}
"""What no command answers, or otherwise."""


@pytest.mark.parametrize("name", [*ANSWERS, *SAID])
def test_an_answer_can_be_pickled(name: str) -> None:
    found = ANSWERS[name]() if name in ANSWERS else answer(name)
    again = pickle.loads(pickle.dumps(found))
    assert repr(again) == repr(found)
    if isinstance(found, ggmltool.Result):
        assert (str(again), again.as_dict(), again.ok) == (str(found), found.as_dict(), found.ok)
    elif isinstance(found, ggmltool.Plan):
        assert again == found


@pytest.mark.parametrize("compute", [False, True])
def test_a_history_can_be_pickled_before_and_after_it_was_asked(compute: bool) -> None:
    recorded = ggmltool.load("matmul").record(compute=compute)
    for _ in range(2):
        again = pickle.loads(pickle.dumps(recorded))
        last = len(recorded.points) - 1
        assert again.cells(last) == recorded.cells(last)
        assert again.stack(last) == recorded.stack(last)
        assert again.since(frozenset(("sched",)), last) == recorded.since(frozenset(("sched",)), last)
        if compute:
            assert again.bytes_at(last, 0, 4) == recorded.bytes_at(last, 0, 4)


@pytest.mark.parametrize("field", ggmltool.CaptureOptions.__dataclass_fields__)
def test_the_settings_of_a_capture(field: str) -> None:
    for value in ODD:
        attempt(ggmltool.CaptureOptions, [], {field: value})
        attempt(ggmltool.capture, ["nothing.gguf"], {field: value})


RELU = scenario_of({"x": "f32[4]"}, {"y": "relu(x)", "z": "sqr(y)"})
WRONG = scenario_of({"a": "f32[2, 3]", "b": "f32[3, 2]"}, {"y": "mul_mat(a, b)"})


def test_a_sample_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U27"""
    assert len(ggmltool.load("transformer").plan().nodes) == 31
    with pytest.raises(ggmltool.ScenarioError, match='did you mean "transformer"'):
        ggmltool.load("transformr")
    monkeypatch.chdir(tmp_path)
    Path("moe").write_text("{}")
    with pytest.raises(ggmltool.ScenarioError, match="no format version"):
        ggmltool.load("moe")


def test_the_package_shows_its_own_names_and_nothing_else() -> None:
    """U27"""
    assert {"Scenario", "Plan", "load", "capture", "ScenarioError", "GgmlError"} <= set(dir(ggmltool))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(ggmltool))
    for name in dir(ggmltool):
        assert not isinstance(getattr(ggmltool, name), ModuleType)
    code = "import sys, ggmltool; sys.exit(len({'numpy', 'msgspec', 'yaml', 'click', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_plan_is_a_line_and_in_a_notebook_two_tables() -> None:
    """U28"""
    plan = ggmltool.load("transformer").plan()
    assert repr(plan) == "<Plan alloc main: 31 nodes, 3 splits, CUDA0 10624 bytes, CPU 14336 bytes>"
    page = ElementTree.fromstring(f"<div>{plan._repr_html_()}</div>")
    assert [len(table) for table in page.iter("table")] == [3, 4]
    large = ggmltool.load("gemma-3-270m-ngl9").plan()
    assert len(repr(large)) < 200
    assert "122 more splits" in large._repr_html_()
    assert len(large._repr_html_()) < 10_000


def test_names_in_a_notebook_are_text() -> None:
    """U28 R3"""
    hostile = "<script>\ufe0f&amp;"
    source = {**RELU, "graphs": {hostile: {"nodes": {"y": "relu(x)"}}}}
    plan = ggmltool.load(source).plan()
    assert "&lt;script&gt;\\ufe0f&amp;amp;" in plan._repr_html_()
    assert "\ufe0f" not in plan._repr_html_() + repr(plan)


def test_a_refused_plan_says_why_in_a_notebook() -> None:
    """U28"""
    plan = ggmltool.load("preallocated").plan()
    assert "refused" in repr(plan)
    assert "cannot run the operation" in plan._repr_html_()


def test_rows_are_dataclasses_and_make_a_data_frame() -> None:
    """U28"""
    plan = ggmltool.load("pipeline").plan()
    for rows in (plan.nodes, plan.leafs, plan.splits, plan.copies):
        assert all(dataclasses.is_dataclass(row) for row in rows)
        assert [f.name for f in dataclasses.fields(rows[0])] == list(dataclasses.asdict(rows[0]))  # type: ignore[arg-type]
    assert [dataclasses.asdict(n)["id"] for n in plan.nodes] == [n.id for n in plan.nodes]  # type: ignore[call-overload]
    if importlib.util.find_spec("pandas") is None:
        return
    frame = importlib.import_module("pandas").DataFrame(plan.nodes)
    assert {"id", "op", "backend", "offset"} <= set(frame.columns)


def test_a_plan_says_which_function_a_unary_op_computes() -> None:
    """U29"""
    plan = ggmltool.load(RELU).plan()
    assert [(n.op, n.op_desc) for n in plan.nodes] == [("UNARY", "RELU"), ("SQR", "SQR")]
    assert [n["op_desc"] for n in plan.as_dict()["nodes"]] == ["RELU", "SQR"]
    old = ggmltool.load("four-passes").plan()
    assert "UNARY" in {n.op for n in old.nodes} - {n.op_desc for n in old.nodes}
    glu = ggmltool.load({**RELU, "graphs": {"main": {"nodes": {"y": "geglu(x)"}}}}).plan()
    assert (glu.nodes[0].op, glu.nodes[0].op_desc) == ("GLU", "GEGLU")


def test_an_error_of_ggmls_says_where_and_what_it_means() -> None:
    """U30"""
    with pytest.raises(ggmltool.GgmlAssert) as caught:
        ggmltool.load(WRONG)
    told = "".join(traceback.format_exception(caught.value))
    assert "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed\n" in told
    assert 'in ggml_mul_mat, for <dict>: node "y"' in told
    assert "the rows must be equally long" in told
    assert caught.value.message == "GGML_ASSERT(ggml_can_mul_mat(a, b)) failed"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_no_docstring_names_a_page_that_is_not_shipped() -> None:
    """U31"""
    package = Path(ggmltool.__file__).parent
    for file in package.rglob("*.py"):
        text = file.read_text("utf-8")
        assert "SPEC.md" not in text, file
        for page in re.findall(r"\b(docs/\w+\.md)\b", text):
            assert (package / page).is_file(), (file, page)
