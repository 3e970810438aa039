"""Machines whose programs can be read, and which gdb knows them."""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

from ggmltool.attach.gdb.link import GdbLink
from ggmltool.state.errors import AttachError, LinkError

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


PROC = Path("/proc")
_SYS_PTRACE = 19
"""The number of CAP_SYS_PTRACE."""
_KERNEL_THREADS = 2
"""The process that is the parent of the kernel's own threads."""
_MOST_CHILDREN = 1000
_CLASS_32 = 1
"""The byte of an ELF file that says it is of 32 bits."""


def program_of(pid: int) -> str:
    """The name of a process's program, harmless to print; "?" if it is not told."""
    try:
        name = (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
    return "".join(c if c.isprintable() else "?" for c in name) or "?"


def why_not(pid: int) -> str:
    """Why process `pid` cannot be attached to, "" if nothing is in the way that can be seen from here."""
    status = _status(pid)
    if not status:
        return "there is no such process"
    state = status.get("State", "?")[:1]
    if state in "ZX":
        return "it has ended already, and only waits for its parent to notice (a zombie)"
    if pid == os.getpid():
        return "that is ggmltool itself"
    if status.get("PPid") == str(_KERNEL_THREADS) or pid == _KERNEL_THREADS:
        return "it is a thread of the kernel"
    tracer = int(status.get("TracerPid", "0"))
    if tracer:
        return f"process {tracer} ({program_of(tracer)}) looks at it already: end that first"
    if state == "D":
        return "it waits for a device and cannot be stopped until that answers (state D)"
    with suppress(OSError), (PROC / str(pid) / "exe").open("rb") as program:
        if program.read(5)[4:] == bytes([_CLASS_32]):
            return "it is a 32-bit program; only those of 64 bits can be read"
    return _not_allowed(pid, status)


def died(pid: int) -> str:
    """The signal that has ended a process that is traced, "it" where none has, "" of one that lives."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "it"
    if fields[0] not in "ZX":
        return ""
    with suppress(ValueError, IndexError):
        return Signals(int(fields[-1]) & 0x7F).name
    return "it"


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run, and those that these have."""
    out: list[int] = []
    wanted = [pid]
    while wanted and len(out) < _MOST_CHILDREN:
        found: list[int] = []
        with suppress(OSError):
            for task in (PROC / str(wanted.pop(0)) / "task").iterdir():
                found += map(int, (task / "children").read_text().split())
        out += found
        wanted += found
    return out


def is_confined(pid: int) -> bool:
    """Whether a process has a sandbox that we are not in: more filters of its calls of the system (seccomp)."""
    theirs, ours = (int(_status(p).get("Seccomp_filters", "0")) for p in (pid, os.getpid()))
    return theirs > ours


def _not_allowed(pid: int, status: Mapping[str, str]) -> str:
    ours = _status(os.getpid())
    if int(ours.get("CapEff", "0"), 16) >> _SYS_PTRACE & 1:
        if int(status.get("CapPrm", "0"), 16) & ~int(ours.get("CapPrm", "0"), 16):
            return "it has privileges that ggmltool lacks here: run ggmltool outside of this container"
        return "it is the first process of the system, which is protected" if pid == 1 else ""
    owner = int(status.get("Uid", "0").split()[0])
    if owner != os.geteuid():
        user = f"user {owner}"
        with suppress(KeyError):
            user = pwd.getpwuid(owner).pw_name
        return f"it belongs to {user}: run ggmltool as that user, or as root (sudo)"
    scope = 0
    with suppress(OSError, ValueError):
        scope = int((PROC / "sys/kernel/yama/ptrace_scope").read_text())
    if scope == 1:
        return (
            "the kernel lets a program look only at those that it started itself (ptrace_scope is 1): start it with "
            "`ggmltool attach -- PROGRAM`, or use sudo, or allow it until the next boot with "
            "`sudo sysctl kernel.yama.ptrace_scope=0`"
        )
    if scope == 2:
        return "the kernel lets only root look at programs (kernel.yama.ptrace_scope is 2): use sudo"
    if scope == 3:
        return "the kernel lets nobody look at programs (kernel.yama.ptrace_scope is 3, until the next boot)"
    return (
        "the system does not allow ptrace: a container needs --cap-add=SYS_PTRACE (docker, podman) or the capability "
        "SYS_PTRACE in its securityContext (Kubernetes)"
    )


def _status(pid: int) -> dict[str, str]:
    """The lines of /proc/PID/status; none if there is no such process."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
