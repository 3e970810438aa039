"""The manners that every command has. A command that is added to the table is tested here without a word.

Only two things are told about single commands: what an argument that is no scenario gets, and which texts have a form
that is not ours.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
import pytest

import ggmltool
from ggmltool.cli.main import COMMANDS, cli
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from ggmltool.scenario.dump import dump
from tests.cli.conftest import SAMPLES, Call, Result
from tests.needs import has_library
from tests.sources.models import cached

LOGS = Path(__file__).parents[1] / "sources" / "logs"
VALUES: dict[tuple[str, str], Callable[[], str]] = {
    ("tensor", "name"): lambda: "kq",
    ("explain", "words"): lambda: "kq",
    ("lifetime", "names"): lambda: "kq",
    ("diff", "other"): lambda: str(TRANSFORMER),
    ("capture", "model"): lambda: str(cached("llama")),
    ("import", "log"): lambda: str(LOGS / "2025-03.log"),
}
"""What a required argument gets that is no scenario."""
GIVEN_FORM = {"splits": ["--format", "table"], "graph": None, "dot": None, "report": None, "capture": None, "man": None}
"""Texts that are ggml's, Graphviz's or roff's, a page or a scenario: the options with which they are ours, None for
never."""
WITHOUT_JSON = {"dot", "capture", "man"}
IS_THERE = {"verify": has_library, "capture": lambda: importlib.util.find_spec("xllamacpp") is not None}
"""Whether what a command needs is there."""
TALKING = {"debug", "tui", "attach"}
"""Commands that print no result: they talk with a user until that one quits, or look at a program that runs."""
BYTES = {"record"}
"""Commands that write a file of bytes, which a terminal does not get."""
TRANSFORMER, MATMUL, REFUSED = (SAMPLES / f"{name}.yaml" for name in ("transformer", "matmul", "preallocated"))
ANSI = re.compile("\x1b\\[[0-9;]*m")


def command_of(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def line(name: str, scenario: object = TRANSFORMER) -> list[str]:
    """The command with all its arguments, so that it works."""
    words = [name]
    for param in command_of(name).params:
        if isinstance(param, click.Argument):
            value = str(scenario) if param.name == "scenario" else _value(name, param.name or "")
            assert value is not None or not param.required, f"VALUES has nothing for {param.name} of {name}"
            words += [value] if value is not None else []
    return words


def _value(name: str, param: str) -> str | None:
    make = VALUES.get((name, param))
    return make() if make is not None else None


def takes_a_scenario(name: str) -> bool:
    return any(param.name == "scenario" for param in command_of(name).params)


def options(name: str) -> list[click.Option]:
    return [param for param in command_of(name).params if isinstance(param, click.Option)]


def formats(name: str) -> set[str]:
    """What the command can print or write."""
    return {choice for o in options(name) if o.name == "format" for choice in o.type.to_info_dict()["choices"]}


def usable(name: str) -> object:
    missing = name in IS_THERE and not IS_THERE[name]()
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason="needs a package that is not installed"))


PRINT = [name for name in COMMANDS if name not in TALKING | BYTES]
EVERY = pytest.mark.parametrize("name", [usable(name) for name in COMMANDS])
PRINTING = pytest.mark.parametrize("name", [usable(name) for name in PRINT])
PLANNING = pytest.mark.parametrize("name", [usable(name) for name in PRINT if takes_a_scenario(name)])
TAKING = pytest.mark.parametrize("name", [usable(name) for name in COMMANDS if takes_a_scenario(name)])
FEW = pytest.mark.parametrize("name", ["plan", "dot", "types", "diff", "run"])
"""A question about a plan, a picture, a catalogue, a comparison, a computation: the frame is one for all."""
OURS = pytest.mark.parametrize("name", [usable(name) for name in PRINT if GIVEN_FORM.get(name, []) is not None])


@PRINTING
def test_it_prints_a_result_and_nothing_else(call: Call, name: str) -> None:
    result = call(*line(name))
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("\n")
    assert not ANSI.search(result.out)


@FEW
def test_loud_and_quiet_print_the_same_result(call: Call, name: str) -> None:
    assert call(*line(name), "-q").out == call(*line(name), "-v").out == call(*line(name)).out


@FEW
def test_the_result_can_go_to_a_file(call: Call, name: str) -> None:
    result = call(*line(name))
    assert call(*line(name), "-o", "-").out == result.out
    written = call(*line(name), "-o", "result.txt")
    assert written == (0, "", "Wrote result.txt\n")
    assert Path("result.txt").read_text("utf-8") == result.out
    Path("result.txt").write_text("mine")
    again = call(*line(name), "--output", "result.txt")
    assert (again.status, again.out) == (2, "")
    assert "--force" in again.err
    assert Path("result.txt").read_text() == "mine"
    assert call(*line(name), "-o", "result.txt", "--force", "-q").err == ""
    assert Path("result.txt").read_text("utf-8") == result.out
    assert [path.name for path in Path().iterdir()] == ["result.txt"]


@PRINTING
def test_it_has_json_that_says_what_it_is(call: Call, name: str) -> None:
    if name in WITHOUT_JSON:
        assert "json" not in formats(name)
        return
    assert "json" in formats(name)
    result = call(*line(name), "--json", "--color", "always", tty=True)
    document = json.loads(result.out)
    assert (result.status, document["ggmltool"]) == (0, 1)
    assert re.fullmatch("[a-z_]+", document["kind"])
    assert not ANSI.search(result.out)


@OURS
def test_a_table_fits_and_colours_change_nothing_but_colours(call: Call, name: str) -> None:
    words = [*line(name), *(GIVEN_FORM.get(name) or [])]
    plain = call(*words, columns=80)
    told = plain.out.replace(str(SAMPLES), SAMPLES.name)  # a command to paste is whole, however long its path is
    assert max(map(len, told.splitlines())) <= 80
    assert not [row for row in plain.out.splitlines() if row != row.rstrip()]
    coloured = call(*words, "--color", "always", columns=80)
    assert ANSI.search(coloured.out)
    assert ANSI.sub("", coloured.out) == plain.out


@FEW
def test_colours_are_for_terminals_that_want_them(call: Call, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bool(ANSI.search(call(*line(name), tty=True).out)) == (name != "dot")
    assert not ANSI.search(call(*line(name), "--color", "never", tty=True).out)
    assert not ANSI.search(call(*line(name), "-o", "-", "--color", "auto").out)
    assert bool(ANSI.search(call("--color", "always", *line(name)).out)) == (name != "dot")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not ANSI.search(call(*line(name), tty=True).out)
    assert bool(ANSI.search(call(*line(name), "--color", "always", tty=True).out)) == (name != "dot")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("GGMLTOOL_COLOR", "always")
    assert bool(ANSI.search(call(*line(name)).out)) == (name != "dot")


@FEW
def test_a_reader_that_goes_away_is_no_error(call: Call, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, data: object) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def flush(self) -> None:
            pass

    monkeypatch.setattr("tests.cli.conftest._Stream.buffer", Gone(), raising=False)
    monkeypatch.setattr("tests.cli.conftest._Stream.text", lambda stream: "")
    monkeypatch.setattr("ggmltool.cli.errors._to_nowhere", lambda stream: stream)
    assert call(*line(name)).status == 0


@EVERY
def test_a_mistyped_option_is_answered_with_the_right_one(call: Call, name: str) -> None:
    for option in options(name):
        long = max(option.opts, key=len)
        wrong = long[:-2] + long[-1] if len(long) > 6 else long + "x"
        if any(other.startswith(wrong) for o in options(name) for other in (*o.opts, *o.secondary_opts)):
            continue
        result = call(*line(name), wrong)
        assert (result.status, result.out) == (2, "")
        assert f"No such option '{wrong}'" in result.err
        assert "Did you mean" in result.err or "Possible options" in result.err


@EVERY
def test_a_mistyped_choice_is_answered_with_the_right_one(call: Call, name: str) -> None:
    for option in options(name):
        if not isinstance(option.type, click.Choice):
            continue
        for choice in map(str, option.type.choices):
            wrong = choice + "x"
            result = call(*line(name), option.opts[-1], wrong)
            assert (result.status, result.out) == (2, "")
            assert f"{wrong!r} is not one of" in result.err
            assert "Did you mean" in result.err


@TAKING
def test_a_file_that_is_not_there_is_said_so(call: Call, name: str) -> None:
    result = call(*line(name, "nowhere.yaml"))
    assert (result.status, result.out) == (2, "")
    assert "nowhere.yaml" in result.err
    assert "Traceback" not in result.err


@PLANNING
def test_what_ggml_refuses_is_told_in_its_words_and_explained(call: Call, name: str) -> None:
    result = call(*(word if word != "kq" else "stored" for word in line(name, REFUSED)))
    said = result.out + result.err
    if result.status == 0:  # it shows the graph as built, or what is known without a plan
        return
    assert result.status == 1
    assert "pre-allocated tensor (stored) in a buffer (GPU0) that cannot run the operation (SET_ROWS)" in said
    assert "the cache on the CPU (--no-kv-offload)" in said
    assert "Traceback" not in said


@PLANNING
def test_standard_input_is_a_scenario_too(call: Call, name: str) -> None:
    result = call(*line(name, "-"), stdin=TRANSFORMER.read_bytes())
    assert (result.status, result.err) == (0, "")


@EVERY
def test_what_names_a_tensor_a_graph_or_a_context_is_completed(name: str) -> None:
    """With the sample on the line; a bare NAME, ID, NODE, TENSOR or CONTEXT has something to offer."""
    from click.shell_completion import ShellComplete

    words = line(name)
    for param in command_of(name).params:
        metavar = (param.make_metavar(click.Context(command_of(name))) or "").strip("[]")
        if metavar not in ("NAME", "ID", "NODE", "TENSOR", "CONTEXT", "BACKEND", "DEVICE"):
            continue
        given = words[1:] if isinstance(param, click.Option) else words[2:]
        shell = ShellComplete(cli, {}, "ggmltool", "_GGMLTOOL_COMPLETE")
        option = [max(param.opts, key=len)] if isinstance(param, click.Option) else []
        assert shell.get_completions([name, *given, *option], ""), f"{name} {metavar} offers nothing"


NAMES = [name for name in PRINT if takes_a_scenario(name) and name not in {"verify", *BYTES}]


@pytest.mark.parametrize("release", RELEASES)
def test_a_record_has_what_its_scenario_has(call: Call, release: str) -> None:

    steps = {} if RELEASES[release].reserves else {"steps": [{"measure": "main"}, {"compute": "main"}]}
    Path("x.json").write_text(json.dumps({**dump(ggmltool.load(TRANSFORMER).model), "ggml": release, **steps}))
    call("record", "x.json", "-o", "x.ggtrace")
    for name in NAMES:
        wanted, found = call(*line(name, "x.json"), "-q"), call(*line(name, "x.ggtrace"), "-q")
        assert found.status == wanted.status
        assert found.out.replace("x.ggtrace", "x.json") == wanted.out, name


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attach works on Linux alone")


def test_files_are_refused_before_a_program_is_started(call: Call, tmp_path: Path) -> None:
    program = ["--", "touch", "started"]
    (tmp_path / "x-2.json.gz").touch()
    for options, said in (
        (
            ["-o", "x.txt"],
            ".txt is not written here; what can be written: .json, .yaml, .yml, .gguf, each also with .gz.",
        ),
        (["--count", "3", "-o", "x.json.gz"], "x-2.json.gz exists; --force overwrites it"),
    ):
        result = call("attach", *options, *program)
        assert (result.status, result.out) == (2, "")
        assert result.err.endswith(f"Error: {said}\n")
    assert not (tmp_path / "started").exists()


VERSIONS = [name for name in RELEASES if name != DEFAULT.name]
SCENARIOS = ("allocator", "arena", "inplace", "matmul", "outgrown", "packed-weights", "pipeline", "preallocated",
             "transformer", "versions-memory", "versions-splits", "views")  # fmt: skip
IN_TURN = [(s, v) for i, s in enumerate(SCENARIOS) for j, v in enumerate(VERSIONS) if (i + j) % 2 == 0]
"""Each scenario under every second ggml, each ggml with every second scenario."""
TITLED = (
    "plan", "plan --step reserve", "splits --format table", "splits --pass 1", "splits --pass 4", "splits --bytes",
    "splits --by op,backend", "buffers", "buffers --step reserve", "buffers --chunks", "buffers --copies", "allocs",
    "allocs --trace", "hash", "hash --sched", "check", "lifetime NODE", "context", "tensor NODE", "explain NODE",
    "explain split 0", "run --zeros",
)  # fmt: skip
"""Views with a heading, which names the release."""
PLAIN = (
    "splits", "splits --debug 2 --no-causes", "buffers --chart", "allocs --format gdb", "hash --format gdb",
    "trace --no-compute", "trace --decisions --no-compute", "backends", "backends --interface", "supports", "dot",
    "dot --style ggmltool", "graph", "run -v --zeros",
)  # fmt: skip
ONLY_LATER = ("buffers --copies",)
"""Views of what that ggml may not have; they say so."""


@cache
def plan_of(scenario: str, version: str) -> Plan | None:
    """None where that ggml has not what the scenario uses."""
    try:
        return ggmltool.load(scenario, ggml=version).plan()
    except ggmltool.ScenarioError:
        return None


def asked(call: Call, view: str, version: str, scenario: str, *more: str) -> Result:
    plan = plan_of(scenario, version)
    node = "x" if plan is None else last_node(scenario, version)
    return call(*view.replace("NODE", node).split(), *more, "--ggml", version, scenario)


@cache
def last_node(scenario: str, version: str) -> str:
    return next(iter(ggmltool.load(scenario, ggml=version).model.graphs.values())).nodes[-1].id


def check_status(result: Result, plan: Plan, view: str) -> bool:
    """Whether there is something to look at: what ggml refuses is said in its words, as far as the view meets it."""
    if view in ONLY_LATER and result.status == 2:
        assert "has no" in result.err, view
        return False
    if plan.ok and not view.startswith("run"):  # which does the file's own steps
        assert result.status == 0, (view, result.err)
        return True
    words = dict(plan.error or ()).get("message") or "ggml"
    assert result.status == 0 or words.strip() in result.out + result.err, (view, result.err)
    return result.status != 2 and bool(result.out)


@pytest.mark.parametrize(("scenario", "version"), IN_TURN)
def test_every_screen_says_which_ggml_decides(call: Call, version: str, scenario: str) -> None:
    plan = plan_of(scenario, version)
    for view in (*TITLED, *PLAIN):
        result = asked(call, view, version, scenario)
        if plan is None:
            assert result.status == 2, view
            assert ".yaml:" in result.err, view
        elif check_status(result, plan, view) and view in TITLED:
            assert f"ggml {version}" in result.out.split("\n\n")[0], view


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_screens_have_the_figures_of_that_plan(call: Call, version: str, scenario: str) -> None:
    plan = plan_of(scenario, version)
    if plan is None or not plan.ok:
        pytest.skip(f"ggml {version} does not plan {scenario}")
    document, ours = json.loads(call("plan", "--json", "--ggml", version, scenario).out), plan.as_dict()
    document["debug_log"] = ours["debug_log"] = []  # the command's compute of 2024-01 logs its copies, too
    assert document == ours
    buffers = json.loads(call("buffers", "--json", "--ggml", version, scenario).out)
    assert {b["backend"]: b["size"] for b in buffers["buffers"]} == plan.as_dict()["buffer_sizes"]
    text = call("splits", "--debug", "1", "--no-causes", "--ggml", version, scenario).out
    assert text.count("SPLIT #") == len(plan.splits)
