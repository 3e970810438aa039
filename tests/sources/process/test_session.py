"""A session stops a program where it calls ggml, and lets it go."""

import subprocess
import sys
from pathlib import Path

import pytest

from ggmltool.attach.gdb.program import Gdb
from ggmltool.attach.session import AttachError, AttachSession
from tests import needs

pytestmark = needs.program("gdb", "gdb")

ALLOC = "ggml_backend_sched_alloc_graph"


def planning(release: str, seeds: range = range(1, 3)) -> list[str]:
    """The command line of a program that plans graphs on a real library."""
    needs.library(release)
    return [
        sys.executable,
        "-m",
        "tests.attach.on_library",
        "--ggml",
        release,
        "--seeds",
        f"{seeds.start}:{seeds.stop}",
    ]


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_a_launched_program_is_stopped_in_ggml_and_goes_on_as_without_us(
    release: str, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = subprocess.run(planning(release), capture_output=True, text=True, check=True)
    with AttachSession.launch(planning(release)) as session:
        stop = session.stop_at([ALLOC])
        assert session.function() == ALLOC
        assert stop.pc == session.instance.address(ALLOC)
        assert session.instance.release.name == release
        sched, graph = session.link.arguments()[:2]
        assert session.link.read(sched, 8)
        assert session.link.read(graph, 8)
        assert session.finish().reason == "breakpoint"
    assert session.wait() == 0
    assert capfd.readouterr().out == alone.stdout


def test_a_program_that_never_calls_ggml_is_said_to_have_ended() -> None:
    with (
        AttachSession.launch(["true"]) as session,
        pytest.raises(AttachError, match=r"no ggml: none of the .*; it ended with status 0"),
    ):
        session.stop_at([ALLOC])
    assert session.wait() == 0


def test_an_interrupt_before_a_launched_program_has_started_ends_gdb_and_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    admitted: list[int] = []

    def admit(gdb: Gdb, pid: int, name: str) -> float:
        gdb.link.ask("ready")
        gdb.link.admit(pid)
        admitted.extend([pid, gdb.pid])
        raise KeyboardInterrupt

    monkeypatch.setattr("ggmltool.attach.session._admit", admit)
    with pytest.raises(KeyboardInterrupt):
        AttachSession.launch(["echo", "it runs"])
    assert len(admitted) == 2
    assert not [pid for pid in admitted if Path(f"/proc/{pid}").exists()]
    assert capfd.readouterr().out == ""
