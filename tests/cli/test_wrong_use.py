"""Wrong use of any command is answered in one message that says what to do: the command lines of `refusals.txt`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, Call

HERE = Path(__file__).parent
LOGS = HERE.parent / "sources" / "logs"
LINES = (HERE / "refusals.txt").read_text("utf-8").splitlines()[1:]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.partition(" => ")[0])
def test_wrong_use_is_answered_in_one_message(call: Call, line: str) -> None:
    if line.startswith("attach") and sys.platform != "linux":
        pytest.skip("attach works on Linux alone")
    command, said = line.replace("LOGS/", f"{LOGS}/").split(" => ")
    words = shlex.split(command)
    result = call(*words, stdin=(SAMPLES / "moe.yaml").read_bytes() if words[-1] == "-" else b"")
    assert (result.status, result.out) == (2, "")
    assert said in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not list(Path().iterdir())
