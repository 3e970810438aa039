"""Named pipes, loops of links: what is waited for is said, and what cannot be written is refused before any work."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ggmltool.cli import waiting
from tests.cli.conftest import SAMPLES, Call
from tests.cli.test_every_command import LOGS

MATMUL = (SAMPLES / "matmul.yaml").read_bytes()


@pytest.fixture(autouse=True)
def _patience(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the call there is a pipe, about which the tool speaks up soon."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    os.mkfifo("pipe")


def _later(do: object) -> threading.Thread:
    """Somebody who comes to the pipe after a while."""

    def come() -> None:
        time.sleep(0.4)
        do()  # type: ignore[operator]

    thread = threading.Thread(target=come)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("command", "content"),
    [(["plan"], MATMUL), (["splits"], MATMUL), (["import"], (LOGS / "2025-03.log").read_bytes())],
    ids=["scenario", "either", "log"],
)
def test_a_pipe_that_nobody_writes_into_is_waited_for_aloud(call: Call, command: list[str], content: bytes) -> None:
    """R12"""
    Path("file").write_bytes(content)
    expected = call(*command, "file").out.replace("file", "pipe", 1)
    writer = _later(lambda: Path("pipe").write_bytes(content))
    result = call(*command, "pipe")
    writer.join()
    assert (result.status, result.out) == (0, expected)
    assert result.err == "pipe is a pipe; waiting for a program that writes into it\n"


def test_a_pipe_that_nobody_reads_is_waited_for_aloud(call: Call) -> None:
    """R12"""
    read: list[bytes] = []
    reader = _later(lambda: read.append(Path("pipe").read_bytes()))
    result = call("plan", "matmul", "-o", "pipe")
    reader.join()
    assert read == [call("plan", "matmul").out.encode()]
    assert result.err == "pipe is a pipe; waiting for a program that reads from it\nWrote pipe\n"


def test_a_quiet_command_waits_without_a_word(call: Call) -> None:
    """R12"""
    writer = _later(lambda: Path("pipe").write_bytes(MATMUL))
    assert call("-q", "plan", "pipe").err == ""
    writer.join()


def test_a_pipe_that_is_served_at_once_is_read_without_a_word(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12"""
    monkeypatch.setattr(waiting, "PATIENCE", 60)
    writer = threading.Thread(target=Path("pipe").write_bytes, args=[MATMUL])
    writer.start()
    assert call("plan", "pipe").err == ""
    writer.join()


def test_a_loop_of_links_is_refused(call: Call) -> None:
    """R12"""
    Path("loop").symlink_to("loop")
    for output in ("loop", "loop/x"):
        for force in ([], ["--force"]):
            result = call("plan", "matmul", "-o", output, *force)
            assert (result.status, result.out) == (2, "")
            assert result.err == f"Error: cannot write {output}: Too many levels of symbolic links\n"
    assert call("plan", "loop").err == "loop: cannot be read: Too many levels of symbolic links\n"
    assert call("import", "loop").err == "loop: cannot be read: Too many levels of symbolic links\n"


def test_a_link_to_a_file_that_is_not_there_yet_is_written_through(call: Call) -> None:
    """R12"""
    Path("link").symlink_to("new")
    assert call("plan", "matmul", "-o", "link").status == 0
    assert Path("link").is_symlink()
    assert Path("new").is_file()
