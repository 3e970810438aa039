"""Machines whose programs can be read, and which gdb knows them."""

from __future__ import annotations

import platform
import shutil
import struct
from contextlib import suppress
from pathlib import Path

from ggmltool.attach.errors import AttachError

MACHINES = {62: "x86-64", 183: "aarch64"}
"""By their numbers in ELF files."""
SHOWN = {"x86-64": "x86-64", "aarch64": "arm64"}
"""What people call them."""
REMEDY = "`attach` reads programs through gdb, version 9 or later, with Python (apt install gdb, dnf install gdb)"
_ALL = "gdb-multiarch"
"""Debian's name of a gdb that knows all machines; elsewhere gdb itself often does."""


def own_machine() -> str:
    """The machine that we run on, by gdb's name, as far as it is one that can be read."""
    name = platform.machine().lower()
    return {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}.get(name, name)


def machine_of(file: str | Path) -> str:
    """The machine of an ELF file of 64 bits; "" of another file, and of one that cannot be read."""
    with suppress(OSError, struct.error), Path(file).open("rb") as opened:
        head = opened.read(20)
        if head[:6] == b"\x7fELF\x02\x01":
            return MACHINES.get(struct.unpack_from("<H", head, 18)[0], "")
    return ""


def gdb_for(machine: str = "", named: str | None = None) -> str:
    """The path of the gdb to take for programs of a machine ("": not known). `named` is the one that the user wants.
    Raises AttachError if there is none."""
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise AttachError(f"{named}: no such gdb that can be run")
        return found
    wanted = ["gdb", _ALL] if machine in ("", own_machine()) else [_ALL, "gdb"]
    for name in wanted:
        found = shutil.which(name)
        if found is not None:
            return found
    raise AttachError(f"gdb is not installed; {REMEDY}")


def lacks(what: str, machine: str, gdb: str) -> str:
    """That a gdb does not know a machine, and what to do."""
    return (
        f"{what} is of {SHOWN[machine]}, which {gdb} does not know: install {_ALL} (apt install {_ALL}), or name a gdb "
        "that was built for it with --gdb-program"
    )


def not_ours(program: str) -> str:
    """Why a program cannot be started here, "" if its machine is no reason."""
    found = shutil.which(program)
    machine = machine_of(found) if found else ""
    if machine in ("", own_machine()):
        return ""
    return (
        f"{program} is of {SHOWN[machine]}, and this machine is of {SHOWN.get(own_machine(), own_machine())}: let a "
        f"gdbserver there hold it, or an emulator here (qemu-{'x86_64' if machine == 'x86-64' else machine} -g 1234 "
        f"{program}), and attach with --remote HOST:1234"
    )
