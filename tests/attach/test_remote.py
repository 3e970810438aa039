"""A program that a gdbserver holds is looked at as one of this machine, and goes on afterwards."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.attach.conftest import Attach
from tests.attach.programs import environment, output_of
from tests.needs import compiled, needs_gcc, needs_gdb, needs_gdbserver

pytestmark = [needs_gcc, needs_gdb, needs_gdbserver]


@contextmanager
def held(*program: str | Path) -> Iterator[tuple[str, subprocess.Popen[str], int]]:
    """A program that a gdbserver holds at its first instruction: where, the gdbserver, its process; ended with the
    block."""
    line = ["gdbserver", "--once", "localhost:0", *map(str, program)]
    with subprocess.Popen(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        said = ""
        while (port := re.search(r"Listening on port (\d+)", said)) is None:
            said += server.stdout.readline() or "Listening on port 0"
        pid = int(re.findall(r"pid = (\d+)", said)[0])
        try:
            yield f"localhost:{port[1]}", server, pid
        finally:
            server.kill()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_its_plan_is_verified_and_it_prints_what_it_prints_alone(attach: Attach) -> None:
    with held(compiled()) as (where, server, _):
        status, out, err = attach("--remote", where, "--sysroot", "/", "--verify")
        rest = server.communicate(timeout=120)[0]
    assert (status, "the program did what the plan says: 716 fields equal" in out) == (0, True), err
    printed = output_of([compiled()])[1].decode().splitlines()
    assert [line for line in rest.splitlines() if "rem" not in line.lower() and "Detaching" not in line] == printed


def test_it_is_halted_when_the_time_is_over_and_runs_on(attach: Attach) -> None:
    with held(compiled(), "--forever", "--threads", "2") as (where, server, pid):
        status, _, err = attach(
            "--remote", where, "--sysroot", "/", "--at", "reserve", "--graph", "9", "--timeout", "0.3"
        )
        # Until it is told to end, which its gdbserver waits for.
        os.kill(pid, signal.SIGTERM)
        assert server.communicate(timeout=120)[0].endswith("done\n")
    assert status == 1
    assert "was waited for 0.3 seconds" in err
    assert "goes on; it stood still for" in err
