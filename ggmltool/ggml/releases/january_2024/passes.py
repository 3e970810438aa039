"""Passes 1 to 3 of the scheduler of January 2024: a backend, which is to say an allocator, for every tensor. Pass 4:
where the backend changes the graph is cut, and inputs are copied.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that touched it last, also where the rule had no backend to give). Nobody is asked whether a backend
can run an op. View ops are invisible to pass 2, and the sources of a node end at the first empty slot.
"""

from __future__ import annotations

from collections.abc import Iterator

from ggmltool.ggml.buffer import USAGE_WEIGHTS, Buffer
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024 import MAX_SPLIT_INPUTS, MAX_SPLITS
from ggmltool.ggml.releases.january_2024.state import FREED_ALLOCR, SchedulerState
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Sweep, Why

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
        "ggml-backend.c",
        851,
        'false && "tensor buffer type not supported by any backend"',
        f"{t.label} is in {buffer.buft.name}, which none of {', '.join(s.names)} can use; add the backend it belongs "
        "to, or place the tensor elsewhere",
    )


def assign_from_buffers(s: SchedulerState, graph: CGraph) -> None:
    """Pass 1: tensors that have memory, views of such, and ops with weights; the user's choices stay."""
    for t in unassigned(s, graph):
        s.ids[t.index] = allocr_from_cur(s, t)


def unassigned(s: SchedulerState, graph: CGraph) -> Iterator[Tensor]:
    """The tensors that pass 1 comes to, each as long as it has no backend.

    A node that the user assigned is passed over, and so are its sources that are neither leafs nor nodes before it.
    """
    ids = s.ids
    for t in graph.leafs:
        if ids[t.index] == -1:
            yield t
    for n in graph.nodes:
        if ids[n.index] == -1:
            yield n
            for src in s.sources(n):
                if ids[src.index] == -1:
                    yield src


def allocr_from_cur(s: SchedulerState, t: Tensor) -> int:
    """sched_allocr_from_cur."""
    b = allocr_from_buffer(s, t, t.buffer)
    if b != -1:
        s.causes[t.index] = "1.dst"
        return b
    if t.view_src is not None:
        b = allocr_from_buffer(s, t, t.view_src.buffer)
        if b != -1:
            s.causes[t.index] = "1.vsrc"
            return b
    for i, src in enumerate(s.sources(t)):
        if src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            b = allocr_from_buffer(s, src, src.buffer)
            s.causes[t.index] = f"1.wgt{i}"
            return b
    return -1


def expand(s: SchedulerState, graph: CGraph) -> None:
    """Pass 2: neighbors take the backend of assigned nodes; first those of GPUs, up and down, then all."""
    for number in range(1, len(SWEEPS) + 1):
        expand_once(s, graph, number)


def expand_once(s: SchedulerState, graph: CGraph, number: int) -> None:
    """A sweep of pass 2, by its number. Where the last backend does not expand, it ends what another one does."""
    ids, causes = s.ids, s.causes
    sweep, cause = SWEEPS[number - 1], f"2.{number}"
    skipped = len(s.names) - 1 if sweep.skips_last else -2
    cur = -1
    for n in in_order(graph, sweep):
        b = ids[n.index]
        if b != -1:
            cur = b if b != skipped else -1
        else:
            ids[n.index] = cur
            causes[n.index] = cause


def in_order(graph: CGraph, sweep: Sweep) -> Iterator[Tensor]:
    """The nodes that a sweep looks at."""
    return (n for n in (graph.nodes if sweep.down else reversed(graph.nodes)) if not n.is_view_op)


def assign_sources(s: SchedulerState, graph: CGraph) -> None:
    """Pass 3: views take their root's backend, sources without one their user's; there may be none to take."""
    for n in graph.nodes:
        assign_sources_of(s, n)


def assign_sources_of(s: SchedulerState, n: Tensor) -> None:
    """Pass 3 for a node that is a view, and for the sources of a node."""
    ids, causes = s.ids, s.causes
    for t in (*([n] if n.view_src is not None else []), *s.sources(n)):
        if ids[t.index] == -1:
            by = t.view_src or n
            ids[t.index] = ids[by.index]
            causes[t.index] = "3.cur" if t.view_src is None else "3.vsrc"


def no_backend(t: Tensor, line: int, condition: str, of: str) -> LineAssert:
    """A node, or a source, that is left without a backend when the graph is to be split."""
    return LineAssert(
        "sched_split_graph",
        "ggml-backend.c",
        line,
        condition,
        f"{t.label}{of} has no backend: it has no memory, no neighbor gave it one, and inputs give none; "
        f"{advice('old_no_allocr')}",
    )


_FUNCTION = "sched_split_graph"
_FILE = "ggml-backend.c"


class Cut:
    """A graph that is being cut: `cur_split` is the split that its last node so far is in, the one number `i_split`."""

    def __init__(self, s: SchedulerState) -> None:
        self.s = s
        self.i_split = 0
        self.cur_split = s.splits[0]

    def cut(self, graph: CGraph) -> None:
        """Begin the splits of a graph, and give its nodes the copies in place of their sources.

        Where no node computes anything, the first split keeps the backend it had in the graph before.
        """
        s = self.s
        ids = s.ids
        if s.first_allocr_is_freed:
            self.cur_split.backend_id = FREED_ALLOCR
            s.first_allocr_is_freed = False
        first = next((n for n in graph.nodes if not n.is_view_op), None)
        if first is not None:
            self.cur_split.backend_id = ids[first.index]
            _check_assigned(s, first)
        self.begin(0, first, Why.FIRST_NODE)
        for i, n in enumerate(graph.nodes):
            if n.is_view_op:
                continue
            b = ids[n.index]
            _check_assigned(s, n)
            if b != self.cur_split.backend_id:
                self.cur_split.i_end = i
                self.i_split += 1
                if self.i_split >= MAX_SPLITS:
                    raise LineAssert(
                        _FUNCTION,
                        _FILE,
                        1172,
                        "cur_split < GGML_MAX_SPLITS",
                        f"the graph falls into more than {MAX_SPLITS} splits; {advice('old_split_limits')}",
                    ).of("splits", self.i_split + 1)
                if self.i_split == len(s.splits):
                    s.splits.append(Split())
                self.cur_split = s.splits[self.i_split]
                self.cur_split.backend_id = b
                self.begin(i, n, Why.OTHER_BACKEND)
            for j, t in enumerate(s.sources(n)):
                if ids[t.index] == -1:
                    raise no_backend(t, 1187, "src_allocr != NULL", f", a source of {n.label},")
                if ids[t.index] != b:
                    n.src[j] = self.copy_for_split(t, n)
        self.cur_split.i_end = len(graph.nodes)
        s.n_splits = self.i_split + 1
        if s.splits[0].backend_id == FREED_ALLOCR:
            raise LineAssert(
                "get_allocr_backend",
                _FILE,
                863,
                '!"statement should not be reached"',
                "no node of the graph computes anything, so its split keeps the allocator of the graph that was "
                "measured, which is freed",
            )

    def begin(self, at: int, node: Tensor | None, why: Why) -> None:
        """The split begins at number `at`, for `node`, which has no place in the one before."""
        self.s.n_begun = self.i_split + 1
        self.cur_split.i_start = at
        self.cur_split.inputs = []

    def copy_for_split(self, t: Tensor, n: Tensor) -> Tensor:
        """The copy of `t` for the split's backend, for `n` first; made once in a graph, and filled anew before every
        split that needs it.
        """
        s, inputs, b = self.s, self.cur_split.inputs, self.cur_split.backend_id
        if not any(known is t for known in inputs):
            if len(inputs) >= MAX_SPLIT_INPUTS:
                raise LineAssert(
                    _FUNCTION,
                    _FILE,
                    1201,
                    "n_inputs < GGML_MAX_SPLIT_INPUTS",
                    f"split #{self.i_split} on {s.names[b]} needs {t.label} for {n.label}, after "
                    f"{MAX_SPLIT_INPUTS} other inputs; {advice('old_split_limits')}",
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
        return made[0]


def _check_assigned(s: SchedulerState, n: Tensor) -> None:
    if s.ids[n.index] == -1:
        raise no_backend(n, 1167, "node_allocr != NULL", "")
