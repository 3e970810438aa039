"""Long work says on standard error how far it is, and ends at ^C."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ggmltool.cli import progress as module
from ggmltool.cli.progress import _Ticker, progress
from tests.cli.conftest import Call


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes longer than a second."""
    for name in ("FIRST", "_REDRAWN", "_REPEATED"):
        monkeypatch.setattr(module, name, 0.001)


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, **more: Any) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("computing\x1b[2J main", 4, "nodes", **more) as advance:
        advance()
        time.sleep(0.2)
        with progress("within") as within:
            within(3)
    return stream.getvalue()


@pytest.mark.usefixtures("at_once")
def test_lines_without_a_terminal_and_one_line_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(io.StringIO(), monkeypatch)
    assert text.splitlines()[-1].startswith("computing")
    assert "1 of 4 nodes (25%), 0 s, about" in text
    assert "\r" not in text
    assert "\x1b" not in text
    assert "within" not in text
    monkeypatch.setenv("COLUMNS", "60")
    text = shown(Terminal(), monkeypatch)
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text
    assert all(len(line) <= 60 for line in text.replace("\x1b[K", "").split("\r"))


@pytest.mark.usefixtures("at_once")
def test_nothing_is_shown_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("computing", 4, show=False):
        time.sleep(0.1)
    assert stream.getvalue() == ""


def test_nothing_is_shown_in_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST", 1.0)
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("computing"):
        pass
    assert stream.getvalue() == ""


def test_how_far_it_is_is_told_with_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ticker = _Ticker("reading", 4 << 20, "bytes")
    ticker.advance(1 << 20)
    assert ticker.text(100) == "reading: 1 MiB of 4 MiB (25%), 1 min 40 s, about 5 min 0 s left"
    assert _Ticker("drawing", 0, "").text(7250) == "drawing: 2 h 0 min"
    ticker.advance(3 << 20)
    assert ticker.text(100) == "reading: 4 MiB of 4 MiB (100%), 1 min 40 s"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("command", ["run", "trace", "compare", "verify"])
def test_a_command_that_computes_shows_it(call: Call, command: str) -> None:
    text = json.dumps(slow(24)).encode()
    result = call(command, "-", stdin=text, slow=True)
    assert result.status == 0
    assert " of 24 nodes (" in result.err or command == "verify"
    assert result.err
    assert call(command, "-q", "-", stdin=text, slow=True).err == ""


def slow(n_nodes: int) -> dict[str, Any]:
    nodes = {f"n{i}": f"mul_mat({f'n{i - 1}' if i else 'x'}, x)" for i in range(n_nodes)}
    data = {"normal": {"std": 0.01}}
    return {
        "ggmltool": 1,
        "contexts": {"in": {"tensors": {"x": {"type": "f32", "ne": [300, 300], "data": data}}}},
        "graphs": {"main": {"nodes": nodes}},
    }


@pytest.mark.parametrize("command", ["run", "trace", "compare"])
def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path, command: str) -> None:
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(slow(4_000)))
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "ggmltool", command, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert child.stderr is not None
    first = child.stderr.readline()  # the first line of progress
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, (first, err)
    assert out == b""
    assert b"Traceback" not in err
    assert err.endswith(b"interrupted\n")
