"""Programs of other machines are told from their files, and the gdb that they need is found or named."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from ggmltool.attach.gdb import machines
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.attach.gdb.machines import Remote, gdb_for, lacks, machine_of, not_ours, program_of, why_not
from ggmltool.attach.session import AttachSession
from ggmltool.state.errors import AttachError, LinkError
from tests import needs


def elf(path: Path, machine: int, kind: int = 2) -> Path:
    """The header of an ELF file, that can be run as far as its rights say."""
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    path.write_bytes(head + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0))
    path.chmod(0o755)
    return path


def tool(folder: Path, name: str) -> str:
    """A program of some name."""
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("number", "name"), [(62, "x86-64"), (183, "aarch64"), (243, "")])
def test_the_machine_of_a_file_is_read_off_its_header(tmp_path: Path, number: int, name: str) -> None:
    assert machine_of(elf(tmp_path / "program", number)) == name
    (tmp_path / "short").write_bytes(b"\x7fELF\x02\x01")
    assert machine_of(tmp_path / "short") == machine_of(tmp_path / "none") == machine_of(tmp_path) == ""


def test_a_gdb_for_all_machines_is_taken_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machines, "own_machine", lambda: "x86-64")
    with pytest.raises(AttachError, match=r"^gdb is not installed; .*apt install gdb"):
        gdb_for("x86-64")
    own = tool(tmp_path, "gdb")
    assert gdb_for() == gdb_for("x86-64") == gdb_for("aarch64") == own
    every = tool(tmp_path, "gdb-multiarch")
    assert (gdb_for(), gdb_for("aarch64"), gdb_for("aarch64", own)) == (own, every, own)
    with pytest.raises(AttachError, match=r"^gdb-11: no such gdb"):
        gdb_for("x86-64", "gdb-11")


def test_a_program_of_another_machine_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = str(elf(tmp_path / "program", 183))
    monkeypatch.setattr(machines, "own_machine", lambda: "aarch64")
    assert not_ours(program) == not_ours("no such") == ""
    monkeypatch.setattr(machines, "own_machine", lambda: "x86-64")
    said = not_ours(program)
    assert said.startswith(f"{program} is of arm64, and this machine is of x86-64: let a gdbserver there hold it")
    assert f"(qemu-aarch64 -g 1234 {program})" in said


@needs.needs_gdb
def test_a_gdb_that_does_not_know_a_machine_says_which_one_does(tmp_path: Path) -> None:
    other = 183 if machines.own_machine() == "x86-64" else 62
    knows = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"set architecture {'aarch64' if other == 183 else 'i386:x86-64'}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not knows.stderr.strip():
        pytest.skip("this gdb knows both machines")
    core = str(elf(tmp_path / "core", other, kind=4))
    with pytest.raises(AttachError) as refused:
        AttachSession.core(core, gdb_program="gdb")
    assert str(refused.value).startswith(lacks(core, machines.MACHINES[other], "").partition(" does not know")[0][:-1])
    assert "install gdb-multiarch" in str(refused.value)


@pytest.mark.parametrize("where", ["| touch x", "localhost", "host:port", "host:1;x", "/no/such", "", "a b:1"])
def test_a_place_that_is_none_is_refused_before_gdb_sees_it(where: str) -> None:
    with pytest.raises(AttachError, match=r"is no place of a gdbserver: name HOST:PORT"):
        Remote(where).check()


def test_places_of_gdbservers_are_taken(tmp_path: Path) -> None:
    for where in ("localhost:1234", ":1234", "[::1]:1234", "tcp:board.local:1", str(tmp_path)):
        Remote(where).check()
    for remote in (Remote(":1", str(tmp_path / "none")), Remote(":1", None, str(tmp_path / "none"))):
        with pytest.raises(OSError, match="none"):
            remote.check()


class Refusing(GdbLink):
    """A gdb that cannot connect."""

    def __init__(self, why: str) -> None:
        self.why = why

    def ask(self, verb: str, *arguments: object) -> None:
        if verb == "remote":
            raise LinkError(self.why)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("board:1: Connection timed out.", "cannot attach to board:1: board:1: Connection timed out"),
        ("Truncated register 37 in remote 'g' packet", "cannot attach to board:1: its registers .* gdb-multiarch"),
    ],
)
def test_a_place_that_does_not_answer_as_this_gdb_expects_is_told(why: str, said: str) -> None:
    with pytest.raises(AttachError, match=f"^{said}"):
        Remote("board:1").join(Refusing(why))


OTHER = 4242


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc in which we have no privileges."""
    monkeypatch.setattr(machines, "PROC", tmp_path)
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
