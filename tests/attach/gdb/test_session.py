"""A session stops a program where it calls ggml, and lets it go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ggmltool.attach.gdb.program import Gdb, gdb_file
from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import AttachError
from tests import needs

pytestmark = needs.program("gdb", "gdb")

ALLOC = "ggml_backend_sched_alloc_graph"


def planning(release: str, seeds: range = range(2, 4)) -> list[str]:
    """The command line of a program that plans graphs on a real library."""
    needs.library(release)
    program = [sys.executable, "-m", "tests.attach.on_library", "--ggml", release]
    return [*program, "--seeds", f"{seeds.start}:{seeds.stop}"]


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


def test_the_file_and_its_folder_are_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = gdb_file()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ggmltool").mkdir()
    (tmp_path / "ggmltool").chmod(0o777)
    with pytest.raises(AttachError, match="others can write there what gdb would run"):
        gdb_file()
    assert not list((tmp_path / "ggmltool").iterdir())


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.write_text("as it was")
    path = gdb_file()
    path.unlink()
    path.symlink_to(theirs)
    assert gdb_file() == path
    assert not path.is_symlink()
    assert theirs.read_text() == "as it was"
