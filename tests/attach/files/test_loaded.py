"""Symbols are read off the files of a process as the process itself finds them; what is damaged is left to gdb."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ggmltool.attach.files.elf import opened
from ggmltool.attach.files.instance import HEART, SYMBOLS, names_ggml
from ggmltool.attach.files.loaded import LoadedFiles, code_of
from ggmltool.attach.session import AttachSession
from tests import needs
from tests.attach.files.damaged_elf import damaged, look, many_tables

PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
print(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in sys.argv[2:]), flush=True)
input()
"""
TELLING = """
#include <stdio.h>
int ggml_backend_sched_new(void) { return 1; }
int main(void) {
    printf("ggml_backend_sched_new %p\\n", (void *) ggml_backend_sched_new);
    fflush(stdout);
    return getchar() != '\\n';
}
"""
NAMES = (HEART, "ggml_version", "ggml_type_name", "gguf_get_version")


class Unasked:
    """A gdb that knows nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, *request: Any) -> dict[str, int]:
        """Nothing."""
        self.asked.append(request)
        return {}


@pytest.mark.parametrize("release", ["0.20.2", "0.26"])
def test_symbols_are_where_the_program_itself_finds_them(release: str) -> None:
    library = str(needs.library(release).files.base)
    command = [sys.executable, "-c", PROGRAM, library, *NAMES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = dict(zip(NAMES, map(int, process.stdout.readline().split()), strict=True))
        link = Unasked()
        files = LoadedFiles(link, process.pid)
        assert files.look()
        assert not files.look()
        process.communicate("\n")
    (found,) = (symbols for symbols in files.symbols.values() if HEART in symbols)
    assert {name: found[name] for name in NAMES} == told
    assert not link.asked


def test_a_program_without_ggml_has_no_symbols() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        while "cat" not in str(list(code_of(process.pid))):
            pass
        link = Unasked()
        files = LoadedFiles(link, process.pid)
        assert not files.look()
        process.communicate(b"")
    assert files.symbols == {}
    assert not link.asked
    assert code_of(process.pid) == {}


@needs.program("gdb", "gdb")
@needs.program("objcopy", "binutils")
@needs.program("gcc", "gcc")
def test_symbols_in_a_separate_debug_file_are_found(tmp_path: Path) -> None:
    program, kept = tmp_path / "program", tmp_path / "program.debug"
    subprocess.run(["gcc", "-g", "-x", "c", "-", "-o", program], input=TELLING, text=True, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, kept], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={kept}", program], check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = int(process.stdout.readline().split()[1], 16)
        with AttachSession.attach(process.pid) as session:
            (found,) = session.instances
        process.communicate("\n")
    assert found.symbols == {HEART: told}


@pytest.mark.parametrize("kept", [0, 3, 40, 64, 4096])
def test_a_file_that_is_cut_off_is_refused(kept: int, tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    cut.write_bytes(Path(sys.executable).read_bytes()[:kept])
    with pytest.raises(ValueError, match="ELF file"), opened(str(cut)) as elf:
        elf.symbols(SYMBOLS)


def test_a_damaged_file_is_read_or_refused(tmp_path: Path) -> None:
    whole, place = Path(needs.library("0.20.2").files.base).read_bytes(), tmp_path / "damaged.so"
    for seed in range(40):
        place.write_bytes(damaged(whole, random.Random(seed)))
        look(place)


def test_of_tables_without_end_a_few_are_read(tmp_path: Path) -> None:
    (tmp_path / "many.so").write_bytes(many_tables(0x4000))
    began = time.process_time()
    look(tmp_path / "many.so")
    assert time.process_time() - began < 2


def test_a_pipe_that_lies_where_a_library_was_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    with pytest.raises(ValueError, match="is not a file"), opened(str(tmp_path / "lib.so")):
        pass
    assert names_ggml(str(tmp_path / "lib.so")) is None
