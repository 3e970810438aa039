"""Why gdb may not look at a process: what is in the way, and what to do."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals

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
    if _is_32_bit(pid):
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
        return f"it belongs to {_user(owner)}: run ggmltool as that user, or as root (sudo)"
    scope = _ptrace_scope()
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


def _ptrace_scope() -> int:
    with suppress(OSError, ValueError):
        return int((PROC / "sys/kernel/yama/ptrace_scope").read_text())
    return 0


def _is_32_bit(pid: int) -> bool:
    with suppress(OSError), (PROC / str(pid) / "exe").open("rb") as program:
        return program.read(5)[4:] == bytes([_CLASS_32])
    return False


def _user(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user {uid}"
