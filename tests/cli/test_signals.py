"""^C and SIGTERM, at any moment: no traceback, no process that stays, no half file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ggmltool.sources.llama.errors import PlaceError
from ggmltool.sources.llama.processes import in_processes
from tests.cli.conftest import SAMPLES

ROOT = SAMPLES.parent
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


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("module", ["click", "ggmltool.cli.main", "ggmltool.inspect.watched", "ggmltool.scenario.load"])
@pytest.mark.parametrize(("name", "status", "said"), [("SIGINT", 130, "interrupted\n"), ("SIGTERM", 143, "")])
def test_a_signal_while_modules_are_imported_leaves_no_traceback(
    module: str, name: str, status: int, said: str
) -> None:
    """R11"""
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTING, module, name, "plan", "matmul"],
        capture_output=True, text=True, env=_environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (status, "", said)


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    """R11: a shell starts its background jobs so."""
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{WHILE_IMPORTING}"
    done = subprocess.run(
        [sys.executable, "-c", program, "click", "SIGINT", "plan", "matmul"],
        capture_output=True, text=True, env=_environment(), check=False,
    )  # fmt: skip
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
    process = subprocess.Popen(
        [sys.executable, "-m", "ggmltool", *SWEEP],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment(), start_new_session=True,
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
