"""What the library's scheduler holds after a step: this process's memory, read as that of any program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.sched.plans import PlanRows, rows_of
from ggmltool.ggml.state import BufferState, BuftState, State
from ggmltool.oracle import structs
from ggmltool.oracle.lib import Lib, OracleUnavailable
from ggmltool.oracle.mock import World
from ggmltool.state.errors import NotAsLaidOut
from ggmltool.state.memory.pages import OwnMemory
from ggmltool.state.memory.schedulers import Schedulers
from ggmltool.state.memory.tensors import MemoryGraphs, MemoryTensors, tensor_states

_TYPES = {number: type.name for number, type in TYPES_BY_ID.items()}


class StateReader:
    """Reads one scheduler. `ids` names the scenario's tensors by address, `contexts` are the contexts' buffers, and
    `chunks` numbers those that they are made of."""

    def __init__(
        self,
        lib: Lib,
        world: World,
        sched: int,
        ids: Mapping[int, str],
        contexts: Sequence[int],
        chunks: Mapping[int, int],
    ) -> None:
        self.lib = lib
        self.world = world
        self.address = sched
        self.ids = ids
        self.contexts = contexts
        self.chunks = chunks
        self._ops: dict[tuple[int, int], str] = {}

    def state(self, graph: int, tables: bool = True) -> State:
        """All that it holds, with the graph that it was given last. Without `tables`, what stands in hash tables is
        left out."""
        memory, types = OwnMemory(), self.lib.structs.types
        graphs, tensors = MemoryGraphs(memory, types), MemoryTensors(memory, types)
        sched, given = Schedulers(memory, types, graphs).sched(self.address, tables), graphs.graph(graph)
        inputs = (t for split in sched.splits for t in split.inputs)
        own = (*sched.graph.nodes, *sched.graph.leafs)
        tensors.take((*given.nodes, *given.leafs, *own, *sched.graph_inputs, *inputs), must=True)
        for t in tensors.read.values():
            op = t.op, t.op_params[0]
            if op not in self._ops:
                self._ops[op] = self.lib.ggml_op_desc(t.address).decode()
        made = {buffer for buffers in sched.galloc.buffers for buffer in buffers}
        there = {*made, *self.contexts, *self.chunks}
        buffers = {}
        for address in {*made, *(t.buffer for t in tensors.read.values())} - {0}:
            # A copy of an earlier split may have a buffer that was freed since: it is known as it was.
            if address in there or address not in self.world.seen:
                b = structs.Buffer.from_address(address)
                base = self.lib.ggml_backend_buffer_get_base(address) or 0
                chunk = self.chunks.get(address, 0)
                self.world.seen[address] = BufferState(b.buft, b.size, b.usage, base, address, chunk)
            buffers[address] = self.world.seen[address]
        bufts = {}
        for address in {*sched.bufts, *(b.buft for b in buffers.values())}:
            engine = self.world.bufts[address].engine
            bufts[address] = BuftState(0, engine.name, engine.alignment, engine.max_size, engine.host)
        return State(
            self.world.release,
            sched,
            given,
            tensor_states(tensors.read, _TYPES, self._ops, self.ids),
            buffers,
            bufts,
        )

    def rows(self, graph: int) -> PlanRows:
        """The rows of a plan after a reserve or alloc of `graph`; the sizes of buffers are what ggml says they are."""
        state = self.state(graph, tables=False)
        assert state.sched is not None
        positions = {node: i for i, node in enumerate(state.sched.graph.nodes)}
        planned = state.sched.galloc.node_allocs

        def size_of(address: int) -> int:
            buffer = state.tensors[address].buffer
            if buffer is None:
                return planned[positions[address]][0].size_max
            return int(self.lib.ggml_backend_buft_get_alloc_size(state.buffers[buffer].buft, address))

        order = self.world.order
        names = {address: buft.name for address, buft in self.world.bufts.items()}
        rows = rows_of(state, [device.name for device in order], names, size_of)
        size = self.lib.ggml_backend_sched_get_buffer_size
        return rows._replace(buffer_sizes=tuple([(d.name, size(self.address, d.address)) for d in order]))


def check_layout(lib: Lib, world: World, sched: int, graph_size: int, op_offload: bool, debug: int) -> None:
    """Compares what a new scheduler holds with what it must hold. Raises OracleUnavailable if they differ."""
    memory, types = OwnMemory(), lib.structs.types
    fields = lib.structs["ggml_backend_sched"].from_address(sched)
    try:
        s = Schedulers(memory, types, MemoryGraphs(memory, types)).sched(sched)
    except NotAsLaidOut as error:
        raise OracleUnavailable(f"the scheduler of {lib.said} is not laid out as ggmltool knows it: {error}") from None
    bufts = tuple(device.buft.address for device in world.order)
    checks = {
        "backends": s.backends == tuple(device.address for device in world.order),
        "bufts": s.bufts == bufts,
        "n_copies": s.n_copies == lib.ggml_backend_sched_get_n_copies(sched),
        "splits_capacity": fields.splits_capacity == 16,
        "graph_inputs_capacity": s.graph_inputs_capacity == 30,
        "context_buffer_size": s.graph_size == graph_size,
        "op_offload": s.op_offload == op_offload,
        "debug": fields.debug == debug,
        "galloc": s.galloc.bufts == bufts,
    }
    wrong = [name for name, right in checks.items() if not right]
    if wrong:
        raise OracleUnavailable(f"the scheduler of {lib.said} is not laid out as ggmltool knows it: {', '.join(wrong)}")
