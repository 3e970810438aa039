"""`tui` says what it needs: Textual, a terminal, a scenario that is one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import Call


def test_without_textual_it_names_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.cli.tui.find_spec", lambda name: None)
    result = call("tui", "moe")
    assert (result.status, result.out) == (2, "")
    assert result.err == "Error: `ggmltool tui` needs Textual; install it with `pip install 'ggmltool[tui]'`\n"


def test_without_a_terminal_it_says_so(call: Call) -> None:
    result = call("tui", "moe")
    assert (result.status, result.out) == (2, "")
    assert "needs a terminal" in result.err


def test_it_opens_in_a_terminal_and_q_leaves_it() -> None:
    pytest.importorskip("textual", reason="needs Textual: the extra tui")
    main, own = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    command = [sys.executable, "-m", "ggmltool", "tui", "moe"]
    with subprocess.Popen(command, stdin=own, stdout=own, stderr=own, env=environment) as process:
        os.close(own)
        seen = b""
        until = time.monotonic() + 60
        while b"mixture of experts" not in seen and time.monotonic() < until:
            if select.select([main], [], [], 1)[0]:
                seen += os.read(main, 65536)
        assert b"mixture of experts" in seen
        os.write(main, b"q")
        while process.poll() is None and time.monotonic() < until:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    os.read(main, 65536)
                except OSError:
                    break
        assert process.wait(10) == 0
    os.close(main)
