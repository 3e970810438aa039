"""What `attach` says of a call it says at once: a server runs for days."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from ggmltool.ask.attach.calls import AttachedCall, call_view
from ggmltool.attach.calls import Called
from ggmltool.show.table import Style
from tests.attach.conftest import Attach
from tests.attach.programs import environment, started
from tests.attach.recorded import recorded
from tests.needs import compiled, needs_gcc, needs_gdb


@needs_gcc
@needs_gdb
@pytest.mark.parametrize("more", [[], ["--show", "splits"]])
def test_a_program_that_never_ends_is_told_of_call_by_call(more: list[str], tmp_path: Path) -> None:
    verify = [] if more else ["--verify"]
    path = tmp_path / "x.json"
    program = [str(compiled()), "--forever", "--pause", "5"]
    options = [*verify, *more, "--count", "2", "-o", str(path)]
    command = [sys.executable, "-m", "ggmltool", "attach", *options, "--", *program]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as looking:
        assert looking.stderr is not None
        said = ""
        while "goes on; it stood still" not in said:
            line = looking.stderr.readline()
            assert line, said
            said += line
        assert looking.poll() is None
        os.killpg(looking.pid, signal.SIGKILL)
    order = [said.index(text) for text in ("call 1", f"Wrote {path}", "call 2", f"Wrote {tmp_path / 'x-2.json'}")]
    assert order == sorted(order)
    if verify:
        verdicts = [m.start() for m in re.finditer("the program did what the plan says", said)]
        assert order[1] < verdicts[0] < order[2] < order[3] < verdicts[1]


@needs_gcc
@needs_gdb
def test_each_call_has_its_thread_and_its_scheduler(attach: Attach) -> None:
    with started([compiled(), "--forever", "--pause", "5"], lines=3) as process:
        calls = json.loads(attach("--json", "--count", "2", process.pid).stdout)["calls"]
        assert all(Path(f"/proc/{process.pid}/task/{call['thread']}").exists() for call in calls)
        assert all(call["scheduler"] % 8 == 0 and call["scheduler"] for call in calls)


def test_a_buffer_that_two_backends_share_is_listed_once() -> None:
    snapshot = recorded("0.26").snapshot()
    galloc = snapshot.sched.galloc
    n = len(galloc.bufts)
    alike = structs.replace(galloc, bufts=galloc.bufts[:1] * n, buf_tallocs=galloc.buf_tallocs[:1] * n)
    shared = replace(snapshot, sched=structs.replace(snapshot.sched, galloc=alike))
    call = AttachedCall.of(Called("ggml_backend_sched_alloc_graph", 16, 32, 1, False), shared, shared)
    assert len(call.buffers) == 1
    names = [b.name or "" for b in snapshot.backends]
    assert call.buffers[0].backends == names
    assert f"compute, shared by {', '.join(names)}" in call_view(call, None, Style())
