"""Passes 1 to 4 of ggml_backend_sched_split_graph, one function each: a backend for every tensor.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that set it). View ops are invisible to passes 2 and 3. Where somebody listens, a rule that is asked
and does not settle a tensor says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, advice
from ggmltool.ggml.events import Assigned, PassedOver, Refused
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, Tensor, op_desc
from ggmltool.ggml.why import NO_FACTS, Facts, Sweep, Why

if TYPE_CHECKING:
    from ggmltool.ggml.sched.state import SchedulerState

NULL_KEY = -1

SWEEPS = tuple(Sweep(down, skips_last) for skips_last in (True, False) for down in (True, False))
"""The sweeps of pass 2."""


def backend_from_buffer(s: SchedulerState, tensor: Tensor, op: Tensor) -> int:
    """ggml_backend_sched_backend_from_buffer: the first backend that can use the tensor's memory and run `op`."""
    buffer = tensor.view_src.buffer if tensor.view_src is not None else tensor.buffer
    if buffer is None:
        return -1
    buft = buffer.buft
    for b, usable in enumerate(s.usable_bufts):
        if buft in usable and s.backends[b].device.supports_op(op):
            return b
    s.debug_log(
        f"ggml_backend_sched_backend_from_buffer: warning: no backend supports op {op_desc(tensor)} with a weight "
        f"with buffer type {buffer.name} used in tensor {tensor.name}, the weight will need to be copied"
    )
    return -1


def assign_from_buffers(s: SchedulerState, graph: CGraph) -> None:
    """Pass 1: tensors that have memory, inputs, and ops with weights, in this order; the user's choices stay."""
    ids = s.ids
    for tensors in (graph.leafs, graph.nodes):
        for t in tensors:
            if ids[t.index] == -1:
                ids[t.index] = _backend_id_from_cur(s, t)


def _backend_id_from_cur(s: SchedulerState, t: Tensor) -> int:
    """ggml_backend_sched_backend_id_from_cur."""
    root = t.view_src
    buffer = root.buffer if root is not None else t.buffer
    if buffer is not None:
        b = backend_from_buffer(s, t, t)
        if b == -1:
            if root is not None:
                backend_from_buffer(s, root, t)
            raise _cannot_run(s, t, buffer.buft)
        s.causes[t.index] = "1.dst"
        if s.events:
            _pass_higher(s, t, "1.dst", buffer.buft, b)
            facts = Facts(buft=buffer.buft.name)
            s.events(Assigned(t.id, s.names[b], 1, "1.dst", Why.MEMORY, (root or t).label, facts))
        return b
    if s.events:
        s.events(PassedOver(t.id, 1, "1.dst", Why.NO_MEMORY))
    if t.flags & FLAG_INPUT:
        b = len(s.backends) - 1
        s.causes[t.index] = "1.inp"
        if s.events:
            s.events(Assigned(t.id, s.names[b], 1, "1.inp", Why.INPUT, t.id))
        return b
    if s.events:
        s.events(PassedOver(t.id, 1, "1.inp", Why.NOT_INPUT))
    if t.op in s.rules.ignores_weights:
        if s.events:
            s.events(PassedOver(t.id, 1, "1.wgt", Why.WEIGHTS_IGNORED, facts=Facts(op=op_desc(t))))
        return -1
    for i, src in enumerate(t.src):
        if src is not None and src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            return _backend_by_weight(s, t, i, src)
    if s.events and t.op:
        s.events(PassedOver(t.id, 1, "1.wgt", Why.NO_WEIGHT))
    return -1


def _pass_higher(s: SchedulerState, t: Tensor, cause: str, buft: BufferType, b: int) -> None:
    """Announce why the backends before `b` (all of them, for -1) do not get what memory of type `buft` decides."""
    if s.events:
        for i, usable in enumerate(s.usable_bufts[: b if b >= 0 else None]):
            if buft in usable:
                refused(s, t, i, 1, cause)
            else:
                s.events(PassedOver(t.id, 1, cause, Why.BUFT, s.names[i], Facts(buft=buft.name)))


def refused(s: SchedulerState, t: Tensor, b: int, rule: int, cause: str) -> None:
    """Announce that backend `b` does not support the op."""
    if s.events:
        refusal = s.backends[b].device.refusal(t)
        text, lacks = ("", False) if refusal is None else refusal
        s.events(Refused(t.id, s.names[b], rule, cause, text, lacks))


def _backend_by_weight(s: SchedulerState, t: Tensor, i: int, src: Tensor) -> int:
    """The backend of the first weight decides, unless a device with higher priority asks for the op."""
    b = backend_from_buffer(s, src, t)
    buft = src.buffer.buft if src.buffer is not None else None
    if b == len(s.backends) - 1 and buft is not None and buft.host:
        for higher in range(b if s.op_offload else 0):
            device = s.backends[higher].device
            if device.supports_op(t) and device.offload_op(t):
                s.causes[t.index] = "1.off"
                if s.events:
                    batch, least = device.batch_size(t), device.offload_min_batch
                    facts = Facts(buft=buft.name, batch=batch, min_batch=least)
                    s.events(Assigned(t.id, s.names[higher], 1, "1.off", Why.OFFLOAD, src.id, facts))
                return higher
            if s.events:
                _not_offloaded(s, t, higher)
        if s.events and not s.op_offload:
            s.events(PassedOver(t.id, 1, "1.off", Why.OFFLOAD_OFF))
    s.causes[t.index] = f"1.wgt{i}"
    if s.events and buft is not None:
        _pass_higher(s, t, f"1.wgt{i}", buft, b)
        if b != -1:
            s.events(Assigned(t.id, s.names[b], 1, f"1.wgt{i}", Why.WEIGHT, src.id, Facts(buft=buft.name)))
    return b


def _not_offloaded(s: SchedulerState, t: Tensor, b: int) -> None:
    """Announce why backend `b` does not ask for an op whose weight lies on the host."""
    device = s.backends[b].device
    if not device.supports_op(t):
        refused(s, t, b, 1, "1.off")
        return
    batch, least = device.batch_size(t), device.offload_min_batch
    why, facts = Why.SMALL_BATCH, Facts(batch=batch, min_batch=least)
    if least is None:
        why, facts = Why.NEVER_OFFLOADS, NO_FACTS
    elif batch <= 0:
        why, facts = Why.NEVER_OFFLOADS, Facts(op=op_desc(t))
    if s.events:
        s.events(PassedOver(t.id, 1, "1.off", why, s.names[b], facts))


def _cannot_run(s: SchedulerState, t: Tensor, buft: BufferType) -> GgmlAbort:
    _pass_higher(s, t, "1.dst", buft, -1)
    answers = []
    for b, usable in enumerate(s.usable_bufts):
        if buft not in usable:
            answers.append(f"{s.names[b]} cannot use {buft.name}")
        else:
            answers.append(f"{s.names[b]} cannot run {op_desc(t)}")
    return GgmlAbort(
        "ggml_backend_sched_backend_id_from_cur",
        f"pre-allocated tensor ({t.name}) in a buffer ({buft.name}) that cannot run the operation ({Op(t.op).name})",
        None,
        f"the memory of {t.name or t.id} is fixed, so it can run only where that memory can be used: "
        f"{', '.join(answers)}; {advice('preallocated', tensor=t.name, buffer=buft.name, op=Op(t.op).name)}",
    )


def expand(s: SchedulerState, real: list[Tensor]) -> None:
    """Pass 2: neighbours take the backend of assigned nodes; first those of GPUs, down and up, then all."""
    last = len(s.backends) - 1
    for sweep in SWEEPS:
        _sweep(s, real if sweep.down else real[::-1], last if sweep.skips_last else -2, sweep)


def _sweep(s: SchedulerState, nodes: list[Tensor], skipped: int, sweep: Sweep) -> None:
    """One sweep. The backend `skipped` (the last one, for the GPU sweeps) does not spread and ends a spread.

    A node that the spreading backend cannot run is left alone, and the spread goes on behind it.
    """
    ids = s.ids
    events = s.events
    cur = -1
    origin: Tensor | None = None
    for n in nodes:
        b = ids[n.index]
        if b != -1:
            cur = b if b != skipped else -1
            origin = n
        elif cur != -1:
            if s.backends[cur].device.supports_op(n):
                ids[n.index] = cur
                s.causes[n.index] = "2.sup"
                if events:
                    by = origin.label if origin is not None else ""
                    events(Assigned(n.id, s.names[cur], 2, "2.sup", Why.NEIGHBOR, by, Facts(sweep=sweep)))
            elif events:
                refused(s, n, cur, 2, "2.sup")
        elif events:
            why, facts = why_no_spread(s, origin, sweep)
            events(PassedOver(n.id, 2, "2.sup", why, facts=facts))


def why_no_spread(s: SchedulerState, origin: Tensor | None, sweep: Sweep) -> tuple[Why, Facts]:
    """Why nothing expands to a node, with `origin` the nearest one that has a backend, if any."""
    if origin is None:
        return Why.NO_NEIGHBOR, Facts(sweep=sweep)
    return Why.SPREADS_LAST, Facts(tensor=origin.label, backend=s.names[s.ids[origin.index]], sweep=sweep)


def buffer_supported(s: SchedulerState, t: Tensor, backend_id: int) -> bool:
    """ggml_backend_sched_buffer_supported: whether a backend can read the tensor where it is, or will be."""
    root = t.view_src
    buffer = root.buffer if root is not None else t.buffer
    if buffer is not None:
        return buffer.buft in s.usable_bufts[backend_id]
    b = s.ids[t.index]
    if b == -1 and root is not None:
        s.touch(root.index)
        b = s.ids[root.index]
    return b != -1 and s.bufts[b] in s.usable_bufts[backend_id]


def choose_or_upgrade(s: SchedulerState, real: list[Tensor]) -> None:
    """Pass 3: what is unassigned goes where most sources can be read; the rest may rise to an equal buffer type."""
    ids = s.ids
    bufts = s.bufts
    upgrades = [[b for b in range(k) if bufts[b] is bufts[k]] for k in range(len(bufts))]
    for n in real:
        b = ids[n.index]
        if b == -1:
            _choose_best(s, n)
        elif upgrades[b]:
            for higher in upgrades[b]:
                if s.backends[higher].device.supports_op(n) and all(
                    buffer_supported(s, src, higher) for src in n.src if src is not None
                ):
                    ids[n.index] = higher
                    s.causes[n.index] = "3.upg"
                    if s.events:
                        facts = Facts(backend=s.names[b])
                        s.events(Assigned(n.id, s.names[higher], 3, "3.upg", Why.SAME_BUFT, facts=facts))
                    break
                if s.events and s.backends[higher].device.supports_op(n):
                    s.events(PassedOver(n.id, 3, "3.upg", Why.SOURCES, s.names[higher]))
                elif s.events:
                    refused(s, n, higher, 3, "3.upg")


def _choose_best(s: SchedulerState, n: Tensor) -> None:
    best = -1
    ids = s.ids
    readable: dict[int, int] | None = {} if s.events else None
    for b, backend in enumerate(s.backends):
        if not backend.device.supports_op(n):
            if s.events:
                refused(s, n, b, 3, "3.best")
            continue
        count = 0
        for src in n.src:
            if src is None:
                continue
            if ids[src.index] == -1:
                # ggml looks the view source up even where it is NULL, which then takes a slot of the hash set.
                root = src.view_src
                s.touch(root.index if root is not None else NULL_KEY)
                if root is None or ids[root.index] == -1:
                    continue
            if buffer_supported(s, src, b):
                count += 1
        if readable is not None:
            readable[b] = count
        if count > best:
            best = count
            ids[n.index] = b
            s.causes[n.index] = "3.best"
    if readable:
        _announce_best(s, n, readable)


def _announce_best(s: SchedulerState, n: Tensor, readable: dict[int, int]) -> None:
    """Announce whom pass 3 chose, of the backends that support the op with the number of sources each can read."""
    events = s.events
    if not events:
        return
    b = s.ids[n.index]
    for other, count in readable.items():
        if other != b:
            events(PassedOver(n.id, 3, "3.best", Why.FEWER_SOURCES, s.names[other], Facts(n_src=count)))
    if len(readable) > 1:
        counts = tuple((s.names[other], count) for other, count in readable.items())
        facts = Facts(n_src=sum(source is not None for source in n.src), readable=counts)
        events(Assigned(n.id, s.names[b], 3, "3.best", Why.MOST_SOURCES, facts=facts))
    else:
        events(Assigned(n.id, s.names[b], 3, "3.best", Why.ONLY_ONE, facts=Facts(n_backends=len(s.backends))))


def assign_sources(s: SchedulerState, graph: CGraph) -> None:
    """Pass 4: views take their root's backend, sources without one their user's; a node left over the first able."""
    ids = s.ids
    causes = s.causes
    for n in graph.nodes:
        i = n.index
        if ids[i] == -1 and n.view_src is not None:
            s.touch(n.view_src.index)
            ids[i] = ids[n.view_src.index]
            causes[i] = "4.vsrc"
            _announce(s, n, "4.vsrc", Why.VIEW, n.view_src)
        for src in n.src:
            if src is None or ids[src.index] != -1:
                continue
            if src.view_src is not None:
                s.touch(src.view_src.index)
                ids[src.index] = ids[src.view_src.index]
                causes[src.index] = "4.vsrc"
                _announce(s, src, "4.vsrc", Why.VIEW, src.view_src)
            else:
                ids[src.index] = ids[i]
                causes[src.index] = "4.cur"
                _announce(s, src, "4.cur", Why.READER, n)
        if ids[i] == -1 and s.rules.takes_first_able:
            _take_first_able(s, n)


def _take_first_able(s: SchedulerState, n: Tensor) -> None:
    """A node that no neighbour and no source gave a backend goes to the first that can run it."""
    for b, backend in enumerate(s.backends):
        if backend.device.supports_op(n):
            s.ids[n.index] = b
            s.causes[n.index] = "2.sup"
            if s.events:
                s.events(Assigned(n.label, s.names[b], 4, "2.sup", Why.FIRST_ABLE))
            return
    raise GgmlAssert(
        "ggml_backend_sched_split_graph",
        "*cur_backend_id != -1",
        f"no backend can run {n.name or n.id} ({op_desc(n)}); {advice('no_backend_for_node')}",
    )


def _announce(s: SchedulerState, t: Tensor, cause: str, why: Why, by: Tensor) -> None:
    if s.events and s.ids[t.index] != -1:
        s.events(Assigned(t.label, s.names[s.ids[t.index]], 4, cause, why, by.label))
