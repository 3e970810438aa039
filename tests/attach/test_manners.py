"""A program that was visited goes on as if nothing had been, however the visit ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import needs
from tests.attach.conftest import Attach
from tests.attach.manners import visits
from tests.attach.programs import environment, output_of, python_program, started

pytestmark = needs.needs_gdb

GGMLTOOL = [sys.executable, "-m", "ggmltool"]


def test_a_program_computes_on_through_visits_that_signals_cut_short() -> None:
    needs.library("0.20.2")
    outcome = visits(5, 7, "0.20.2")
    assert (outcome.said, outcome.status) == (f"0 wrong results, {outcome.sent} signals", 0)


@pytest.mark.parametrize("arguments", [["--threads", "3"], ["--crash"]], ids=" ".join)
def test_what_a_launched_program_prints_is_what_it_prints_without_us(attach: Attach, arguments: list[str]) -> None:
    program = [str(needs.compiled()), *arguments]
    status, out, _ = output_of(program)
    looked = attach("--", *program)
    assert looked.stdout == out.decode()
    if status < 0:
        assert signal.Signals(-status).name in looked.stderr


def test_a_program_in_python_is_launched_with_its_own_input_and_environment() -> None:
    needs.library("0.20.2")
    asked = (
        "import os, signal, sys; print(sys.stdin.read(), sorted(os.environ), os.getcwd(), "
        "signal.getsignal(signal.SIGPIPE), signal.getsignal(signal.SIGINT), signal.pthread_sigmask(0, ()), "
        "sorted(os.listdir('/proc/self/fd')))"
    )
    program = [sys.executable, "-c", asked]
    both = [
        subprocess.run(line, env=environment(), input=b"given", capture_output=True, check=False, timeout=60).stdout
        for line in (program, [*GGMLTOOL, "attach", "--", *program])
    ]
    assert both[0] == both[1]
    assert both[0].startswith(b"given ")


def test_a_launched_program_that_never_comes_there_is_let_go(attach: Attach) -> None:
    needs.library("0.20.2")
    program = python_program("--seeds", "2:3")
    status, out, _ = output_of(program)
    looked = attach("--graph", "50", "--", *program)
    assert (looked.returncode, looked.stdout) == (1, out.decode())
    assert f"ended with status {status} before it called" in looked.stderr
    late = attach("--timeout", "0.2", "--", "sleep", "0.5")
    assert late.returncode == 1
    assert "was waited for 0.2 seconds" in late.stderr


def test_the_graph_of_a_program_is_saved_for_every_command_and_planned_as_it_was_decided(
    attach: Attach, tmp_path: Path
) -> None:
    program = [str(needs.compiled()), "--iterations", "1"]
    saved = tmp_path / "x.json.gz"
    looked = attach("--verify", "-o", str(saved), "--", *program)
    assert looked.returncode == 0
    assert "the program did what the plan says: " in looked.stderr
    plan = subprocess.run([*GGMLTOOL, "plan", str(saved)], capture_output=True, check=False, timeout=60)
    assert (plan.returncode, plan.stderr) == (0, b"")
    hidden = tmp_path / "hidden.json"
    assert attach("--redact", "-o", str(hidden), "--", *program).returncode == 0
    assert "l_out" not in hidden.read_text("utf-8")


def test_an_interrupt_of_the_terminal_is_the_programs_too() -> None:
    program = "import time\ntry: print('on', flush=True); time.sleep(30)\nexcept KeyboardInterrupt: print('off')"
    line = [*GGMLTOOL, "attach", "--", sys.executable, "-c", program]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, start_new_session=True) as looked:
        assert looked.stdout is not None
        assert looked.stdout.readline() == b"on\n"
        os.killpg(looked.pid, signal.SIGINT)
        assert (looked.stdout.read(), looked.wait(30)) == (b"off\n", 130)


def test_a_process_goes_on_and_how_long_it_stood_still_is_said(attach: Attach) -> None:
    with started([needs.compiled(), "--forever", "--pause", "5"]) as process:
        looked = attach(str(process.pid))
        assert looked.returncode == 0
        assert "splits" in looked.stdout
        assert "goes on; it stood still for " in looked.stderr
        again = attach("--at", "reserve", "--timeout", "0.3", str(process.pid))
        assert again.returncode == 1
        assert "was waited for 0.3 seconds before it called ggml_backend_sched_reserve" in again.stderr
        assert _state(process.pid) in "RS"


def _state(pid: int) -> str:
    time.sleep(0.1)
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(") ", 1)[1][0]


def test_what_cannot_be_attached_to_is_told_in_a_sentence(attach: Attach) -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert "(a zombie)" in attach(str(ended.pid)).stderr
    ended.wait()
    assert "there is no such process" in attach(str(ended.pid)).stderr
    assert attach(str(ended.pid)).returncode == 2
    assert "no such program" in attach("--", "no-such-program").stderr
    with subprocess.Popen(["sleep", "20"]) as other:
        tracer = subprocess.Popen(
            ["gdb", "-nx", "-batch", "-ex", f"attach {other.pid}", "-ex", "python import time; time.sleep(20)"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 10
        while f"TracerPid:\t{tracer.pid}" not in Path(f"/proc/{other.pid}/status").read_text(encoding="utf-8"):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert f"process {tracer.pid} (gdb) looks at it already" in attach(str(other.pid)).stderr
        tracer.kill()
        tracer.wait()
        assert "no ggml: none of the" in attach(str(other.pid)).stderr
        other.kill()
