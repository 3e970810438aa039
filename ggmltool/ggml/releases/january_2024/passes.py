"""The four passes of sched_split_graph of January 2024, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.releases.january_2024.assign import assign_from_buffers, assign_sources, expand
from ggmltool.ggml.releases.january_2024.printed import printed_of
from ggmltool.ggml.releases.january_2024.split import split

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.releases.january_2024.state import SchedulerState


def _assign_sources(s: SchedulerState, graph: CGraph) -> None:
    assign_sources(s, graph.nodes)


_SILENT = (assign_from_buffers, expand, _assign_sources, split)


def run_passes(s: SchedulerState, graph: CGraph) -> None:
    """Assign backends (passes 1 to 3) and split (pass 4); where somebody listens, by passes that tell of it."""
    passes = _SILENT
    if s.events:
        from ggmltool.ggml.releases.january_2024 import telling_passes as telling

        passes = (telling.assign_from_buffers, telling.expand, telling.assign_sources, telling.split)
    for number, step in enumerate(passes, 1):
        step(s, graph)
        s.check_hash_set()
        if s.debug:
            s.printed.append(printed_of(s, graph, number))
        if s.on_pass:
            s.on_pass(number, s)
