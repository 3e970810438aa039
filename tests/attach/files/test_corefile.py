"""What a core dump says of itself, and what is said of a file that is none."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from ggmltool.attach.files.corefile import build_id, read_core
from ggmltool.state.errors import AttachError
from tests.attach.conftest import Attach
from tests.attach.programs import core_by_gdb, linked
from tests.needs import attachable, compiled, needs_gcc, needs_gdb


@pytest.fixture(scope="module")
def core() -> Path:
    return core_by_gdb([compiled("0.20.2"), "--abort", "buffer"], "abort")


@needs_gcc
@needs_gdb
def test_a_core_dump_names_program_files_and_memory(core: Path) -> None:
    found = read_core(core)
    assert found.machine == "x86-64"
    assert compiled("0.20.2").name.startswith(found.program)
    assert found.missing == 0
    base = linked("0.20.2").base.resolve()
    mapped = next(file for file in found.files if Path(file.path).name == base.name)
    assert mapped.build_id == build_id(base.read_bytes()[:4096]) != ""
    assert any(s.writable and s.there for s in found.segments)


@needs_gcc
@needs_gdb
def test_a_core_dump_that_was_cut_off_says_how_much_is_missing(core: Path, tmp_path: Path) -> None:
    data = core.read_bytes()
    cut = tmp_path / "core"
    cut.write_bytes(data[: len(data) // 2])
    assert len(data) // 4 < read_core(cut).missing <= len(data) - len(data) // 2
    cut.write_bytes(data[:80])
    with pytest.raises(AttachError, match="cut off"):
        read_core(cut)


def elf(kind: int = 4, machine: int = 62, bits: int = 2, order: int = 1) -> bytes:
    head = b"\x7fELF" + bytes([bits, order, 1]) + bytes(9)
    return head + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no core dump"),
        (b"#!/bin/sh\n", "is no core dump"),
        (b"\x28\xb5\x2f\xfd" + bytes(90), "zstd -d"),
        (elf(bits=1), "32-bit program"),
        (elf(order=2), "big-endian"),
        (elf(kind=3), "a program or a library, no core dump"),
        (elf(machine=243), "another machine (riscv64)"),
        (elf(machine=999), "machine 999"),
        (elf()[:20], "cut off"),
        (None, "No such file"),
    ],
)
def test_what_is_no_core_dump_is_told_in_a_sentence(data: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "core"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(AttachError, match=said.replace("(", "\\(").replace(")", "\\)")):
        read_core(file)


def test_tables_that_lie_beyond_every_file_hold_nothing(tmp_path: Path) -> None:
    file = tmp_path / "core"
    header = struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    notes = struct.pack("<IIQQQQQQ", 4, 4, 1 << 63, 0, 0, 1 << 63, 1 << 63, 4)
    file.write_bytes(elf()[:16] + header + notes)
    found = read_core(file)
    assert (found.program, found.files, found.missing > 1 << 63) == ("", (), True)


def test_names_that_are_no_text_are_passed_over(attach: Attach, tmp_path: Path) -> None:
    made = attachable()
    whole = core_by_gdb([made], "ggml_backend_sched_graph_compute_async").read_bytes()
    names = [found.start() for found in re.finditer(re.escape(bytes(made)), whole)]
    assert names
    core = tmp_path / "core"
    for at in names[-2:]:
        core.write_bytes(whole[: at + 3] + b"\xff" + whole[at + 4 :])
        ran = attach("--core", core, made)
        assert (ran.returncode, ran.stderr) == (0, "")
