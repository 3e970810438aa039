"""Pass 4 of the scheduler of January 2024: where the backend changes the graph is cut, and inputs are copied."""

from __future__ import annotations

from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.events import InputAdded, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024.assign import assign_from_buffers, assign_sources, expand, no_backend
from ggmltool.ggml.releases.january_2024.printed import printed_of
from ggmltool.ggml.releases.january_2024.release import MAX_SPLIT_INPUTS, MAX_SPLITS
from ggmltool.ggml.releases.january_2024.state import FREED_ALLOCR, SchedulerState
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Why

_FUNCTION = "sched_split_graph"
_FILE = "ggml-backend.c"


def run_passes(s: SchedulerState, graph: CGraph) -> None:
    """Assign backends (passes 1 to 3) and split (pass 4)."""
    for number, step in enumerate((assign_from_buffers, expand, assign_sources, split), 1):
        step(s, graph)
        s.check_hash_set()
        if s.debug:
            s.printed.append(printed_of(s, graph, number))
        if s.on_pass:
            s.on_pass(number, s)


def split(s: SchedulerState, graph: CGraph) -> None:
    """Pass 4: cut the graph into runs of one backend, and copy every source whose backend is another one.

    Where no node computes anything, the first split keeps the backend it had in the graph before.
    """
    ids = s.ids
    i_split = 0
    cur_split = s.splits[0]
    if s.first_allocr_is_freed:
        cur_split.backend_id = FREED_ALLOCR
        s.first_allocr_is_freed = False
    first = next((n for n in graph.nodes if not n.is_view_op), None)
    if first is not None:
        cur_split.backend_id = ids[first.index]
    cur_split.i_start = 0
    cur_split.inputs = []
    cur = cur_split.backend_id
    for i, n in enumerate(graph.nodes):
        if n.is_view_op:
            continue
        b = ids[n.index]
        if b == -1:
            raise no_backend(n, 1167, "node_allocr != NULL", "")
        if b != cur:
            cur_split.i_end = i
            i_split += 1
            cur_split = _split_at(s, i_split)
            cur_split.backend_id = cur = b
            cur_split.i_start = i
            cur_split.inputs = []
        if s.events and (n is first or cur_split.i_start == i):
            why = Why.FIRST_NODE if n is first else Why.OTHER_BACKEND
            s.events(SplitStarted(i_split, s.names[cur], cur_split.i_start, n.label, why))
        for j, t in enumerate(n.src):
            if t is None:
                break
            if ids[t.index] == -1:
                raise no_backend(t, 1187, "src_allocr != NULL", f", a source of {n.label},")
            if ids[t.index] != b:
                n.src[j] = _copy_for_split(s, cur_split, i_split, t, n)
    cur_split.i_end = len(graph.nodes)
    s.n_splits = i_split + 1
    if s.splits[0].backend_id == FREED_ALLOCR:
        raise LineAssert(
            "get_allocr_backend",
            _FILE,
            863,
            '!"statement should not be reached"',
            "no node of the graph computes anything, so its split keeps the allocator of the graph that was measured, "
            "which is freed",
        )


def _split_at(s: SchedulerState, i_split: int) -> Split:
    if i_split >= MAX_SPLITS:
        raise LineAssert(
            _FUNCTION,
            _FILE,
            1172,
            "cur_split < GGML_MAX_SPLITS",
            f"the graph falls into more than {MAX_SPLITS} splits; {advice('old_split_limits')}",
        ).of("splits", i_split + 1)
    while len(s.splits) <= i_split:
        s.splits.append(Split())
    return s.splits[i_split]


def _copy_for_split(s: SchedulerState, cur_split: Split, i_split: int, t: Tensor, n: Tensor) -> Tensor:
    """The copy of `t` for the split's backend; made once in a graph, filled anew before every split that needs it."""
    inputs = cur_split.inputs
    is_new = not any(known is t for known in inputs)
    if is_new:
        if len(inputs) >= MAX_SPLIT_INPUTS:
            raise LineAssert(
                _FUNCTION,
                _FILE,
                1201,
                "n_inputs < GGML_MAX_SPLIT_INPUTS",
                f"split #{i_split} on {s.names[cur_split.backend_id]} needs {t.label} for {n.label}, after "
                f"{MAX_SPLIT_INPUTS} other inputs; {advice('old_split_limits')}",
            ).of("split_inputs", len(inputs) + 1)
        inputs.append(t)
    b = cur_split.backend_id
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.names)
    made = of[b]
    if made is None:
        copy = s.arena.dup_layout(t, s.copy_name(b, t))
        made = of[b] = [copy]
        s.grow_state()
        s.ids[copy.index] = b
        s.causes[copy.index] = "4.cpy"
    if is_new and s.events:
        s.events(InputAdded(i_split, s.names[b], t.label, n.label, (made[0].name,)))
    return made[0]
