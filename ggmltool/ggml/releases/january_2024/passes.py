"""Passes 1 to 3 of the scheduler of January 2024: a backend, which is to say an allocator, for every tensor. Pass 4:
where the backend changes the graph is cut, and inputs are copied.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that touched it last, also where the rule had no backend to give). Nobody is asked whether a backend
can run an op. View ops are invisible to pass 2, and the sources of a node end at the first empty slot.
"""

from __future__ import annotations

from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.events import Assigned, Event, InputAdded, PassedOver, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024 import MAX_SPLIT_INPUTS, MAX_SPLITS
from ggmltool.ggml.releases.january_2024.state import FREED_ALLOCR, SchedulerState
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import NO_FACTS, Facts, Sweep, Why

_FUNCTION = "sched_split_graph"
_FILE = "ggml-backend.c"

SWEEPS = tuple(Sweep(down, skips_last) for skips_last in (True, False) for down in (False, True))
"""The sweeps of pass 2."""


def allocr_from_buffer(s: SchedulerState, t: Tensor, buffer: Buffer | None) -> int:
    """sched_allocr_from_buffer: the allocator whose own buffer it is, else the first backend that can use it.

    -1 without a buffer. Raises LineAssert if no backend can use the memory of `t`.
    """
    if buffer is None:
        return -1
    for b, tallocr in enumerate(s.tallocs):
        if tallocr.buffer is buffer:
            return b
    for b, usable in enumerate(s.usable_bufts):
        if buffer.buft in usable:
            return b
    raise LineAssert(
        "sched_allocr_from_buffer",
        _FILE,
        851,
        'false && "tensor buffer type not supported by any backend"',
        f"{t.label} is in {buffer.buft.name}, which none of {', '.join(s.names)} can use; add the backend it belongs "
        "to, or place the tensor elsewhere",
    )


def _tell(s: SchedulerState, event: Event) -> None:
    if s.events:
        s.events(event)


def _give(
    s: SchedulerState, t: Tensor, b: int, rule: int, cause: str, why: Why, by: Tensor, facts: Facts = NO_FACTS
) -> None:
    """A tensor gets a backend."""
    s.ids[t.index] = b
    s.causes[t.index] = cause
    _tell(s, Assigned(t.label, s.names[b], rule, cause, why, by.label, facts))


def assign_from_buffers(s: SchedulerState, graph: CGraph) -> None:
    """Pass 1: tensors that have memory, views of such, and ops with weights; the user's choices stay.

    A node that the user assigned is passed over, and so are its sources that are neither leafs nor nodes before it.
    """
    ids = s.ids
    for t in graph.leafs:
        if ids[t.index] == -1:
            _allocr_from_cur(s, t)
    for n in graph.nodes:
        if ids[n.index] == -1:
            _allocr_from_cur(s, n)
            for src in s.sources(n):
                if ids[src.index] == -1:
                    _allocr_from_cur(s, src)


def _allocr_from_cur(s: SchedulerState, t: Tensor) -> None:
    """sched_allocr_from_cur."""
    if _goes_to_memory_of(s, t, t, "1.dst", Why.MEMORY):
        return
    _tell(s, PassedOver(t.label, 1, "1.dst", Why.NO_MEMORY))
    root = t.view_src
    if root is not None:
        if _goes_to_memory_of(s, t, root, "1.vsrc", Why.MEMORY):
            return
        _tell(s, PassedOver(t.label, 1, "1.vsrc", Why.NO_MEMORY, facts=Facts(tensor=root.label)))
    for i, src in enumerate(s.sources(t)):
        if src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            _goes_to_memory_of(s, t, src, f"1.wgt{i}", Why.WEIGHT)
            return
    if t.op:
        _tell(s, PassedOver(t.label, 1, "1.wgt", Why.NO_WEIGHT))


def _goes_to_memory_of(s: SchedulerState, t: Tensor, by: Tensor, cause: str, why: Why) -> bool:
    """Give a tensor the allocator of the memory that another one has; False if that has none."""
    b = allocr_from_buffer(s, by if why is Why.WEIGHT else t, by.buffer)
    if b == -1 or by.buffer is None:
        return False
    own = s.tallocs[b].buffer is by.buffer
    _give(s, t, b, 1, cause, why, by, Facts(buft=None if own else by.buffer.buft.name))
    return True


def expand(s: SchedulerState, graph: CGraph) -> None:
    """Pass 2: neighbors take the backend of assigned nodes; first those of GPUs, up and down, then all."""
    for number in range(1, len(SWEEPS) + 1):
        _expand_once(s, graph, number)


def _expand_once(s: SchedulerState, graph: CGraph, number: int) -> None:
    """A sweep of pass 2, by its number. Where the last backend does not expand, it ends what another one does."""
    sweep, cause = SWEEPS[number - 1], f"2.{number}"
    skipped = len(s.names) - 1 if sweep.skips_last else -2
    facts = Facts(sweep=sweep)
    origin: Tensor | None = None
    for n in graph.nodes if sweep.down else reversed(graph.nodes):
        if n.is_view_op:
            continue
        if s.ids[n.index] != -1:
            origin = n
            continue
        s.causes[n.index] = cause
        if origin is None:
            _tell(s, PassedOver(n.label, 2, cause, Why.NO_NEIGHBOR, facts=facts))
        elif s.ids[origin.index] != skipped:
            _give(s, n, s.ids[origin.index], 2, cause, Why.NEIGHBOR, origin, facts)
        else:
            of_last = Facts(tensor=origin.label, backend=s.names[skipped], sweep=sweep)
            _tell(s, PassedOver(n.label, 2, cause, Why.SPREADS_LAST, facts=of_last))


def assign_sources(s: SchedulerState, graph: CGraph) -> None:
    """Pass 3: views take their root's backend, sources without one their user's; there may be none to take."""
    for n in graph.nodes:
        for t in (*([n] if n.view_src is not None else []), *s.sources(n)):
            if s.ids[t.index] != -1:
                continue
            by, cause, why = (n, "3.cur", Why.READER) if t.view_src is None else (t.view_src, "3.vsrc", Why.VIEW)
            b = s.ids[by.index]
            if b != -1:
                _give(s, t, b, 3, cause, why, by)
            else:
                s.causes[t.index] = cause
                _tell(s, PassedOver(t.label, 3, cause, Why.NO_BACKEND, facts=Facts(tensor=by.label)))


def _no_backend(t: Tensor, line: int, condition: str, of: str = "") -> LineAssert:
    """A node, or a source, that is left without a backend when the graph is to be split."""
    return LineAssert(
        _FUNCTION,
        _FILE,
        line,
        condition,
        f"{t.label}{of} has no backend: it has no memory, no neighbor gave it one, and inputs give none; "
        f"{advice('old_no_allocr')}",
    )


def cut(s: SchedulerState, graph: CGraph) -> None:
    """Pass 4: begin the splits of a graph, and give its nodes the copies in place of their sources.

    Where no node computes anything, the first split keeps the backend it had in the graph before.
    """
    ids, split = s.ids, s.splits[0]
    if s.first_allocr_is_freed:
        split.backend_id = FREED_ALLOCR
        s.first_allocr_is_freed = False
    real = [(i, n) for i, n in enumerate(graph.nodes) if not n.is_view_op]
    if not real:
        _begin(s, split, 0)
    for i, n in real:
        b = ids[n.index]
        if b == -1:
            raise _no_backend(n, 1167, "node_allocr != NULL")
        if not s.n_begun:
            split.backend_id = b
            _begin(s, split, 0, n, Why.FIRST_NODE)
        elif b != split.backend_id:
            split.i_end = i
            if s.n_begun >= MAX_SPLITS:
                raise LineAssert(
                    _FUNCTION,
                    _FILE,
                    1172,
                    "cur_split < GGML_MAX_SPLITS",
                    f"the graph falls into more than {MAX_SPLITS} splits; {advice('old_split_limits')}",
                ).of("splits", s.n_begun + 1)
            if s.n_begun == len(s.splits):
                s.splits.append(Split())
            split = s.splits[s.n_begun]
            split.backend_id = b
            _begin(s, split, i, n, Why.OTHER_BACKEND)
        for j, t in enumerate(s.sources(n)):
            if ids[t.index] == -1:
                raise _no_backend(t, 1187, "src_allocr != NULL", f", a source of {n.label},")
            if ids[t.index] != b:
                n.src[j] = _copy_for_split(s, split, t, n)
    split.i_end = len(graph.nodes)
    s.n_splits = s.n_begun
    if s.splits[0].backend_id == FREED_ALLOCR:
        raise LineAssert(
            "get_allocr_backend",
            _FILE,
            863,
            '!"statement should not be reached"',
            "no node of the graph computes anything, so its split keeps the allocator of the graph that was "
            "measured, which is freed",
        )


def _begin(s: SchedulerState, split: Split, at: int, node: Tensor | None = None, why: Why = Why.FIRST_NODE) -> None:
    """The next split begins at number `at`, for `node`, which has no place in the one before."""
    split.i_start = at
    split.inputs = []
    s.n_begun += 1
    if node is not None:
        _tell(s, SplitStarted(s.n_begun - 1, s.names[split.backend_id], at, node.label, why))


def _copy_for_split(s: SchedulerState, split: Split, t: Tensor, n: Tensor) -> Tensor:
    """The copy of `t` for the split's backend, for `n` first; made once in a graph, and filled anew before every split
    that needs it.
    """
    inputs, b = split.inputs, split.backend_id
    is_new = not any(known is t for known in inputs)
    if is_new:
        if len(inputs) >= MAX_SPLIT_INPUTS:
            raise LineAssert(
                _FUNCTION,
                _FILE,
                1201,
                "n_inputs < GGML_MAX_SPLIT_INPUTS",
                f"split #{s.n_begun - 1} on {s.names[b]} needs {t.label} for {n.label}, after {MAX_SPLIT_INPUTS} other "
                f"inputs; {advice('old_split_limits')}",
            ).of("split_inputs", len(inputs) + 1)
        inputs.append(t)
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.names)
    made = of[b]
    if made is None:
        copy = s.arena.dup_layout(t, *s.around_name(b))
        made = of[b] = [copy]
        s.grow_state()
        s.ids[copy.index] = b
        s.causes[copy.index] = "4.cpy"
    if is_new:
        _tell(s, InputAdded(s.n_begun - 1, s.names[b], t.label, n.label, (made[0].name,)))
    return made[0]
