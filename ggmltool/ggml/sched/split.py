"""The five passes of ggml_backend_sched_split_graph, one function each.

A pass reads and writes the scheduler's state lists: `ids` (the backend of every tensor, -1 none) and `causes` (ggml's
label of the rule that set it). View ops are invisible to passes 2, 3 and 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggmltool.ggml.buffer import USAGE_WEIGHTS, BufferType
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert
from ggmltool.ggml.events import Assigned, GraphInputCopied, InputAdded, Refused, SplitStarted
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor, op_desc
from ggmltool.ggml.version import SCHED_MAX_SPLIT_INPUTS

if TYPE_CHECKING:
    from ggmltool.ggml.sched.arena import Split
    from ggmltool.ggml.sched.scheduler import Scheduler

NULL_KEY = -1

_IGNORES_WEIGHTS = frozenset((int(Op.ROPE), int(Op.FLASH_ATTN_EXT)))


def run_passes(s: Scheduler, graph: CGraph) -> None:
    """Assign backends (passes 1 to 4) and split (pass 5)."""
    real = [n for n in graph.nodes if not n.is_view_op]
    after = s.on_pass
    assign_from_buffers(s, graph)
    if after:
        after(1, s)
    expand(s, real)
    if after:
        after(2, s)
    choose_or_upgrade(s, real)
    if after:
        after(3, s)
    assign_sources(s, graph)
    if after:
        after(4, s)
    split(s, graph)
    if after:
        after(5, s)


def backend_from_buffer(s: Scheduler, tensor: Tensor, op: Tensor) -> int:
    """ggml_backend_sched_backend_from_buffer: the first backend that can use the tensor's memory and run `op`."""
    buffer = tensor.view_src.buffer if tensor.view_src is not None else tensor.buffer
    if buffer is None:
        return -1
    buft = buffer.buft
    for b, usable in enumerate(s.usable_bufts):
        if buft in usable and s.backends[b].device.supports_op(op):
            return b
    return -1


def assign_from_buffers(s: Scheduler, graph: CGraph) -> None:
    """Pass 1: tensors that have memory, inputs, and ops with weights, in this order; the user's choices stay."""
    ids = s.ids
    for tensors in (graph.leafs, graph.nodes):
        for t in tensors:
            if ids[t.index] == -1:
                ids[t.index] = _backend_id_from_cur(s, t)


def _backend_id_from_cur(s: Scheduler, t: Tensor) -> int:
    """ggml_backend_sched_backend_id_from_cur."""
    root = t.view_src
    buffer = root.buffer if root is not None else t.buffer
    if buffer is not None:
        b = backend_from_buffer(s, t, t)
        if b == -1:
            raise _cannot_run(s, t, buffer.buft)
        s.causes[t.index] = "1.dst"
        if s.events:
            s.events(Assigned(t.id, s.names[b], 1, "1.dst", f"its memory is in {buffer.buft.name}"))
        return b
    if t.flags & FLAG_INPUT:
        b = len(s.backends) - 1
        s.causes[t.index] = "1.inp"
        if s.events:
            s.events(Assigned(t.id, s.names[b], 1, "1.inp", "an input goes to the last backend"))
        return b
    if t.op in _IGNORES_WEIGHTS:
        return -1
    for i, src in enumerate(t.src):
        if src is not None and src.buffer is not None and src.buffer.usage == USAGE_WEIGHTS:
            return _backend_by_weight(s, t, i, src)
    return -1


def _backend_by_weight(s: Scheduler, t: Tensor, i: int, src: Tensor) -> int:
    """The backend of the first weight decides, unless a device with higher priority asks for the op."""
    b = backend_from_buffer(s, src, t)
    buft = src.buffer.buft if src.buffer is not None else None
    if s.op_offload and b == len(s.backends) - 1 and buft is not None and buft.host:
        for higher in range(b):
            device = s.backends[higher].device
            if device.supports_op(t) and device.offload_op(t):
                s.causes[t.index] = "1.off"
                if s.events:
                    reason = f"{s.names[higher]} asks for it although its weight {src.id} is in {buft.name}"
                    s.events(Assigned(t.id, s.names[higher], 1, "1.off", reason))
                return higher
    s.causes[t.index] = f"1.wgt{i}"
    if s.events and b != -1:
        reason = f"its weight {src.id} is in {buft.name if buft else 'memory'}"
        s.events(Assigned(t.id, s.names[b], 1, f"1.wgt{i}", reason))
    return b


def _cannot_run(s: Scheduler, t: Tensor, buft: BufferType) -> GgmlAbort:
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
        f"{', '.join(answers)}; keep it in memory of a backend that can run the op, or copy it into a node there first",
    )


def expand(s: Scheduler, real: list[Tensor]) -> None:
    """Pass 2: neighbours take the backend of assigned nodes; first those of GPUs, down and up, then all."""
    last = len(s.backends) - 1
    _sweep(s, real, last, "down from a higher-priority backend")
    _sweep(s, real[::-1], last, "up from a higher-priority backend")
    _sweep(s, real, -2, "down")
    _sweep(s, real[::-1], -2, "up")


def _sweep(s: Scheduler, nodes: list[Tensor], skipped: int, direction: str) -> None:
    """One sweep. The backend `skipped` (the last one, for the GPU sweeps) does not spread and ends a spread.

    A node that the spreading backend cannot run is left alone, and the spread goes on behind it.
    """
    ids = s.ids
    events = s.events
    cur = -1
    for n in nodes:
        b = ids[n.index]
        if b != -1:
            cur = b if b != skipped else -1
        elif cur != -1:
            if s.backends[cur].device.supports_op(n):
                ids[n.index] = cur
                s.causes[n.index] = "2.sup"
                if events:
                    events(Assigned(n.id, s.names[cur], 2, "2.sup", f"a neighbour's backend, expanding {direction}"))
            elif events:
                events(Refused(n.id, s.names[cur], 2))


def buffer_supported(s: Scheduler, t: Tensor, backend_id: int) -> bool:
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


def choose_or_upgrade(s: Scheduler, real: list[Tensor]) -> None:
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
                        reason = f"{s.names[higher]} shares the buffer type of {s.names[b]} and has priority"
                        s.events(Assigned(n.id, s.names[higher], 3, "3.upg", reason))
                    break


def _choose_best(s: Scheduler, n: Tensor) -> None:
    best = -1
    ids = s.ids
    for b, backend in enumerate(s.backends):
        if not backend.device.supports_op(n):
            if s.events:
                s.events(Refused(n.id, backend.name, 3))
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
        if count > best:
            best = count
            ids[n.index] = b
            s.causes[n.index] = "3.best"
    if s.events and best >= 0:
        b = ids[n.index]
        reason = f"it can read {best} of the node's sources, no backend of higher priority more"
        s.events(Assigned(n.id, s.names[b], 3, "3.best", reason))


def assign_sources(s: Scheduler, graph: CGraph) -> None:
    """Pass 4: views take their root's backend, sources without one their user's; a node left over the first able."""
    ids = s.ids
    causes = s.causes
    for n in graph.nodes:
        i = n.index
        if ids[i] == -1 and n.view_src is not None:
            s.touch(n.view_src.index)
            ids[i] = ids[n.view_src.index]
            causes[i] = "4.vsrc"
            _announce(s, n, "4.vsrc", "a view is where its source is")
        for src in n.src:
            if src is None or ids[src.index] != -1:
                continue
            if src.view_src is not None:
                s.touch(src.view_src.index)
                ids[src.index] = ids[src.view_src.index]
                causes[src.index] = "4.vsrc"
                _announce(s, src, "4.vsrc", "a view is where its source is")
            else:
                ids[src.index] = ids[i]
                causes[src.index] = "4.cur"
                _announce(s, src, "4.cur", f"its first user {n.label} is there")
        if ids[i] == -1:
            for b, backend in enumerate(s.backends):
                if backend.device.supports_op(n):
                    ids[i] = b
                    causes[i] = "2.sup"
                    _announce(s, n, "2.sup", "the first backend that can run it")
                    break
            else:
                raise GgmlAssert(
                    "ggml_backend_sched_split_graph",
                    "*cur_backend_id != -1",
                    f"no backend can run {n.name or n.id} ({op_desc(n)}); leave the op in what one of them supports",
                )


def _announce(s: Scheduler, t: Tensor, cause: str, reason: str) -> None:
    if s.events and s.ids[t.index] != -1:
        s.events(Assigned(t.label, s.names[s.ids[t.index]], 4, cause, reason))


def split(s: Scheduler, graph: CGraph) -> None:
    """Pass 5: cut the graph into runs of one backend, and copy every source a run cannot read."""
    ids = s.ids
    s.graph_inputs = []
    i_split = 0
    cur_split = s.splits[0]
    for n in graph.nodes:
        if not n.is_view_op:
            cur_split.backend_id = ids[n.index]
            break
    cur_split.i_start = 0
    cur_split.inputs = []
    cur = cur_split.backend_id
    started = False
    n_copies = s.n_copies
    for i, n in enumerate(graph.nodes):
        if n.is_view_op:
            continue
        b = ids[n.index]
        if b != cur:
            reason = f"{n.id} runs on {s.names[b]}"
        elif cur_split.inputs:
            reason = _needs_new_split(s, n, cur, cur_split)
        else:
            reason = ""
        if reason:
            cur_split.i_end = i
            i_split += 1
            cur_split = _split_at(s, i_split)
            cur_split.backend_id = cur = b
            cur_split.i_start = i
            cur_split.inputs = []
        if s.events and (reason or not started):
            s.events(SplitStarted(i_split, s.names[cur], cur_split.i_start, n.id, reason or "the first node"))
            started = True
        src = n.src
        for j, t in enumerate(src):
            if t is None:
                continue
            t_id = ids[t.index]
            if t_id == -1:
                raise GgmlAssert(
                    "ggml_backend_sched_split_graph",
                    "src_backend_id != -1",
                    f"{t.label}, a source of {n.label}, has no backend; {_how_to_get_one(t)}",
                )
            if n_copies > 1 and t.flags & FLAG_INPUT:
                _copy_graph_input(s, t, t_id)
            if t_id != cur and not buffer_supported(s, t, cur):
                src[j] = _copy_for_split(s, cur_split, i_split, t, n)
    cur_split.i_end = len(graph.nodes)
    s.n_splits = i_split + 1


def _how_to_get_one(t: Tensor) -> str:
    root = t.view_src
    if root is not None:
        return f"it is a view of {root.label}, which has no memory: give its context a buft, or put the view beside it"
    return "give its context a buft, flag it input, or name its backend"


def _split_at(s: Scheduler, i_split: int) -> Split:
    if i_split >= len(s.splits):
        s.splits.extend(type(s.splits[0])() for _ in range(len(s.splits)))
    return s.splits[i_split]


def _needs_new_split(s: Scheduler, n: Tensor, cur: int, cur_split: Split) -> str:
    """Why a node of the same backend begins a new split: a weight that must be copied, or too many inputs."""
    ids = s.ids
    full = len(cur_split.inputs) >= cur_split.inputs_capacity
    for t in n.src:
        if t is None:
            continue
        if (
            t.buffer is not None
            and t.buffer.usage == USAGE_WEIGHTS
            and ids[t.index] != cur
            and not buffer_supported(s, t, cur)
        ):
            return f"its weight {t.id} must be copied from {t.buffer.buft.name}; the split has inputs already"
        if full and ids[t.index] != cur:
            made = s.copies[t.index]
            if (made is None or made[cur] is None) and not buffer_supported(s, t, cur):
                return f"{t.id} must be copied, and the split has {len(cur_split.inputs)} inputs, all it has room for"
    return ""


def _copy_graph_input(s: Scheduler, t: Tensor, b: int) -> None:
    """Pipeline copies of an input on its own backend: the tensor itself is the current one."""
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.backends)
    if of[b] is not None:
        return
    made: list[Tensor] = []
    for c in range(s.n_copies):
        copy = t if c == s.cur_copy else s.arena.dup_layout(t, f"{s.names[b]}#{t.name}#{c}")
        copy.flags |= FLAG_INPUT
        up: Tensor | None = copy
        while up is not None:
            up.flags |= FLAG_OUTPUT
            up = up.view_src
        made.append(copy)
    s.grow_state()
    for copy in made:
        s.causes[copy.index] = "4.cpy"
    of[b] = made
    if len(s.graph_inputs) >= s.graph_inputs_capacity:
        new = 2 * s.graph_inputs_capacity
        s.log(
            "warn",
            "ggml_backend_sched_graph_inputs_grow: increasing graph inputs capacity "
            f"from {s.graph_inputs_capacity} to {new}",
        )
        s.graph_inputs_capacity = new
    s.graph_inputs.append(t)
    if s.events:
        s.events(GraphInputCopied(t.id, s.names[b], tuple(c.name for c in made)))


def _copy_for_split(s: Scheduler, cur_split: Split, i_split: int, t: Tensor, n: Tensor) -> Tensor:
    """The copy of `t` for the split's backend, made once in a graph: in the first split that needs it."""
    b = cur_split.backend_id
    of = s.copies[t.index]
    if of is None:
        of = s.copies[t.index] = [None] * len(s.backends)
    made = of[b]
    if made is None:
        made = of[b] = []
        for c in range(s.n_copies):
            copy = s.arena.dup_layout(t, f"{s.names[b]}#{t.name}#{c}")
            if s.n_copies > 1:
                copy.flags |= FLAG_INPUT | FLAG_OUTPUT
            made.append(copy)
        s.grow_state()
        for copy in made:
            s.causes[copy.index] = "4.cpy"
        if len(cur_split.inputs) >= cur_split.inputs_capacity:
            _grow_inputs(s, cur_split)
        cur_split.inputs.append(t)
        if s.events:
            s.events(InputAdded(i_split, s.names[b], t.id, n.id, tuple(c.name for c in made)))
    return made[s.cur_copy]


def _grow_inputs(s: Scheduler, cur_split: Split) -> None:
    """ggml_backend_sched_split_inputs_grow: 30 at first, then twice as many, with a warning."""
    old = cur_split.inputs_capacity
    new = 2 * old if old else SCHED_MAX_SPLIT_INPUTS
    if old:
        s.log("warn", f"ggml_backend_sched_split_inputs_grow: increasing split inputs capacity from {old} to {new}")
    cur_split.inputs_capacity = new
