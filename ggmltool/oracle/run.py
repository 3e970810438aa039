"""Runs a scenario on the real library, step by step, and collects what it did."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ggmltool.ggml.errors import GgmlError
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.sched.callbacks import USED_EXPERTS
from ggmltool.ggml.sched.used_experts import EXPERT_TAIL
from ggmltool.ggml.tensor import is_computed
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE
from ggmltool.oracle import structs
from ggmltool.oracle.fork import Abort
from ggmltool.oracle.lib import LOG_CALLBACK, Lib
from ggmltool.oracle.mock import Answered, Callbacks, World
from ggmltool.oracle.state import StateReader, check_layout
from ggmltool.oracle.structs import CGraphStruct, MultiBuffer, Tensor
from ggmltool.oracle.tensors import Builder, read_values
from ggmltool.scenario.spec import ContextSpec, ScenarioSpec, Step, TensorSpec

USAGE = {"any": 0, "weights": 1, "compute": 2}
LEVEL_DEBUG = 1
LEVEL_WARN = 3
LEVEL_ERROR = 4
LEVEL_CONT = 5

FREED = "freed"

Places = dict[str, tuple[str, int] | str | None]
"""Where the tensors of a build lie, by id."""

Emit = Callable[[str, Any], None]


class Log:
    """ggml's log as it comes: warnings and errors as lines, the debug print and what the scheduler logs at its level as
    text; other functions' debug lines are passed over.
    """

    def __init__(self, lib: Lib) -> None:
        self._text: list[bytes] = []
        self._debug: list[bytes] = []
        self._level = LEVEL_DEBUG

        def on_log(level: int, text: bytes, _user: int) -> None:
            self._level = level if level != LEVEL_CONT else self._level
            if self._level == LEVEL_DEBUG:
                if not text.startswith(b"ggml_") or text.startswith(b"ggml_backend_sched_"):
                    self._debug.append(text)
            elif self._level in (LEVEL_WARN, LEVEL_ERROR):
                self._text.append(text)

        self._callback = LOG_CALLBACK(on_log)
        lib.ggml_log_set(self._callback, None)

    def take(self) -> tuple[list[str], bytes]:
        """The lines and the debug text since the last call."""
        text, debug = b"".join(self._text), b"".join(self._debug)
        self._text.clear()
        self._debug.clear()
        return text.decode("utf-8", "surrogateescape").splitlines(), debug


class Runner:
    """Runs scenarios in this process, which ggml's abort ends: `worker` keeps it in a child of its own.

    Without `values`, nothing is written, read or computed, and no memory is touched: a compute step does only what it
    does to the scheduler. `answered` gets the devices whose rules are the engine's, to let others answer for them.

    `emit` gets ("plan", (dict, debug text)), with `states` before each ("state", State), ("values", {id: array}) and at
    the end ("trace", lines).
    """

    def __init__(
        self, lib: Lib, debug: int = 2, values: bool = True, answered: Answered | None = None, states: bool = False
    ) -> None:
        self.lib = lib
        self.states = states
        self.debug = debug
        self.values = values
        self.log = Log(lib)
        self.callbacks = Callbacks(lib, answered)
        self._checked = False
        self._current: tuple[ScenarioSpec, Step | None, World | None, Emit] | None = None

    def run(self, model: ScenarioSpec, emit: Emit) -> None:
        """Runs all steps of the model."""
        computing = self.values and any(step.kind in ("compute", "set", "get") for step in model.steps)
        first = next((step for step in model.steps if step.kind in ("reserve", "alloc")), next(iter(model.steps), None))
        self.log.take()
        self._current = (model, first, None, emit)
        world = World(self.callbacks, model, computing)
        run = ScenarioRun(self, model, world)
        try:
            run.start()
            for step in model.steps:
                self._current = (model, step, world, emit)
                if not run.step(step, emit):
                    break
                if computing:
                    emit("builds", run.builds())
        finally:
            self._current = None
            world.closing = True
            run.close()
        if computing:
            emit("trace", world.trace)

    @property
    def has_freed(self) -> bool:
        """Whether tensors of the scenario may lie in memory that was freed, where ggml can meet anything."""
        return self._current is not None and self._current[2] is not None and bool(self._current[2].freed)

    def on_abort(self, message: bytes) -> None:
        """To be called from ggml's abort callback: emits the step that aborted and what was known."""
        if self._current is None:
            return
        model, step, world, emit = self._current
        abort = Abort(message.decode("utf-8", "surrogateescape"))
        error = {"kind": "abort", "condition": abort.condition, "message": abort.text}
        log, debug = self.log.take()
        emit("plan", (failed_plan(model, step, error, log), debug))
        if world is not None and world.tracing:
            emit("trace", world.trace)

    def check_layout(self, world: World, sched: int, graph_size: int, op_offload: bool) -> None:
        """Checks the layout of the scheduler's state once."""
        if not self._checked:
            check_layout(self.lib, world, sched, graph_size, op_offload, self.debug)
            self._checked = True


def failed_plan(
    model: ScenarioSpec, step: Step | None, error: Mapping[str, str | None], log: Sequence[str]
) -> dict[str, Any]:
    """The plan of a step that did not end well."""
    graph, kind = (step.graph, step.kind) if step else (None, "alloc")
    return Plan(graph, kind, False, (), log=tuple(log), error=tuple(error.items()), ggml=model.ggml).as_dict()


class ScenarioRun:
    """One scenario on one scheduler."""

    def __init__(self, runner: Runner, model: ScenarioSpec, world: World) -> None:
        self.runner = runner
        self.lib = runner.lib
        self.model = model
        self.world = world
        self.builder = Builder(self.lib)
        self.persistent: dict[str, int] = {}
        self.tables: dict[str, dict[str, int]] = {}
        self.newest_graphs: dict[str, int] = {}
        self.held = ""
        self.chunks: dict[int, int] = {}
        self.buffers: list[int] = []
        self.placed: dict[str, int] = {}
        self.sched = 0
        self.experts: SchedCopyExperts | None = None
        self.devices = {device.name: device for device in world.order}
        world.names = self.builder.ids

    def start(self) -> None:
        """Allocates the contexts that have a buffer type, in order, and makes the scheduler."""
        for context in self.model.contexts:
            if context.buft is not None:
                self._allocate(context, context.buft)
        self._new_scheduler()

    def close(self) -> None:
        """Frees everything."""
        self.lib.ggml_backend_sched_free(self.sched)
        for buffer in self.buffers:
            self.lib.ggml_backend_buffer_free(buffer)
        self.builder.close()

    def _allocate(self, context: ContextSpec, buft: str) -> None:
        lib = self.lib
        ctx = self.builder.context(len(context.tensors))
        known = self.persistent
        refers = {ref for t in context.tensors for ref in (t.view_src, *t.src) if ref is not None}
        if refers - known.keys() - {t.id for t in context.tensors}:
            # A view of a tensor that has no memory yet: ggml sees a root without buffer and asserts.
            known = dict(known)
            others = [c for c in self.model.contexts if c is not context]
            for other in [c for c in others if any(t.id not in known for t in c.tensors)]:
                roots = [t for t in other.tensors if t.view_src is None and not t.src]
                self.builder.tensors(self.builder.context(len(other.tensors)), roots, known)
        self.builder.tensors(ctx, context.tensors, known)
        self.persistent.update((t.id, known[t.id]) for t in context.tensors)
        address = self.world.buft_of(buft).address
        if context.size is not None:
            buffer = lib.ggml_backend_buft_alloc_buffer(address, context.size)
            self.placed[context.name] = buffer
            self._place(buffer, context.tensors, known)
        else:
            buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(ctx, address)
        if buffer:
            self.buffers.append(buffer)
            lib.ggml_backend_buffer_set_usage(buffer, USAGE[context.usage])
            if lib.ggml_backend_buffer_is_multi_buffer(buffer):
                multi = MultiBuffer.from_address(structs.Buffer.from_address(buffer).context)
                self.chunks.update((b, i) for i, b in enumerate(multi.buffers[: multi.n_buffers]))
        self._write_data(context.tensors, self.persistent)

    def _place(self, buffer: int, tensors: Sequence[TensorSpec], known: Mapping[str, int]) -> None:
        """Gives tensors the memory that they say they lie in; views that of their roots."""
        base = self.lib.ggml_backend_buffer_get_base(buffer) or 0
        for spec in tensors:
            t = Tensor.from_address(known[spec.id])
            if spec.view_src is None:
                t.buffer, t.data = buffer, base + (spec.at or 0)
            else:
                root = Tensor.from_address(known[spec.view_src])
                if root.buffer:
                    t.buffer, t.data = root.buffer, root.data + spec.view_offs

    def _new_scheduler(self) -> None:
        lib, model = self.lib, self.model
        order = self.world.order
        backends = (ctypes.c_void_p * len(order))(*[device.address for device in order])
        graph_size = model.scheduler.graph_size or self._default_graph_size()
        parallel, offload = model.scheduler.parallel, model.scheduler.op_offload
        os.environ["GGML_SCHED_DEBUG"] = str(self.runner.debug)
        self.sched = lib.ggml_backend_sched_new(backends, None, len(order), graph_size, parallel, offload)
        self.runner.check_layout(self.world, self.sched, graph_size, offload)
        if model.scheduler.copy_callback == USED_EXPERTS:
            self.experts = SchedCopyExperts(lib)
            lib.ggml_backend_sched_set_copy_callback(self.sched, self.experts.callback, None)

    def _default_graph_size(self) -> int:
        n_tensors = len(self.model.tensors())
        largest = DEFAULT_GRAPH_SIZE
        names = {address: Tensor.from_address(address).name for address in self.persistent.values()}
        for name, graph in self.model.graphs.items():
            if len(graph.nodes) + n_tensors > DEFAULT_GRAPH_SIZE:
                built = CGraphStruct.from_address(self._build(name))
                largest = max(largest, built.n_nodes + built.n_leafs)
        self.tables.clear()
        self.newest_graphs.clear()
        # A leaf without a name gets its number in the first graph that has it; these builds were only to count.
        for address, name in names.items():
            Tensor.from_address(address).name = name
        return largest

    def _build(self, name: str) -> int:
        spec = self.model.graphs[name]
        loose = [t for context in self.model.contexts if context.buft is None for t in context.tensors]
        size = len(spec.nodes) + len(self.model.tensors()) + 1
        ctx = self.builder.context(len(loose) + len(spec.nodes), size)
        table = dict(self.persistent)
        self.builder.tensors(ctx, [*loose, *spec.nodes], table)
        for node in spec.nodes:
            if node.within is not None:
                self._place(self.placed[node.within], [node], table)
        graph = self.builder.graph(ctx, spec, table, size)
        # What was built last stands last.
        self.tables.pop(name, None)
        self.tables[name] = table
        self.newest_graphs[name] = graph
        return graph

    def _newest(self, id: str) -> int:
        """The newest tensor of an id, rather one that its graph uses, as the engine's `Run.tensor` finds it."""
        found = [(graph, table[id]) for graph, table in reversed(self.tables.items()) if id in table]
        for graph, address in found:
            if address in self._tensors(graph):
                return address
        if found:
            return found[0][1]
        if id in self.persistent:
            return self.persistent[id]
        known = self.model.tensors()
        name = next(name for name, g in self.model.graphs.items() if any(t.id == id for t in (*known, *g.nodes)))
        self._build(name)
        return self.tables[name][id]

    def _tensors(self, graph: str) -> list[int]:
        """Leafs and nodes of the newest build of a graph."""
        built = CGraphStruct.from_address(self.newest_graphs[graph])
        return [*built.leafs[: built.n_leafs], *built.nodes[: built.n_nodes]]

    def builds(self) -> dict[str, Places]:
        """Where the tensors of each graph's newest build lie."""
        ids = self.builder.ids
        return {graph: {ids[t]: self._where(t) for t in self._tensors(graph)} for graph in self.tables}

    def _where(self, address: int) -> tuple[str, int] | str | None:
        t = Tensor.from_address(address)
        if not t.data:
            return None
        if any(start <= t.data <= end for start, end in self.world.freed):
            return FREED
        base = self.lib.ggml_backend_buffer_get_base(t.buffer) or 0
        return self.world.bufts[structs.Buffer.from_address(t.buffer).buft].name, t.data - base

    def step(self, step: Step, emit: Emit) -> bool:
        """Runs a step; False if it failed and the run ends."""
        lib, sched = self.lib, self.sched
        if step.kind == "reset":
            lib.ggml_backend_sched_reset(sched)
        elif step.kind == "compute" and step.graph is not None:
            error = self._compute(step.graph)
            # Where it had to split the graph, what it printed is of no plan.
            self.runner.log.take()
            if error is not None:
                emit("plan", (failed_plan(self.model, step, error, ()), b""))
                return False
        elif step.kind in ("set", "get") and not self.world.tracing:
            pass
        elif step.kind == "set":
            for name, data in step.data:
                spec = self._spec(name)
                address = self._newest(name)
                if self._where(address) != FREED:
                    lib.set(address, data.raw(spec.type, spec.ne, spec.nb, self.model.bounds))
        elif step.kind == "get":
            found = {name: self._newest(name) for name in step.tensors}
            emit("values", {name: read_values(lib, t) for name, t in found.items() if self._where(t) != FREED})
        elif step.graph is not None:
            return self._plan(step, step.graph, emit)
        return True

    def _compute(self, name: str) -> dict[str, str | None] | None:
        """ggml_backend_sched_graph_compute, with the data written between its alloc and its computing.

        Where nothing is to be computed, what it does before and after. The error with which the backend that a mock
        stands for would end, since a node that the user has assigned to it is one that it lacks.
        """
        lib, sched = self.lib, self.sched
        state = lib.structs["ggml_backend_sched"].from_address(sched)
        graph = self.newest_graphs[name] if name in self.newest_graphs else self._build(name)
        table = self.tables[name]
        if not state.is_alloc:
            if not state.is_reset:
                lib.ggml_backend_sched_reset(sched)
            loose = [t for c in self.model.contexts if c.buft is None for t in c.tensors]
            new = [t for t in loose if not Tensor.from_address(table[t.id]).buffer]
            self.held = name
            if lib.ggml_backend_sched_alloc_graph(sched, graph) and self.world.tracing:
                self._write_data(new, table)
        if self.experts is not None:
            self.experts.start()
        error = self._unsupported(self.held) if self.world.tracing else None
        if error is not None:
            return {"kind": error.kind, "condition": error.condition, "message": error.message}
        if self.world.tracing:
            lib.ggml_backend_sched_graph_compute(sched, graph)
        else:
            lib.ggml_backend_sched_synchronize(sched)
        return None

    def _unsupported(self, name: str) -> GgmlError | None:
        """How ggml would end at the first node that the user has assigned to a device that does not support it."""
        table, nodes = self.tables[name], self.model.graphs[name].nodes
        assigned = {table[spec.id] for spec in nodes if spec.backend is not None}
        built = CGraphStruct.from_address(self.newest_graphs[name])
        for address in (node for node in built.nodes[: built.n_nodes] if node in assigned):
            backend = self.lib.ggml_backend_sched_get_tensor_backend(self.sched, address)
            n = self.world.mirror.tensor(address)
            mock = self.world.backends.get(backend)
            device = None if mock is None else mock.engine
            if device is not None and device.unsupported is not None and is_computed(n):
                refusal = device.refusal(n)
                error = None if refusal is None else device.unsupported.of(n, device.name, *refusal)
                if error is not None:
                    return error
        return None

    def _plan(self, step: Step, name: str, emit: Emit) -> bool:
        lib, sched = self.lib, self.sched
        graph = self._build(name)
        table = self.tables[name]
        self._assign(self.model.tensors())
        self._assign(self.model.graphs[name].nodes)
        act = lib.ggml_backend_sched_reserve if step.kind == "reserve" else lib.ggml_backend_sched_alloc_graph
        if step.kind == "alloc":
            self.held = name
        ok = act(sched, graph)
        log, debug = self.runner.log.take()
        if not ok:
            error = {"kind": "failed", "condition": None, "message": "\n".join(log)}
            emit("plan", (failed_plan(self.model, step, error, log), debug))
            return False
        order = tuple((device.name, device.buft.name) for device in self.world.order)
        reader = StateReader(lib, self.world, sched, self.builder.ids, self.buffers, self.chunks)
        if self.runner.states:
            emit("state", reader.state(graph))
        rows = reader.rows(graph)
        plan = Plan(name, step.kind, True, order, *rows, log=tuple(log), ggml=self.model.ggml).as_dict()
        emit("plan", (plan, debug))
        if step.kind == "alloc":
            self._write_data([t for c in self.model.contexts if c.buft is None for t in c.tensors], table)
        return True

    def _assign(self, tensors: Sequence[TensorSpec]) -> None:
        """Makes the user's assignments, in the newest build."""
        table = next(reversed(self.tables.values()))
        for spec in tensors:
            if spec.backend is not None:
                backend = self.devices[spec.backend].address
                self.lib.ggml_backend_sched_set_tensor_backend(self.sched, table[spec.id], backend)

    def _spec(self, name: str) -> TensorSpec:
        """What the newest tensor of an id is."""
        for spec in self.model.tensors():
            if spec.id == name:
                return spec
        graphs = [self.model.graphs[graph] for graph in reversed(self.tables)]
        return next(t for graph in (*graphs, *self.model.graphs.values()) for t in graph.nodes if t.id == name)

    def _write_data(self, tensors: Sequence[TensorSpec], known: dict[str, int]) -> None:
        if not self.world.tracing:
            return
        for spec in tensors:
            if spec.data is not None and Tensor.from_address(known[spec.id]).buffer:
                self.lib.set(known[spec.id], spec.data.raw(spec.type, spec.ne, spec.nb, self.model.bounds))


class SchedCopyExperts:
    """llama_context::sched_copy_experts. `start` is to be called before each graph; `callback` must be kept."""

    def __init__(self, lib: Lib) -> None:
        self.lib = lib
        self.callback = lib.structs.prototype("ggml_backend_sched", "callback_copy")(self._copy)
        self.start()

    def start(self) -> None:
        """Forget whose experts were used."""
        self.ids = 0
        self.used: list[bool] = []

    def _copy(self, backend: int, src: int, dst: int, graph: int, _: int | None) -> bool:
        g, weight = CGraphStruct.from_address(graph), Tensor.from_address(src)
        node = Tensor.from_address(g.nodes[0]) if g.n_nodes else None
        if node is None or node.op != Op.MUL_MAT_ID or node.src[0] != dst:
            return False
        ids = Tensor.from_address(node.src[2])
        if 0 in tuple(ids.ne):
            return True
        n_expert, size = weight.ne[2], weight.nb[2]
        if node.src[2] != self.ids or len(self.used) != n_expert:
            self._read(backend, node.src[2], ids, n_expert)
        expert = 0
        while expert < n_expert:
            first = expert
            while expert < n_expert and self.used[expert]:
                expert += 1
            if expert > first:
                tail = min(size, EXPERT_TAIL) if expert < n_expert else 0
                start, n = first * size, (expert - first) * size + tail
                self.lib.ggml_backend_tensor_set_async(backend, dst, weight.data + start, start, n)
            expert += 1
        return True

    def _read(self, backend: int, address: int, ids: Any, n_expert: int) -> None:
        words = (ctypes.c_int32 * (self.lib.ggml_nbytes(address) // 4))()
        self.lib.ggml_backend_tensor_get_async(backend, address, ctypes.addressof(words), 0, ctypes.sizeof(words))
        self.lib.ggml_backend_synchronize(backend)
        self.used = [False] * n_expert
        for row in range(ids.ne[1]):
            for column in range(ids.ne[0]):
                self.used[words[(row * ids.nb[1] + column * ids.nb[0]) // 4]] = True
        self.ids = address
