"""`attach`, as the tests of this folder call it: in this process, on a program that has its output for itself."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from ggmltool.attach.gdb.program import Launched
from ggmltool.cli.errors import run_and_report
from ggmltool.cli.main import cli
from tests.attach.programs import TERMINAL, environment, onto


class Looked(NamedTuple):
    """Exit status, and what the command and the program printed."""

    returncode: int
    stdout: str
    stderr: str


Attach = Callable[..., Looked]


@pytest.fixture(autouse=True)
def awaited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The end of each launched program is waited for, also where a test did not come so far: another one would be told
    of it."""
    launched: list[Launched] = []
    make = Launched.__init__

    def noted(self: Launched, *arguments: Any) -> None:
        make(self, *arguments)
        launched.append(self)

    monkeypatch.setattr(Launched, "__init__", noted)
    yield
    for program in launched:
        try:
            program.process.wait(30)
        except subprocess.TimeoutExpired:
            program.process.kill()
            program.process.wait()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are started here have the environment of those that `output_of` runs."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Attach:
    """`attach("--verify", "--", program)`: what the command and the program print, and the exit status."""
    for name in TERMINAL:
        monkeypatch.delenv(name, raising=False)

    def invoke(*arguments: object) -> Looked:
        words = ["attach", *map(str, arguments)]
        with _redirected(monkeypatch, "stdout", 1) as out, _redirected(monkeypatch, "stderr", 2) as err:
            status = run_and_report(cli, words)
        return Looked(status, "".join(out), "".join(err))

    return invoke


@contextmanager
def _redirected(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> Iterator[list[str]]:
    """One of the standard streams goes to a file, also for programs that are started; its text, at the end."""
    text: list[str] = []
    with tempfile.TemporaryFile() as file:
        with onto(file.fileno(), number), monkeypatch.context() as patch:
            raw = io.FileIO(number, "w", closefd=False)
            patch.setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", write_through=True))
            yield text
        file.seek(0)
        text.append(file.read().decode("utf-8", "surrogateescape"))
