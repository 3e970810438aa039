"""^C and SIGTERM at any moment, named pipes, terminals: no traceback, no process that stays, no half file."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ggmltool.cli import progress as module
from ggmltool.cli.progress import _Ticker, progress
from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.processes import in_processes
from tests.cli.conftest import SAMPLES, Call, python
from tests.cli.test_every_command import LOGS
from tests.scenarios import scenario_of

SWEEP = ["sweep", "-q", "-ngl", "0..18", "-ts", "1", "-ts", "2", "-ts", "3", "-ts", "4", "-ts", "5", "-ts", "6",
         "-j", "2", "--device", "CUDA0:600MiB", "gemma-3-270m"]  # fmt: skip
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to know the children")

WHILE_IMPORTING = """
import builtins, os, signal, sys
imported = builtins.__import__
module, sent = sys.argv.pop(1), getattr(signal, sys.argv.pop(1))

def importing(name, *args, **kwargs):
    if name == module:
        builtins.__import__ = imported
        os.kill(os.getpid(), sent)
    return imported(name, *args, **kwargs)

builtins.__import__ = importing
from ggmltool.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["click", "ggmltool.cli.main", "ggmltool.inspect.watched", "ggmltool.scenario.load"])
@pytest.mark.parametrize(("name", "status", "said"), [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, "")])
def test_a_signal_while_modules_are_imported_leaves_no_traceback(
    module: str, name: str, status: int, said: str
) -> None:
    """R11"""
    done = python("-c", WHILE_IMPORTING, module, name, "plan", "matmul")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", said)


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    """R11: a shell starts its background jobs so."""
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{WHILE_IMPORTING}"
    done = python("-c", program, "click", "SIGINT", "plan", "matmul")
    assert (done.returncode, done.stderr) == (0, "")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(what: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


@ON_LINUX
@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGTERM, 143, ""), (signal.SIGINT, 130, "interrupted\n"), (signal.SIGKILL, -9, "")],
)
@pytest.mark.parametrize("to", ["the process", "its whole group"])
def test_a_sweep_that_is_ended_leaves_no_process(sent: signal.Signals, status: int, said: str, to: str) -> None:
    """R11"""
    environment = os.environ | {"PYTHONPATH": str(SAMPLES.parent)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ggmltool", *SWEEP],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    children: list[int] = []

    def has_started() -> bool:
        children[:] = _children(process.pid)
        return len(children) == 2

    _wait(has_started)
    if to == "the process":
        process.send_signal(sent)
    else:
        os.killpg(process.pid, sent)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (status, "", said)
    _wait(lambda: not any(map(_alive, children)))


def _die(n: int) -> int:
    if n == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


def _refuse(n: int) -> int:
    if n == 3:
        raise PlaceError("no")
    return n


def test_a_process_that_is_killed_is_an_error_and_no_wait() -> None:
    """R11"""
    with pytest.raises(PlaceError, match="a process ended with SIGKILL"):
        in_processes(_die, range(10), 2)
    with pytest.raises(PlaceError, match="no"):
        in_processes(_refuse, range(10), 2)
    assert in_processes(_refuse, range(4, 40), 3) == list(range(4, 40))


MATMUL = (SAMPLES / "matmul.yaml").read_bytes()


@pytest.fixture
def pipe(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the call there is a pipe, about which the tool speaks up soon."""
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    os.mkfifo("pipe")


def _later(do: object) -> threading.Thread:
    """Somebody who comes to the pipe after a while."""

    def come() -> None:
        time.sleep(0.4)
        do()  # type: ignore[operator]

    thread = threading.Thread(target=come)
    thread.start()
    return thread


@pytest.mark.usefixtures("pipe")
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


@pytest.mark.usefixtures("pipe")
def test_a_pipe_that_nobody_reads_is_waited_for_aloud(call: Call) -> None:
    """R12"""
    read: list[bytes] = []
    reader = _later(lambda: read.append(Path("pipe").read_bytes()))
    result = call("plan", "matmul", "-o", "pipe")
    reader.join()
    assert read == [call("plan", "matmul").out.encode()]
    assert result.err == "pipe is a pipe; waiting for a program that reads from it\nWrote pipe\n"


@pytest.mark.usefixtures("pipe")
def test_a_quiet_command_waits_without_a_word(call: Call) -> None:
    """R12"""
    writer = _later(lambda: Path("pipe").write_bytes(MATMUL))
    assert call("-q", "plan", "pipe").err == ""
    writer.join()


@pytest.mark.usefixtures("pipe")
def test_a_pipe_that_is_served_at_once_is_read_without_a_word(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12"""
    monkeypatch.setattr(module, "PATIENCE", 60)
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


def test_without_textual_it_names_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggmltool.cli.debug.find_spec", lambda name: None)
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
    return scenario_of({"x": {"type": "f32", "ne": [300, 300], "data": data}}, nodes)


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
