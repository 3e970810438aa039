"""The command line of attach says what does not go together before a program is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attach works on Linux alone")


def refused(call: Call, *line: object) -> str:
    result = call("attach", *line)
    assert result.status == 2
    assert not result.out
    return result.err.partition("Error: ")[2].rstrip()


def test_a_misspelled_option_is_guessed_at(call: Call) -> None:
    assert "'--verify'" in refused(call, "--verfy", "41271")
    assert refused(call, "--at", "computes", "41271").endswith("Did you mean 'compute'?")


def test_files_are_refused_before_a_program_is_started(call: Call, tmp_path: Path) -> None:
    program = ["--", "touch", "started"]
    what = ".txt is not written here; what can be written: .json, .yaml, .yml, .gguf, each also with .gz."
    assert refused(call, "-o", "x.txt", *program) == what
    (tmp_path / "x-2.json.gz").touch()
    assert refused(call, "--count", "3", "-o", "x.json.gz", *program) == "x-2.json.gz exists; --force overwrites it"
    assert not (tmp_path / "started").exists()
