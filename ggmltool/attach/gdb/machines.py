"""Machines whose programs can be read, and which gdb knows them."""

from __future__ import annotations

import platform
import re
import shutil
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.errors import LinkError

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


_PLACE = re.compile(r"(?:(?:tcp|tcp4|tcp6):)?(?:\[[0-9a-fA-F:.%\w]+\]|[\w.-]*):\d{1,5}")
_REJECTED = ("'g' packet", "rchitecture")
"""What gdb says when the other side sends registers of a machine that it does not know."""


class Remote(NamedTuple):
    """`where` is HOST:PORT, or the path of a serial line or a socket; `program` a file here that is the one that runs
    there, None if gdb is to fetch it; `sysroot` a folder here with the files of the other machine, None: they are
    fetched from there."""

    where: str
    program: str | None = None
    sysroot: str | None = None

    @property
    def machine(self) -> str:
        """Its machine, as far as the program's file tells, else ""."""
        return machine_of(self.program) if self.program is not None else ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return (
            f"{Path(self.program).name} at {self.where}" if self.program is not None else f"the program at {self.where}"
        )

    def check(self) -> None:
        """Raises AttachError for a place that is none, and OSError for a file or folder that is not there."""
        if not _PLACE.fullmatch(self.where) and not (self.where.startswith("/") and Path(self.where).exists()):
            raise AttachError(
                f"{self.where!r} is no place of a gdbserver: name HOST:PORT, or the path of a serial line or a socket"
            )
        if self.program is not None:
            with open(self.program, "rb"):  # noqa: PTH123 - it raises what is the matter with it
                pass
        if self.sysroot is not None and not Path(self.sysroot).is_dir():
            raise NotADirectoryError(20, "Not a directory", self.sysroot)

    def join(self, link: GdbLink) -> float:
        """Connect, as soon as gdb has started; when that was. The program stands still from then on. Raises
        AttachError."""
        try:
            link.ask("ready")
            began = time.monotonic()
            link.ask("remote", self.where, self.program, self.sysroot)
        except LinkError as error:
            why = str(error).rstrip(".")
            if any(word in why for word in _REJECTED):
                why = (
                    "its registers are those of a machine that this gdb does not know, or was not told of: name the "
                    "program's file behind HOST:PORT, and install gdb-multiarch (or name a gdb with --gdb-program)"
                )
            raise AttachError(f"cannot attach to {self.where}: {why}") from None
        return began
