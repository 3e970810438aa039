"""A command line to call in tests: what it printed, where, and its exit status."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ggmltool.cli import progress
from ggmltool.cli.errors import run_and_report
from ggmltool.cli.main import cli

SAMPLES = Path(__file__).resolve().parents[2] / "sample_graphs"


class Result(NamedTuple):
    """Exit status, standard output and standard error of one call."""

    status: int
    out: str
    err: str


Call = Callable[..., Result]


def python(*args: str, input: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A Python of our own, in this folder, with more variables: what it printed, and its exit status."""
    return _run(sys.executable, *args, input=input, **variables)


def bash(script: str, input: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A shell, in which `ggmltool` is ours."""
    return _run("bash", "-c", script.replace("ggmltool ", f"{sys.executable} -m ggmltool "), input=input, **variables)


def _run(*command: str, input: str | None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SAMPLES.parent)} | variables
    return subprocess.run(command, capture_output=True, text=True, input=input, env=environment, check=False)


class _Stream(io.TextIOWrapper):
    def __init__(self, data: bytes = b"", tty: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """`call("plan", "graph.yaml", stdin=b"…", tty=True, columns=80)` in an empty folder, without our environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "COLUMNS", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def invoke(
        *args: object, stdin: bytes = b"", tty: bool = False, columns: int | None = None, slow: bool = False
    ) -> Result:
        """`slow`: say how far the work is, as on a machine where it takes longer than a second."""
        out, err = _Stream(tty=tty), _Stream(tty=tty)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", _Stream(stdin))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(progress, "FIRST", 0.001 if slow else 1e6)
            if columns is not None:
                patch.setenv("COLUMNS", str(columns))
            status = run_and_report(cli, [str(arg) for arg in args])
        return Result(status, out.text(), err.text())

    return invoke
