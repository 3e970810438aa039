"""What a ggml_backend_sched knows: its backends, what every tensor was given, its splits, and its hash set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, advice
from ggmltool.ggml.events import Listener, Logged
from ggmltool.ggml.gallocr import Gallocr
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.sched.arena import Arena, Copies, Split
from ggmltool.ggml.sched.eval_callback import EvalCallback
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import (
    DEFAULT_GRAPH_SIZE,
    SCHED_INITIAL_SPLITS,
    SCHED_MAX_BACKENDS,
    SCHED_MAX_COPIES,
    hash_size,
)

PASSES = (
    "the user's choices",
    "from memory, inputs and weights",
    "neighbours take over",
    "the rest, and upgrades",
    "views and sources",
    "splits and copies",
)
"""What each pass does, by its number; 0 is what was said before."""


class SchedulerState:
    """A ggml_backend_sched over `backends`, highest priority first; the last one must be a CPU device.

    `graph_size` bounds nodes and leafs together, `parallel` makes 4 pipeline copies of every input, `op_offload`
    lets devices ask for ops whose weights lie on the host. `indices` are those of all tensors it will see.

    State lists are indexed by a tensor's index: `ids` its backend (-1 none), `causes` why, `copies` its copies.
    `assigned` and `assigned_causes` keep the two lists of the last split, which `reserve` clears at its end.
    `on_pass` is called after every pass with its number and the scheduler. `release` is the ggml that it decides as,
    `passes` say what its passes do, by their numbers. `debug_lines` is what a debug build has logged since this was
    last cleared; None for a ggml of which that is not kept.
    """

    passes: tuple[str, ...] = PASSES
    gallocr_class = Gallocr
    own_size = 0
    """sched->graph.size: how many nodes, and how many leafs, its own graph has room for by now."""

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        addresses: AddressSpace,
        all_bufts: Iterable[BufferType] = (),
        graph_size: int = DEFAULT_GRAPH_SIZE,
        parallel: bool = False,
        op_offload: bool = True,
        events: Listener | None = None,
        release: Release = DEFAULT,
    ) -> None:
        _check_backends(backends)
        self.release = release
        self.rules = release.rules
        self.backends = backends
        self.names = [b.name for b in backends]
        self.indices = indices
        self.events = events
        self.bufts = [b.device.buft for b in backends]
        bufts = {*self.bufts, *all_bufts}
        self.usable_bufts = [frozenset(t for t in bufts if b.device.supports_buft(t)) for b in backends]
        for b, buft in enumerate(self.bufts):
            if buft not in self.usable_bufts[b]:
                raise GgmlAssert(
                    "ggml_backend_sched_new",
                    "ggml_backend_supports_buft(backends[b], sched->bufts[b])",
                    f"{self.names[b]} cannot use its own default buffer type {buft.name}; {advice('own_buft')}",
                )
        self.graph_size = graph_size
        self.hash_size = hash_size(graph_size)
        self.n_copies = SCHED_MAX_COPIES if parallel else 1
        self.op_offload = op_offload
        self.has_events = [parallel and b.device.events for b in backends]
        self.gallocr = self.gallocr_class(self.bufts, addresses, events)
        self.arena = Arena(graph_size, indices, self.release)
        self.debug_lines: list[str] | None = None
        if self.release.keeps_debug_log:
            self.debug_lines = []
            self.gallocr.debug_log = self.debug_log
        self.splits: list[Split] = [self.new_split() for _ in range(SCHED_INITIAL_SPLITS)]
        self.n_splits = 0
        self.graph_inputs: list[Tensor] = []
        self.graph_inputs_capacity = self.rules.max_split_inputs
        self.cur_copy = 0
        self.next_copy = 0
        self.is_reset = True
        self.is_alloc = False
        self.ids: list[int] = []
        self.causes: list[str | None] = []
        self.copies: list[Copies | None] = []
        self.assigned = self.ids
        self.assigned_causes = self.causes
        self.made_copies = self.copies
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self.node_ids: list[int] = []
        self.leaf_ids: list[int] = []
        self.prev_node_ids: list[int] = []
        self.prev_leaf_ids: list[int] = []
        self.seen_graphs: list[CGraph] = []
        self.extra_keys: set[int] = set()
        self.log_lines: list[str] = []
        self.debug = False
        self.on_pass: Callable[[int, Self], None] | None = None
        self.callback_eval: EvalCallback | None = None

    def log(self, level: str, text: str) -> None:
        """A line that a release build of ggml logs."""
        self.log_lines.append(text)
        if self.events:
            self.events(Logged(level, text))

    def debug_log(self, line: str) -> None:
        """A line that a debug build of ggml logs besides, where those are kept."""
        if self.debug_lines is not None:
            self.debug_lines.append(line)
            if self.events:
                self.events(Logged("debug", line))

    def grow_state(self) -> None:
        """Make the state lists as long as there are tensors."""
        missing = self.indices.top - len(self.ids)
        if missing > 0:
            self.ids.extend([-1] * missing)
            self.causes.extend([None] * missing)
            self.copies.extend([None] * missing)

    def new_split(self) -> Split:
        """A split for whatever place, without room for inputs yet, or with all it will ever have."""
        split = Split()
        if not self.rules.inputs_grow:
            split.inputs_capacity = self.rules.max_split_inputs
        return split

    def touch(self, index: int) -> None:
        """Note a look-up of a tensor that may be neither node nor leaf: it takes a slot of ggml's hash set."""
        if index not in self.extra_keys:
            self.extra_keys.add(index)
            self.check_hash_set()

    def check_hash_set(self) -> None:
        """Abort where the scheduler's hash set would be full (ggml_hash_find_or_insert)."""
        graphs = self.seen_graphs
        if sum(len(g.nodes) + len(g.leafs) for g in graphs) + len(self.extra_keys) <= self.hash_size:
            return
        n = len(self.hash_keys())
        if n > self.hash_size:
            tensors = {t.index for g in graphs for t in (*g.leafs, *g.nodes)}
            several = f" of {len(graphs)} graphs (`reset` between them empties it)" if len(graphs) > 1 else ""
            others = (
                f" and {n - len(tensors)} that are only looked up, as roots of views are" if n > len(tensors) else ""
            )
            raise GgmlAbort(
                "ggml_hash_find_or_insert",
                "fatal error",
                None,
                f"the scheduler's hash set has {self.hash_size} slots and would need {n}, for {len(tensors)} nodes and "
                f"leafs{several}{others}; a graph_size above {self.hash_size} makes it larger",
            ).of("sched_slots", n)

    def hash_keys(self) -> set[int]:
        """The tensors (by index) in ggml's hash set: those of the graphs since the last reset, and others looked up."""
        return self.extra_keys.union(t.index for g in self.seen_graphs for t in (*g.leafs, *g.nodes))

    def copy_of(self, t: Tensor, backend_id: int) -> Tensor:
        """The copy of a tensor on a backend that the current graph uses."""
        return copy_of(self.copies, t, backend_id, self.cur_copy)

    def copy_name(self, backend_id: int, t: Tensor, copy: int) -> str:
        """What a copy is called, before ggml cuts the name."""
        return f"{self.names[backend_id]}#{t.name}#{copy}"


def copy_of(copies: list[Copies | None], t: Tensor, backend_id: int, copy: int) -> Tensor:
    of = copies[t.index]
    made = of[backend_id] if of is not None else None
    if made is None:
        raise GgmlAbort("ggml_backend_sched_split_graph", f"no copy of {t.name} for backend {backend_id}")
    return made[copy]


def _check_backends(backends: list[Backend]) -> None:
    function = "ggml_backend_sched_new"
    if not backends:
        raise GgmlAssert(function, "n_backends > 0", f"there is no backend; {advice('n_backends')}")
    if len(backends) > SCHED_MAX_BACKENDS:
        raise GgmlAssert(
            function,
            "n_backends <= GGML_SCHED_MAX_BACKENDS",
            f"there are {len(backends)} backends; leave out all but {SCHED_MAX_BACKENDS}",
        ).of("backends", len(backends))
    if backends[-1].device.type != "cpu":
        raise GgmlAssert(
            function,
            "ggml_backend_dev_type(ggml_backend_get_device(backends[n_backends - 1])) == GGML_BACKEND_DEVICE_TYPE_CPU",
            f"the last backend is {backends[-1].name}, which is no CPU; {advice('last_is_cpu')}",
        )
