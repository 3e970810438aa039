"""What this process may take: multiply-adds of a node, bytes at once. Looked at before anything is begun."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ggmltool.ggml.errors import GgmlFailed

MAX_OPERATIONS = 400_000_000_000
"""Multiply-adds of a node, by default: some ten seconds, the logits of 512 tokens of an 8B model."""

_SMALL = 1 << 26
"""So many bytes are taken without looking at what the machine has."""

NO_END = 1 << 62
"""More bytes than any machine has."""

_MEMINFO, _STATM = Path("/proc/meminfo"), Path("/proc/self/statm")
_CGROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The multiply-adds of a node, and the bytes taken at once (None: what memory the machine has free)."""

    operations: int = MAX_OPERATIONS
    nbytes: int | None = None


BOUNDS = Bounds()
"""The bounds where none are given."""


def free_memory() -> int | None:
    """The bytes that a program can take here before others have to go; None if that cannot be told."""
    free = _smaller(_available(), _allowed())
    for limit, used in _CGROUPS:
        try:
            left = int(limit.read_text()) - int(used.read_text()) + _cached(used.with_name("memory.stat"))
        except (OSError, ValueError):
            continue
        free = _smaller(free, max(left, 0))
    return free


def _cached(stat: Path) -> int:
    """What of a container's memory is files that can go when it is needed."""
    lines = (line.split() for line in stat.read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0] in ("inactive_file", "total_inactive_file"))


def _smaller(a: int | None, b: int | None) -> int | None:
    return a if b is None else b if a is None else min(a, b)


def _allowed() -> int | None:
    """What `ulimit -v` leaves to this process; None if it sets no bound."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

        limit = getrlimit(RLIMIT_AS)[0]
        pages = int(_STATM.read_text().split()[0])
    except (ImportError, OSError, ValueError, IndexError):
        return None
    return None if limit == RLIM_INFINITY else max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0)


def _available() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(nbytes: int, what: str, bounds: Bounds, function: str = "ggml_graph_compute") -> None:
    """Raise GgmlFailed where `what` needs more bytes than may be taken."""
    if nbytes <= _SMALL:
        return
    most = free_memory() if bounds.nbytes is None else bounds.nbytes
    if most is not None and nbytes > most:
        raise GgmlFailed(
            function,
            f"{what} needs about {_size(nbytes)} of memory, and {_size(most)} are free",
            explanation="planning needs no memory, values do: --no-compute only plans, --no-memory-check tries",
        )


def _size(nbytes: int) -> str:
    for unit, power in (("EiB", 60), ("TiB", 40), ("GiB", 30)):
        if nbytes >> power:
            return f"{nbytes / (1 << power):.1f} {unit}"
    return f"{nbytes / (1 << 20):.0f} MiB"
