"""What this process may take: multiply-adds of a node, bytes at once. Looked at before anything is begun."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ggmltool.ggml.errors import GgmlFailed

MAX_OPERATIONS = 1 << 38
"""Multiply-adds of a node, unless somebody asks for more: some ten seconds."""

_SMALL = 1 << 26
"""So many bytes are taken without looking at what the machine has."""

_NO_END = 1 << 62


@dataclass(slots=True)
class Bounds:
    """The multiply-adds of a node, and the bytes taken at once (None: what memory the machine has free)."""

    operations: int = MAX_OPERATIONS
    nbytes: int | None = None


BOUNDS = Bounds()
"""The bounds of this process; whoever wants others sets them."""


def free_memory() -> int:
    """The bytes that the machine can give to this process; where it does not say, more than any machine has."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except (ImportError, OSError, ValueError):
        return _NO_END
    free = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), _NO_END)
    return free if limit < 0 else min(free, limit)


def check_memory(nbytes: int, what: str, function: str = "ggml_graph_compute") -> None:
    """Raise GgmlFailed where `what` needs more bytes than may be taken."""
    if nbytes <= _SMALL:
        return
    most = free_memory() if BOUNDS.nbytes is None else BOUNDS.nbytes
    if nbytes > most:
        raise GgmlFailed(
            function,
            f"{what} needs about {_size(nbytes)} of memory, and {_size(most)} are free",
            explanation="planning needs no memory, values do; --no-compute only plans",
        )


def _size(nbytes: int) -> str:
    for unit, power in (("EiB", 60), ("TiB", 40), ("GiB", 30)):
        if nbytes >> power:
            return f"{nbytes / (1 << power):.1f} {unit}"
    return f"{nbytes / (1 << 20):.0f} MiB"
