"""The graph allocator of January 2024 where somebody listens: it does the same, and tells of every act."""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.alloc.vbuffer import INVALID, TensorAlloc
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.events import Allocated, AllocationStarted, Entered, Freed, Left, Listener, NotReused, Reused
from ggmltool.ggml.releases.january_2024.gallocr import Gallocr
from ggmltool.ggml.releases.january_2024.tallocr import Tallocr
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.why import NO_FACTS, Facts, Why


class Telling(Gallocr):
    """A graph allocator that tells `tell` what it does, and writes down where it placed the tensors of each graph.

    `_holders` has the node that was computed last in the memory of a tensor, by that one's index.
    """

    __slots__ = ("_holders", "tell")

    def __init__(self, bufts: Sequence[BufferType], names: Sequence[str], tell: Listener) -> None:
        super().__init__(bufts, names)
        self.tell = tell
        self._holders: dict[int, Tensor] = {}

    def alloc_graph_n(
        self,
        nodes: list[Tensor],
        leafs: list[Tensor],
        hash_size: int,
        ids: Sequence[int],
        tallocs: Sequence[Tallocr],
    ) -> None:
        super().alloc_graph_n(nodes, leafs, hash_size, ids, tallocs)
        self.node_allocs = [
            (self._place_of(n), tuple(INVALID if s is None else self._place_of(s) for s in n.src)) for n in nodes
        ]
        self.leaf_allocs = [self._place_of(t) for t in leafs]

    def _place_of(self, t: Tensor) -> TensorAlloc:
        tallocr = self._tallocr(t)
        if t.view_src is not None or tallocr is None or t.buffer is not tallocr.buffer:
            return INVALID
        return TensorAlloc(self._ids[t.index], 0, t.data - tallocr.base, t.buffer.buft.get_alloc_size(t))

    def _walk(self, function: str, nodes: list[Tensor], ids: Sequence[int], tallocs: Sequence[Tallocr]) -> None:
        self.tell(Entered(function))
        self._holders = {}
        super()._walk(function, nodes, ids, tallocs)
        self.tell(Left(function))

    def _count(self, nodes: list[Tensor]) -> None:
        self.tell(AllocationStarted(-1, ""))
        for alloc, t in self.placed:
            self._tell_place(alloc, t)
        super()._count(nodes)

    def _tell_place(self, alloc: Tallocr, t: Tensor) -> None:
        self.tell(Allocated(t.label, alloc.name, 0, t.data - alloc.base, alloc.size_of(t)))

    def _allocate(self, i: int, n: Tensor) -> None:
        self.tell(AllocationStarted(i, n.label))
        super()._allocate(i, n)

    def _place(self, alloc: Tallocr, n: Tensor) -> None:
        super()._place(alloc, n)
        self._tell_place(alloc, n)

    def _why_not(self, alloc: Tallocr, n: Tensor, parent: Tensor) -> Why | None:
        why = super()._why_not(alloc, n, parent)
        if why is not None:
            self.tell(NotReused(n.label, parent.label, why, self._facts(why, alloc, parent)))
        return why

    def _facts(self, why: Why, alloc: Tallocr, parent: Tensor) -> Facts:
        hn, root = self.hash_nodes, parent.view_src or parent
        match why:
            case Why.OTHER_BUFFER:
                return Facts(buft=alloc.name)
            case Why.IN_USE:
                return Facts(n_children=hn.n_children[parent.index], n_views=hn.n_views[parent.index])
            case Why.ROOT_IN_USE:
                n_children, n_views = hn.n_children[root.index], hn.n_views[root.index]
                return Facts(tensor=root.label, n_children=n_children, n_views=n_views)
            case Why.INSIDE_ROOT:
                return Facts(tensor=root.label)
            case _:
                return NO_FACTS

    def _take_over(self, alloc: Tallocr, n: Tensor, root: Tensor) -> None:
        super()._take_over(alloc, n, root)
        holder = self._holders.get(root.index, root)
        self.tell(Reused(n.label, holder.label, alloc.name, 0, n.data - alloc.base))
        self._holders[root.index] = n

    def _free_node(self, n: Tensor) -> None:
        super()._free_node(n)
        holder = self._holders.pop(n.index, n)
        alloc = self._tallocr(n)
        if alloc is not None and alloc.is_own(n):
            self.tell(Freed(holder.label, alloc.name, 0, n.data - alloc.base, alloc.size_of(n)))
