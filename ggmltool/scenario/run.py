"""A run: the steps of a scenario on the engine, as the real library would run them one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggmltool.ggml.buffer import USAGE_NAMES, AddressSpace, Buffer, BufferType
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.devices.profiles import PROFILES, make_buft, make_device
from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.debug import SchedDebug
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.sched.snapshot import failed_plan, plan_of
from ggmltool.ggml.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.tensor import Tensor, cut_name
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, SIZE_MAX
from ggmltool.scenario.model import BackendSpec, BufferTypeSpec, ContextSpec, GraphSpec, Model, TensorSpec

_NONE = -1


@dataclass(slots=True)
class CompiledTensor:
    """A tensor as it is made anew for every graph: `proto` with its sources as numbers into the graph's table."""

    proto: Tensor
    src: tuple[int, ...]
    view_src: int
    backend: int


@dataclass(slots=True)
class CompiledGraph:
    """A graph's nodes in the order written. `assigned` are the user's (tensor, backend) pairs, contexts' first."""

    name: str
    nodes: list[CompiledTensor]
    expand: list[int]
    ids: dict[str, int]
    assigned: list[tuple[int, int]]


class Compiled:
    """A model with its names turned into numbers, made once and used by every run.

    The table of tensors begins with those of the contexts in the order of the file; a graph's nodes follow.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.ids: dict[str, int] = {}
        for t in model.tensors():
            self.ids[t.id] = len(self.ids)
        backends = {b.name: i for i, b in enumerate(model.backends)}
        self.contexts = [[_compile(t, self.ids, backends) for t in c.tensors] for c in model.contexts]
        self.graphs = {name: self._graph(g, backends) for name, g in model.graphs.items()}
        self.graph_size = self._graph_size()
        self.cgraph_size = max([self.graph_size, *(len(g.nodes) + len(self.ids) for g in self.graphs.values())])

    def _graph(self, g: GraphSpec, backends: dict[str, int]) -> CompiledGraph:
        ids = dict(self.ids)
        for node in g.nodes:
            ids[node.id] = len(ids)
        nodes = [_compile(node, ids, backends) for node in g.nodes]
        everything = [t for c in self.contexts for t in c] + nodes
        assigned = [(i, t.backend) for i, t in enumerate(everything) if t.backend != _NONE]
        return CompiledGraph(g.name, nodes, [ids[e] for e in g.expand], ids, assigned)

    def _graph_size(self) -> int:
        """The scheduler's graph_size: as given, else 2048 raised to the nodes and leafs of the largest graph."""
        given = self.model.scheduler.graph_size
        if given is not None:
            return given
        size = DEFAULT_GRAPH_SIZE
        for g in self.graphs.values():
            if len(g.nodes) + len(self.ids) > size:
                size = max(size, _nodes_and_leafs(g))
        return size


def _nodes_and_leafs(g: CompiledGraph) -> int:
    n_context = len(g.ids) - len(g.nodes)
    seen: set[int] = set()
    todo = list(g.expand)
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if i >= n_context:
            todo.extend(s for s in g.nodes[i - n_context].src if s != _NONE)
    return len(seen)


def _compile(t: TensorSpec, ids: dict[str, int], backends: dict[str, int]) -> CompiledTensor:
    proto = Tensor(
        t.type,
        t.ne,
        t.nb,
        t.op,
        t.op_params,
        t.flags,
        None,
        None,
        t.view_offs,
        cut_name(t.name),
        t.id,
    )
    return CompiledTensor(
        proto,
        tuple(_NONE if s is None else ids[s] for s in t.src),
        _NONE if t.view_src is None else ids[t.view_src],
        _NONE if t.backend is None else backends[t.backend],
    )


class Run:
    """A scenario on the engine: its devices, contexts and one scheduler, all made by the first step.

    `events` listens to everything the engine announces; with `debug` the scheduler keeps its debug print.
    `plans` grows by one plan for each reserve and alloc step, and by one for a step that fails.
    """

    def __init__(self, compiled: Compiled, events: Listener | None = None, debug: bool = False) -> None:
        self.compiled = compiled
        self.model = compiled.model
        self.listener = events
        self.log: list[str] = []
        self.debug = debug
        self.debug_records: list[SchedDebug] = []
        self.plans: list[Plan] = []
        self.indices = IndexSpace()
        self.addresses = AddressSpace()
        self.bufts: dict[str, BufferType] = {}
        self.backends: list[Backend] = []
        self.contexts: list[Context] = []
        self.buffers: list[Buffer] = []
        self.persistent: list[Tensor | None] = []
        self.newest: dict[str, tuple[CGraph, list[Tensor]]] = {}
        self.sched: Scheduler | None = None
        self._pool: list[int] = []
        self._pool_used = 0

    def start(self) -> Scheduler:
        """Make the devices, allocate the contexts that have a buffer type, and make the scheduler."""
        if self.sched is not None:
            return self.sched
        self.bufts = make_bufts(self.model)
        self.backends = make_backends(self.model, self.bufts)
        self._make_contexts()
        options = self.model.scheduler
        self.sched = Scheduler(
            self.backends,
            self.indices,
            self.addresses,
            self.bufts.values(),
            self.compiled.graph_size,
            options.parallel,
            options.op_offload,
            self.listener,
        )
        self.sched.debug = self.debug
        self.sched.log_lines = self.log
        return self.sched

    def _make_contexts(self) -> None:
        for spec, tensors in zip(self.model.contexts, self.compiled.contexts, strict=True):
            if spec.buft is None:
                self.persistent.extend([None] * len(tensors))
                continue
            ctx = Context(indices=self.indices, name=spec.name)
            for ct in tensors:
                t = ct.proto.clone(0)
                ctx.add(t)
                self.persistent.append(t)
            self._link(tensors, ctx.tensors, self.persistent)
            self.contexts.append(ctx)
            self.buffers += alloc_ctx_tensors_from_buft(
                ctx, self.bufts[spec.buft], self.addresses, USAGE_NAMES.index(spec.usage)
            )

    def _link(self, tensors: list[CompiledTensor], made: list[Tensor], table: Sequence[Tensor | None]) -> None:
        for ct, t in zip(tensors, made, strict=True):
            if ct.view_src != _NONE:
                t.view_src = table[ct.view_src]
            if ct.src:
                t.src = [None if s == _NONE else table[s] for s in ct.src]

    def build(self, name: str) -> CGraph:
        """Build a graph anew: new tensors for its nodes and for the contexts without a buffer type."""
        sched = self.start()
        compiled = self.compiled.graphs[name]
        if sched.is_reset:
            self._pool_used = 0
        n_new = len(compiled.nodes) + self.persistent.count(None)
        take = self._take(n_new)
        table: list[Tensor] = []
        if n_new > len(compiled.nodes):
            fresh: list[tuple[CompiledTensor, Tensor]] = []
            at = 0
            for spec, tensors in zip(self.model.contexts, self.compiled.contexts, strict=True):
                if spec.buft is None:
                    for ct in tensors:
                        t = ct.proto.clone(take.pop())
                        fresh.append((ct, t))
                        table.append(t)
                else:
                    table += self.persistent[at : at + len(tensors)]  # type: ignore[arg-type]
                at += len(tensors)
            self._link([ct for ct, _ in fresh], [t for _, t in fresh], table)
        else:
            table += self.persistent  # type: ignore[arg-type]
        for ct in compiled.nodes:
            t = ct.proto.clone(take.pop())
            table.append(t)
            t.src = [None if s == _NONE else table[s] for s in ct.src]
            if ct.view_src != _NONE:
                t.view_src = table[ct.view_src]
        graph = CGraph(self.compiled.cgraph_size, self.indices.top)
        for e in compiled.expand:
            graph.build_forward_expand(table[e])
        self.newest[name] = (graph, table)
        return graph

    def _take(self, n: int) -> list[int]:
        """`n` indices for new tensors, the first one last; those of graphs nobody can refer to come again."""
        need = self._pool_used + n - len(self._pool)
        for _ in range(need):
            self._pool.append(self.indices.take())
        out = self._pool[self._pool_used : self._pool_used + n]
        self._pool_used += n
        out.reverse()
        return out

    def _assign(self, sched: Scheduler, name: str, table: list[Tensor]) -> None:
        for at, backend in self.compiled.graphs[name].assigned:
            sched.set_tensor_backend(table[at], backend)

    def reserve(self, name: str) -> Plan:
        """The step `reserve`: ggml_backend_sched_reserve of a new build of the graph."""
        return self._plan_step("reserve", name)

    def alloc(self, name: str) -> Plan:
        """The step `alloc`: ggml_backend_sched_alloc_graph of a new build of the graph."""
        return self._plan_step("alloc", name)

    def _plan_step(self, step: str, name: str) -> Plan:
        self.log.clear()
        try:
            sched = self.start()
            graph = self.build(name)
            self._assign(sched, name, self.newest[name][1])
            ok = sched.reserve(graph) if step == "reserve" else sched.alloc_graph(graph)
            plan = plan_of(sched, graph, name, step, self.log)
        except GgmlError as e:
            plan = self.failed(e, name, step)
        self.plans.append(plan)
        return plan

    def failed(self, error: GgmlError, name: str | None, step: str) -> Plan:
        """The plan of a step that ggml would not survive."""
        backends = [(b.name, b.device.buft.name) for b in self.backends]
        return failed_plan(error, name, step, backends, self.log)


def make_bufts(model: Model) -> dict[str, BufferType]:
    """Every buffer type of the scenario by name: those of its backends, then the further ones."""
    bufts: dict[str, BufferType] = {}
    for spec in model.backends:
        profile = PROFILES[spec.profile]
        name = spec.buft or profile.buft or spec.name
        if name == spec.name:
            bufts[name] = make_buft(
                profile, name, spec.name, spec.alignment, spec.max_size, spec.row_padding, spec.host
            )
    if "CPU" not in bufts:
        bufts["CPU"] = make_buft(PROFILES["CPU"], "CPU", "CPU")
    for further in model.buffer_types:
        bufts[further.name] = _further_buft(further)
    return bufts


def _further_buft(spec: BufferTypeSpec) -> BufferType:
    return BufferType(
        spec.name,
        spec.device,
        spec.alignment,
        SIZE_MAX if spec.max_size is None else spec.max_size,
        spec.row_padding,
        spec.host,
        spec.ops,
    )


def make_backends(model: Model, bufts: dict[str, BufferType]) -> list[Backend]:
    """The scenario's backends as the engine's, in priority order."""
    return [_backend(spec, bufts) for spec in model.backends]


def _backend(spec: BackendSpec, bufts: dict[str, BufferType]) -> Backend:
    profile = PROFILES[spec.profile]
    own = [b for b in bufts.values() if b.device == spec.name]
    listed = [bufts[name] for name in spec.supports_bufts or ()]
    device = make_device(
        profile,
        spec.name,
        bufts[spec.buft or profile.buft or spec.name],
        [*own, *listed],
        type=spec.type,
        supports=(spec.supports.keys, spec.supports.exclude) if spec.supports is not None else None,
        offload_min_batch=spec.offload_min_batch,
        never_offloads=spec.never_offloads,
        events=spec.events,
        memory=spec.memory,
    )
    return Backend(spec.name, device)


def context_of(model: Model, tensor: str) -> ContextSpec | None:
    """The context that lists a tensor."""
    for c in model.contexts:
        if any(t.id == tensor for t in c.tensors):
            return c
    return None
