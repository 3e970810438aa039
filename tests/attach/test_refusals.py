"""Programs that cannot be looked at, or not any more: what is in the way is said at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ggmltool.attach.reading import read_snapshot
from ggmltool.attach.session import AttachError, AttachSession
from tests.attach.conftest import Attach
from tests.attach.programs import ROOT, environment, scratch, started
from tests.needs import compiled, needs_gcc, needs_gdb

pytestmark = [needs_gdb, needs_gcc]
ALLOC = "ggml_backend_sched_alloc_graph"
STATIC = """
#include <stdio.h>
#include <stdlib.h>
int ggml_backend_sched_alloc_graph(void *s, void *g) { return fprintf(stderr,
    "ggml_abort: GGML_ASSERT(%s) failed", s ? "s" : "g") && g; }
int main(void) { puts("it runs"); return ggml_backend_sched_alloc_graph(stdin, NULL); }
"""


def killed_meanwhile(process: subprocess.Popen[bytes]) -> None:
    """Look at a program that is killed when it stands still."""
    with AttachSession.attach(process.pid) as session:
        session.stop_at([ALLOC])
        sched, graph = session.link.arguments()[:2]
        process.kill()
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] not in "ZX":
            time.sleep(0.01)
        read_snapshot(session, sched, graph, ALLOC, "before")


def test_a_program_that_is_killed_while_it_is_looked_at_was_ended_by_that_signal() -> None:
    said = "was ended by SIGKILL while it was looked at"
    with started([compiled(), "--forever"], lines=3) as process, pytest.raises(AttachError, match=said):
        killed_meanwhile(process)


def test_a_program_with_a_ggml_without_symbols_is_refused_before_it_runs(attach: Attach) -> None:
    source, program = scratch() / "static.c", scratch() / "static"
    source.write_text(STATIC)
    subprocess.run(["gcc", "-s", "-o", program, source], check=True)
    ran = attach("--", program)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "it was stripped of its symbols" in ran.stderr


def test_of_a_process_whose_child_has_ggml_that_child_is_named(attach: Attach) -> None:
    shell = f"trap 'kill $child' TERM; '{compiled()}' --forever --pause 10 & child=$!; wait; wait"
    with subprocess.Popen(["bash", "-c", shell], env=environment(), stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        for _ in range(3):
            parent.stdout.readline()
        ran = attach(parent.pid)
        os.kill(parent.pid, signal.SIGTERM)
        parent.stdout.read()
    assert ran.returncode == 2
    child = ran.stderr.partition("its child ")[2].split()[0]
    assert f"ggmltool attach {child}" in ran.stderr
