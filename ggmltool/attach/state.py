"""What a program's memory holds of ggml at a moment: addresses as they are, nothing judged.

An address of 0 is NULL. Who reads it is `reading`; what it means in a scenario says `written`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ggmltool.ggml.state import BufferState, BuftState, GraphState, SchedState, State
from ggmltool.state.memory.tensors import TensorStruct, tensor_states


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
    tensors: Mapping[int, TensorStruct]
    buffers: Mapping[int, BufferState]
    bufts: Mapping[int, BuftState]
    devices: Mapping[int, DeviceState]
    backends: tuple[BackendState, ...]
    contexts: tuple[tuple[int, ...], ...] = ()
    type_names: Mapping[int, str] = field(default_factory=dict)
    op_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    def state(self, ids: Mapping[int, str] | None = None) -> State:
        """What the scheduler and its allocator hold; `ids` are what a scenario calls tensors, by address."""
        tensors = tensor_states(self.tensors, self.type_names, self.op_names, ids)
        return State(self.release, self.sched, self.graph, tensors, self.buffers, self.bufts, self.contexts)


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
