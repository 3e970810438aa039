"""A scheduler and its graph allocator in a program's memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ggmltool.ggml import state
from ggmltool.ggml.alloc.common import NodeAlloc, TensorAlloc
from ggmltool.ggml.releases.release import KEYS, LEAFS, NODES, USE_COUNTS, USED
from ggmltool.ggml.releases.table import NEWEST
from ggmltool.ggml.version import SCHED_MAX_COPIES, hash_size
from ggmltool.state.errors import AttachError, NoBytes, NotAsLaidOut
from ggmltool.state.memory import limits
from ggmltool.state.memory.fields import record
from ggmltool.state.memory.pages import Memory
from ggmltool.state.memory.tensors import MemoryGraphs
from ggmltool.structs.layout import Layout
from ggmltool.structs.types import Array, bare

_MAX_INPUTS = (30, 10)
"""GGML_SCHED_MAX_SPLIT_INPUTS, of today and before."""

_SCHED = (
    "is_reset", "is_alloc", "n_backends", "backends", "bufts", "galloc", "hash_set", "hv_tensor_backend_ids",
    "hv_tensor_copies", "node_backend_ids", "leaf_backend_ids", "prev_node_backend_ids", "prev_leaf_backend_ids",
    "graph", "splits", "n_splits", "splits_capacity", "n_copies", "cur_copy", "next_copy|", "graph_inputs",
    "n_graph_inputs", "graph_inputs_capacity|", "context_buffer_size", "callback_eval", "callback_copy|", "op_offload|",
)  # fmt: skip
_SPLIT = ("backend_id", "i_start", "i_end", "inputs", "n_inputs", "inputs_capacity|", "graph")
_GALLOC = (
    "bufts", "buffers", "buf_tallocs", "n_buffers", "hash_set", "node_allocs", "n_nodes", "leaf_allocs", "n_leafs",
    "hash_values",
)  # fmt: skip
_HASH_NODE = ("n_children", "n_views", "buffer_id", "addr.chunk|", "addr.offset|offset", "allocated")
_TENSOR_ALLOC = ("buffer_id", "addr.chunk|", "addr.offset|offset", "size_max")


class Schedulers:
    """Reads them. Raises NoBytes, and NotAsLaidOut for what no scheduler can hold."""

    def __init__(self, memory: Memory, layout: Layout, graphs: MemoryGraphs) -> None:
        if "hv_tensor_backend_ids" not in (layout.structs["ggml_backend_sched"].members or {}):
            raise NotAsLaidOut(f"the scheduler of ggml {layout.name} is too old to be read; ggml since 2025-01 is")
        self.memory, self.layout, self.graphs = memory, layout, graphs
        self.record = record(layout, "ggml_backend_sched", _SCHED)
        self.split = record(layout, "ggml_backend_sched_split", _SPLIT)
        self.grows = "inputs_capacity" in (layout.structs["ggml_backend_sched_split"].members or {})
        self.galloc_record = record(layout, "ggml_gallocr", _GALLOC)
        self.tensor_alloc = record(layout, "tensor_alloc", _TENSOR_ALLOC)
        self.hash_node = record(layout, "hash_node", _HASH_NODE)
        self.node_alloc = record(layout, "node_alloc", ()).size
        self.leaf_alloc = record(layout, "leaf_alloc", ()).size
        self.block = record(layout, "free_block", ("offset", "size"))
        self._chunks = Chunks(memory, layout)

    def sched(self, address: int, tables: bool = True) -> state.SchedState:
        """A ggml_backend_sched. Without `tables`, what stands in the slots of its hash sets is left out, and where the
        allocator planned the nodes' sources."""
        memory = self.memory
        data = memory.read(address, self.record.size)
        f = dict(zip((name.rstrip("|") for name in _SCHED), self.record.unpack(data), strict=True))
        n, n_copies = f["n_backends"], f["n_copies"]
        _between(n, 1, len(f["backends"]), f"the scheduler at {address:#x}", "backends")
        _between(n_copies, 1, SCHED_MAX_COPIES, f"the scheduler at {address:#x}", "copies")
        _between(f["n_splits"], 0, min(limits.SPLITS, f["splits_capacity"]), "the scheduler", "splits")
        hash_set = self.graphs.hash_set(data, f["hash_set"], "the hash set of the scheduler", tables)
        if not hash_set.size:
            raise NotAsLaidOut("the scheduler has no hash set")
        graph = self.graphs.graph(address + f["graph"], "the scheduler's own graph")
        galloc = self.galloc(f["galloc"], tables)
        if len(galloc.bufts) != n:
            raise NotAsLaidOut(f"the graph allocator has {len(galloc.bufts)} buffers, the scheduler {n} backends")
        nodes, leafs = len(graph.nodes), len(graph.leafs)
        before = max(min(graph.size, limits.NODES), nodes)
        arrays = [
            (f["node_backend_ids"], nodes), (f["leaf_backend_ids"], leafs),
            (f["prev_node_backend_ids"], before), (f["prev_leaf_backend_ids"], before),
        ]  # fmt: skip
        memory.prefetch([(at, 4 * k) for at, k in arrays])
        node_ids, leaf_ids, *prev = [memory.numbers(at, "i", k) for at, k in arrays]
        wrong = next((b for b in {*node_ids, *leaf_ids} if not -1 <= b < n), None)
        if wrong is not None:
            raise NotAsLaidOut(f"a tensor of the scheduler at {address:#x} is for backend {wrong} of {n}")
        # Behind what the graph before had, nobody wrote anything.
        prev_nodes, prev_leafs = (tuple([b if -1 <= b < n else -1 for b in of]) for of in prev)
        splits, views = self._splits(f["splits"], f["n_splits"])
        return state.SchedState(
            is_reset=bool(f["is_reset"]), is_alloc=bool(f["is_alloc"]), backends=f["backends"][:n],
            bufts=f["bufts"][:n], galloc=galloc, hash_set=hash_set,
            tensor_backend_ids=self._backend_ids(f["hv_tensor_backend_ids"], hash_set, n), causes=None,
            tensor_copies=self._copies(f["hv_tensor_copies"], hash_set, n, n_copies), node_backend_ids=node_ids,
            leaf_backend_ids=leaf_ids, prev_node_backend_ids=prev_nodes, prev_leaf_backend_ids=prev_leafs,
            graph=graph, splits=splits, n_copies=n_copies, cur_copy=f["cur_copy"], next_copy=f["next_copy"],
            graph_inputs=self._inputs(f["graph_inputs"], f["n_graph_inputs"], "the graph"),
            graph_inputs_capacity=f["graph_inputs_capacity"] or None, context_buffer_size=f["context_buffer_size"],
            graph_size=graph_size_of(self.layout, f["context_buffer_size"], hash_set.size),
            op_offload=bool(f["op_offload"]), callback_eval=bool(f["callback_eval"]),
            callback_copy=bool(f["callback_copy"]), split_graphs=views, address=address,
        )  # fmt: skip

    def _backend_ids(self, address: int, hash_set: state.HashSetState, n: int) -> dict[int, int]:
        slots = hash_set.slots or {}
        held = self.memory.cells(address, "i", slots)
        out = {}
        for tensor, (backend,) in zip(slots.values(), held, strict=True):
            _between(backend, -1, n - 1, "a tensor", "as the number of its backend")
            if backend >= 0:
                out[tensor] = backend
        return out

    def _copies(self, address: int, hash_set: state.HashSetState, n: int, n_copies: int) -> dict[int, state.Copies]:
        slots = hash_set.slots or {}
        held = self.memory.cells(address, f"{n * n_copies}Q", slots)
        out: dict[int, state.Copies] = {}
        for tensor, copies in zip(slots.values(), held, strict=True):
            if any(copies):
                by_backend = (copies[i : i + n_copies] for i in range(0, len(copies), n_copies))
                out[tensor] = tuple([tuple([c or None for c in of]) if any(of) else None for of in by_backend])
        return out

    def _inputs(self, inputs: int | tuple[int, ...], n: int, what: str) -> tuple[int, ...]:
        if isinstance(inputs, tuple):
            _between(n, 0, len(inputs), what, "inputs")
            return inputs[:n]
        _between(n, 0, limits.INPUTS, what, "inputs")
        return self.memory.numbers(inputs, "Q", n)

    def _splits(self, address: int, n: int) -> tuple[tuple[state.SplitState, ...], tuple[state.GraphState | None, ...]]:
        data = self.memory.read(address, n * self.split.size)
        out, views = [], []
        for i in range(n):
            backend, start, end, inputs, n_inputs, capacity, graph = self.split.unpack(data, i * self.split.size)
            _between(start, 0, min(end, limits.NODES), f"split {i}", "as its first node")
            try:
                view = self.graphs.graph(address + i * self.split.size + graph, f"the graph of split {i}")
            except (NoBytes, NotAsLaidOut):
                # What was split before may be gone.
                view = None
            inputs = self._inputs(inputs, n_inputs, f"split {i}")
            out.append(state.SplitState(backend, start, end, inputs, capacity if self.grows else None))
            views.append(view)
        return tuple(out), tuple(views)

    def galloc(self, address: int, tables: bool = True) -> state.GallocState:
        """A ggml_gallocr."""
        memory = self.memory
        data = memory.read(address, self.galloc_record.size)
        bufts, buffers, tallocs, n, hashes, nodes, n_nodes, leafs, n_leafs, values = self.galloc_record.unpack(data)
        _between(n, 1, limits.BUFFER_TYPES, "the graph allocator", "buffer types")
        _between(n_nodes, 0, limits.NODES, "the graph allocator", "nodes")
        _between(n_leafs, 0, limits.NODES, "the graph allocator", "leafs")
        memory.prefetch([(nodes, n_nodes * self.node_alloc), (leafs, n_leafs * self.leaf_alloc)])
        planned = memory.read(nodes, n_nodes * self.node_alloc)
        hash_set = self.graphs.hash_set(data, hashes, "the hash set of the graph allocator", tables)
        made = [self._chunks.buffers(at) for at in memory.numbers(buffers, "Q", n)]
        return state.GallocState(
            bufts=memory.numbers(bufts, "Q", n), buffers=tuple(made),
            buf_tallocs=self._chunks.read(memory.numbers(tallocs, "Q", n)), hash_set=hash_set,
            hash_values=self._hash_values(values, hash_set),
            node_allocs=self._with_sources(planned) if tables else self._nodes_alone(planned),
            leaf_allocs=tuple(self._places(memory.read(leafs, n_leafs * self.leaf_alloc))), address=address,
        )  # fmt: skip

    def _hash_values(self, address: int, hash_set: state.HashSetState) -> dict[int, state.HashNodeState]:
        size, slots = self.hash_node.size, hash_set.slots or {}
        self.memory.prefetch([(address + slot * size, size) for slot in slots])
        out = {}
        for slot, tensor in slots.items():
            f = self.hash_node.unpack(self.memory.read(address + slot * size, size))
            out[tensor] = state.HashNodeState(f[0], f[1], f[2], f[3], f[4], bool(f[5]))
        return out

    def _with_sources(self, data: bytes) -> tuple[NodeAlloc, ...]:
        places, step = self._places(data), self.node_alloc // self.tensor_alloc.size
        return tuple([(places[i], tuple(places[i + 1 : i + step])) for i in range(0, len(places), step)])

    def _nodes_alone(self, data: bytes) -> tuple[NodeAlloc, ...]:
        unpack, step = self.tensor_alloc.unpack, self.node_alloc
        return tuple([(TensorAlloc(*unpack(data, at)), ()) for at in range(0, len(data), step)])

    def _places(self, data: bytes) -> list[TensorAlloc]:
        # Most sources have no place of their own: one record stands for all that are equal.
        same: dict[tuple[int, ...], TensorAlloc] = {}
        return [same.get(f) or same.setdefault(f, TensorAlloc(*f)) for f in self.tensor_alloc.flat(data)]


class Chunks:
    """Reads the dynamic allocators of a graph allocator, and what was allocated by them."""

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self.memory = memory
        struct = layout.structs["ggml_dyn_tallocr"].members or {}
        self.several = "chunks" in struct
        self.block = record(layout, "free_block", ("offset", "size"))
        inner = "tallocr_chunk" if self.several else "ggml_dyn_tallocr"
        self.chunk = record(layout, inner, ("n_free_blocks", "max_size"))
        members = layout.structs[inner].members or {}
        self.first_block = members["free_blocks"].offset
        blocks = bare(members["free_blocks"].type)
        if not isinstance(blocks, Array):
            raise NotAsLaidOut(f"an allocator of ggml {layout.name} has no free blocks")
        self.max_blocks = blocks.length
        self.talloc = record(layout, "ggml_dyn_tallocr", ("chunks", "n_chunks") if self.several else ())
        self.vbuffer = layout.structs["vbuffer"].size // 8 if "vbuffer" in layout.structs else 0

    def read(self, tallocs: Sequence[int]) -> tuple[tuple[state.ChunkState, ...], ...]:
        """The chunks of each buffer type."""
        chunks = []
        for talloc in tallocs:
            if self.several:
                data = self.memory.read(talloc, self.talloc.size)
                at, n = self.talloc.unpack(data)
                _between(n, 0, len(at), "an allocator", "chunks")
                found = [self._chunk(at[i]) for i in range(n)]
            else:
                found = [self._chunk(talloc)]
            chunks.append(tuple(found))
        return tuple(chunks)

    def buffers(self, address: int) -> tuple[int, ...]:
        """The buffers of a vbuffer, or where there is no such thing the one buffer."""
        if not address:
            return ()
        found = self.memory.numbers(address, "Q", self.vbuffer) if self.vbuffer else (address,)
        return found[: found.index(0)] if 0 in found else found

    def _chunk(self, address: int) -> state.ChunkState:
        n, max_size = self.chunk.unpack(self.memory.read(address, self.chunk.size))
        _between(n, 0, self.max_blocks, "a chunk", "free blocks")
        data = self.memory.read(address + self.first_block, n * self.block.size)
        return state.ChunkState(max_size, tuple(state.FreeBlock(*f) for f in self.block.flat(data)))


_MOST_BYTES = 1 << 40
"""Of an arena, as far as it is known as one."""


@lru_cache(1024)
def graph_size_of(layout: Layout, nbytes: int, slots: int) -> int:
    """The graph size of the schedulers whose arena has so many bytes. Raises NotAsLaidOut if there is none, or none
    with so many slots in its hash set."""
    cgraph = layout.structs["ggml_cgraph"]
    counts = () if "use_counts" not in (cgraph.members or {}) else (USE_COUNTS,)
    release = replace(
        NEWEST, cgraph_size=cgraph.size, tensor_size=layout.structs["ggml_tensor"].size,
        graph_fields=(NODES, LEAFS, *counts, KEYS, USED),
    )  # fmt: skip
    for inputs in _MAX_INPUTS:
        per_node = 2 * inputs * release.tensor_size
        # The arena grows with the graph size, and each node takes at least its tensors and two pointers.
        sizes = range(min(nbytes // (per_node + 16), _MOST_BYTES // per_node) + 1)
        size = bisect_left(sizes, nbytes, key=lambda n: n * per_node + release.graph_overhead(n))
        if hash_size(size) == slots and size * per_node + release.graph_overhead(size) == nbytes:
            if size > limits.NODES:
                raise AttachError(f"the scheduler is for {size} nodes; graphs of {limits.NODES} are read at most")
            return size
    raise NotAsLaidOut(f"the scheduler has an arena of {nbytes} bytes for a hash set of {slots} slots")


def _between(n: int, least: int, most: int, what: str, of: str) -> None:
    if not least <= n <= most:
        raise NotAsLaidOut(f"{what} has {n} {of}")
