"""What the passes of January 2024 read and write: the state of a scheduler with an allocator for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from ggmltool.ggml.buffer import AddressSpace, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import DebugAssert, LineAssert, advice
from ggmltool.ggml.events import Listener
from ggmltool.ggml.releases.january_2024 import MAX_SPLIT_INPUTS, MAX_SPLITS, RELEASE
from ggmltool.ggml.releases.january_2024.gallocr import Gallocr
from ggmltool.ggml.releases.january_2024.tallocr import Tallocr, buft_alloc_buffer
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.sched.arena import AnyArena, Split
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, hash_size

CAPACITY = MAX_SPLITS * MAX_SPLIT_INPUTS * RELEASE.tensor_size + RELEASE.cgraph_size
"""sizeof(sched->context_buffer): as many tensors as there can be copies, without their headers, and a bare cgraph."""


class Arena(AnyArena):
    """The scheduler's context, made anew at every split in the same memory; tensors of an earlier split come again."""

    __slots__ = ("_graph",)

    def __init__(self, indices: IndexSpace) -> None:
        super().__init__(CAPACITY, indices, RELEASE)
        self._graph = 0

    @property
    def used(self) -> int:
        return self._next * self.overhead + self._graph

    def clear(self) -> None:
        self._next = 0
        self._graph = 0

    def described(self) -> str:
        return f"{len(self.made())} copies and a graph"

    def new_graph(self, size: int) -> None:
        """ggml_new_graph_custom: the scheduler's own graph of at most `size` nodes."""
        overhead = RELEASE.graph_overhead(size)
        if self.used + overhead > self.size:
            raise self._refusal(overhead, f"the scheduler's own graph of {size} nodes")
        self._graph = overhead

    def check_room(self, src: Tensor) -> None:
        """Raises DebugAssert if a copy of `src` would not fit."""
        if self.used + self.overhead > self.size:
            raise self._refusal(self.overhead, f"a copy of {src.label}")

    def _refusal(self, overhead: int, what: str) -> DebugAssert:
        """A debug build stops at assert(false), a release build writes to the address NULL."""
        return DebugAssert(
            "ggml_new_object",
            "false",
            "not enough space in the context's memory pool (needed "
            f"{self.used + overhead - RELEASE.object_size}, available {self.size}): {what} does not fit into the "
            "scheduler's context, whose size is fixed; fewer copies between backends, or a smaller graph, do",
        ).of("sched_context", self.used + overhead)


NO_ALLOCR = -1
FREED_ALLOCR = -2
"""Instead of a backend: the first split of a graph in which no node computes anything. It keeps the allocator of the
graph before; when that was measured, the allocator is gone.
"""

PASSES = (
    "the user's choices",
    "from memory and weights",
    "expand to neighbors",
    "views and sources",
    "splits and copies",
)
"""What each pass does, by its number; 0 is what was said before."""

_FILE = "ggml-backend.c"


class SchedulerState(AnyScheduler):
    """A ggml_backend_sched that looks at no op: the last backend need not be a CPU, and none is asked whether it can
    run one.

    `misalign` is how far past a page malloc's addresses are. `tallocs` are the allocators, by backend. A tensor's entry
    in `copies` has one copy per backend; `placed` are the tensors that were given to an allocator since the last reset.
    `sanity` is what a debug build prints about the last split.
    """

    passes = PASSES
    id_of_tensor = "sched_allocr_prio(sched, node_allocr(tensor))"
    no_cause = ""
    gallocr: Gallocr
    arena: Arena
    debug_lines: list[str]

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        addresses: AddressSpace,
        all_bufts: Iterable[BufferType] = (),
        graph_size: int = DEFAULT_GRAPH_SIZE,
        misalign: int = 0,
        events: Listener | None = None,
        release: Release = RELEASE,
    ) -> None:
        _check_backends(backends)
        slots = hash_size(graph_size + MAX_SPLITS * MAX_SPLIT_INPUTS)
        super().__init__(backends, indices, all_bufts, graph_size, slots, 1, events, release)
        self.addresses = addresses
        self.misalign = misalign
        self.memory_names = memory_names(backends)
        self.gallocr = Gallocr(self.bufts, self.memory_names, events)
        self.arena = Arena(indices)
        self.splits = [Split()]
        self.splits[0].backend_id = NO_ALLOCR
        self.first_allocr_is_freed = False
        self.sanity: list[str] = []
        # A buffer of 1 byte stands for the one that will be made (ggml_tallocr_new_measure_from_buft).
        self.tallocs: list[Tallocr] = [
            Tallocr(buft_alloc_buffer(buft, 1, addresses, misalign=misalign), True, name)
            for buft, name in zip(self.bufts, self.memory_names, strict=True)
        ]

    def clear_state(self) -> None:
        """Forget assignments, copies, the graphs that gave them, and what was given to allocators."""
        super().clear_state()
        self.placed: list[tuple[Tallocr, Tensor]] = []

    def sources(self, n: Tensor) -> Iterator[Tensor]:
        """The sources of a node before the first empty slot."""
        return (t for t in takewhile(lambda t: t is not None, n.src) if t is not None)

    def around_name(self, backend_id: int, copy: int = 0) -> tuple[str, str]:
        """What stands before and behind a tensor's name in that of its copy."""
        return f"{self.names[backend_id]}#", ""

    def check_hash_set(self) -> None:
        """Refuse where the scheduler's hash set would be full (ggml_hash_find_or_insert)."""
        n_known = sum(len(g.nodes) + len(g.leafs) for g in self.seen_graphs) + len(self.arena.made())
        n_views = sum(t.view_src is not None for g in self.seen_graphs for t in (*g.nodes, *g.leafs))
        if n_known + n_views <= self.hash_size:
            return
        keys = self.hash_keys()
        if len(keys) > self.hash_size:
            raise LineAssert(
                "ggml_hash_find_or_insert",
                "ggml.c",
                14889,
                "i != GGML_HASHTABLE_FULL",
                f"the scheduler's hash set has {self.hash_size} slots and would need {len(keys)} for nodes, leafs and "
                f"copies; a graph_size above {self.hash_size - MAX_SPLITS * MAX_SPLIT_INPUTS} makes it larger",
            ).of("sched_slots", len(keys))

    def hash_keys(self) -> set[int]:
        """The tensors (by index) in the hash set: nodes, leafs, the roots of views among them, and copies."""
        keys = {t.index for g in self.seen_graphs for t in (*g.leafs, *g.nodes)}
        keys.update(t.view_src.index for g in self.seen_graphs for t in g.nodes if t.view_src is not None)
        keys.update(t.index for t in self.arena.made())
        return keys


def memory_names(backends: list[Backend]) -> list[str]:
    """What the memory of each backend's allocator is called: its buffer type, which several backends may have."""
    out = []
    for b in backends:
        buft = b.device.buft
        shared = buft.name != b.name and any(o is not b and o.device.buft is buft for o in backends)
        out.append(f"{buft.name} ({b.name})" if shared else buft.name)
    return out


def _check_backends(backends: list[Backend]) -> None:
    function = "ggml_backend_sched_new"
    if not backends:
        raise LineAssert(function, _FILE, 1359, "n_backends > 0", f"there is no backend; {advice('n_backends')}")
    if len(backends) > RELEASE.max_backends:
        raise LineAssert(
            function,
            _FILE,
            1360,
            "n_backends <= GGML_MAX_BACKENDS",
            f"there are {len(backends)} backends; leave out all but {RELEASE.max_backends}",
        ).of("backends", len(backends))
