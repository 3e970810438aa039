"""What a program's memory holds of ggml at a moment: addresses as they are, nothing judged.

An address of 0 is NULL. Who reads it is `reading`; what it means in a scenario says `written`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ggmltool.ggml.sched.past import Past, PastCopy, past_of_state
from ggmltool.ggml.state import BufferState, BuftState, GraphState, SchedState, State
from ggmltool.scenario.past import MOST_SLOTS
from ggmltool.state.memory.tensors import TensorStruct, tensor_states
from ggmltool.structs.layout import layout
from ggmltool.structs.types import Pointer, bare


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

    @property
    def lacks_cpu(self) -> bool:
        """Whether the scheduler is made up, and lacks the CPU, which every scheduler has as its last backend."""
        device = self.devices.get(self.backends[-1].device)
        return not self.sched.address and (device is None or device.type != "cpu")

    def state(self, ids: Mapping[int, str] | None = None) -> State:
        """What the scheduler and its allocator hold; `ids` are what a scenario calls tensors, by address."""
        tensors = tensor_states(self.tensors, self.type_names, self.op_names, ids)
        return State(self.release, self.sched, self.graph, tensors, self.buffers, self.bufts, self.contexts)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the program's devices said of the ops of a graph: by the node's address and the index of the backend.
    `sizes` are what get_alloc_size says of a tensor in a buffer type, bytes, by (tensor, buffer type); `bufts` whether
    a backend's device supports a buffer type, by (backend, buffer type). `asked` counts the calls, `left_out` those
    that did not come back, for which there was no time, and sizes that no tensor has."""

    supports: Mapping[tuple[int, int], bool]
    offloads: Mapping[tuple[int, int], bool]
    sizes: Mapping[tuple[int, int], int]
    bufts: Mapping[tuple[int, int], bool]
    asked: int
    left_out: int = 0


def past_of(snapshot: Snapshot, backends: Sequence[str], ids: Mapping[int, str]) -> Past:
    """The past of a snapshot's scheduler, over backends of these names. `ids` are those of the graph's tensors by
    address. At a compute of a graph that is allocated, it is the state from which the same call would come to the same
    again."""
    sched, computes = snapshot.sched, bool(snapshot.function and "compute" in snapshot.function)
    past = past_of_state(sched, snapshot.buffers, backends)
    if not computes:
        return past if sched.is_reset else replace(past, copies=tuple(_copies(snapshot, ids)))
    again = past.cur_copy if sched.is_alloc else past.next_copy
    return replace(past, is_reset=True, is_alloc=False, next_copy=again)


class LeftState(NamedTuple):
    """The state in which a call has left a scheduler, without copies, and without `own_size` (0) where that ggml has
    another rule for it than the release that it is planned as. `keys` are the tensors in its hash set, None
    where there may be those of calls before."""

    past: Past
    keys: int | None


def left_by(before: Snapshot, after: Snapshot, backends: Sequence[str]) -> LeftState:
    """What a call has left, of the snapshots around it. A compute of a graph that is allocated allocates nothing: its
    plan allocates the same graph again, whose backends are then those before, too."""
    past = past_of(replace(after, function=None), backends, {})
    if counts_inputs(after.structs) != counts_inputs(after.release):
        past = replace(past, own_size=0)
    if before is after:
        return LeftState(replace(past, prev_node_ids=past.node_ids, prev_leaf_ids=past.leaf_ids), None)
    alone = not before.sched.hash_set.keys and not after.sched.is_reset
    return LeftState(past, len(after.sched.hash_set.keys) if alone else None)


def counts_inputs(structs: str) -> bool:
    """Whether a ggml makes its own graph as large as its splits' inputs need, and not as if each split had the most."""
    member = (layout(structs).struct("ggml_backend_sched_split").members or {})["inputs"]
    return isinstance(bare(member.type), Pointer)


def _copies(snapshot: Snapshot, ids: Mapping[int, str]) -> Iterator[PastCopy]:
    sched, tensors = snapshot.sched, snapshot.tensors
    made = [copy for of, _, _, copy in sched.copies() if copy != of]
    first, step = min(made, default=0), snapshot.overhead
    chunks = {buffer: i for buffers in sched.galloc.buffers for i, buffer in enumerate(buffers)}
    for of, copies in sched.tensor_copies.items():
        if of not in ids:
            continue
        by_backend: dict[int, list[tuple[int, tuple[int, int] | None] | None]] = {}
        for b, copy in ((b, copy) for b, made_of in enumerate(copies) for copy in made_of or () if copy is not None):
            place = None
            t, buffer = tensors.get(copy), None
            if t is not None:
                buffer = snapshot.buffers.get(t.buffer)
            if t is not None and buffer is not None and buffer.base is not None and t.buffer in chunks:
                place = chunks[t.buffer], t.data - buffer.base
            slot, rest = divmod(copy - first, step)
            known = None if copy == of or rest or not 0 <= slot < MOST_SLOTS else (slot, place)
            by_backend.setdefault(b, []).append(known)
        for b, slots in by_backend.items():
            yield PastCopy(ids[of], b, tuple(slots))
