"""What the graph allocators of all releases have: buffer types, planners, places of the last graph, its hash set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from ggmltool.ggml.alloc.dyn_tallocr import Planner
from ggmltool.ggml.buffer import USAGE_COMPUTE, AddressSpace, Buffer, BufferType, Outgrown
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor


class TensorAlloc(msgspec.Struct, frozen=True, gc=False):
    """tensor_alloc: where the plan puts a tensor. `size_max` is 0 for a tensor that is pre-allocated or a view."""

    buffer_id: int
    chunk: int
    offset: int
    size_max: int


NodeAlloc = tuple[TensorAlloc, tuple[TensorAlloc, ...]]
"""node_alloc: where the plan puts a node, and each of its sources."""

INVALID = TensorAlloc(-1, -1, -1, 0)


class HashNodes:
    """struct hash_node of every tensor, as lists indexed by the tensor's index.

    `size` is what a tensor that was allocated takes in the buffer type of `buffer_id`, which ggml asks for anew.
    """

    __slots__ = ("allocated", "buffer_id", "chunk", "n_children", "n_views", "offset", "size")

    def __init__(self, n: int) -> None:
        self.n_children = [0] * n
        self.n_views = [0] * n
        self.buffer_id = [0] * n
        self.chunk = [0] * n
        self.offset = [0] * n
        self.size = [0] * n
        self.allocated = bytearray(n)


class VBuffer:
    """vbuffer: the real buffers of one planner, one for each of its chunks, of these sizes."""

    __slots__ = ("chunks",)

    def __init__(self, buft: BufferType, sizes: Iterable[int], addresses: AddressSpace) -> None:
        self.chunks: list[Buffer] = []
        for i, size in enumerate(sizes):
            buffer = Buffer(buft, size, addresses, USAGE_COMPUTE)
            buffer.chunk = i
            self.chunks.append(buffer)

    def chunk_size(self, chunk: int) -> int:
        return self.chunks[chunk].size if chunk < len(self.chunks) else 0

    def size(self) -> int:
        """ggml_vbuffer_size."""
        return sum(b.size for b in self.chunks)

    def free(self, new_size: int, addresses: AddressSpace) -> None:
        """ggml_vbuffer_free, to make a buffer of `new_size` bytes in its place."""
        if not self.chunks:
            return
        freed = Outgrown(self.chunks[0].buft.name, self.size(), new_size, addresses.step)
        for b in self.chunks:
            b.freed = freed
        addresses.has_freed = True


class AnyGallocr:
    """A graph allocator over `bufts`, one buffer id each, with the planners `buf_tallocs` and what they planned for.

    `hash_nodes` is what it knows of each tensor, `hash_size` the number of slots that ggml's hash set has so far.
    `node_allocs` and `leaf_allocs` are the places of the last graph: of each node its own and those of its sources, of
    the nodes `planned_nodes` and the leafs `planned_leafs`. `refused` is the tensor at which it would not go on.
    `inplace` has the nodes that it made views of a source, to be computed in its memory.
    """

    __slots__ = (
        "buf_tallocs", "buffers", "bufts", "hash_nodes", "hash_size", "inplace", "leaf_allocs", "node_allocs",
        "planned_leafs", "planned_nodes", "refused",
    )  # fmt: skip

    buf_tallocs: Sequence[Planner]

    def __init__(self, bufts: list[BufferType]) -> None:
        self.bufts = bufts
        self.buffers: list[VBuffer | None] = []
        self.hash_nodes = HashNodes(0)
        self.hash_size = 0
        self.inplace: AbstractSet[int] = frozenset()
        self.node_allocs: list[NodeAlloc] = []
        self.leaf_allocs: list[TensorAlloc] = []
        self.planned_nodes: list[Tensor] = []
        self.planned_leafs: list[Tensor] = []
        self.refused: Tensor | None = None


def hash_keys(nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the allocator's hash set, in the order ggml_gallocr_alloc_graph_impl first looks them up."""
    return list({look_up.tensor.index: look_up.tensor for look_up in _look_ups(nodes, leafs)}.values())


def hash_keys_so_far(gallocr: AnyGallocr, at: int) -> list[Tensor]:
    """The tensors in the allocator's hash set when it refused to go on, while it walked node `at` (-1: before)."""
    keys: dict[int, Tensor] = {}
    refused = gallocr.refused
    for look_up in _look_ups(gallocr.planned_nodes, gallocr.planned_leafs):
        here = look_up.tensor is refused and look_up.at == at
        if here and not gallocr.hash_nodes.allocated[look_up.tensor.index]:
            break  # it has no backend, which is asked before the look-up
        keys.setdefault(look_up.tensor.index, look_up.tensor)
        # A refused tensor was to get memory: a node its own, a source for the node that still counts on it.
        t, n_children = look_up.tensor, gallocr.hash_nodes.n_children
        if here and look_up.frees == (at >= 0 and t is not gallocr.planned_nodes[at] and n_children[t.index] <= 0):
            break
    return list(keys.values())


class _LookUp(NamedTuple):
    """`tensor` is looked up while node `at` is walked (-1: before the first), to give memory back where `frees`."""

    at: int
    tensor: Tensor
    frees: bool = False


def _look_ups(nodes: Sequence[Tensor], leafs: Sequence[Tensor]) -> Iterator[_LookUp]:
    """What ggml_gallocr_alloc_graph_impl looks up in its hash set, in order."""
    n_children: dict[int, int] = {}
    n_views: dict[int, int] = {}
    for t in leafs:
        yield _LookUp(-1, t)
    for n in nodes:
        if n.view_src is not None and n.op:
            yield _LookUp(-1, n.view_src)
            n_views[n.view_src.index] = n_views.get(n.view_src.index, 0) + 1
        if n.flags & FLAG_INPUT:
            yield _LookUp(-1, n)
        for s in n.src:
            if s is not None:
                yield _LookUp(-1, s)
                n_children[s.index] = n_children.get(s.index, 0) + 1
    for at, n in enumerate(nodes):
        sources = [s for s in n.src if s is not None]
        for s in sources:
            yield _LookUp(at, s)
        yield _LookUp(at, n)
        for s in sources:
            n_children[s.index] -= 1
            yield _LookUp(at, s, True)
            root = s.view_src
            if root is not None and not n_children[s.index] and not n_views.get(s.index, 0):
                # Looking the root up is what puts it into the set; a view without an op may be the first to do so.
                yield _LookUp(at, root, True)
                n_views[root.index] = n_views.get(root.index, 0) - 1
