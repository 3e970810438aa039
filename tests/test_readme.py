"""The README shows what really comes out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
CONSOLE = re.findall(r"```console\n\$ ggmltool ([^\n]*)\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
WIDTH = "110"


def run(*args: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": WIDTH}
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, cwd=ROOT, env=environment, check=True
    )


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_a_command_prints_what_the_readme_shows(command: str, shown: str) -> None:
    assert run("-m", "ggmltool", *shlex.split(command)).stdout.strip("\n") == shown.strip("\n")


@pytest.mark.parametrize("code", PYTHON)
def test_the_python_example_runs(code: str) -> None:
    assert run("-c", code).stdout


def test_the_readme_has_its_examples_and_its_two_commands() -> None:
    assert len(CONSOLE) >= 4
    assert len(re.findall(r"^```sh$", README, re.MULTILINE)) == 2
