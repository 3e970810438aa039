"""The rows of a plan, of the engine's scheduler and of a State: what memory holds after a reserve or an alloc, as the
engine tells it; and what ggml_backend_sched_print_assignments prints, as records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import KEY_NAMES, Op
from ggmltool.ggml.plan import (
    CopyPlan,
    DebugNode,
    DebugSource,
    DebugSplit,
    LeafPlan,
    NodePlan,
    Plan,
    PlanError,
    SplitPlan,
)
from ggmltool.ggml.sched.common import AnyScheduler, Places
from ggmltool.ggml.state import SchedState, State, TensorState
from ggmltool.ggml.tensor import FLAG_COMPUTE, Tensor, op_desc

SizeOf = Callable[[int], int | None]
"""The bytes that a tensor of a number takes in its buffer type, None if that was not asked."""


class PlanRows(NamedTuple):
    """The rows of a `Plan`, by their names there."""

    splits: tuple[SplitPlan, ...]
    nodes: tuple[NodePlan, ...]
    leafs: tuple[LeafPlan, ...]
    copies: tuple[CopyPlan, ...]
    buffer_sizes: tuple[tuple[str, int], ...]


def rows_of(state: State, backends: Sequence[str], bufts: Mapping[int, str], size_of: SizeOf) -> PlanRows:
    """The rows of a state whose graph was split last, with the names of backends and of buffer types.

    After a reserve tensors have no backends any more, but the scheduler's own graph still has them. Causes are None.
    Raises KeyError, with its number, for a tensor that is named and not there.
    """
    if state.sched is None or state.graph is None:
        return PlanRows((), (), (), (), ())
    return _Rows(state, state.sched, backends, bufts, size_of).all()


class _Rows:
    def __init__(
        self, state: State, sched: SchedState, backends: Sequence[str], bufts: Mapping[int, str], size_of: SizeOf
    ) -> None:
        assert state.graph is not None
        self.state, self.sched, self.graph = state, sched, state.graph
        self.backends, self.bufts, self.size_of = backends, bufts, size_of
        self.chunks = {buffer: i for buffers in sched.galloc.buffers for i, buffer in enumerate(buffers)}
        self.labels = {number: t.id or t.name for number, t in state.tensors.items()}
        self.places = {
            address: (bufts.get(b.buft), b.usage_name, self.chunks.get(address, b.chunk), b.base)
            for address, b in state.buffers.items()
        }
        wanted = set(self.graph.nodes)
        self.positions = {node: i for i, node in enumerate(sched.graph.nodes) if node in wanted}

    def all(self) -> PlanRows:
        splits = (
            SplitPlan(
                i, self.backend(s.backend_id) or "NULL", s.i_start, s.i_end, tuple([self.labels[t] for t in s.inputs])
            )
            for i, s in enumerate(self.sched.splits)
        )
        sizes = tuple(self.buffer_sizes())
        return PlanRows(tuple(splits), tuple(self.nodes()), tuple(self.leafs()), tuple(self.copies()), sizes)

    def backend(self, number: int) -> str | None:
        return self.backends[number] if 0 <= number < len(self.backends) else None

    def place(self, t: TensorState) -> tuple[str | None, str | None, int | None, int | None]:
        """Where a tensor lies: buffer type, usage, chunk, offset."""
        found = None if t.buffer is None else self.places.get(t.buffer)
        if found is None:
            return None, None, None, None
        buft, usage, chunk, base = found
        return buft, usage, chunk, None if base is None else t.data - base

    def nodes(self) -> Iterator[NodePlan]:
        split_of = [i for i, s in enumerate(self.sched.splits) for _ in range(s.i_end - s.i_start)]
        ids, labels = self.sched.node_backend_ids, self.labels
        for i, number in enumerate(self.graph.nodes):
            t = self.state.tensors[number]
            backend = self.backend(_at(ids, self.positions.get(number, -1)))
            src = tuple([None if s is None else labels[s] for s in t.src])
            split = split_of[i] if i < len(split_of) else -1
            uses = self.graph.use_counts.get(number, 0)
            size = self.size_of(number) if t.view_src is None else None
            yield NodePlan(
                i, labels[number], t.name, t.op, t.op_desc, t.type, t.ne, t.nb, backend, None, split, uses, src,
                *self.place(t), size,
            )  # fmt: skip

    def leafs(self) -> Iterator[LeafPlan]:
        ids = self.sched.leaf_backend_ids
        first = len(self.sched.graph.leafs) - len(self.graph.leafs)
        for i, number in enumerate(self.graph.leafs):
            t = self.state.tensors[number]
            yield LeafPlan(i, self.labels[number], self.backend(_at(ids, first + i)), *self.place(t))

    def copies(self) -> Iterator[CopyPlan]:
        sched, own, nodes = self.sched, self.sched.graph, self.graph.nodes
        if sched.n_copies > 1:
            # All copies are the first leafs of the scheduler's own graph: of graph inputs, then of splits' inputs.
            originals = [*sched.graph_inputs, *(t for split in sched.splits for t in split.inputs)]
            for i, (of, copy) in enumerate((of, c) for of in originals for c in range(sched.n_copies)):
                if i < len(own.leafs):
                    yield self.copy(own.leafs[i], of, _at(sched.leaf_backend_ids, i), copy)
            return
        for split in sched.splits:
            # A split's nodes follow two for each input: a dependency on it, and its copy. Behind a node there may be
            # others, which keep what a device asked to be kept until that one.
            first = self.positions.get(nodes[split.i_start], 0) if split.i_start < len(nodes) else 0
            for k, of in enumerate(split.inputs):
                position = first - 2 * (len(split.inputs) - k) + 1
                if 0 <= position < len(own.nodes):
                    yield self.copy(own.nodes[position], of, split.backend_id, 0)

    def copy(self, number: int, of: int, backend: int, copy: int) -> CopyPlan:
        t = self.state.tensors[number]
        buffer, _, chunk, offset = self.place(t)
        return CopyPlan(t.name, self.labels[of], self.backend(backend) or "NULL", copy, buffer, chunk, offset)

    def buffer_sizes(self) -> Iterator[tuple[str, int]]:
        """ggml_backend_sched_get_buffer_size of each backend: 0 where an earlier one has the same buffers."""
        galloc, buffers, seen = self.sched.galloc, self.state.buffers, set()
        for name, buft, made in zip(self.backends, galloc.bufts, galloc.buffers, strict=False):
            yield name, 0 if buft in seen else sum(buffers[b].size for b in made if b in buffers)
            seen.add(buft)


def _at(numbers: Sequence[int], i: int) -> int:
    return numbers[i] if 0 <= i < len(numbers) else -1


_OP_NAMES = tuple(op.name for op in Op)
_OP_DESCS = tuple(name.upper() for name in KEY_NAMES)


def plan_of(
    s: AnyScheduler, graph: CGraph, name: str, step: str, log: Sequence[str] = (), error: PlanError | None = None
) -> Plan:
    """The plan after `step` ("reserve", "alloc", "measure" or "compute") of the graph called `name`.

    With `error`, what stood when ggml refused to go on after it had split the graph.
    """
    names = s.names
    place = s.places()
    inplace = s.gallocr.inplace
    return Plan(
        graph=name,
        step=step,
        ok=error is None,
        backends=tuple(zip(names, s.memory_names, strict=True)),
        splits=tuple(
            SplitPlan(i, _backend(s, sp.backend_id) or "NULL", sp.i_start, sp.i_end, tuple(t.label for t in sp.inputs))
            for i, sp in enumerate(s.splits[: s.n_splits])
        ),
        nodes=_nodes(s, graph, place),
        leafs=tuple(
            LeafPlan(i, t.id, _backend(s, s.assigned[t.index]), *place(t, False)[:4]) for i, t in enumerate(graph.leafs)
        ),
        copies=tuple(_copies(s, place)),
        buffer_sizes=tuple((n, s.get_buffer_size(b)) for b, n in enumerate(names)),
        log=tuple(log),
        error=error,
        ggml=s.release.name,
        debug_log=None if s.debug_lines is None else tuple(s.debug_lines),
        tallocs=s.planned if error is None else (),
        measured=tuple(zip(names, s.measured, strict=True)) if s.measured and step == "measure" else (),
        inplace=tuple(n.id for n in graph.nodes if n.index in inplace) if inplace and error is None else (),
    )


def failed_plan(
    error: GgmlError,
    name: str | None,
    step: str,
    backends: Sequence[tuple[str, str]],
    log: Sequence[str] = (),
    ggml: str = "",
    debug_log: Sequence[str] | None = None,
) -> Plan:
    """The plan of a step that this ggml would not survive."""
    return Plan(
        graph=name,
        step=step,
        ok=False,
        backends=tuple(backends),
        log=tuple(log),
        error=tuple(error.as_dict().items()),
        ggml=ggml,
        debug_log=None if debug_log is None else tuple(debug_log),
    )


def _backend(s: AnyScheduler, b: int) -> str | None:
    return s.names[b] if b >= 0 else None


def _nodes(s: AnyScheduler, graph: CGraph, place: Places) -> tuple[NodePlan, ...]:
    ids, causes, names = s.assigned, s.assigned_causes, s.names
    use_counts = graph.use_counts
    out: list[NodePlan] = []
    for k, sp in enumerate(s.splits[: s.n_splits]):
        for i in range(sp.i_start, sp.i_end):
            t = graph.nodes[i]
            index = t.index
            b = ids[index]
            out.append(
                NodePlan(
                    i,
                    t.id,
                    t.name,
                    _OP_NAMES[t.op],
                    _OP_DESCS[t.key],
                    t.type.name,
                    t.ne,
                    t.nb,
                    names[b] if b != -1 else None,
                    causes[index],
                    k,
                    use_counts[index],
                    # Tensor.label, written out: a call per source of every node would be felt.
                    tuple([None if x is None else x.id or x.name for x in t.src]),
                    *place(t),
                )
            )
    return tuple(out)


def copies_of(s: AnyScheduler) -> Iterator[tuple[Tensor, int, int, Tensor]]:
    """Every copy once: what it copies, its backend, the pipeline copy that it is, and the copy.

    First those of graph inputs (the input itself among them), then those of the splits' inputs, in order.
    """
    wanted = [(t, s.assigned[t.index]) for t in s.graph_inputs] if s.n_copies > 1 else []
    wanted += [(t, sp.backend_id) for sp in s.splits[: s.n_splits] for t in sp.inputs]
    for t, b in dict.fromkeys(wanted):
        of = s.made_copies[t.index]
        made = of[b] if of is not None else None
        for c, copy in enumerate(made or ()):
            yield t, b, c, copy


def _copies(s: AnyScheduler, place: Places) -> Iterator[CopyPlan]:
    for t, b, c, copy in copies_of(s):
        buffer, _, chunk, offset, _ = place(copy, False)
        yield CopyPlan(copy.name, t.label, s.names[b], c, buffer, chunk, offset)


def debug_of(s: AnyScheduler, graph: CGraph) -> tuple[DebugSplit, ...]:
    """The splits with their nodes; of a graph without nodes nothing is printed, nor a split behind its last node."""
    return tuple(
        DebugSplit(
            k,
            s.names[sp.backend_id] if sp.backend_id >= 0 else "NULL",
            tuple((t.name, t.nbytes) for t in sp.inputs),
            node_lines(s, graph, sp.i_start, sp.i_end),
        )
        for k, sp in enumerate(s.splits[: s.n_splits])
        if sp.i_start < graph.n_nodes
    )


def node_lines(s: AnyScheduler, graph: CGraph, start: int, end: int) -> tuple[DebugNode, ...]:
    """The lines of the nodes `[start, end)`; view ops have none."""
    ids, causes, names = s.ids, s.causes, s.names

    def backend(t: Tensor) -> str | None:
        b = ids[t.index]
        return names[b] if b != -1 else None

    return tuple(
        DebugNode(
            i,
            op_desc(n) if s.release.prints_functions else Op(n.op).name,
            n.name,
            n.nbytes,
            backend(n),
            causes[n.index] or "",
            graph.use_count(n),
            bool(n.flags & FLAG_COMPUTE),
            tuple(DebugSource(t.name, t.nbytes, backend(t), causes[t.index] or "") for t in s.sources(n)),
        )
        for i, n in enumerate(graph.nodes[start:end], start)
        if not n.is_view_op
    )
