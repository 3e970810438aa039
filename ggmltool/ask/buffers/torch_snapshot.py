"""A memory plan as the memory viewer of PyTorch reads it (pytorch.org/memory_viz): what torch.cuda.memory._snapshot()
gives, pickled.

A chunk of a compute buffer is a segment, a tensor in it an allocation; the events are in program order. The stack of an
allocation has the tensor, why it is there, and ggml's functions. A device has a number in that format, not a name.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ggmltool.ask.buffers.record import buffers_of
from ggmltool.ggml.events import Allocated, Event, Freed, Reused
from ggmltool.ggml.plan import Plan
from ggmltool.inspect.memory import MemoryPlan, TensorLifetime
from ggmltool.scenario.tensor_info import Tensors
from ggmltool.show.text import printable
from ggmltool.state.errors import InspectError
from ggmltool.state.story.calls import calls_of
from ggmltool.state.story.frames import innermost

PROTOCOL = 4
"""The newest protocol of pickle that the viewer's own reader knows."""

_APART = 1 << 36
"""Segments begin at multiples of this, so that the last nine digits of an address are the offset in the chunk."""
_EXACT = 1 << 53
"""Whole numbers below this are exact in JavaScript."""
_CALLS = {
    "reserve": "ggml_backend_sched_reserve",
    "alloc": "ggml_backend_sched_alloc_graph",
    "measure": "ggml_backend_sched_init_measure",
    "compute": "ggml_backend_sched_graph_compute",
}
"""The call in which a step plans memory."""

_Dict = dict[str, Any]


class _Chunk(NamedTuple):
    """A chunk of a buffer: the number of its device, its address there and its bytes."""

    device: int
    address: int
    size: int


def snapshot_pickle(plan: Plan, memory: MemoryPlan, tensors: Tensors, numbers: Mapping[str, int]) -> bytes:
    """The plan as a file for the viewer; `numbers` are those of the nodes in the graph. Raises InspectError where its
    bytes are too many for that."""
    return pickle.dumps(snapshot(plan, memory, tensors, numbers), PROTOCOL)


def devices_of(plan: Plan, memory: MemoryPlan) -> list[str]:
    """The backends whose buffers are the viewer's devices, by their numbers there."""
    return [buffer.backend for buffer in buffers_of(plan, memory) if buffer.shared is None and any(buffer.chunks)]


def snapshot(plan: Plan, memory: MemoryPlan, tensors: Tensors, numbers: Mapping[str, int]) -> _Dict:
    """The plan as builtins: segments with the blocks that are there at the end, and what happened on each device."""
    devices = devices_of(plan, memory)
    chunks = _chunks(plan, memory, devices)
    stacks = _Stacks(plan, memory, tensors, numbers)
    traces: list[list[_Dict]] = [[] for _ in devices]
    for (buft, number), chunk in chunks.items():
        traces[chunk.device].append(_event("segment_alloc", chunk.address, chunk.size, stacks.of_chunk(buft, number)))
    for life, begins in _in_order(memory):
        chunk = chunks[life.buft, life.chunk]
        actions = ("alloc",) if begins else ("free_requested", "free_completed")
        frames = stacks.of(life, begins)
        traces[chunk.device] += [_event(action, chunk.address + life.offset, life.size, frames) for action in actions]
    segments = [_segment(chunk, *place, memory, stacks) for place, chunk in chunks.items()]
    return {"segments": segments, "device_traces": traces}


def _chunks(plan: Plan, memory: MemoryPlan, devices: Sequence[str]) -> Mapping[tuple[str, int], _Chunk]:
    """The chunks by their buffer type and number. A buffer that was reserved larger is as large as it is."""
    out: dict[tuple[str, int], _Chunk] = {}
    for buffer in buffers_of(plan, memory):
        if buffer.backend not in devices:
            continue
        address = _APART
        for number, size in enumerate(buffer.chunks):
            whole = max(size, buffer.size) if len(buffer.chunks) == 1 else size
            out[buffer.buft, number] = _Chunk(devices.index(buffer.backend), address, whole)
            address += -(-max(whole, 1) // _APART) * _APART
        if address > _EXACT:
            raise InspectError(
                f"{buffer.buft} is larger than the numbers of PyTorch's memory viewer, which end at 8 PiB"
            )
    return out


def _in_order(memory: MemoryPlan) -> Iterator[tuple[TensorLifetime, bool]]:
    """Every lifetime as it begins (True) and as it ends, by the nodes that the allocator walks. What is taken over by
    the node for which it was allocated ends at once."""
    moments: list[tuple[int, int, int, bool]] = []
    for number, life in enumerate(memory.lifetimes):
        moments.append((life.start, 0, number, True))
        if life.end is not None:
            moments.append((life.start, 0, number, False) if life.end < life.start else (life.end, 1, number, False))
    return ((memory.lifetimes[number], begins) for *_, number, begins in sorted(moments, key=lambda at: at[:3]))


def _event(action: str, address: int, size: int, frames: list[_Dict]) -> _Dict:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames}


def _segment(chunk: _Chunk, buft: str, number: int, memory: MemoryPlan, stacks: _Stacks) -> _Dict:
    """A chunk as it is at the end: what is still there, and what is free between."""
    left = [life for life in memory.of(buft, number) if life.end is None]
    blocks: list[_Dict] = []
    at = 0
    for life in sorted(left, key=lambda life: life.offset):
        if life.offset > at:
            blocks.append(_block(life.offset - at, "inactive", []))
        blocks.append(_block(life.size, "active_allocated", stacks.of(life, True)))
        at = life.offset + life.size
    if at < chunk.size:
        blocks.append(_block(chunk.size - at, "inactive", []))
    used = sum(life.size for life in left)
    return {
        "device": chunk.device, "address": chunk.address, "total_size": chunk.size, "allocated_size": used,
        "active_size": used, "requested_size": used, "stream": 0, "segment_type": "large",
        "frames": stacks.of_chunk(buft, number), "blocks": blocks,
    }  # fmt: skip


def _block(size: int, state: str, frames: list[_Dict]) -> _Dict:
    return {"size": size, "requested_size": size, "state": state, "frames": frames}


class _Stacks:
    """The stack of each event: first what it is about, then ggml's functions, innermost first."""

    def __init__(self, plan: Plan, memory: MemoryPlan, tensors: Tensors, numbers: Mapping[str, int]) -> None:
        self.memory = memory
        self.turns = memory.turns(numbers)
        self.numbers = numbers
        self.tensors = tensors
        self.backends = {buft: name for name, buft in reversed(plan.backends)}
        call = _CALLS[plan.step]
        self._calls = {
            event: _functions(plan.ggml, made, call)
            for event, made in (
                ("alloc", Allocated("", "", 0, 0, 0)),
                ("reuse", Reused("", "", "", 0, 0)),
                ("free", Freed("", "", 0, 0, 0)),
            )
        }
        self._known: dict[tuple[TensorLifetime, bool], list[_Dict]] = {}

    def of(self, life: TensorLifetime, begins: bool) -> list[_Dict]:
        """Of a lifetime that begins or ends."""
        if (life, begins) not in self._known:
            step = life.start if begins else -1 if life.end is None else life.end
            kind = "free" if not begins else "reuse" if life.reused else "alloc"
            functions = [_frame("ggml", 0, name) for name in self._calls[kind]]
            number = self.numbers.get(self.memory.nodes[step], 0) if 0 <= step < len(self.memory.nodes) else 0
            info = self.tensors.get(life.tensor)
            what = f"{info.op} {info.shape}" if info is not None else "a copy that the scheduler made"
            node = "before the first node" if step < 0 else f"at node {self.turns[step]}"
            why = f"in the memory of {life.reused}, {node}" if life.reused else f"allocated {node}"
            if begins and life.kept:
                why += ", and it is an output, which stays"
            elif not begins:
                why = f"nothing needs it any more, {node}"
            self._known[life, begins] = [_frame(life.tensor, number, what), _frame("why", 0, why), *functions]
        return self._known[life, begins]

    def of_chunk(self, buft: str, number: int) -> list[_Dict]:
        """Of a chunk."""
        return [_frame(buft, number, f"chunk {number} of the compute buffer of {self.backends.get(buft, buft)}")]


def _frame(file: str, line: int, name: str) -> _Dict:
    """A frame, which the viewer shows as file:line:name."""
    return {"filename": printable(file), "line": line, "name": printable(name)}


def _functions(ggml: str, event: Event, call: str) -> list[str]:
    """ggml's functions from the one in which an event comes about to the `call` of the step."""
    calls, most = calls_of(ggml), innermost(event)
    stations = [] if most is None else [calls.called(function) for function in (most.function, *most.via)]
    out = [f for inner, outer in pairwise((*stations, call)) for f in calls.path(inner, outer)]
    return [*out, call]
