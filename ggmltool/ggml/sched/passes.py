"""The passes of ggml_backend_sched_split_graph, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.sched.assign import assign_from_buffers, assign_sources, choose_or_upgrade, expand
from ggmltool.ggml.sched.split import copy_leafs, split

if TYPE_CHECKING:
    from ggmltool.ggml.graph import CGraph
    from ggmltool.ggml.sched.state import SchedulerState
    from ggmltool.ggml.tensor import Tensor

    _OverTensors = Callable[[SchedulerState, Sequence[Tensor]], None]


class Passes(NamedTuple):
    """Passes 1 to 5. View ops are invisible to passes 2 and 3, which are not given them."""

    assign_from_buffers: _OverTensors
    expand: _OverTensors
    choose_or_upgrade: _OverTensors
    assign_sources: _OverTensors
    split: Callable[[SchedulerState, CGraph], None]


_SILENT = Passes(assign_from_buffers, expand, choose_or_upgrade, assign_sources, split)


def run_passes(s: SchedulerState, graph: CGraph) -> None:
    """Assign backends (passes 1 to 4) and split (pass 5); where somebody listens, by passes that tell of it."""
    passes = _SILENT
    if s.events:
        from ggmltool.ggml.sched import telling

        passes = Passes(
            telling.assign_from_buffers,
            telling.expand,
            telling.choose_or_upgrade,
            telling.assign_sources,
            telling.split,
        )
    after = s.on_pass
    real = [n for n in graph.nodes if not n.is_view_op]
    passes.assign_from_buffers(s, [*graph.leafs, *graph.nodes])
    if after:
        after(1, s)
    passes.expand(s, real)
    if after:
        after(2, s)
    passes.choose_or_upgrade(s, real)
    if after:
        after(3, s)
    passes.assign_sources(s, graph.nodes)
    if after:
        after(4, s)
    passes.split(s, graph)
    if after:
        after(5, s)


def copy_inputs_last(s: SchedulerState, graph: CGraph) -> None:
    """Pass 6, which ggml makes after the print of GGML_SCHED_DEBUG, where there is one."""
    copy = copy_leafs
    if s.events:
        from ggmltool.ggml.sched import telling

        copy = telling.copy_leafs
    if s.n_copies > 1:
        copy(s, graph)
    if s.on_pass:
        s.on_pass(6, s)
