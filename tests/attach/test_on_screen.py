"""What attach says of a program that it started stands on standard error, as wide and as colored as that is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Call
from tests.golden import check_golden
from tests.needs import compiled, needs_gcc, needs_gdb

pytestmark = [needs_gcc, needs_gdb]


def steady(text: str) -> str:
    """Without what differs from machine to machine, and from run to run."""
    text = re.sub(r"\S*/graphs\S*", "graphs", text)
    text = re.sub(r"thread \d+, scheduler 0x[0-9a-f]+", "thread 41, scheduler 0x5555", text)
    text = re.sub(r"still for [\d.]+ s", "still for 0.3 s", text)
    return re.sub(r"(?m)^(  \d  CPU +cpu).*$", r"\1", text)


def test_calls_of_a_program_on_a_screen(call: Call) -> None:
    result = call("--color", "never", "attach", "--count", "3", "--", compiled("0.20.2"), tty=True, columns=80)
    assert result.status == 0
    assert max(map(len, result.err.splitlines()[1:])) <= 80
    check_golden(Path(__file__).parent / "golden" / "calls.txt", steady(result.err))


def test_a_terminal_gets_colors(call: Call) -> None:
    result = call("attach", "--verify", "--", compiled("0.20.2"), tty=True, columns=80)
    assert result.status == 0
    assert "\x1b[1m" in result.err
    assert "\\x1b" not in result.err


def test_what_was_seen_is_saved_where_fewer_calls_come_than_were_asked_for(call: Call, tmp_path: Path) -> None:
    result = call("attach", "--count", "9", "-o", "x.json.gz", "--", compiled("0.20.2"))
    assert result.status == 1
    assert result.err.rstrip().endswith("; 3 such calls came before")
    assert sorted(file.name for file in tmp_path.glob("x*")) == ["x-2.json.gz", "x-3.json.gz", "x.json.gz"]
