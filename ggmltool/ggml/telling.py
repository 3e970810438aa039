"""The graph allocator where somebody listens: it does the same, and tells of every act."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from ggmltool.ggml.alloc.gallocr import Gallocr
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.events import (
    Allocated,
    AllocationStarted,
    Entered,
    Freed,
    Grown,
    Kept,
    Left,
    Listener,
    NotReused,
    ReallocNeeded,
    Reused,
)
from ggmltool.ggml.tensor import FLAG_OUTPUT, Tensor
from ggmltool.ggml.why import NO_FACTS, Facts, Why


class Telling(Gallocr):
    """A graph allocator that tells `tell` what it does."""

    __slots__ = ("tell",)

    tell: Listener

    def reserve_n(self, *args: Any, **kwargs: Any) -> bool:
        self.tell(Entered("ggml_gallocr_reserve_n"))
        done = super().reserve_n(*args, **kwargs)
        self.tell(Left("ggml_gallocr_reserve_n"))
        return done

    def growing(self, buft: BufferType, size: int, new_size: int) -> None:
        super().growing(buft, size, new_size)
        self.tell(Grown(buft.name, size, new_size))

    def _alloc_graph_impl(self, *args: Any) -> None:
        self.tell(AllocationStarted(-1, ""))
        super()._alloc_graph_impl(*args)

    def _in_turn(self, nodes: list[Tensor]) -> Iterator[Tensor]:
        for i, node in enumerate(nodes):
            self.tell(AllocationStarted(i, node.label))
            yield node

    def _parent_to_take_over(self, node: Tensor) -> Tensor | None:
        for parent in node.src:
            if parent is None:
                continue
            why = self._why_not(node, parent)
            if why is None:
                return parent
            self.tell(NotReused(node.label, parent.label, why, self._facts(why, parent)))
        return None

    def _facts(self, why: Why, parent: Tensor) -> Facts:
        hn = self.hash_nodes
        if why is Why.VIEWS:
            return Facts(n_views=hn.n_views[parent.index])
        return Facts(n_children=hn.n_children[parent.index]) if why is Why.CHILDREN else NO_FACTS

    def _take_over(self, node: Tensor, parent: Tensor) -> None:
        super()._take_over(node, parent)
        self.tell(Reused(node.label, parent.label, *self._at(node)))

    def _place(self, node: Tensor, buffer_id: int) -> None:
        super()._place(node, buffer_id)
        self.tell(Allocated(node.label, *self._at(node), *self._sizes(node, node)))

    def _free_extra_space(self, node: Tensor, parent: Tensor) -> None:
        super()._free_extra_space(node, parent)
        kept, _ = self._sizes(node, parent)
        buft, chunk, offset = self._at(parent)
        extra = self._sizes(parent, parent)[0] - kept
        if extra > 0:
            self.tell(Freed(parent.label, buft, chunk, offset + kept, extra, extra=True, asked=extra))

    def _free_node(self, node: Tensor) -> None:
        super()._free_node(node)
        if node.flags & FLAG_OUTPUT:
            self.tell(Kept(node.label))
        else:
            size, asked = self._sizes(node, node)
            self.tell(Freed(node.label, *self._at(node), size, asked=asked))

    def _at(self, t: Tensor) -> tuple[str, int, int]:
        hn, i = self.hash_nodes, t.index
        return self.bufts[hn.buffer_id[i]].name, hn.chunk[i], hn.offset[i]

    def _sizes(self, t: Tensor, where: Tensor) -> tuple[int, int]:
        """The bytes that a tensor takes in the buffer type of another one's memory: rounded up, and before that."""
        buft = self.bufts[self.hash_nodes.buffer_id[where.index]]
        size = buft.get_alloc_size(t)
        return (size + buft.alignment - 1) // buft.alignment * buft.alignment, size

    def realloc_needed(self, why: ReallocNeeded) -> None:
        super().realloc_needed(why)
        self.tell(why)

    def _init_tensors(self, nodes: list[Tensor], leafs: list[Tensor]) -> None:
        self.tell(Entered("ggml_gallocr_alloc_graph"))
        super()._init_tensors(nodes, leafs)
        self.tell(Left("ggml_gallocr_alloc_graph"))


@cache
def telling(kind: type[Gallocr]) -> type[Telling]:
    """The allocators of a kind that tell."""
    return type(f"Telling{kind.__name__}", (Telling, kind), {"__slots__": ()})
