"""Programs without a scheduler: what their graph allocator does is the plan of a scheduler of one backend."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attach.conftest import Attach
from tests.attach.programs import environment, on_vulkan, output_of, started
from tests.needs import compiled, made, needs_gcc, needs_gdb, real_vulkan

pytestmark = [needs_gdb, needs_gcc]
SAME = "the program did what the plan says"


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_an_allocator_alone_does_what_the_plan_says(attach: Attach, release: str) -> None:
    program = [str(compiled(release)), "--gallocr"]
    looked = attach("--at", "any", "--count", "6", "--verify", "--", *program)
    assert looked.stdout.encode() == output_of(program)[1]
    assert looked.returncode == 0
    assert looked.stderr.count(SAME) == 6
    assert "call 1: ggml_gallocr_alloc_graph · no scheduler, on CPU" in looked.stderr
    assert "call 6: ggml_backend_graph_compute · no scheduler, on CPU" in looked.stderr


def test_an_allocator_on_a_device_does_what_the_plan_says_with_a_cpu_behind(attach: Attach, tmp_path: Path) -> None:
    real_vulkan()
    looked = attach("--count", "2", "--verify", "-o", str(tmp_path / "x.json"), "--", *made(on_vulkan), "--gallocr")
    assert looked.stderr.count(SAME) == 2
    assert "no scheduler, on Vulkan0" in looked.stderr
    assert '"CPU"' in (tmp_path / "x-2.json").read_text()


def test_a_graph_is_counted_once_when_it_is_allocated(attach: Attach) -> None:
    looked = attach("--count", "4", "--", str(compiled()), "--gallocr")
    assert looked.returncode == 1
    assert "; 3 such calls came before" in looked.stderr


def test_a_running_program_without_a_scheduler_is_attached_and_ignores_the_stop_key() -> None:
    with started([compiled(), "--gallocr", "--forever", "--pause", "50"], lines=3) as process:
        command = [sys.executable, "-m", "ggmltool", "attach", "--verify", "--graph", "5", str(process.pid)]
        looking = subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert looking.stderr is not None
        assert "waiting for its next graph" in looking.stderr.readline()
        looking.send_signal(signal.SIGTSTP)
        out, _ = looking.communicate(timeout=60)
        assert SAME in out


def test_a_program_that_has_a_scheduler_is_followed_by_that_alone(attach: Attach) -> None:
    looked = attach("--at", "any", "--count", "4", "--", str(compiled()), "--iterations", "2")
    called = [line.split()[2] for line in looked.stderr.splitlines() if line.startswith("call ")]
    assert len(called) == 4
    assert all(name.startswith("ggml_backend_sched_") for name in called)


def test_a_script_that_starts_the_program_is_told_from_it(attach: Attach) -> None:
    looked = attach("--", "sh", "-c", "/bin/true; /bin/true; exit 0")
    assert looked.returncode == 1
    assert "It started" in looked.stderr
    assert "which `attach` does not follow" in looked.stderr
    assert "does not follow" not in attach("--", "sh", "-c", "exit 0").stderr
