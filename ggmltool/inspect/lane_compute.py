"""One batch of a graph as lanes: splits with their nodes, copies with arrows to who reads them, and the bytes alive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ggmltool.estimate.timeline import Doing, Stretch, Way
from ggmltool.estimate.work import NodeWork
from ggmltool.ggml.plan import NodePlan, Plan, SplitPlan
from ggmltool.inspect.history.calls import calls_of
from ggmltool.inspect.lane_times import Batch
from ggmltool.inspect.lanes import (
    COMPUTE,
    COPIES,
    Arrow,
    DeviceLane,
    HostLane,
    Lanes,
    Level,
    Slice,
    inside,
    nanoseconds,
)
from ggmltool.inspect.memory import MemoryPlan
from ggmltool.scenario.tensor_info import Tensors


class Computed(NamedTuple):
    """What was drawn of a batch: the slice of each node, of each split, and of each copy by split and tensor."""

    nodes: dict[str, Slice]
    splits: dict[int, Slice]
    copies: dict[tuple[int, str], Slice]


class Devices:
    """The lanes of all devices."""

    def __init__(self, lanes: Lanes) -> None:
        self.compute = {name: DeviceLane(lanes, name, COMPUTE) for name in lanes.backends}
        self.copies = {name: DeviceLane(lanes, name, COPIES) for name in lanes.backends}


def draw_batch(host: HostLane, devices: Devices, plan: Plan, batch: Batch, tensors: Tensors, n_copies: int) -> Computed:
    """Draw the batch from now on: what the host does and waits for, what devices compute, and the copies."""
    start = host.now
    drawn = Computed({}, {}, {})
    for stretch in batch.table:
        at = start + nanoseconds(stretch.start), start + nanoseconds(stretch.end)
        split = plan.splits[stretch.step]
        match stretch.doing:
            case Doing.WAIT:
                host.call(waiting(stretch.backend, n_copies), {"waits_for": stretch.backend}, *at)
            case Doing.COPY:
                _draw_copy(host, devices, batch, split, stretch, at, drawn)
            case Doing.COMPUTE:
                _draw_split(devices, plan, batch, split, at, tensors, drawn)
                _call_compute(host, batch, split, stretch, drawn.splits[split.id])
    draw_arrows(host.lanes, plan, tensors, drawn)
    return drawn


def waiting(backend: str, n_copies: int) -> str:
    """The call by which the host waits for a backend."""
    return f"ggml_backend_event_synchronize({backend})" if n_copies > 1 else f"ggml_backend_synchronize({backend})"


def _draw_copy(
    host: HostLane,
    devices: Devices,
    batch: Batch,
    split: SplitPlan,
    stretch: Stretch,
    at: tuple[int, int],
    drawn: Computed,
) -> None:
    id, made = split.inputs[stretch.copy], batch.steps[stretch.step].copies[stretch.copy]
    args = {
        "tensor": id,
        "from": made.source or None,
        "to": split.backend,
        "bytes": batch.copied[stretch.step][stretch.copy],
        "way": made.way.value,
        "split": split.id,
    }
    drawn.copies[split.id, id] = devices.copies[split.backend].add(id, "copy", *at, args)
    if made.way in (Way.QUEUED, Way.EXPERTS_QUEUED):
        host.mark(f"ggml_backend_tensor_copy_async({id})", {"to": split.backend})
    else:
        function = calls_of(host.lanes.release).copy
        host.call(f"{function}({id})", {"to": split.backend}, *at)


def _draw_split(
    devices: Devices,
    plan: Plan,
    batch: Batch,
    split: SplitPlan,
    at: tuple[int, int],
    tensors: Tensors,
    drawn: Computed,
) -> None:
    nodes = plan.nodes[split.i_start : split.i_end]
    args = {"backend": split.backend, "nodes": len(nodes), "inputs": list(split.inputs)}
    outer = devices.compute[split.backend].add(f"split {split.id}", "split", *at, args, alone=True)
    drawn.splits[split.id] = outer
    for n, (start, end) in zip(nodes, inside(outer, (batch.node_ns.get(n.id, 0) for n in nodes)), strict=True):
        made = Slice(outer.lane, n.id, "node", start, end, node_args(n, batch.works.get(n.id), tensors), 1)
        devices.compute[split.backend].lanes.slices.append(made)
        drawn.nodes[n.id] = made


def node_args(n: NodePlan, work: NodeWork | None, tensors: Tensors) -> dict[str, Any]:
    """What is said of a node."""
    info = tensors.get(n.id)
    return {
        "op": n.op_desc,
        "type": n.type,
        "shape": list(n.ne),
        "src": list(n.src),
        "result_bytes": info.nbytes if info is not None else None,
        "touched_bytes": round(work.nbytes) if work is not None else None,
        "flops": round(work.operations) if work is not None else None,
        "node": n.index,
        "split": n.split,
        "cause": n.cause,
        "buffer": n.buffer,
        "chunk": n.chunk,
        "offset": n.offset,
    }


def _call_compute(host: HostLane, batch: Batch, split: SplitPlan, stretch: Stretch, drawn: Slice) -> None:
    """A device is given its nodes; the host itself computes them."""
    name = f"{calls_of(host.lanes.release).compute}({split.backend})"
    if batch.steps[stretch.step].waits:
        host.call(name, {"split": split.id}, drawn.start, drawn.end)
    else:
        host.mark(name, {"split": split.id})


def draw_arrows(lanes: Lanes, plan: Plan, tensors: Tensors, drawn: Computed) -> None:
    """Of every copy: from the node that made the tensor, by the copy, to the first node that reads it."""
    names: dict[tuple[str, str], set[str]] = {}
    for c in plan.copies:
        names.setdefault((c.of, c.backend), set()).add(c.name)
    by_id = {n.id: n for n in plan.nodes}
    for (number, id), copy in drawn.copies.items():
        split = plan.splits[number]
        made = _maker(id, number, by_id, tensors)
        copied = names.get((id, split.backend), set())
        reader = next((n for n in plan.nodes[split.i_start : split.i_end] if copied & set(n.src)), None)
        stops = [s for s in _stop(drawn, made) if s.start < copy.start] if made is not None else []
        stops += [copy, *(_stop(drawn, reader) if reader is not None else _split_stop(drawn, number))]
        lanes.arrows.append(Arrow(id, tuple(stops)))


def _maker(id: str | None, split: int, by_id: dict[str, NodePlan], tensors: Tensors) -> NodePlan | None:
    """The node of an earlier split that made a tensor: of a view that comes later, the one whose memory it views."""
    while id is not None:
        n, info = by_id.get(id), tensors.get(id)
        if n is not None and n.split < split:
            return n
        id = info.view_src if info is not None else None
    return None


def _stop(drawn: Computed, n: NodePlan) -> Iterator[Slice]:
    """A node's slice, or that of its split where the node takes no time."""
    made = drawn.nodes.get(n.id)
    if made is not None and made.end > made.start:
        yield made
    else:
        yield from _split_stop(drawn, n.split)


def _split_stop(drawn: Computed, split: int) -> Iterator[Slice]:
    made = drawn.splits.get(split)
    if made is not None:
        yield made


def draw_memory(
    lanes: Lanes,
    plan: Plan,
    memory: MemoryPlan,
    walked: Sequence[str],
    drawn: Computed,
    span: tuple[int, int],
) -> None:
    """The bytes that are alive in each buffer while the batch is computed, in program order.

    `walked` are the nodes that the allocator walks. What is freed by a node is gone when the next one begins.
    """
    times = _times(plan, walked, drawn, span[0])
    process = {buft: name for name, buft in reversed(plan.backends)}
    sizes = dict(plan.buffer_sizes)
    for buft in dict.fromkeys(life.buft for life in memory.lifetimes):
        backend = process.get(buft)
        if backend is None:
            continue
        alive = _alive(memory, buft, len(walked))
        levels = [*zip([span[0], *times], alive, strict=False), (span[1], _left(memory, buft))]
        last: int | None = None
        for at, nbytes in levels:
            if nbytes != last:
                values = {"live": nbytes, "size": sizes.get(backend, 0)}
                lanes.levels.append(Level(backend, f"{buft} compute buffer", at, values))
            last = nbytes


def _times(plan: Plan, walked: Sequence[str], drawn: Computed, start: int) -> list[int]:
    """When each node that the allocator walks is come to; what nobody computes, when the one behind it is."""
    at: dict[str, int] = {id: made.start for id, made in drawn.nodes.items()}
    for c in plan.copies:
        for split in plan.splits:
            made = drawn.copies.get((split.id, c.of)) if split.backend == c.backend else None
            if made is not None:
                at.setdefault(c.name, made.start)
    found: list[int | None] = [at.get(name) for name in walked]
    following: int | None = None
    for i in range(len(found) - 1, -1, -1):
        found[i] = following = found[i] if found[i] is not None else following
    out: list[int] = []
    now = start
    for time in found:
        now = max(now, time or now)
        out.append(now)
    return out


def _alive(memory: MemoryPlan, buft: str, steps: int) -> list[int]:
    """The bytes alive before the first node, and while each is computed."""
    change = [0] * (steps + 2)
    for life in memory.of(buft):
        change[life.start + 1] += life.size
        if life.end is not None:
            change[life.end + 2] -= life.size
    out, alive = [], 0
    for delta in change[:-1]:
        alive += delta
        out.append(alive)
    return out


def _left(memory: MemoryPlan, buft: str) -> int:
    return sum(life.size for life in memory.of(buft) if life.end is None)
