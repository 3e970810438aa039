"""ggml_backend_sched_compute_splits: copies, computing and waiting, split by split, in ggml's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ggmltool.ggml import ops
from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlFailed, NotComputable
from ggmltool.ggml.events import Computed, Entered, EventCall, Left, TensorCopied, announced
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import OpRules
from ggmltool.ggml.ops.cpu import limits as cpu_limits
from ggmltool.ggml.ops.cpu.judge import judge
from ggmltool.ggml.ops.registry import KERNELS, Arrays
from ggmltool.ggml.sched.arena import Split
from ggmltool.ggml.sched.callbacks import batches
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.sched.unchecked import supported
from ggmltool.ggml.sched.used_experts import UsedExperts, uses_experts
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor, is_computed, op_desc
from ggmltool.ggml.values.arrays import HostArrays, unusable
from ggmltool.ggml.values.product import computing
from ggmltool.ggml.values.transfer import tensor_copy

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

Watch = Callable[[Tensor], None]
"""Called with every node of a graph right after it was computed."""


class DeviceArrays(HostArrays):
    """What a backend's kernels see: only memory that the backend can use."""

    def __init__(self, backend: str, usable: frozenset[BufferType], rules: OpRules) -> None:
        self.backend = backend
        self.usable = usable
        self.rules = rules

    def _start(self, t: Tensor) -> tuple[NDArray[uint8], int]:
        if t.buffer is not None and t.buffer.buft not in self.usable:
            raise unusable(self.backend, t)
        return super()._start(t)


def arrays_of(backend: Backend, usable: frozenset[BufferType]) -> Arrays:
    """What the kernels of a backend see: arrays of numpy, or of its GPU."""
    if backend.queue is None:
        return DeviceArrays(backend.name, usable, backend.device.ops)
    from ggmltool.ggml.devices.gpu_arrays import GpuArrays

    return GpuArrays(backend.queue.gpu, backend.name, usable, backend.device.ops)


def graph_compute(s: Scheduler, graph: CGraph, watch: Watch | None = None, wait: bool = True) -> bool:
    """ggml_backend_sched_graph_compute: compute the allocated graph, or allocate `graph` first; wait for the end.

    Without `wait` it is ggml_backend_sched_graph_compute_async, and what GPUs do is begun. False where the graph could
    not be allocated.
    """
    function = "ggml_backend_sched_graph_compute" + ("" if wait else "_async")
    if s.events:
        s.events(Entered(function))
    done = s.alloc_to_compute(graph)
    if done:
        compute_splits(s, watch)
    if wait:
        s.synchronize()
    if s.events:
        s.events(Left(function))
    return done


@announced("ggml_backend_sched_compute_splits")
def compute_splits(s: Scheduler, watch: Watch | None = None) -> None:
    """ggml_backend_sched_compute_splits."""
    ops.load()
    if s.freed is not None:
        s.freed.computes(s.splits[: s.n_splits], s.copy_of)
    experts = UsedExperts(s) if s.rules.copies_used_experts else None
    if s.callback_copy is not None:
        s.callback_copy.start()
    before = -1
    for k, split in enumerate(s.splits[: s.n_splits]):
        b = split.backend_id
        if s.rules.records_every_split and not split.inputs and before not in (-1, b):
            _wait_on_host(s, before)
        inputs = list(enumerate(split.inputs))
        if s.rules.weights_last:
            inputs.sort(key=lambda numbered: _is_host_weight(numbered[1]))
        for j, t in inputs:
            _copy_input(s, split, j, t, experts)
        if s.callback_eval is None:
            _compute_nodes(s, k, b, split.nodes, watch)
        else:
            for batch in batches(split.nodes, s.callback_eval):
                _compute_nodes(s, k, b, batch, watch)
                s.synchronize_backend(b)
        if (split.inputs or s.rules.records_every_split) and s.has_events[b]:
            _event(s, "record", b)
        before = b
    s.computed()


def _is_host_weight(t: Tensor) -> bool:
    """ggml_backend_sched_is_host_weight."""
    return t.buffer is not None and t.buffer.usage == USAGE_WEIGHTS and t.buffer.buft.host


def _event(s: Scheduler, call: str, backend_id: int) -> None:
    if s.events:
        s.events(EventCall(call, s.names[backend_id], s.cur_copy))
    queue = s.backends[backend_id].queue
    if queue is not None:
        queue.event(call, s.cur_copy)


def _copy_input(s: Scheduler, split: Split, j: int, t: Tensor, experts: UsedExperts | None) -> None:
    """Bring one input to the split's backend, after the backend is done with what the copy held before."""
    b = split.backend_id
    copy = s.copy_of(t, b)
    if t.flags & FLAG_INPUT:
        _wait_on_host(s, b)
        tensor_copy(t, copy, s.events)
        return
    if s.has_events[b]:
        _event(s, "wait", b)
    else:
        s.synchronize_backend(b)
    if s.callback_copy is not None and _is_host_weight(t) and s.callback_copy(split, t, copy):
        return
    if experts is not None and uses_experts(split, copy) and _is_host_weight(t):
        experts.copy(split, j, t, copy)
        return
    if _copy_async(s, b, t, copy):
        return
    s.synchronize_backend(s.ids[t.index])
    _wait_on_host(s, b)
    tensor_copy(t, copy, s.events)


def _wait_on_host(s: Scheduler, b: int) -> None:
    if s.has_events[b]:
        _event(s, "synchronize", b)
    else:
        s.synchronize_backend(b)


def _copy_async(s: Scheduler, b: int, src: Tensor, dst: Tensor) -> bool:
    """cpy_tensor_async: between devices of one kind that have it; between simulated ones the bytes move at once."""
    device = s.backends[b].device
    if not device.copies_async or src.buffer is None or dst.buffer is None:
        return False
    if src.buffer.buft.family != dst.buffer.buft.family:
        return False
    if s.events:
        names = (src.buffer.buft.name, dst.buffer.buft.name)
        s.events(TensorCopied(src.label, dst.label, src.nbytes, "async", *names))
    one, other = s.backends[s.ids[src.index]].queue, s.backends[b].queue
    a, z = src.buffer, dst.buffer
    if one is not None and other is not None and a.buft.gpu is one.gpu and z.buft.gpu is other.gpu:
        function = "ggml_backend_tensor_copy_async"
        from_, start = HostArrays().extent(function, "read", src)
        to, end = HostArrays().extent(function, "write", dst)
        one.copy_to(other, from_, start.start, to, end.start, src.nbytes)
        return True
    for queue in (one, other):
        if queue is not None:
            queue.synchronize()
    HostArrays().copy(src, dst)
    return True


def _compute_nodes(s: Scheduler, k: int, b: int, nodes: list[Tensor], watch: Watch | None) -> None:
    """ggml_backend_graph_compute_async of nodes of split `k`, by backend `b`."""
    arrays = arrays_of(s.backends[b], s.usable_bufts[b])
    if s.events:
        s.events(Computed(k, s.names[b], tuple(n.id for n in nodes)))
    graph_compute_nodes(s.backends[b], arrays, supported(s, b, nodes), watch)


def graph_compute_nodes(backend: Backend, arrays: Any, nodes: Iterable[Tensor], watch: Watch | None = None) -> None:
    """What a backend does with the nodes of a graph, in order: those that compute nothing are passed over.

    On a GPU it is begun, behind what the backend's stream still has to do.
    """
    on_cpu = backend.device.type == "cpu"
    rules = backend.device.ops
    queue = backend.queue
    with computing() if queue is None else queue:
        for n in nodes:
            if is_computed(n):
                judge(n, rules)
                if on_cpu:
                    cpu_limits.check(n, rules)
                compute_node(arrays, n)
            if watch is not None:
                if queue is not None:
                    queue.synchronize()
                watch(n)


def backend_graph_compute(backend: Backend, nodes: Sequence[Tensor]) -> None:
    """ggml_backend_graph_compute of a graph without a scheduler, all of it by one backend, and wait for it."""
    ops.load()
    used = {t.buffer.buft for n in nodes for t in (n, *n.src) if t is not None and t.buffer is not None}
    usable = frozenset(buft for buft in used if backend.device.supports_buft(buft))
    graph_compute_nodes(backend, arrays_of(backend, usable), nodes)
    if backend.queue is not None:
        backend.queue.synchronize()


def compute_node(arrays: Any, n: Tensor) -> None:
    """Run the kernel of one node. Raises NotComputable for an op without one."""
    kernel = KERNELS.get(n.op)
    if kernel is None:
        raise NotComputable(
            "ggml_compute_forward",
            f"{op_desc(n)} cannot be computed here ({n.name})",
            explanation="the op can be planned, not computed",
        )
    try:
        kernel(arrays, n)
    except MemoryError as error:
        raise GgmlFailed(
            "ggml_graph_compute", f"out of memory, computing {n.label} ({op_desc(n)})", explanation=str(error)
        ) from None
