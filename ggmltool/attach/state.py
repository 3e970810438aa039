"""What a program's memory holds of ggml at a moment: addresses as they are, nothing judged.

An address of 0 is NULL. Who reads it is `reading`; what it means in a scenario says `written`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from ggmltool.ggml.buffer import USAGE_NAMES
from ggmltool.ggml.tensor import Dims


class TensorState(NamedTuple):
    """ggml_tensor. `type`, `op` and the words of `op_params` are the program's own numbers; `src` has all its slots."""

    address: int
    type: int
    buffer: int
    ne: Dims
    nb: Dims
    op: int
    op_params: tuple[int, ...]
    flags: int
    src: tuple[int, ...]
    view_src: int
    view_offs: int
    data: int
    name: bytes


class BufferState(NamedTuple):
    """ggml_backend_buffer: `buft` is its type's address, `base` what get_base answers (None: it was not asked)."""

    address: int
    buft: int
    size: int
    usage: int
    base: int | None

    @property
    def usage_name(self) -> str | None:
        """A name of ggml_backend_buffer_usage in lower case; None for a number that is none of it."""
        return USAGE_NAMES[self.usage] if 0 <= self.usage < len(USAGE_NAMES) else None


class BuftState(NamedTuple):
    """ggml_backend_buffer_type, with what it answers; None for what it could not be asked (a core dump)."""

    address: int
    device: int
    name: str | None
    alignment: int | None
    max_size: int | None
    host: bool | None


class DeviceState(NamedTuple):
    """ggml_backend_device, with what it answers: memory in bytes, `type` a name of ggml_backend_dev_type in lower case.
    `events` is whether it says that it has them, or where it could not be asked, that it has a function for them."""

    address: int
    name: str | None
    description: str | None
    type: str | None
    memory_free: int | None
    memory_total: int | None
    events: bool
    buft: int


class BackendState(NamedTuple):
    """ggml_backend: a stream on a device. `functions` are the entries of ggml_backend_i that are not NULL."""

    address: int
    name: str | None
    device: int
    functions: frozenset[str]


class HashSetState(NamedTuple):
    """ggml_hash_set: `keys` are the addresses of tensors by slot."""

    size: int
    keys: Mapping[int, int]


NO_SLOTS = HashSetState(0, MappingProxyType({}))


class GraphState(NamedTuple):
    """ggml_cgraph. `use_counts` are by tensor."""

    address: int
    size: int
    nodes: tuple[int, ...]
    leafs: tuple[int, ...]
    use_counts: Mapping[int, int]
    hash_set: HashSetState


class SplitState(NamedTuple):
    """ggml_backend_sched_split: `inputs` are the tensors that are copied, not their copies."""

    backend_id: int
    i_start: int
    i_end: int
    inputs: tuple[int, ...]
    graph: GraphState | None


class TensorAllocState(NamedTuple):
    """tensor_alloc of ggml-alloc.c: `offset` and `size_max` are bytes."""

    buffer_id: int
    chunk: int
    offset: int
    size_max: int


class FreeBlockState(NamedTuple):
    """free_block of a chunk."""

    offset: int
    size: int


class ChunkState(NamedTuple):
    """A chunk of a dynamic allocator, and the buffer that was made of it (0: none)."""

    max_size: int
    free: tuple[FreeBlockState, ...]
    buffer: int


class HashNodeState(NamedTuple):
    """hash_node of ggml-alloc.c: `offset` is bytes in a chunk of a buffer."""

    n_children: int
    n_views: int
    buffer_id: int
    chunk: int
    offset: int
    allocated: bool


@dataclass(frozen=True, slots=True)
class GallocState:
    """ggml_gallocr: its buffer types and for each of them the chunks (two may share an allocator), and what it planned
    for the graph last: `nodes` have the node's own place and those of its sources, `hash_values` are by slot of its
    hash set. `buffers` are those of each buffer type, by chunk; there may be more of them than chunks, from graphs that
    needed more."""

    address: int
    bufts: tuple[int, ...]
    chunks: tuple[tuple[ChunkState, ...], ...]
    hash_set: HashSetState
    nodes: tuple[tuple[TensorAllocState, tuple[TensorAllocState, ...]], ...]
    leafs: tuple[TensorAllocState, ...]
    hash_values: Mapping[int, HashNodeState] = field(default_factory=dict)
    buffers: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SchedState:
    """ggml_backend_sched. `backend_ids` and `copies` are by tensor: hv_tensor_backend_ids (those set only), and
    hv_tensor_copies as (backend, copy) → tensor; `graph` is the scheduler's own copy of the graph. An `address` of 0:
    there is none, the program computes without (`alone`)."""

    address: int
    is_reset: bool
    is_alloc: bool
    backends: tuple[int, ...]
    bufts: tuple[int, ...]
    galloc: GallocState
    hash_set: HashSetState
    backend_ids: Mapping[int, int]
    copies: Mapping[int, Mapping[tuple[int, int], int]]
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
    graph_size: int
    callback_eval: int
    callback_copy: int
    op_offload: bool


Function = Literal[
    "ggml_backend_sched_reserve",
    "ggml_backend_sched_alloc_graph",
    "ggml_backend_sched_graph_compute_async",
    "ggml_backend_sched_graph_compute",
    "ggml_gallocr_reserve",
    "ggml_gallocr_reserve_n",
    "ggml_gallocr_alloc_graph",
    "ggml_backend_graph_compute",
    "ggml_backend_graph_compute_async",
    "ggml_abort",
]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A scheduler and a graph at a moment: `when` is before or after the call of `function` (or in it, for an abort and
    a core dump). `tensors` are all that are reachable from the graph and from what the scheduler holds; `contexts` are
    the arenas that they lie in, each with its tensors in the order in which they were made; there a tensor takes
    `overhead` bytes. `unread` says what could not be read, in words."""

    function: Function | None
    when: Literal["before", "after", "within"]
    version: str
    release: str
    structs: str
    overhead: int
    sched: SchedState
    graph: GraphState
    tensors: Mapping[int, TensorState]
    buffers: Mapping[int, BufferState]
    bufts: Mapping[int, BuftState]
    devices: Mapping[int, DeviceState]
    backends: tuple[BackendState, ...]
    contexts: tuple[tuple[int, ...], ...] = ()
    type_names: Mapping[int, str] = field(default_factory=dict)
    op_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answers:
    """What the program's devices said of the ops of a graph: by the node's address and the index of the backend.

    `sizes` are what get_alloc_size says of a tensor in a buffer type, bytes, by (tensor, buffer type); `bufts` whether
    a backend's device supports a buffer type, by (backend, buffer type). `asked` counts the calls, `left_out` those
    that did not come back, for which there was no time, and sizes that no tensor has.
    """

    supports: Mapping[tuple[int, int], bool]
    offloads: Mapping[tuple[int, int], bool]
    sizes: Mapping[tuple[int, int], int]
    bufts: Mapping[tuple[int, int], bool]
    asked: int
    left_out: int = 0
