"""What all commands share: help, the manual page, exit status, errors, files, colours, pipes, the environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from ggmltool.ask.reference.man import CommandPage, Entry, Manual, man_page
from ggmltool.cli.errors import in_lines
from ggmltool.cli.main import COMMANDS, cli
from ggmltool.ggml.releases.table import DEFAULT, RELEASES
from tests.cli.conftest import SAMPLES, Call, python
from tests.cli.test_bad_input import EVIL, HEAD
from tests.golden import check_golden
from tests.needs import needs_bash, needs_dot, needs_groff

GOLDEN = Path(__file__).parent / "golden"
MATMUL = SAMPLES / "matmul.yaml"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_as_accepted(call: Call, command: str) -> None:
    result = call(*([command] if command else []), "--help", columns=80)
    assert result.status == 0
    assert call(*([command] if command else []), "-h", columns=80).out == result.out
    assert result.err == ""
    check_golden(GOLDEN / f"help_{command or 'ggmltool'}.txt", result.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(call: Call, command: str) -> None:
    help = call(command, "--help", columns=80).out
    block = re.search(r"^ +Examples?:\n((?: +\S.*\n)+)", help, re.MULTILINE)
    assert block is not None
    shown = re.findall(r"^ +ggmltool ([^|>\n]*)", block[1], re.MULTILINE)
    assert shown
    for example in shown:
        name, *args = shlex.split(re.split(r" {2,}", example)[0])
        parsed = cli.get_command(click.Context(cli), name)
        assert parsed is not None
        with parsed.make_context(name, args):
            pass


HEAVY = "numpy rich graphviz gguf"
STARTED = "import sys\nfrom ggmltool.cli.main import main\ntry: main(sys.argv[2:])\nexcept SystemExit: pass\n"
OF_ALL = "import sys\nfrom ggmltool.cli.main import COMMANDS, cli\nfor name in COMMANDS: cli.get_command(None, name)\n"


@pytest.mark.parametrize(
    ("command", "heavy"),
    [
        ("--help", f"{HEAVY} msgspec yaml ggmltool.cli.run ggmltool.scenario"),
        *((command, HEAVY) for command in ("splits matmul", "splits --json matmul", "schema plan", "")),
        *((command, "numpy") for command in ("ops rope", "types")),
    ],
)
def test_a_command_imports_nothing_heavy_that_it_does_not_need(command: str, heavy: str) -> None:
    """Without a command on the line: the files of all commands."""
    code = STARTED if command else OF_ALL
    code += "sys.exit(','.join(sorted(set(sys.argv[1].split()) & set(sys.modules))) or 0)\n"
    result = python("-c", code, heavy, *command.split())
    assert (result.returncode, result.stderr) == (0, "")


def test_the_module_is_the_command() -> None:
    result = python("-m", "ggmltool", "--version")
    assert result.returncode == 0
    tool, releases = result.stdout.splitlines()
    assert re.fullmatch(r"ggmltool \d+\.\d+\.\d+", tool)
    assert releases.startswith(f"ggml {DEFAULT.title} by default; --ggml takes ")
    assert all(release.title in releases for release in RELEASES.values())


def test_no_command_shows_the_help(call: Call) -> None:
    """U34"""
    assert call() == (2, "", call("--help").out)


def test_a_mistake_in_a_file_is_shown_with_its_line_and_a_caret(call: Call) -> None:
    text = MATMUL.read_text().replace("mul_mat(a, b)", "mul_matt(a, b)")
    Path("graph.yaml").write_text(text)
    result = call("plan", "graph.yaml")
    assert result.status == 2
    first, line, caret = result.err.splitlines()
    assert re.match(r"graph\.yaml:\d+:\d+: ", first)
    assert "mul_mat" in first
    assert "result: mul_matt(a, b)" in line
    assert line[caret.index("^") :].startswith("mul_matt")


def test_traceback_is_there_for_who_wants_it(call: Call) -> None:
    assert "Traceback" in call("--traceback", "plan", "nowhere.yaml").err
    assert "Traceback" in call("plan", "nowhere.yaml", "--traceback").err


def test_without_a_scenario_graph_yaml_here_is_taken_then_the_sample(call: Call) -> None:
    result = call("plan")
    assert result.status == 0
    assert result.err == "No scenario named; using the sample matmul\n"
    Path("graph.yaml").write_bytes((SAMPLES / "moe.yaml").read_bytes())
    result = call("plan")
    assert result.err == "No scenario named; using graph.yaml\n"
    assert result.out.startswith("mixture of experts")
    assert call("plan", "--quiet").err == ""


def test_a_write_that_fails_leaves_the_old_file(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("plan.txt").write_text("old")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", "plan.txt")

    monkeypatch.setattr(Path, "replace", full)
    result = call("plan", MATMUL, "-o", "plan.txt", "--force")
    assert result.status == 2
    assert "No space left on device" in result.err
    assert Path("plan.txt").read_text() == "old"
    assert [p.name for p in Path().iterdir()] == ["plan.txt"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_its_name_in_the_environment(command: str) -> None:
    parsed = cli.get_command(click.Context(cli), command)
    assert parsed is not None
    for option in parsed.params:
        if isinstance(option, click.Option) and option.envvar is None:
            assert f"--{option.name}".replace("_", "-") in (*option.opts, *option.secondary_opts)


def test_a_mistake_of_ours_is_told_apart(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("ggmltool.cli.plans.open_either", broken)
    result = call("plan", MATMUL)
    assert result.status == 3
    assert "internal error: ZeroDivisionError: oops" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_message_on_a_terminal_keeps_to_its_width_and_its_excerpt_as_it_is(width: int) -> None:
    """N13: 300 characters in a line, which a terminal breaks within words."""
    excerpt = "    4 | graphs: {main: {nodes: {y: no_such_op(a, b), z: mul(a, b), and_so_on: add(y, z), until: here}}}"
    caret = "      |                            ^"
    words = "Error: a scenario has no such thing; also name what to look for in it: `ggmltool lifetime NAME moe.yaml`"
    told = in_lines(f"{words}\n  in ggml_backend_sched_new, for {words}\n{excerpt}\n{caret}", width).split("\n")
    assert told[-2:] == [excerpt, caret]
    assert max(map(len, told[:-2])) <= width
    assert " ".join(" ".join(told[:-2]).split()) == f"{words} in ggml_backend_sched_new, for {words}"
    assert in_lines(words, 1000) == words
    assert in_lines(f"/a/{'long' * 50}/name", width) == f"/a/{'long' * 50}/name"


def test_the_page_has_every_command_every_option_and_its_variable(call: Call) -> None:
    page = call("man").out.replace("\\-", "-")
    for name in COMMANDS:
        assert re.search(rf"^\.SS ggmltool {name} ", page, re.MULTILINE)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.opts[-1] in page
                variable = option.envvar or f"GGMLTOOL_{name.upper()}_{(option.name or '').upper()}"
                assert f".B {variable}\n" in page


def test_what_roff_would_take_for_a_request_is_text() -> None:
    page = man_page(
        Manual(
            "x",
            "1",
            "'about' \\n",
            "x [-a]",
            ".hidden words\n\n\b\n'kept\n  as is",
            [CommandPage("c", "x c", "does -a", [Entry("-a", ".5 is the default", "X_A")])],
            [],
        )
    )
    assert page == (
        '.TH X 1 "" "x 1" "User Commands"\n.SH NAME\nx \\- \\&\'about\' \\en\n.SH SYNOPSIS\n.B x [\\-a]\n'
        ".SH DESCRIPTION\n.PP\n\\&.hidden words\n.PP\n.nf\n\\&'kept\n  as is\n.fi\n.SH COMMANDS\n.SS x c\n.PP\n"
        "does \\-a\n.TP\n.B \\-a\n\\&.5 is the default\n.SH COMMON OPTIONS\n.SH ENVIRONMENT\n.TP\n.B X_A\nx c \\-a\n"
    )


@needs_groff
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_groff_sets_the_page_without_a_warning(call: Call, columns: int) -> None:
    page = call("man").out
    set_ = subprocess.run(
        ["groff", "-k", "-Tutf8", "-man", "-ww", f"-rLL={columns}n"],
        input=page,
        capture_output=True,
        text=True,
        check=True,
    )
    errors = [line for line in set_.stderr.splitlines() if "break" not in line and "adjust" not in line]
    assert errors == []
    assert "ggmltool splits --format table model.yaml" in re.sub("\x1b\\[[0-9;]*m", "", set_.stdout)


TRANSFORMER = SAMPLES / "transformer.yaml"


@pytest.fixture
def bash(tmp_path: Path) -> dict[str, str]:
    """An environment with `ggmltool` on the path."""
    program = tmp_path / "bin" / "ggmltool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ggmltool "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(SAMPLES.parent)}


COMPLETED = {
    "pla": "plan place",
    "plan --st": "--step",
    "plan --step re": "reserve",
    "--color ''": "auto always never",
    f"plan {TRANSFORMER} -g m": "main",
    "plan --format ''": "text json csv",
    f"context {TRANSFORMER} --only ''": "gpu cpu inputs",
    f"run {TRANSFORMER} -t q_": "q_heads q_rope q_perm",
    "plan gemma": "gemma-3-270m-ngl9 gemma-3-270m",
    "run transformer -t q_": "q_heads q_rope q_perm",
    "run nowhere.yaml --tensor q": "",
    "backends --device CU": "CUDA0 CUDA1",
    "ops soft": "soft_max soft_max_back softplus",
    "types q4": "q4_0 q4_1 q4_K",
    "diff two-": "two-orders",
    "diff moe two-orders:": "two-orders:together two-orders:apart",
    "diff moe moe --only nodes,s": "nodes,splits nodes,sizes",
    "explain sp": "split",
    "explain node resu": "result",
    "explain split 1 transf": "transformer",
    "explain realloc outg": "outgrown",
    "lifetime resu": "result",
    "lifetime result transf": "transformer",
    "explain gate transformer --graph m": "main",
}


@pytest.mark.parametrize("words", COMPLETED)
def test_words_are_completed(words: str) -> None:
    *before, begun = shlex.split(words)
    shell = ShellComplete(cli, {}, "ggmltool", "_GGMLTOOL_COMPLETE")
    assert [item.value for item in shell.get_completions(before, begun)] == COMPLETED[words].split()


@needs_bash
def test_bash_completes(bash: dict[str, str]) -> None:
    asked = ["plan --st", "--color ''", "run nowhere.yaml --tensor q"]
    script = 'eval "$(_GGMLTOOL_COMPLETE=bash_source ggmltool)"\n' + "".join(
        f"COMP_WORDS=(ggmltool {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_ggmltool_completion ggmltool; echo "${COMPREPLY[@]}"\n'
        for words in asked
    )
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=bash, check=True)
    assert (result.stdout.splitlines(), result.stderr) == ([COMPLETED[words] for words in asked], "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script(bash: dict[str, str], shell: str) -> None:
    environment = bash | {"_GGMLTOOL_COMPLETE": f"{shell}_source"}
    result = subprocess.run(["ggmltool"], capture_output=True, text=True, env=environment, check=False)
    assert "_ggmltool_completion" in result.stdout
    assert f"_GGMLTOOL_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_reads_its_variable(call: Call, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Those that are a choice, a flag or a number, and so know a value that is none."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    needed = ["x" for param in command.params if isinstance(param, click.Argument) and param.required]
    checked = (click.Choice, click.types.IntParamType, click.types.BoolParamType)
    for option in command.params:
        if isinstance(option, click.Option) and isinstance(option.type, checked) and not isinstance(option.envvar, str):
            variable = f"GGMLTOOL_{name}_{option.name}".upper()
            monkeypatch.setenv(variable, "no such value")
            result = call(name, *needed)
            monkeypatch.delenv(variable)
            assert result.status == 2, variable
            assert f"It comes from {variable} in the environment." in result.err


@pytest.mark.parametrize("width", ["", "abc", "0", "-5", "²", "9" * 30])
def test_a_width_that_is_none_is_not_taken(call: Call, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for tty in (False, True):
        assert call("plan", TRANSFORMER, tty=tty).status == 0


@needs_dot
@pytest.mark.parametrize("style", ["ggml", "ggmltool"])
@pytest.mark.parametrize("kind", EVIL)
def test_a_name_is_a_name_in_a_picture(call: Call, tmp_path: Path, kind: str, style: str) -> None:
    name = EVIL[kind].replace("'", "''")
    (tmp_path / "a.yaml").write_text(
        f"{HEAD}contexts: {{c: {{tensors: {{x: {{type: f32, ne: [4], name: '{name}'}}}}}}}}\n"
        f"graphs:\n  main:\n    nodes:\n      y: {{op: sqr, src: [x], name: '{name}', flags: [output]}}\n",
        "utf-8",
    )
    result = call("dot", "--style", style, "a.yaml", "-o", "a.svg")
    assert (result.status, result.err) == (0, "Wrote a.svg\n")
    tags = {element.tag.rpartition("}")[2] for element in ET.parse(tmp_path / "a.svg").iter()}
    assert tags <= {"svg", "g", "title", "polygon", "path", "text", "polyline", "ellipse", "a", "defs", "stop", "style"}
