"""What each backend spent on a graph, exactly as the ggml of January 2024 prints it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendTime:
    """Microseconds that a backend spent on copies and on computing."""

    backend: str
    copy_us: int
    compute_us: int


@dataclass(frozen=True, slots=True)
class GraphTimes:
    """What the backends spent on a graph of so many splits."""

    graph: str
    splits: int
    backends: tuple[BackendTime, ...]


def times_text(times: GraphTimes) -> str:
    """The per-backend timings of sched_compute_splits; backends that did nothing have no line."""
    lines = [f"sched_compute_splits times ({times.splits} splits):\n"]
    for spent in times.backends:
        if spent.copy_us or spent.compute_us:
            name = spent.backend[:5].rjust(5)
            lines.append(f"\t{name}: {spent.copy_us} us copy, {spent.compute_us} us compute\n")
    return "".join(lines)
