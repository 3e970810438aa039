"""Why a process may not be looked at is told from what the kernel says of it."""

import os
from pathlib import Path

import pytest

from ggmltool.attach.gdb import permission
from ggmltool.attach.gdb.permission import program_of, why_not

OTHER = 4242


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc in which we have no privileges."""
    monkeypatch.setattr(permission, "PROC", tmp_path)
    process(tmp_path, os.getpid(), CapEff="0000000000000000")
    return tmp_path


def process(proc: Path, pid: int, **fields: str) -> None:
    """A process with such lines in its status."""
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text("server\n")
    own = f"{os.geteuid()}\t" * 4
    said = {"State": "S (sleeping)", "PPid": "1", "TracerPid": "0", "Uid": own, **fields}
    (folder / "status").write_text("".join(f"{key}:\t{value}\n" for key, value in said.items()))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"State": "Z (zombie)"}, "(a zombie)"),
        ({"State": "D (disk sleep)"}, "cannot be stopped until that answers"),
        ({"PPid": "2"}, "a thread of the kernel"),
        ({"TracerPid": str(os.getpid())}, f"process {os.getpid()} (server) looks at it already"),
        ({"Uid": f"{os.geteuid() + 1}\t0\t0\t0"}, "run ggmltool as that user, or as root"),
        ({}, "--cap-add=SYS_PTRACE"),
    ],
    ids=["a zombie", "waiting", "the kernel's", "looked at", "another user's", "ours"],
)
def test_what_is_in_the_way_is_said(proc: Path, fields: dict[str, str], said: str) -> None:
    process(proc, OTHER, **fields)
    assert said in why_not(OTHER)


@pytest.mark.parametrize(
    ("scope", "said"), [(1, "`ggmltool attach -- PROGRAM`"), (2, "use sudo"), (3, "until the next boot")]
)
def test_the_restriction_of_the_kernel_has_a_remedy(proc: Path, scope: int, said: str) -> None:
    process(proc, OTHER)
    (proc / "sys/kernel/yama").mkdir(parents=True)
    (proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    assert said in why_not(OTHER)


def test_a_program_of_32_bits_and_a_process_that_is_not_there(proc: Path) -> None:
    assert why_not(OTHER) == "there is no such process"
    process(proc, OTHER)
    (proc / str(OTHER) / "exe").write_bytes(b"\x7fELF\x01\x01")
    assert "32-bit" in why_not(OTHER)


def test_with_privileges_nothing_is_in_the_way_and_names_are_harmless(proc: Path) -> None:
    process(proc, os.getpid(), CapEff="000001ffffffffff")
    process(proc, OTHER)
    assert why_not(OTHER) == ""
    (proc / str(OTHER) / "comm").write_text("a\x1b[31mb\n")
    assert program_of(OTHER) == "a?[31mb"
