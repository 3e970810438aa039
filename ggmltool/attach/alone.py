"""Programs that compute without a scheduler: a graph allocator, or a backend, is told as the scheduler that would do
the same.

A scheduler of one backend gives its graph allocator the graph as it is, node by node, so that every tensor gets the
place that ggml_gallocr_alloc_graph gives it alone. The scheduler that is made up has the address 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ggmltool.attach.errors import AttachError
from ggmltool.attach.gdb.link import FunctionCall
from ggmltool.attach.state import BackendState, DeviceState, Function, Snapshot
from ggmltool.attach.stopped import Stopped
from ggmltool.ggml.state import NO_SLOTS, GallocState, GraphState, SchedState, SplitState
from ggmltool.state.memory.fields import Record
from ggmltool.state.memory.pages import Memory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.structs.layout import Layout

RESERVE: tuple[Function, ...] = ("ggml_gallocr_reserve", "ggml_gallocr_reserve_n")
ALLOC: tuple[Function, ...] = ("ggml_gallocr_alloc_graph",)
COMPUTE: tuple[Function, ...] = ("ggml_backend_graph_compute", "ggml_backend_graph_compute_async")


def sched_like(
    session: Stopped, schedulers: Schedulers, function: Function, first: int, graph: GraphState
) -> SchedState:
    """The scheduler that stands for the first argument of such a function, a ggml_gallocr or a ggml_backend, before the
    call. Raises AttachError, NoBytes, NotAsLaidOut."""
    backends: tuple[int, ...]
    if function in COMPUTE:
        bufts = (_called(session, "ggml_backend_get_default_buffer_type", first),)
        galloc, backends = GallocState(bufts, ((),), (), NO_SLOTS, {}, (), ()), (first,)
    else:
        galloc, backends = schedulers.galloc(first), ()
    if len(galloc.bufts) != 1:
        raise AttachError(
            f"the graph allocator of {function} has {len(galloc.bufts)} buffer types, and no scheduler; a scenario can "
            "say one of them alone"
        )
    used = bool(galloc.node_allocs or galloc.leaf_allocs)
    room = 2 * max(len(graph.nodes), len(graph.leafs), len(galloc.node_allocs), len(galloc.leaf_allocs)) + 1
    ids = (0,) * room if used else ()
    return SchedState(
        is_reset=False,
        is_alloc=False,
        backends=backends,
        bufts=galloc.bufts,
        galloc=galloc,
        hash_set=NO_SLOTS,
        tensor_backend_ids=dict.fromkeys((*graph.nodes, *graph.leafs), 0),
        causes=None,
        tensor_copies={},
        node_backend_ids=ids,
        leaf_backend_ids=ids,
        prev_node_backend_ids=ids,
        prev_leaf_backend_ids=ids,
        graph=replace(graph, size=room),
        splits=(),
        n_copies=1,
        cur_copy=0,
        next_copy=0,
        graph_inputs=(),
        graph_inputs_capacity=None,
        context_buffer_size=0,
        graph_size=max(1, len(graph.nodes) + len(graph.leafs)),
        op_offload=True,
        callback_eval=False,
        callback_copy=False,
    )


def done(sched: SchedState, graph: GraphState) -> SchedState:
    """The same after the call: one split, of the whole graph."""
    return replace(
        sched,
        splits=(SplitState(0, 0, len(graph.nodes), (), None),),
        graph=graph,
        node_backend_ids=(0,) * len(graph.nodes),
        leaf_backend_ids=(0,) * len(graph.leafs),
    )


def device_of(session: Stopped, memory: Memory, types: Layout, buft: int) -> int:
    """The device of a buffer type; the CPU's of the one that says none, which is the CPU's. Raises AttachError."""
    record = Record(types, "ggml_backend_buffer_type", ("device|",))
    (device,) = record.unpack(memory.read(buft, record.size))
    return int(device or _called(session, "ggml_backend_reg_dev_get", _called(session, "ggml_backend_cpu_reg"), 0))


def backend_on(device: int, devices: Mapping[int, DeviceState]) -> BackendState:
    """A backend of a device, of which nothing else is known."""
    return BackendState(0, devices[device].name, device, frozenset())


def lacks_cpu(snapshot: Snapshot) -> bool:
    """Whether the scheduler that is made up lacks the CPU, which every scheduler has as its last backend."""
    device = snapshot.devices.get(snapshot.backends[-1].device)
    return not snapshot.sched.address and (device is None or device.type != "cpu")


def _called(session: Stopped, function: str, *arguments: int) -> int:
    at = session.instance.symbols.get(function)
    if at is None:
        raise AttachError(
            f"the program computes without a scheduler, and has no {function} that tells its devices: link-time "
            "optimization has inlined it, or it was stripped"
        )
    (found,) = session.link.call([FunctionCall(at, "unsigned long", arguments)])
    return found or 0
