"""The tool among others: completion in a real bash, widths, every option's variable, what goes where."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import pytest

from ggmltool.cli.main import COMMANDS, cli
from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_bad_input import EVIL, HEAD
from tests.needs import needs_bash, needs_dot

TRANSFORMER = SAMPLES / "transformer.yaml"
ANSI = re.compile("\x1b\\[[0-9;]*m")


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
    f"plan '{TRANSFORMER}' -g m": "main",
    "plan --format ''": "text json csv",
    f"context '{TRANSFORMER}' --only ''": "gpu cpu inputs",
    f"run '{TRANSFORMER}' -t q_": "q_heads q_rope q_perm",
    "plan gemma": "gemma-3-270m-ngl9 gemma-3-270m",
    "run transformer -t q_": "q_heads q_rope q_perm",
    "run nowhere.yaml --tensor q": "",
}


@needs_bash
def test_bash_completes(bash: dict[str, str]) -> None:
    script = 'eval "$(_GGMLTOOL_COMPLETE=bash_source ggmltool)"\n' + "".join(
        f"COMP_WORDS=(ggmltool {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_ggmltool_completion ggmltool; echo "${COMPREPLY[@]}"\n'
        for words in COMPLETED
    )
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=bash, check=True)
    assert (result.stdout.splitlines(), result.stderr) == (list(COMPLETED.values()), "")


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


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("command", [("run",), ("plan",), ("splits", "-f", "table"), ("buffers",)])
def test_colours_change_nothing_but_colours(call: Call, command: tuple[str, ...], columns: int) -> None:
    plain = call(*command, TRANSFORMER, columns=columns)
    coloured = call(*command, TRANSFORMER, "--color", "always", columns=columns)
    assert ANSI.sub("", coloured.out) == plain.out
    assert ANSI.search(coloured.out)
    tables = [line for line in plain.out.splitlines() if line.startswith("  ")]
    assert max(map(len, tables)) <= max(columns, 60)


@pytest.mark.parametrize("width", ["", "abc", "0", "-5", "²", "9" * 30])
def test_a_width_that_is_none_is_not_taken(call: Call, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for tty in (False, True):
        assert call("plan", TRANSFORMER, tty=tty).status == 0


def test_what_is_no_result_goes_to_standard_error(call: Call, tmp_path: Path) -> None:
    nodes = "".join(f"      n{k}: {{op: sqr, src: [{f'n{k - 1}' if k else 'x'}]}}\n" for k in range(300))
    (tmp_path / "a.yaml").write_text(
        f"{HEAD}contexts: {{c: {{tensors: {{x: 'f32[4]'}}}}}}\ngraphs:\n  main:\n    nodes:\n{nodes}"
    )
    quiet = call("run", "a.yaml", "-q", tty=True)
    loud = call("run", "a.yaml", "-v", tty=True)
    assert (quiet.status, quiet.err) == (0, "")
    assert loud.out == quiet.out
    assert "no data, so zero: x" in loud.err
    assert "\r" not in loud.out


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
