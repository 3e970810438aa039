"""sched_compute_splits of January 2024: copies and computing, split by split, each waited for; with their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from ggmltool.ggml import ops
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.events import Computed, TensorCopied, announced
from ggmltool.ggml.releases.january_2024.state import SchedulerState
from ggmltool.ggml.sched.common import Times
from ggmltool.ggml.sched.compute import DeviceArrays, Watch, graph_compute_nodes
from ggmltool.ggml.sched.unchecked import supported
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.ggml.values.transfer import way_of

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

_FILE = "ggml-backend.c"


class LateWrites(Protocol):
    """What the program writes into tensors that get memory with the graph: told before the split that reads them, done
    when the node does, as their memory may be another tensor's before."""

    def tell(self, t: Tensor) -> None:
        """Announce the write of a tensor, if there is one and it has not been announced."""

    def write(self, t: Tensor) -> None:
        """Write it, if it has not been written."""


class RootArrays(DeviceArrays):
    """What a backend's kernels see. A view belongs to its own allocator's buffer, but its root has to be readable."""

    def _start(self, t: Tensor) -> tuple[NDArray[uint8], int]:
        root = root_of(t)
        memory, offset = super()._start(root)
        return memory, offset + t.data - root.data


@announced("sched_compute_splits")
def compute_splits(
    s: SchedulerState,
    nodes: bool = True,
    watch: Watch | None = None,
    prepare: LateWrites | None = None,
    clock: Callable[[], int] = perf_counter_ns,
) -> list[Times]:
    """sched_compute_splits: compute the graph that was allocated last."""
    ops.load()
    copy_ns = [0] * len(s.names)
    compute_ns = [0] * len(s.names)
    for k, split in enumerate(s.splits[: s.n_splits]):
        b = split.backend_id
        if b < 0:
            raise GgmlCrash(
                "ggml_backend_graph_compute",
                "a read at the address NULL",
                "no node of the graph computes anything, so its split has no backend",
            )
        start = clock()
        for t in split.inputs:
            if prepare is not None:
                prepare.tell(t)
                prepare.write(t)
            copy_async(s, b, t, s.copy_of(t, b), nodes)
        copied = clock()
        if prepare is not None:
            for t in (source for n in split.nodes for source in n.src if source is not None):
                prepare.tell(t)
        if s.events:
            s.events(Computed(k, s.names[b], tuple(n.id for n in split.nodes)))
        if nodes:
            checked = list(supported(s, b, split.nodes))
            arrays = RootArrays(s.names[b], s.usable_bufts[b], s.backends[b].device.ops)
            _compute_nodes(s.backends[b], arrays, checked, watch, prepare)
        copy_ns[b] += copied - start
        compute_ns[b] += clock() - copied
    return [
        Times(*row) for row in zip(s.names, (n // 1000 for n in copy_ns), (n // 1000 for n in compute_ns), strict=True)
    ]


def _compute_nodes(
    backend: Backend,
    arrays: RootArrays,
    nodes: Sequence[Tensor],
    watch: Watch | None,
    prepare: LateWrites | None,
) -> None:
    if prepare is None:
        graph_compute_nodes(backend, arrays, nodes, watch)
        return
    for n in nodes:
        for t in n.src:
            if t is not None:
                prepare.write(t)
        graph_compute_nodes(backend, arrays, (n,), watch)


def copy_async(s: SchedulerState, b: int, src: Tensor, dst: Tensor, nodes: bool = True) -> None:
    """ggml_backend_tensor_copy_async of an input, to backend `b`.

    Where neither side is host memory, and the device has no copy of its own, the bytes take the way over the host; a
    debug build says so.
    """
    if src.buffer is None or dst.buffer is None:
        which, t, line = ("input", src, 1310) if src.buffer is None else ("input_cpy", dst, 1311)
        raise LineAssert(
            "sched_compute_splits",
            _FILE,
            line,
            f"{which}->buffer != NULL",
            f"{t.label} has no memory: no node before the split gave it any",
        )
    from_buft, to_buft = src.buffer.buft, dst.buffer.buft
    device = s.backends[b].device
    usable = s.usable_bufts[b]
    if device.copies_async and from_buft.family == to_buft.family and {from_buft, to_buft} <= usable:
        how = "async"
    else:
        how = way_of(from_buft, to_buft)
    if how == "bounce":
        s.debug_log(f"ggml_backend_tensor_copy: warning: slow copy from {from_buft.name} to {to_buft.name}")
    if s.events:
        s.events(TensorCopied(src.label, dst.label, src.nbytes, how, from_buft.name, to_buft.name))
    if nodes:
        HostArrays().copy(src, dst)
