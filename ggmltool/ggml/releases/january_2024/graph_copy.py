"""Graph copies of January 2024: a node's sources end at the first empty slot, and flags did not exist."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from ggmltool.ggml import graph_copy
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import LineAssert, advice
from ggmltool.ggml.releases.january_2024.tallocr import alloc_ctx_tensors_from_buft, view_init
from ggmltool.ggml.tensor import Tensor


class Copier(graph_copy.Copier):
    """Makes the tensors of a graph anew, in memory that the allocators of January 2024 lay out."""

    prefix = ""

    @staticmethod
    def alloc_ctx_tensors(ctx: Context, buft: BufferType, addresses: AddressSpace) -> list[Buffer]:
        """ggml_backend_alloc_ctx_tensors of January 2024: one buffer, however large."""
        buffer = alloc_ctx_tensors_from_buft(ctx, buft, addresses)
        return [] if buffer is None else [buffer]

    def sources(self, t: Tensor) -> Iterator[Tensor]:
        """The sources before the first empty slot."""
        return (s for s in takewhile(lambda s: s is not None, t.src) if s is not None)

    def _copied(self, t: Tensor) -> list[Tensor | None]:
        return [self.copies.get(s) for s in self.sources(t)]

    def unallocated(self, t: Tensor) -> LineAssert:
        """The refusal of a tensor without memory."""
        return LineAssert(
            "graph_dup_tensor",
            "ggml-backend.c",
            1496,
            'src->data && "graph must be allocated"',
            f"{t.label} has no memory; {advice('buffer_not_set')}",
        )

    def full(self) -> LineAssert:
        """The refusal of a tensor that is one more than there are slots."""
        return LineAssert(
            "ggml_hash_insert",
            "ggml.c",
            14874,
            "i != GGML_HASHTABLE_FULL",
            f"the graph's hash set has {self.slots} slots, and its nodes need more tensors than that",
        )

    def view_init(self, made: Tensor) -> None:
        """ggml_backend_view_init of a copy, which belongs to its root's buffer."""
        root = made.view_src
        if root is None or root.buffer is None:
            raise LineAssert(
                "ggml_backend_view_init",
                "ggml-backend.c",
                1470,
                "tensor->view_src->buffer != NULL",
                f"{made.label} is a view of something that the copy has no memory for",
            )
        view_init(root.buffer, made)
