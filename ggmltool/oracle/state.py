"""Reads the scheduler's private state after a step into the plan's dict."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.dtypes import TYPES_BY_ID
from ggmltool.ggml.op import Op
from ggmltool.ggml.version import hash_size
from ggmltool.oracle.lib import Lib, OracleUnavailable
from ggmltool.oracle.mock import World
from ggmltool.oracle.structs import MAX_SRC, Buffer, CGraph, Gallocr, NodeAlloc, VBuffer, splits_of
from ggmltool.oracle.tensors import TENSOR_LAYOUT, TensorState, read_tensor


class Place(NamedTuple):
    """Where a tensor lies: None throughout for a tensor without a buffer."""

    buffer: str | None
    usage: str | None
    chunk: int | None
    offset: int | None


NOWHERE = Place(None, None, None, None)


class StateReader:
    """Reads one scheduler. `ids` names the scenario's tensors by address, `chunks` numbers the contexts' buffers."""

    def __init__(self, lib: Lib, world: World, sched: int, ids: Mapping[int, str], chunks: Mapping[int, int]) -> None:
        self.lib = lib
        self.world = world
        self.address = sched
        self.sched = lib.structs["ggml_backend_sched"].from_address(sched)
        self.ids = ids
        self.context_chunks = chunks
        self._buffers: dict[int, tuple[str, str, int, int]] = {}
        self._chunks: dict[int, int] = {}

    def plan(self, graph: int) -> dict[str, Any]:
        """Splits, nodes, leafs, copies and buffer sizes after a reserve or alloc of `graph`."""
        self._buffers.clear()
        self._chunks = self._compute_chunks()
        g = CGraph.from_address(graph)
        nodes = g.nodes[: g.n_nodes]
        self._positions, self._copy_positions = self._in_graph_copy(nodes)
        leafs = g.leafs[: g.n_leafs]
        return {
            "splits": self._splits(),
            "nodes": self._nodes(g, nodes),
            "leafs": self._leafs(leafs),
            "copies": self._copies(),
            "buffer_sizes": self.buffer_sizes(),
        }

    def buffer_sizes(self) -> dict[str, int]:
        """Bytes of compute buffers by backend."""
        size = self.lib.ggml_backend_sched_get_buffer_size
        return {device.name: size(self.address, device.address) for device in self.world.order}

    def _backend(self, index: int) -> str | None:
        return self.world.order[index].name if index >= 0 else None

    def _name(self, address: int) -> str:
        known = self.ids.get(address)
        return known if known is not None else read_tensor(address).name

    def _splits(self) -> list[dict[str, Any]]:
        sched = self.sched
        return [
            {
                "id": i,
                "backend": self._backend(split.backend_id),
                "i_start": split.i_start,
                "i_end": split.i_end,
                "inputs": [self._name(t) for t in split.inputs[: split.n_inputs]],
            }
            for i, split in enumerate(splits_of(sched))
        ]

    def _compute_chunks(self) -> dict[int, int]:
        galloc = Gallocr.from_address(self.sched.galloc)
        chunks: dict[int, int] = {}
        for buffer in galloc.buffers[: galloc.n_buffers]:
            if buffer:
                for i, chunk in enumerate(VBuffer.from_address(buffer).chunks):
                    if not chunk:
                        break
                    chunks[chunk] = i
        return chunks

    def _place(self, t: TensorState) -> Place:
        if not t.buffer:
            return NOWHERE
        known = self._buffers.get(t.buffer)
        if known is None:
            buffer = Buffer.from_address(t.buffer)
            base = self.lib.ggml_backend_buffer_get_base(t.buffer) or 0
            chunk = self._chunks.get(t.buffer, self.context_chunks.get(t.buffer, 0))
            known = (self.world.bufts[buffer.buft].name, USAGE_NAMES[buffer.usage], chunk, base)
            self._buffers[t.buffer] = known
        name, usage, chunk, base = known
        return Place(name, usage, chunk, t.data - base)

    def _in_graph_copy(self, nodes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Where the graph's nodes and the splits' copies are in the scheduler's copy of the graph.

        A split's nodes follow two nodes per input, dependency and copy; behind a node there may be others, which keep
        what a device asked to be kept until that one.
        """
        sched = self.sched
        wanted = set(nodes)
        of_nodes = [i for i, node in enumerate(sched.graph.nodes[: sched.graph.n_nodes]) if node in wanted]
        of_copies: list[int] = []
        for split in splits_of(sched):
            if split.n_inputs:
                first = of_nodes[split.i_start]
                of_copies += range(first - 2 * split.n_inputs + 1, first, 2)
        return of_nodes, of_copies

    def _nodes(self, graph: CGraph, nodes: list[int]) -> list[dict[str, Any]]:
        sched = self.sched
        indices = self._positions
        split_of = [i for i, split in enumerate(splits_of(sched)) for _ in range(split.i_end - split.i_start)]
        allocs = ctypes.cast(Gallocr.from_address(sched.galloc).node_allocs, ctypes.POINTER(NodeAlloc))
        out = []
        for index, address in enumerate(nodes):
            t = read_tensor(address)
            src = t.src
            n = MAX_SRC
            while n and not src[n - 1]:
                n -= 1
            place = self._place(t)
            out.append(
                {
                    "index": index,
                    "id": self.ids.get(address, t.name),
                    "name": t.name,
                    "op": Op(t.op).name,
                    "op_desc": self.lib.ggml_op_desc(address).decode(),
                    "type": TYPES_BY_ID[t.type].name,
                    "ne": list(t.ne),
                    "nb": list(t.nb),
                    "backend": self._backend(sched.node_backend_ids[indices[index]]),
                    "cause": None,
                    "split": split_of[index],
                    "use_count": graph.use_count(address),
                    "src": [self._name(s) if s else None for s in src[:n]],
                    "buffer": place.buffer,
                    "usage": place.usage,
                    "chunk": place.chunk,
                    "offset": place.offset,
                    "alloc_size": None if t.view_src else self._alloc_size(address, t, allocs[indices[index]]),
                }
            )
        return out

    def _alloc_size(self, address: int, t: TensorState, planned: NodeAlloc) -> int:
        if t.buffer:
            return int(self.lib.ggml_backend_buft_get_alloc_size(Buffer.from_address(t.buffer).buft, address))
        return int(planned.dst.size_max)

    def _leafs(self, leafs: list[int]) -> list[dict[str, Any]]:
        first = self.sched.graph.n_leafs - len(leafs)
        out = []
        for index, address in enumerate(leafs):
            t = read_tensor(address)
            backend = self._backend(self.sched.leaf_backend_ids[first + index])
            out.append(
                {"index": index, "id": self.ids.get(address, t.name), "backend": backend, **self._place(t)._asdict()}
            )
        return out

    def _copies(self) -> list[dict[str, Any]]:
        sched = self.sched
        if sched.n_copies > 1:
            return self._pipeline_copies()
        inputs = [(split.backend_id, of) for split in splits_of(sched) for of in split.inputs[: split.n_inputs]]
        return [
            self._copy(sched.graph.nodes[position], of, backend, 0)
            for position, (backend, of) in zip(self._copy_positions, inputs, strict=True)
        ]

    def _pipeline_copies(self) -> list[dict[str, Any]]:
        # All copies are the first leafs of the scheduler's copy of the graph: graph inputs, then split inputs.
        sched = self.sched
        originals = list(sched.graph_inputs[: sched.n_graph_inputs])
        for split in splits_of(sched):
            originals.extend(split.inputs[: split.n_inputs])
        out = []
        position = 0
        for of in originals:
            for copy in range(sched.n_copies):
                address = sched.graph.leafs[position]
                out.append(self._copy(address, of, sched.leaf_backend_ids[position], copy))
                position += 1
        return out

    def _copy(self, address: int, of: int, backend: int, copy: int) -> dict[str, Any]:
        t = read_tensor(address)
        place = self._place(t)
        return {
            "name": t.name,
            "of": self._name(of),
            "backend": self._backend(backend),
            "copy": copy,
            "buffer": place.buffer,
            "chunk": place.chunk,
            "offset": place.offset,
        }


def check_layout(lib: Lib, world: World, sched: int, graph_size: int, op_offload: bool, debug: int) -> None:
    """Compares what a new scheduler holds with what it must hold. Raises OracleUnavailable if they differ."""
    s = lib.structs["ggml_backend_sched"].from_address(sched)
    galloc = Gallocr.from_address(s.galloc)
    n = len(world.order)
    arena = graph_size * 60 * TENSOR_LAYOUT.size + lib.ggml_graph_overhead_custom(graph_size, False)
    checks = {
        "n_backends": s.n_backends == n,
        "backends": s.backends[:n] == [device.address for device in world.order],
        "bufts": s.bufts[:n] == [device.buft.address for device in world.order],
        "hash_set": s.hash_set.size == hash_size(graph_size),
        "n_copies": s.n_copies == lib.ggml_backend_sched_get_n_copies(sched),
        "splits_capacity": s.splits_capacity == 16,
        "graph_inputs_capacity": s.graph_inputs_capacity == 30,
        "context_buffer_size": s.context_buffer_size == arena,
        "op_offload": s.op_offload == op_offload,
        "debug": s.debug == debug,
        "galloc": galloc.n_buffers == n and galloc.bufts[:n] == s.bufts[:n],
    }
    wrong = [name for name, right in checks.items() if not right]
    if wrong:
        raise OracleUnavailable(f"the scheduler of {lib.said} is not laid out as ggmltool knows it: {', '.join(wrong)}")
