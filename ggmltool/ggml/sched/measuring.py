"""A scheduler that measures a graph once; every graph after it has to fit into that memory, and is computed at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.version import hash_size


class Times(NamedTuple):
    """What a backend spent in one graph, in microseconds: on copies to it, and on computing."""

    backend: str
    copy_us: int
    compute_us: int


class LateWrites(Protocol):
    """What the program writes into tensors that get memory with the graph: told before the split that reads them, done
    when the node does, as their memory may be another tensor's before."""

    def tell(self, t: Tensor) -> None:
        """Announce the write of a tensor, if there is one and it has not been announced."""

    def write(self, t: Tensor) -> None:
        """Write it, if it has not been written."""


class MeasuringScheduler(AnyScheduler):
    """A scheduler with an allocator for each backend, which only measure until `init_measure` gives them buffers.

    `misalign` is how far past a page malloc's addresses are.
    """

    def __init__(
        self,
        backends: list[Backend],
        indices: IndexSpace,
        addresses: AddressSpace,
        all_bufts: Iterable[BufferType],
        graph_size: int,
        misalign: int,
        events: Listener | None,
        release: Release,
    ) -> None:
        most_copies = (release.max_splits or 0) * release.max_split_inputs
        slots = hash_size(graph_size + most_copies)
        super().__init__(backends, indices, all_bufts, graph_size, slots, 1, events, release)
        self.addresses = addresses
        self.misalign = misalign

    @property
    @abstractmethod
    def is_measure(self) -> bool:
        """Whether nothing was measured yet."""

    @abstractmethod
    def init_measure(self, graph: CGraph) -> None:
        """ggml_backend_sched_init_measure: split `graph`, find out what memory it needs, and make the buffers."""

    @abstractmethod
    def alloc_tensor(self, backend_id: int, t: Tensor) -> None:
        """Give a tensor to the allocator of a backend, before the graph that has it."""

    @staticmethod
    @abstractmethod
    def alloc_context(
        ctx: Context, buft: BufferType, addresses: AddressSpace, usage: int, misalign: int
    ) -> list[Buffer]:
        """ggml_backend_alloc_ctx_tensors_from_buft: the buffers of a context, at most one."""

    @abstractmethod
    def graph_compute(
        self,
        graph: CGraph,
        nodes: bool = True,
        watch: Callable[[Tensor], None] | None = None,
        prepare: LateWrites | None = None,
    ) -> Sequence[Times]:
        """ggml_backend_sched_graph_compute: split `graph`, give it memory, compute it; the times of each backend.

        With `nodes` false only what is copied is told, and nothing computed. `watch` is called with every node after
        it was computed, `prepare` with every tensor before it is read.
        """
