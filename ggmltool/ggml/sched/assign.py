"""Passes 1 to 4 of ggml_backend_sched_split_graph, one function each: a backend for every tensor.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that set it). View ops are invisible to passes 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, advice
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, MAX_SRC, Tensor, op_desc
from ggmltool.ggml.why import Sweep

if TYPE_CHECKING:
    from ggmltool.ggml.sched.state import SchedulerState

NULL_KEY = -1

_BY_WEIGHT = tuple(f"1.wgt{i}" for i in range(MAX_SRC))

SWEEPS = tuple(Sweep(down, skips_last) for skips_last in (True, False) for down in (True, False))
"""The sweeps of pass 2."""


def backend_from_buffer(s: SchedulerState, tensor: Tensor, op: Tensor) -> int:
    """ggml_backend_sched_backend_from_buffer: the first backend that can use the tensor's memory and run `op`."""
    buffer = tensor.view_src.buffer if tensor.view_src is not None else tensor.buffer
    if buffer is None:
        return -1
    for b, device in s.users.get(buffer.buft, ()):
        if device.supports_op(op):
            return b
    s.debug_log(
        f"ggml_backend_sched_backend_from_buffer: warning: no backend supports op {op_desc(tensor)} with a weight "
        f"with buffer type {buffer.name} used in tensor {tensor.name}, the weight will need to be copied"
    )
    return -1


def assign_from_buffers(s: SchedulerState, tensors: Iterable[Tensor]) -> None:
    """Pass 1: tensors that have memory, inputs, and ops with weights, in this order; the user's choices stay."""
    ids, causes, homes = s.ids, s.causes, s.homes
    ignores_weights = s.rules.ignores_weights
    for t in tensors:
        i = t.index
        if ids[i] != -1:
            continue
        root = t.view_src
        buffer = root.buffer if root is not None else t.buffer
        if buffer is not None:
            at_home = not t.op and root is None and buffer.buft in homes
            ids[i] = homes[buffer.buft] if at_home else _backend_of_memory(s, t, root, buffer.buft)
            causes[i] = "1.dst"
        elif t.flags & FLAG_INPUT:
            ids[i] = len(s.backends) - 1
            causes[i] = "1.inp"
        else:
            for k, src in enumerate(t.src):
                if src is None or src.buffer is None or src.buffer.usage != USAGE_WEIGHTS:
                    continue
                if t.op not in ignores_weights:
                    ids[i] = _backend_by_weight(s, t, k, src, src.buffer.buft)
                break


def _backend_of_memory(s: SchedulerState, t: Tensor, root: Tensor | None, buft: BufferType) -> int:
    """The backend of a tensor that has memory. Raises GgmlAbort if no backend can run its op there."""
    b = backend_from_buffer(s, t, t)
    if b == -1:
        if root is not None:
            backend_from_buffer(s, root, t)
        raise _cannot_run(s, t, buft)
    return b


def _backend_by_weight(s: SchedulerState, t: Tensor, i: int, weight: Tensor, buft: BufferType) -> int:
    """The backend of the first weight decides, unless a device with higher priority offloads the op."""
    b = backend_from_buffer(s, weight, t)
    if s.op_offload and b == len(s.backends) - 1 and buft.host:
        for higher in range(b):
            device = s.backends[higher].device
            if device.supports_op(t) and device.offload_op(t):
                s.causes[t.index] = "1.off"
                return higher
    s.causes[t.index] = _BY_WEIGHT[i]
    return b


def _cannot_run(s: SchedulerState, t: Tensor, buft: BufferType) -> GgmlAbort:
    answers = []
    for b, usable in enumerate(s.usable_bufts):
        if buft not in usable:
            answers.append(f"{s.names[b]} cannot use {buft.name}")
        else:
            answers.append(f"{s.names[b]} does not support {op_desc(t)}")
    return GgmlAbort(
        "ggml_backend_sched_backend_id_from_cur",
        f"pre-allocated tensor ({t.name}) in a buffer ({buft.name}) that cannot run the operation ({Op(t.op).name})",
        None,
        f"{t.name or t.id} is pre-allocated, so it can run only where that memory can be used: {', '.join(answers)}; "
        f"{advice('preallocated', tensor=t.name, buffer=buft.name, op=Op(t.op).name)}",
    )


def expand(s: SchedulerState, real: Sequence[Tensor]) -> None:
    """Pass 2: neighbors take the backend of assigned nodes; first those of GPUs, down and up, then all."""
    for sweep in SWEEPS:
        if not expand_once(s, real, sweep):
            break


def expand_once(s: SchedulerState, real: Sequence[Tensor], sweep: Sweep) -> bool:
    """A sweep of pass 2; whether it left a node without a backend. Where the last backend does not expand, it ends what
    another one does.

    A node that the backend does not support is left alone, and the expansion continues after it.
    """
    left = False
    ids = s.ids
    skipped = len(s.backends) - 1 if sweep.skips_last else -2
    cur = -1
    for n in real if sweep.down else reversed(real):
        b = ids[n.index]
        if b != -1:
            cur = b if b != skipped else -1
        elif cur != -1 and s.backends[cur].device.supports_op(n):
            ids[n.index] = cur
            s.causes[n.index] = "2.sup"
        else:
            left = True
    return left


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


def choose_or_upgrade(s: SchedulerState, real: Iterable[Tensor]) -> None:
    """Pass 3: what is unassigned goes where most sources can be read; the rest may rise to an equal buffer type."""
    upgrades = equal_bufts(s)
    for n in real:
        b = s.ids[n.index]
        if b == -1:
            choose_best(s, n)
        elif upgrades[b]:
            upgrade(s, n, upgrades[b])


def equal_bufts(s: SchedulerState) -> list[list[int]]:
    """Of each backend those of higher priority that have the same buffer type."""
    bufts = s.bufts
    return [[b for b in range(k) if bufts[b] is bufts[k]] for k in range(len(bufts))]


def upgrade(s: SchedulerState, n: Tensor, higher: Iterable[int]) -> None:
    """Give a node to the first of the backends that can run it and read all its sources."""
    for b in higher:
        if s.backends[b].device.supports_op(n) and all(buffer_supported(s, src, b) for src in n.src if src is not None):
            s.ids[n.index] = b
            s.causes[n.index] = "3.upg"
            break


def choose_best(s: SchedulerState, n: Tensor) -> dict[int, int]:
    """Give a node to the first of the backends that can read most of its sources.

    Returns how many each backend that supports the op can read.
    """
    best = -1
    ids = s.ids
    readable: dict[int, int] = {}
    for b, backend in enumerate(s.backends):
        if not backend.device.supports_op(n):
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
        readable[b] = count
        if count > best:
            best = count
            ids[n.index] = b
            s.causes[n.index] = "3.best"
    return readable


def assign_sources(s: SchedulerState, nodes: Iterable[Tensor]) -> None:
    """Pass 4: views take their root's backend, sources without one their user's; a node left over the first able."""
    ids = s.ids
    causes = s.causes
    for n in nodes:
        i = n.index
        if ids[i] == -1 and n.view_src is not None:
            s.touch(n.view_src.index)
            ids[i] = ids[n.view_src.index]
            causes[i] = "4.vsrc"
        for src in n.src:
            if src is None or ids[src.index] != -1:
                continue
            if src.view_src is not None:
                s.touch(src.view_src.index)
                ids[src.index] = ids[src.view_src.index]
                causes[src.index] = "4.vsrc"
            else:
                ids[src.index] = ids[i]
                causes[src.index] = "4.cur"
        if ids[i] == -1 and s.rules.takes_first_able:
            _take_first_able(s, n)


def _take_first_able(s: SchedulerState, n: Tensor) -> None:
    """A node that no neighbor and no source gave a backend goes to the first that can run it."""
    for b, backend in enumerate(s.backends):
        if backend.device.supports_op(n):
            s.ids[n.index] = b
            s.causes[n.index] = "2.sup"
            return
    raise GgmlAssert(
        "ggml_backend_sched_split_graph",
        "*cur_backend_id != -1",
        f"no backend supports {n.name or n.id} ({op_desc(n)}); {advice('no_backend_for_node')}",
    )
