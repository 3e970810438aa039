"""The five passes of ggml_backend_sched_split_graph in order, and the last of them: where the graph is cut.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that set it). View ops are invisible to passes 2, 3 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.debug_assert import DebugAssert
from ggmltool.ggml.errors import GgmlAssert, advice
from ggmltool.ggml.events import GraphInputCopied, InputAdded, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.sched.assign import (
    assign_from_buffers,
    assign_sources,
    buffer_supported,
    choose_or_upgrade,
    expand,
)
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, op_desc
from ggmltool.ggml.why import NO_FACTS, Facts, Why

if TYPE_CHECKING:
    from ggmltool.ggml.sched.arena import Split
    from ggmltool.ggml.sched.state import SchedulerState

_FUNCTION = "ggml_backend_sched_split_graph"

_Start = tuple[Why, Facts]
"""Why a split begins."""


def run_passes(s: SchedulerState, graph: CGraph) -> None:
    """Assign backends (passes 1 to 4) and split (pass 5)."""
    real = [n for n in graph.nodes if not n.is_view_op]
    after = s.on_pass
    assign_from_buffers(s, graph)
    if after:
        after(1, s)
    expand(s, real)
    if after:
        after(2, s)
    choose_or_upgrade(s, real)
    if after:
        after(3, s)
    assign_sources(s, graph)
    if after:
        after(4, s)
    split(s, graph)
    if after:
        after(5, s)


def split(s: SchedulerState, graph: CGraph) -> None:
    """Pass 5: cut the graph into runs of one backend, and copy every source a run cannot read."""
    ids = s.ids
    s.graph_inputs = []
    i_split = 0
    cur_split = s.splits[0]
    for n in graph.nodes:
        if not n.is_view_op:
            cur_split.backend_id = ids[n.index]
            _check_assigned(s, n)
            break
    cur_split.i_start = 0
    cur_split.inputs = []
    cur = cur_split.backend_id
    started = False
    n_copies = s.n_copies
    for i, n in enumerate(graph.nodes):
        if n.is_view_op:
            continue
        b = ids[n.index]
        if b != cur:
            _check_assigned(s, n)
            start: _Start | None = Why.OTHER_BACKEND, NO_FACTS
        elif cur_split.inputs:
            start = _needs_new_split(s, n, cur, cur_split)
        else:
            start = None
        if start:
            cur_split.i_end = i
            i_split += 1
            cur_split = _split_at(s, i_split)
            cur_split.backend_id = cur = b
            cur_split.i_start = i
            cur_split.inputs = []
        if s.events and (start or not started):
            why, facts = start or (Why.FIRST_NODE, NO_FACTS)
            s.events(SplitStarted(i_split, s.names[cur], cur_split.i_start, n.id, why, facts))
            started = True
        src = n.src
        for j, t in enumerate(src):
            if t is None:
                continue
            t_id = ids[t.index]
            if t_id == -1:
                raise _no_backend_for_source(s, t, n)
            if n_copies > 1 and t.flags & FLAG_INPUT:
                _copy_graph_input(s, t, t_id)
            if t_id != cur and not buffer_supported(s, t, cur):
                src[j] = _copy_for_split(s, cur_split, i_split, t, n)
    cur_split.i_end = len(graph.nodes)
    s.n_splits = i_split + 1


def _split_at(s: SchedulerState, i_split: int) -> Split:
    if i_split >= len(s.splits):
        s.splits.extend([s.new_split() for _ in s.splits])
    return s.splits[i_split]


def _check_assigned(s: SchedulerState, n: Tensor) -> None:
    """A node has no backend only where pass 4 takes none for what is left over. Raises DebugAssert."""
    if s.ids[n.index] == -1:
        raise DebugAssert(
            _FUNCTION,
            "node_backend_id != -1",
            f"no backend can run {n.label} ({op_desc(n)}); {advice('no_backend_for_node')}",
        )


def _no_backend_for_source(s: SchedulerState, t: Tensor, n: Tensor) -> GgmlAssert:
    refusal = GgmlAssert if s.rules.always_checks_sources else DebugAssert
    explanation = f"{t.label}, a source of {n.label}, has no backend; {_how_to_get_a_backend(t)}"
    return refusal(_FUNCTION, "src_backend_id != -1", explanation)


def _how_to_get_a_backend(t: Tensor) -> str:
    root = t.view_src
    if root is not None:
        return f"it is a view of {root.label}, which has no memory: give its context a buft, or put the view beside it"
    return advice("no_backend_for_source")


def _needs_new_split(s: SchedulerState, n: Tensor, cur: int, cur_split: Split) -> _Start | None:
    """Why a node of the same backend begins a new split: a weight that must be copied, or too many inputs."""
    ids = s.ids
    full = len(cur_split.inputs) >= cur_split.inputs_capacity
    for t in n.src:
        if t is None:
            continue
        if (
            t.buffer is not None
            and t.buffer.usage == USAGE_WEIGHTS
            and ids[t.index] != cur
            and not buffer_supported(s, t, cur)
        ):
            return Why.WEIGHT_COPIED, Facts(tensor=t.id, buft=t.buffer.buft.name)
        if full and ids[t.index] != cur:
            made = s.copies[t.index]
            if (made is None or made[cur] is None) and not buffer_supported(s, t, cur):
                return Why.NO_ROOM, Facts(tensor=t.id, n_inputs=len(cur_split.inputs))
    return None


def _copy_graph_input(s: SchedulerState, t: Tensor, b: int) -> None:
    """Pipeline copies of an input on its own backend: the tensor itself is the current one."""
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.backends)
    if of[b] is not None:
        return
    made: list[Tensor] = []
    for c in range(s.n_copies):
        copy = t if c == s.cur_copy else s.arena.dup_layout(t, f"{s.names[b]}#{t.name}#{c}")
        copy.flags |= FLAG_INPUT
        _set_output(s, copy)
        made.append(copy)
    s.grow_state()
    for copy in made:
        s.causes[copy.index] = "4.cpy"
    of[b] = made
    if len(s.graph_inputs) >= s.graph_inputs_capacity:
        _grow_graph_inputs(s)
    s.graph_inputs.append(t)
    if s.events:
        s.events(GraphInputCopied(t.id, s.names[b], tuple(c.name for c in made)))


def _set_output(s: SchedulerState, t: Tensor) -> None:
    """ggml_set_output."""
    t.flags |= FLAG_OUTPUT
    root = t.view_src
    while root is not None and s.rules.output_marks_root:
        root.flags |= FLAG_OUTPUT
        root = root.view_src


def _grow_graph_inputs(s: SchedulerState) -> None:
    """ggml_backend_sched_graph_inputs_grow: room for twice as many, with a warning."""
    old = s.graph_inputs_capacity
    if not s.rules.inputs_grow:
        raise GgmlAssert(
            _FUNCTION,
            "n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            f"the graph has more than {old} inputs, and the scheduler has room for the pipeline copies of {old}; plan "
            "it without parallel, or put inputs together into one tensor",
        ).of("graph_inputs", old + 1)
    function = "ggml_backend_sched_graph_inputs_grow"
    s.log("warn", f"{function}: increasing graph inputs capacity from {old} to {2 * old}")
    s.graph_inputs_capacity = 2 * old


def _grow_split_inputs(s: SchedulerState, cur_split: Split) -> None:
    """ggml_backend_sched_split_inputs_grow: 30 at first, then twice as many, with a warning."""
    old = cur_split.inputs_capacity
    if not s.rules.inputs_grow:
        raise GgmlAssert(
            _FUNCTION,
            "n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS",
            f"a split has room for {old} inputs; only when all are taken does the next node begin another one, and "
            "this node needs more than were left",
        ).of("split_inputs", old + 1)
    new = 2 * old if old else s.rules.max_split_inputs
    if old:
        function = "ggml_backend_sched_split_inputs_grow"
        s.log("warn", f"{function}: increasing split inputs capacity from {old} to {new}")
    cur_split.inputs_capacity = new


def _copy_for_split(s: SchedulerState, cur_split: Split, i_split: int, t: Tensor, n: Tensor) -> Tensor:
    """The copy of `t` for the split's backend, made once in a graph: in the first split that needs it."""
    b = cur_split.backend_id
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.backends)
    made = of[b]
    if made is None:
        made = of[b] = []
        for c in range(s.n_copies):
            copy = s.arena.dup_layout(t, f"{s.names[b]}#{t.name}#{c}")
            if s.n_copies > 1:
                copy.flags |= FLAG_INPUT | FLAG_OUTPUT
            made.append(copy)
        s.grow_state()
        for copy in made:
            s.causes[copy.index] = "4.cpy"
        if len(cur_split.inputs) >= cur_split.inputs_capacity:
            _grow_split_inputs(s, cur_split)
        cur_split.inputs.append(t)
        if s.events:
            s.events(InputAdded(i_split, s.names[b], t.id, n.id, tuple(c.name for c in made)))
    return made[s.cur_copy]
