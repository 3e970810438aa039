"""What the schedulers of all releases have: backends, what every tensor was given, splits, and the calls to make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Protocol

from ggmltool.ggml.alloc.common import AnyGallocr
from ggmltool.ggml.buffer import Buffer, BufferType
from ggmltool.ggml.context import IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAbort
from ggmltool.ggml.events import Listener, Logged
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import DebugLine, PassPrint, SchedDebug, TallocrPlan
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.sched.arena import AnyArena, Copies, Split
from ggmltool.ggml.tensor import MAX_SRC, Tensor

Place = tuple[str | None, str | None, int | None, int | None, int | None]
"""Where a tensor's bytes are: the memory's name, its usage, chunk, the offset in it; and the bytes it takes there."""


class Places(Protocol):
    """Who says where a tensor lies now; only if `sized`, how many bytes it takes there."""

    def __call__(self, t: Tensor, sized: bool = True) -> Place:
        """The place of `t`."""


class Times(NamedTuple):
    """What a backend spent in one graph, in microseconds: on copies to it, and on computing."""

    backend: str
    copy_us: int
    compute_us: int


Fields = dict[str, int | bool]
"""Values of a scheduler by their expressions behind `sched->`."""


def n_keepers(kept: Sequence[Tensor]) -> int:
    """How many nodes of the scheduler's own graph keep so many tensors: each has them as sources."""
    return (len(kept) + MAX_SRC - 1) // MAX_SRC


OnDebug = Callable[[SchedDebug, Release], None]
"""Called with the debug print of every split of a graph."""


class AnyScheduler(ABC):
    """A ggml_backend_sched over `backends`, highest priority first, deciding as `release`.

    State lists are indexed by a tensor's index: `ids` its backend (-1 none), `causes` why, `copies` its copies.
    `assigned`, `assigned_causes` and `made_copies` are those of the last split, which a reset does not clear. `nodes`
    and `leafs` are the scheduler's own graph, with copies; `node_ids` and `leaf_ids` their backends. `indices` are
    those of all tensors it will see. `usable_bufts` are the buffer types of each backend, `users` of each buffer type
    the backends that can use it, with their devices. `homes` are the backends of tensors in it that no op computes,
    where that depends on nothing else.

    While a graph is being cut `n_splits` is 0, and `n_begun` how many have begun.

    `on_pass` is called after every pass with its number and the scheduler. With `debug` it keeps what GGML_SCHED_DEBUG
    prints: of the last split in `debug_record`, after each pass in `printed`. `log_lines` is what it logs,
    `debug_lines` what only a debug build does, None for a ggml of which that is not kept. `measured` are the bytes that
    measuring found, by backend, and `planned` what the allocators of a measured graph were after the last one.
    """

    passes: tuple[str, ...]
    """What each pass does, by its number; 0 is what was said before."""
    id_of_tensor: ClassVar[str]
    """The expression by which a debugger gets a tensor's backend."""
    no_cause: ClassVar[str | None] = None
    """The cause of what no rule has touched."""
    own_size = 0
    """sched->graph.size: how many nodes, and how many leafs, its own graph has room for so far."""

    gallocr: AnyGallocr
    arena: AnyArena

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        all_bufts: Iterable[BufferType],
        graph_size: int,
        hash_size: int,
        n_copies: int,
        events: Listener | None,
        release: Release,
    ) -> None:
        self.release = release
        self.backends = backends
        self.names = [b.name for b in backends]
        self.indices = indices
        self.events = events
        self.bufts = [b.device.buft for b in backends]
        self.memory_names = [buft.name for buft in self.bufts]
        bufts = {*self.bufts, *all_bufts}
        self.usable_bufts = [frozenset(t for t in bufts if b.device.supports_buft(t)) for b in backends]
        self.users = {t: [(i, b.device) for i, b in enumerate(backends) if t in self.usable_bufts[i]] for t in bufts}
        self.homes = {t: users[0][0] for t, users in self.users.items() if users and users[0][1].takes_any_data}
        self.graph_size = graph_size
        self.hash_size = hash_size
        self.n_copies = n_copies
        self.cur_copy = 0
        self.splits: list[Split] = []
        self.n_splits = 0
        self.n_begun = 0
        self.graph_inputs: list[Tensor] = []
        self.clear_state()
        self.is_reset = True
        self.assigned, self.assigned_causes, self.made_copies = self.ids, self.causes, self.copies
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self.node_ids: list[int] = []
        self.leaf_ids: list[int] = []
        self.log_lines: list[str] = []
        self.debug_lines: list[str] | None = [] if release.keeps_debug_log else None
        self.kept: dict[int, list[Tensor]] = {}
        """What devices keep until a node has been computed, by the node's index."""
        self.debug_logged: list[DebugLine] = []
        """What it logged at the level of debug prints since the last split began."""
        self.debug = False
        self.on_debug: OnDebug | None = None
        self.debug_record: SchedDebug = ()
        self.printed: list[PassPrint] = []
        self.measured: tuple[int, ...] = ()
        self.planned: tuple[TallocrPlan, ...] = ()
        self.on_pass: Callable[[int, AnyScheduler], None] | None = None

    def clear_state(self) -> None:
        """Forget assignments, copies, and the graphs that gave them."""
        n = self.indices.top
        self.ids: list[int] = [-1] * n
        self.causes: list[str | None] = [self.no_cause] * n
        self.copies: list[Copies | None] = [None] * n
        self.seen_graphs: list[CGraph] = []

    def log(self, level: str, text: str) -> None:
        """A line that a release build of ggml logs."""
        if level == "debug":
            self.debug_logged.append(DebugLine(text))
        else:
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
            self.causes.extend([self.no_cause] * missing)
            self.copies.extend([None] * missing)

    def fields(self) -> Fields:
        """The plain fields of its struct, as a debugger shows them."""
        fields: Fields = {"is_reset": self.is_reset, "n_backends": len(self.backends), "hash_set.size": self.hash_size}
        for i, split in enumerate(self.splits[: self.n_splits]):
            fields |= split.fields(i)
        return fields | {"n_splits": self.n_splits}

    def id_arrays(self) -> dict[str, list[int]]:
        """The backends of the nodes of its own graph, as arrays of its struct; none if it has none."""
        return {}

    def sources(self, n: Tensor) -> Iterator[Tensor]:
        """The sources of a node that it looks at."""
        return (t for t in n.src if t is not None)

    def copy_of(self, t: Tensor, backend_id: int, copy: int | None = None) -> Tensor:
        """The copy of a tensor on a backend, of this number among pipeline copies, or that of the current graph."""
        of = self.copies[t.index]
        made = of[backend_id] if of is not None else None
        if made is None:
            raise GgmlAbort("ggml_backend_sched_split_graph", f"no copy of {t.name} for backend {backend_id}")
        return made[self.cur_copy if copy is None else copy]

    def measured_memory(self) -> list[tuple[str, int, int]]:
        """Where memory was measured and never grows: of each backend its name, the bytes in use at most, its bytes."""
        return []

    @abstractmethod
    def set_tensor_backend(self, tensor: Tensor, backend_id: int) -> None:
        """The user's choice for a tensor."""

    @abstractmethod
    def alloc_to_compute(self, graph: CGraph) -> bool:
        """The first half of ggml_backend_sched_graph_compute: split the graph and give its tensors memory."""

    @abstractmethod
    def reset(self) -> None:
        """ggml_backend_sched_reset."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all backends."""

    @abstractmethod
    def around_name(self, backend_id: int, copy: int) -> tuple[str, str]:
        """What stands before and behind a tensor's name in that of its copy."""

    def copy_name(self, backend_id: int, t: Tensor, copy: int) -> str:
        """What a copy is called, before ggml cuts the name."""
        return t.name.join(self.around_name(backend_id, copy))

    @abstractmethod
    def hash_keys(self) -> set[int]:
        """The tensors, by index, in its hash set."""

    @abstractmethod
    def counted(self, graph: CGraph) -> tuple[tuple[str, int], ...]:
        """What of a graph has to have slots in the hash set, as ggml counts it before it begins."""

    @abstractmethod
    def places(self) -> Places:
        """Who says where a tensor lies now."""

    @abstractmethod
    def compute_buffers(self) -> list[Buffer]:
        """The buffers that graphs are allocated in, each once."""

    @abstractmethod
    def get_buffer_size(self, backend_id: int) -> int:
        """ggml_backend_sched_get_buffer_size: the bytes of a backend's buffer."""
