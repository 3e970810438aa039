"""What the graph allocators of all releases have: the buffer types, the planners, and the places of the last graph."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.dyn_tallocr import Planner
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.vbuffer import HashNodes, NodeAlloc, TensorAlloc, VBuffer


class AnyGallocr:
    """A graph allocator over `bufts`, one buffer id each, with the planners `buf_tallocs` and what they planned for.

    `hash_nodes` is what it knows of each tensor, `hash_size` the number of slots that ggml's hash set has so far.
    `node_allocs` and `leaf_allocs` are the places of the last graph: of each node its own and those of its sources, of
    the nodes `planned_nodes` and the leafs `planned_leafs`. `refused` is the tensor at which it would not go on.
    `inplace` has the nodes that it made views of a source, to be computed in its memory.
    """

    __slots__ = (
        "buf_tallocs",
        "buffers",
        "bufts",
        "hash_nodes",
        "hash_size",
        "inplace",
        "leaf_allocs",
        "node_allocs",
        "planned_leafs",
        "planned_nodes",
        "refused",
    )

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
