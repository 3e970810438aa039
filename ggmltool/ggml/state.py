"""What a scheduler and its graph allocator hold at a moment: one frozen record for every reader of it.

Numbers name tensors, buffers, buffer types and backends, and are the reader's own: of the engine a tensor's index, of
a buffer the address of its bytes; of memory addresses. None is NULL where a pointer is meant, else what this reader
cannot know; an `address` of 0 is that of a struct that lies nowhere. What a release lacks is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ggmltool.ggml.alloc.common import NodeAlloc, TensorAlloc
from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.tensor import Dims


class TensorState(msgspec.Struct, frozen=True, gc=False):
    """ggml_tensor. `op` is NONE for what no op computes, `op_desc` the function's name for UNARY and GLU (`SILU`);
    `id` is what a scenario calls the tensor, "" where none does."""

    name: str
    id: str
    type: str
    ne: Dims
    nb: Dims
    op: str
    op_desc: str
    op_params: tuple[int, ...]
    flags: int
    src: tuple[int | None, ...]
    view_src: int | None
    view_offs: int
    data: int
    buffer: int | None
    address: int = 0

    @property
    def label(self) -> str:
        """What events call it."""
        return self.id or self.name


class BuftState(msgspec.Struct, frozen=True, gc=False):
    """ggml_backend_buffer_type, with what it answers."""

    device: int
    name: str | None
    alignment: int | None
    max_size: int | None
    host: bool | None


class BufferState(msgspec.Struct, frozen=True, gc=False):
    """ggml_backend_buffer: its type's number, bytes, and `base`, which get_base answers. `chunk` is its place among
    buffers that were allocated together."""

    buft: int
    size: int
    usage: int
    base: int | None
    address: int = 0
    chunk: int = 0

    @property
    def usage_name(self) -> str | None:
        """A name of ggml_backend_buffer_usage in lower case; None for a number that is none of it."""
        return USAGE_NAMES[self.usage] if 0 <= self.usage < len(USAGE_NAMES) else None


class HashSetState(msgspec.Struct, frozen=True, gc=False):
    """ggml_hash_set: `keys` are the tensors in it; `slots` say where, None where no address is known."""

    size: int
    keys: frozenset[int]
    slots: Mapping[int, int] | None = None


NO_SLOTS = HashSetState(0, frozenset(), {})


class GraphState(msgspec.Struct, frozen=True, gc=False):
    """ggml_cgraph. `use_counts` are by tensor; the scheduler's own graph has none, nor a hash set."""

    size: int
    nodes: tuple[int, ...]
    leafs: tuple[int, ...]
    use_counts: Mapping[int, int]
    hash_set: HashSetState
    address: int = 0


class SplitState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """ggml_backend_sched_split: `inputs` are the tensors that are copied, not their copies."""

    backend_id: int
    i_start: int
    i_end: int
    inputs: tuple[int, ...]
    inputs_capacity: int | None


class HashNodeState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """hash_node of ggml-alloc.c: `offset` is bytes in a chunk of a buffer."""

    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


class FreeBlock(NamedTuple):
    """free_block of a chunk, in bytes."""

    offset: int
    size: int


class ChunkState(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a dynamic allocator: the highest byte that was ever used, and the free blocks in order."""

    max_size: int
    free_blocks: tuple[FreeBlock, ...]


class GallocState(msgspec.Struct, frozen=True, gc=False):
    """ggml_gallocr: by buffer type its buffers (one for each chunk; there may be more of them than chunks, from graphs
    that needed more) and the chunks of its allocator, which two may share; and what it planned for the graph last:
    `hash_values` by tensor, and the places of nodes with those of their sources."""

    bufts: tuple[int, ...]
    buffers: tuple[tuple[int, ...], ...]
    buf_tallocs: tuple[tuple[ChunkState, ...], ...]
    hash_set: HashSetState
    hash_values: Mapping[int, HashNodeState]
    node_allocs: tuple[NodeAlloc, ...]
    leaf_allocs: tuple[TensorAlloc, ...]
    address: int = 0


Copies = tuple[tuple[int | None, ...] | None, ...]
"""The copies of a tensor: for each backend one for each pipeline copy, or None."""


class SchedState(msgspec.Struct, frozen=True, gc=False):
    """ggml_backend_sched. `tensor_backend_ids` (those set only), `causes` (GET_CAUSE's texts) and `tensor_copies` are
    by tensor; `graph` is the scheduler's own copy of the graph, `split_graphs` are the views of it that memory has for
    its splits; the callbacks: whether there are any. `graph_size` is what it was made with. An `address` of 0 in
    memory: there is none, the program computes without."""

    is_reset: bool
    is_alloc: bool
    backends: tuple[int, ...]
    bufts: tuple[int, ...]
    galloc: GallocState
    hash_set: HashSetState
    tensor_backend_ids: Mapping[int, int]
    causes: Mapping[int, str] | None
    tensor_copies: Mapping[int, Copies]
    node_backend_ids: tuple[int, ...]
    leaf_backend_ids: tuple[int, ...]
    prev_node_backend_ids: tuple[int, ...]
    prev_leaf_backend_ids: tuple[int, ...]
    graph: GraphState
    splits: tuple[SplitState, ...]
    n_copies: int
    cur_copy: int
    next_copy: int
    graph_inputs: tuple[int, ...]
    graph_inputs_capacity: int | None
    context_buffer_size: int
    graph_size: int
    op_offload: bool
    callback_eval: bool
    callback_copy: bool
    split_graphs: tuple[GraphState | None, ...] = ()
    address: int = 0

    def copies(self) -> Iterator[tuple[int, int, int, int]]:
        """Every copy there is: of which tensor, for which backend, the number of the pipeline copy, and itself."""
        for of, by_backend in self.tensor_copies.items():
            for b, copies in enumerate(by_backend):
                yield from ((of, b, c, copy) for c, copy in enumerate(copies or ()) if copy is not None)

    def copies_of(self, tensor: int) -> list[int]:
        """The copies of one tensor."""
        made = (copies or () for copies in self.tensor_copies.get(tensor, ()))
        return [copy for copies in made for copy in copies if copy is not None]


class State(msgspec.Struct, frozen=True, gc=False):
    """A scheduler of release `ggml` (None: there is none yet), the graph that it was given last, and everything that
    the two refer to. `contexts` are the arenas of tensors, each in the order in which they were made."""

    ggml: str
    sched: SchedState | None
    graph: GraphState | None
    tensors: Mapping[int, TensorState]
    buffers: Mapping[int, BufferState]
    bufts: Mapping[int, BuftState]
    contexts: tuple[tuple[int, ...], ...] = ()
