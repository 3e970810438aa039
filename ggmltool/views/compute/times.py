"""What each backend spent on a graph, exactly as the ggml of January 2024 prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def times_text(times: Mapping[str, Any]) -> str:
    """The per-backend timings of sched_compute_splits; backends that did nothing have no line."""
    lines = [f"sched_compute_splits times ({times['splits']} splits):\n"]
    for spent in times["backends"]:
        if spent["copy_us"] or spent["compute_us"]:
            name = spent["backend"][:5].rjust(5)
            lines.append(f"\t{name}: {spent['copy_us']} us copy, {spent['compute_us']} us compute\n")
    return "".join(lines)
