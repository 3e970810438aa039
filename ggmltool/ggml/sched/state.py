"""What the passes read and write: the state of a scheduler that reserves, and its hash set."""

from __future__ import annotations

from collections.abc import Iterable

from ggmltool.ggml.alloc.gallocr import Gallocr
from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, advice
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.releases.table import DEFAULT
from ggmltool.ggml.sched.arena import Arena, Split
from ggmltool.ggml.sched.callbacks import CopyCallback, EvalCallback
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.sched.unchecked import FreedMemory
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
    "expand to neighbors",
    "the rest, and upgrades",
    "views and sources",
    "splits and copies",
)
"""What each pass does, by its number; 0 is what was said before."""

COPIES_LAST = "pipeline copies of inputs"
"""What pass 6 does, where there is one."""


class SchedulerState(AnyScheduler):
    """A ggml_backend_sched that reserves. The last backend must be a CPU device.

    `graph_size` bounds nodes and leafs together, `parallel` makes 4 pipeline copies of every input, `op_offload` lets
    devices ask for ops whose weights lie on the host. `freed` hears of what is computed, once memory was freed.
    """

    id_of_tensor = "tensor_backend_id(tensor)"
    gallocr_class = Gallocr
    gallocr: Gallocr
    arena: Arena

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
        n_copies = SCHED_MAX_COPIES if parallel else 1
        super().__init__(backends, indices, all_bufts, graph_size, hash_size(graph_size), n_copies, events, release)
        for b, buft in enumerate(self.bufts):
            if buft not in self.usable_bufts[b]:
                raise GgmlAssert(
                    "ggml_backend_sched_new",
                    "ggml_backend_supports_buft(backends[b], sched->bufts[b])",
                    f"{self.names[b]} cannot use its own default buffer type {buft.name}; {advice('own_buft')}",
                )
        self.rules = release.rules
        self.passes = (*PASSES, COPIES_LAST) if self.rules.copies_leafs_last else PASSES
        self.op_offload = op_offload
        self.has_events = [parallel and b.device.events for b in backends]
        self.gallocr = self._new_gallocr(addresses)
        if release.keeps_debug_log:
            self.gallocr.debug_log = self.debug_log
        self.arena = Arena(graph_size, indices, release)
        self.splits = [self.new_split() for _ in range(SCHED_INITIAL_SPLITS)]
        self.graph_inputs_capacity = self.rules.max_split_inputs
        self.next_copy = 0
        self.is_alloc = False
        self.prev_node_ids: list[int] = []
        self.prev_leaf_ids: list[int] = []
        self.callback_eval: EvalCallback | None = None
        self.callback_copy: CopyCallback | None = None
        self.freed: FreedMemory | None = None

    def _new_gallocr(self, addresses: AddressSpace) -> Gallocr:
        """An allocator, which tells what it does where somebody listens."""
        rules = self.rules
        if self.events is None:
            return self.gallocr_class(self.bufts, addresses, rules.max_chunks, rules.inplace_ops)
        from ggmltool.ggml.telling import telling

        gallocr = telling(self.gallocr_class)(self.bufts, addresses, rules.max_chunks, rules.inplace_ops)
        gallocr.tell = self.events
        return gallocr

    def clear_state(self) -> None:
        """Forget assignments, copies, the graphs that gave them, and what else was looked up."""
        super().clear_state()
        self.extra_keys: set[int] = set()
        self._keys: set[int] | None = None
        self._n_seen = 0

    def new_split(self) -> Split:
        """A split for whatever place, without room for inputs yet, or with all it will ever have."""
        split = Split()
        if not self.rules.inputs_grow:
            split.inputs_capacity = self.rules.max_split_inputs
        return split

    def touch(self, index: int) -> None:
        """Note a look-up of a tensor that may be neither node nor leaf: it takes a slot of ggml's hash set."""
        if index in self.extra_keys:
            return
        self.extra_keys.add(index)
        if self._keys is not None:
            self._keys.add(index)
        self.check_hash_set()

    def see(self, graph: CGraph) -> None:
        """Note that a graph is to be split: its tensors take slots of ggml's hash set."""
        self.seen_graphs.append(graph)
        self._n_seen += len(graph.nodes) + len(graph.leafs)
        self._keys = None

    def check_hash_set(self) -> None:
        """Abort where the scheduler's hash set would be full (ggml_hash_find_or_insert)."""
        if self._keys is None:
            # As long as there is room for that, tensors of several graphs and look-ups of them are counted twice.
            if self._n_seen + len(self.extra_keys) <= self.hash_size:
                return
            self._keys = self.hash_keys()
        n = len(self._keys)
        if n > self.hash_size:
            graphs = self.seen_graphs
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

    def around_name(self, backend_id: int, copy: int) -> tuple[str, str]:
        """What stands before and behind a tensor's name in that of its copy."""
        return f"{self.names[backend_id]}#", f"#{copy}"


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
