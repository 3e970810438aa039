"""Pass 5 of ggml_backend_sched_split_graph: where the graph is cut and what is copied. It does not see view ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS
from ggmltool.ggml.errors import DebugAssert, GgmlAssert, advice
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.sched.assign import buffer_supported
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, op_desc
from ggmltool.ggml.why import Why

if TYPE_CHECKING:
    from ggmltool.ggml.sched.arena import Split
    from ggmltool.ggml.sched.state import SchedulerState

_FUNCTION = "ggml_backend_sched_split_graph"

_Start = tuple[Why, Tensor | None]
"""Why a split begins, and the source that is the reason."""


class Cut:
    """A graph that is being cut: `cur_split` is the split that its last node so far is in, the one number `i_split`."""

    def __init__(self, s: SchedulerState) -> None:
        self.s = s
        self.i_split = 0
        self.cur_split = s.splits[0]

    def cut(self, graph: CGraph) -> None:
        """Pass 5: cut the graph into runs of one backend, and copy every source that a run cannot read."""
        s = self.s
        ids = s.ids
        first = next((n for n in graph.nodes if not n.is_view_op), None)
        if first is not None:
            self.cur_split.backend_id = ids[first.index]
            _check_assigned(s, first)
        self.begin(0, first, Why.FIRST_NODE)
        cur_split = self.cur_split
        cur = cur_split.backend_id
        copies_inputs = s.n_copies > 1 and not s.rules.copies_leafs_last
        for i, n in enumerate(graph.nodes):
            if n.is_view_op:
                continue
            if ids[n.index] != cur:
                _check_assigned(s, n)
                start: _Start | None = Why.OTHER_BACKEND, None
            elif cur_split.inputs:
                start = _needs_new_split(s, n, cur, cur_split)
            else:
                start = None
            if start is not None:
                cur_split.i_end = i
                self.i_split += 1
                if self.i_split >= len(s.splits):
                    s.splits.extend([s.new_split() for _ in s.splits])
                cur_split = self.cur_split = s.splits[self.i_split]
                cur_split.backend_id = cur = ids[n.index]
                self.begin(i, n, *start)
            src = n.src
            for j, t in enumerate(src):
                if t is None:
                    continue
                t_id = ids[t.index]
                if t_id == -1:
                    raise _no_backend_for_source(s, t, n)
                if copies_inputs and t.flags & FLAG_INPUT:
                    self.copy_graph_input(t, t_id)
                if t_id != cur and not buffer_supported(s, t, cur):
                    src[j] = self.copy_for_split(t, n)
        cur_split.i_end = len(graph.nodes)
        s.n_splits = self.i_split + 1

    def copy_leafs(self, graph: CGraph) -> None:
        """Pass 6: pipeline copies of the inputs among the leafs, of those that no node reads too."""
        for leaf in graph.leafs:
            if leaf.flags & FLAG_INPUT:
                self.copy_graph_input(leaf, self.s.ids[leaf.index])

    def begin(self, at: int, node: Tensor | None, why: Why, source: Tensor | None = None) -> None:
        """The split begins at number `at`, for `node`, which has no place in the one before."""
        self.s.n_begun = self.i_split + 1
        self.cur_split.i_start = at
        self.cur_split.inputs = []

    def copy_graph_input(self, t: Tensor, b: int) -> None:
        """Pipeline copies of an input on its own backend: the tensor itself is the current one."""
        s = self.s
        of = s.copies[t.index]
        if of is None:
            of = s.copies[t.index] = [None] * len(s.backends)
        if of[b] is not None and not s.rules.copies_leafs_last:
            return
        if of[b] is None:
            made = of[b] = []
            for c in range(s.n_copies):
                copy = t if c == s.cur_copy else s.arena.dup_layout(t, *s.around_name(b, c))
                copy.flags |= FLAG_INPUT
                made.append(copy)
                output: Tensor | None = copy
                while output is not None:
                    output.flags |= FLAG_OUTPUT
                    output = output.view_src if s.rules.output_marks_root else None
            s.grow_state()
            for copy in made:
                s.causes[copy.index] = "6.cpy" if s.rules.copies_leafs_last else "4.cpy"
        room = s.graph_inputs_capacity
        if len(s.graph_inputs) >= room:
            full = (
                f"the graph has more than {room} inputs, and the scheduler has room for the pipeline copies of {room}; "
                "plan it without parallel, or put inputs together into one tensor"
            )
            s.graph_inputs_capacity = _grow(s, "graph inputs", room, full)
        s.graph_inputs.append(t)

    def copy_for_split(self, t: Tensor, n: Tensor) -> Tensor:
        """The copy of `t` for the split's backend, made once in a graph: in the first split that needs it, for `n`."""
        s = self.s
        b = self.cur_split.backend_id
        of = s.copies[t.index]
        if of is None:
            of = s.copies[t.index] = [None] * len(s.backends)
        made = of[b]
        if made is None:
            made = of[b] = []
            for c in range(s.n_copies):
                copy = s.arena.dup_layout(t, *s.around_name(b, c))
                if s.n_copies > 1:
                    copy.flags |= FLAG_INPUT | FLAG_OUTPUT
                made.append(copy)
            s.grow_state()
            for copy in made:
                s.causes[copy.index] = "4.cpy"
            room = self.cur_split.inputs_capacity
            if len(self.cur_split.inputs) >= room:
                full = (
                    f"a split has room for {room} inputs; the next node begins another one only when all are taken, "
                    "and this node alone needs more than are left"
                )
                self.cur_split.inputs_capacity = _grow(s, "split inputs", room, full)
            self.cur_split.inputs.append(t)
        return made[s.cur_copy]


def _check_assigned(s: SchedulerState, n: Tensor) -> None:
    """A node has no backend only where pass 4 takes none for what is left over. Raises DebugAssert."""
    if s.ids[n.index] == -1:
        raise DebugAssert(
            _FUNCTION,
            "node_backend_id != -1",
            f"no backend supports {n.label} ({op_desc(n)}); {advice('no_backend_for_node')}",
        )


def _no_backend_for_source(s: SchedulerState, t: Tensor, n: Tensor) -> GgmlAssert:
    refusal = GgmlAssert if s.rules.always_checks_sources else DebugAssert
    remedy = advice("no_backend_for_source")
    if t.view_src is not None:
        remedy = (
            f"it is a view of {t.view_src.label}, which has no memory: give its context a buft, or put the view into "
            "the same context"
        )
    explanation = f"{t.label}, a source of {n.label}, has no backend; {remedy}"
    return refusal(_FUNCTION, "src_backend_id != -1", explanation)


def _needs_new_split(s: SchedulerState, n: Tensor, cur: int, cur_split: Split) -> _Start | None:
    """Why a node of the same backend begins a new split: a weight that must be copied, or too many inputs."""
    ids = s.ids
    full = s.rules.full_split_ends and len(cur_split.inputs) >= cur_split.inputs_capacity
    for t in n.src:
        if t is None:
            continue
        if (
            t.buffer is not None
            and t.buffer.usage == USAGE_WEIGHTS
            and ids[t.index] != cur
            and not buffer_supported(s, t, cur)
        ):
            return Why.WEIGHT_COPIED, t
        if full and ids[t.index] != cur:
            made = s.copies[t.index]
            if (made is None or made[cur] is None) and not buffer_supported(s, t, cur):
                return Why.NO_ROOM, t
    return None


def _grow(s: SchedulerState, what: str, old: int, full: str) -> int:
    """ggml_backend_sched_graph_inputs_grow and _split_inputs_grow: room for twice as many, and a line in the log, which
    is a warning where more inputs than there was room for end a split. Raises GgmlAssert where rooms do not grow.
    """
    if not s.rules.inputs_grow:
        if what == "graph inputs":
            condition = "n_graph_inputs < GGML_SCHED_MAX_SPLIT_INPUTS"
            raise GgmlAssert(_FUNCTION, condition, full).of("graph_inputs", old + 1)
        raise GgmlAssert(_FUNCTION, "n_inputs < GGML_SCHED_MAX_SPLIT_INPUTS", full).of("split_inputs", old + 1)
    if old:
        function = f"ggml_backend_sched_{what.replace(' ', '_')}_grow"
        level = "warn" if s.rules.full_split_ends else "debug"
        s.log(level, f"{function}: increasing {what} capacity from {old} to {2 * old}")
    return 2 * old or s.rules.max_split_inputs
