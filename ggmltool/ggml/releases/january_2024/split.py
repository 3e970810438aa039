"""Pass 4 of the scheduler of January 2024: where the backend changes the graph is cut, and inputs are copied."""

from __future__ import annotations

from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.january_2024.assign import no_backend
from ggmltool.ggml.releases.january_2024.release import MAX_SPLIT_INPUTS, MAX_SPLITS
from ggmltool.ggml.releases.january_2024.state import FREED_ALLOCR, SchedulerState
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import Why

_FUNCTION = "sched_split_graph"
_FILE = "ggml-backend.c"


def split(s: SchedulerState, graph: CGraph) -> None:
    """Pass 4: cut the graph into runs of one backend, and copy every source whose backend is another one."""
    Cut(s).cut(graph)


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
                self.cur_split = _split_at(s, self.i_split)
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
