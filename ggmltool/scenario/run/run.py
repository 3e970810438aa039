"""A run: the steps of a scenario on the engine, as the real library would run them one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ggmltool.ggml.alloc.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.bounds import check_memory
from ggmltool.ggml.buffer import USAGE_NAMES, AddressSpace, Buffer, BufferType, Outgrown, bounds_of
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlError, UseAfterFree
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import Plan, PlanError, SchedDebug
from ggmltool.ggml.sched.common import AnyScheduler
from ggmltool.ggml.sched.plans import failed_plan, plan_of
from ggmltool.ggml.tensor import Tensor, nelements, root_of
from ggmltool.scenario.errors import Mistake, ScenarioError
from ggmltool.scenario.run.compiled import NONE, Compiled, CompiledTensor, collector_paused
from ggmltool.scenario.run.devices import make_backends, make_bufts, take_gpus
from ggmltool.scenario.spec import ContextSpec, Step, graph_called, no_tensor

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ggmltool.ggml.sched.callbacks import EvalCallback
    from ggmltool.ggml.sched.common import OnDebug, Times
    from ggmltool.ggml.sched.compute import Watch
    from ggmltool.ggml.sched.unchecked import FreedMemory
    from ggmltool.scenario.data import Data

MAPPED = 4096
"""Bytes from which on a tensor stays in its GGUF file, mapped into memory, instead of being copied."""


class Run(ABC):
    """A scenario on the engine: its devices, contexts and one scheduler, all made by the first step.

    `events` listens to everything the engine announces; with `debug` the scheduler's debug print of every reserve
    and alloc is kept in `debug_records`; with `values` data is written and nodes are computed.
    `plans` grows by one plan for each reserve and alloc step, and by one for a step that fails. `undone` has the
    tensors that the newest build made anew although a `set` had written to them and nothing was computed since; it is
    empty again when a graph is computed.

    `newest` has the last build of every graph, the newest at the end. A build keeps its tensors and their memory while
    others are allocated, as a program's would: when a compute buffer has grown since, they lie in freed memory.
    `freed` knows what rests on that.

    With `borrows` it is a run for one build of one graph, whose tensors are lent by `compiled` and not made.

    A run is for one thread at a time, as ggml's scheduler; a Scenario is for several, and each can start its own.
    """

    plan_steps: ClassVar[tuple[str, ...]]
    """The kinds of steps that a plan tells of."""
    times: Sequence[Times] = ()
    """What each backend spent in the graph that was computed last, of a ggml that keeps that."""

    def __init__(
        self,
        compiled: Compiled,
        events: Listener | None = None,
        debug: bool = False,
        values: bool = False,
        borrows: bool = False,
    ) -> None:
        self.compiled = compiled
        self._borrows = borrows
        self._make = CompiledTensor.lend if borrows else CompiledTensor.make
        self.model = compiled.model
        self.listener = events
        self.on_debug: OnDebug | None = None
        self.log: list[str] = []
        self.debug = debug
        self.values = values
        self.debug_records: list[SchedDebug] = []
        self.plans: list[Plan] = []
        self.indices = IndexSpace()
        self.addresses = AddressSpace(compiled.model.bounds)
        self.bufts: dict[str, BufferType] = {}
        self.backends: list[Backend] = []
        self.contexts: list[Context] = []
        self.buffers: list[Buffer] = []
        self.placed: dict[str, Buffer] = {}
        self.persistent: list[Tensor | None] = []
        self.newest: dict[str, tuple[CGraph, list[Tensor]]] = {}
        self.undone: list[str] = []
        self._freed: FreedMemory | None = None
        self._unread: dict[str, None] = {}
        self.sched: AnyScheduler | None = None
        self._stand_ins: dict[int, Tensor] = {}
        self._errors: dict[int, GgmlError] = {}
        self._files: dict[Path, NDArray[Any]] = {}
        self._pools: dict[str, list[int]] = {}
        self._used: dict[str, int] = {}

    def start(self) -> AnyScheduler:
        """Make the devices, allocate the contexts that have a buffer type, and make the scheduler."""
        if self.sched is not None:
            return self.sched
        self.bufts = make_bufts(self.model)
        self.backends = make_backends(self.model, self.bufts)
        if self.values:
            take_gpus(self.model, self.backends, self.bufts.values())
        self._make_contexts()
        self.sched = self._make_scheduler()
        self.sched.debug, self.sched.on_debug = self.debug, self.on_debug
        self.sched.log_lines = self.log
        return self.sched

    @property
    def number(self) -> int:
        """The number of the step that is done, from 1; 0 before the first."""
        return self.addresses.step

    @number.setter
    def number(self, number: int) -> None:
        self.addresses.step = number

    @property
    def held(self) -> str:
        """The graph that the scheduler has allocated, which is what it computes; "" if it has none."""
        return ""

    @property
    def freed(self) -> FreedMemory:
        """What is read and computed in memory that was freed."""
        if self._freed is None:
            from ggmltool.ggml.sched.unchecked import FreedMemory

            self._freed = FreedMemory(self.addresses, self.listener)
        return self._freed

    @abstractmethod
    def _make_scheduler(self) -> AnyScheduler:
        """The scheduler, when devices and contexts are there."""

    def _make_contexts(self) -> None:
        make = self._make
        for spec, tensors in zip(self.model.contexts, self.compiled.contexts, strict=True):
            if spec.buft is None:
                self.persistent.extend([None] * len(tensors))
                continue
            ctx = Context(indices=self.indices, name=spec.name)
            made = [make(ct, 0) for ct in tensors]
            ctx.add_all(made)
            self.persistent += made
            self._link(tensors, ctx.tensors, self.persistent)
            self.contexts.append(ctx)
            usage = USAGE_NAMES.index(spec.usage)
            if spec.size is None:
                self.buffers += self._alloc_context(ctx, self.bufts[spec.buft], usage)
            else:
                buffer = Buffer(self.bufts[spec.buft], spec.size, self.addresses, usage)
                # Each tensor lies where it says; views where their roots are, if these have memory.
                for t_spec, t in zip(spec.tensors, ctx.tensors, strict=True):
                    if t.view_src is None:
                        t.buffer, t.data = buffer, buffer.base + (t_spec.at or 0)
                    elif t.view_src.buffer is not None:
                        t.buffer, t.data = t.view_src.buffer, t.view_src.data + t.view_offs
                self.placed[spec.name] = buffer
                self.buffers.append(buffer)
            if self.values:
                self._write_context(spec, ctx.tensors)

    def _alloc_context(self, ctx: Context, buft: BufferType, usage: int) -> list[Buffer]:
        """The buffers for a context that is allocated at once."""
        return alloc_ctx_tensors_from_buft(ctx, buft, self.addresses, usage)

    def _write_context(self, spec: ContextSpec, tensors: list[Tensor]) -> None:
        from ggmltool.ggml.values.transfer import tensor_map

        for t_spec, t in zip(spec.tensors, tensors, strict=True):
            if t_spec.data is None or t.buffer is None:
                continue
            content = self._in_file(t_spec.data, t)
            if content is None:
                t_spec.data.write(t, self.listener)
            else:
                tensor_map(t, content, self.listener)

    def _in_file(self, data: Data, t: Tensor) -> NDArray[Any] | None:
        """The bytes of `t` in the file that its data names; None if they have to be made."""
        from ggmltool.scenario.data import GgufData
        from ggmltool.scenario.encoded import map_file

        found = data.as_it_is(t.type, t.ne, t.nb) if isinstance(data, GgufData) and t.view_src is None else None
        if found is None or found.size < MAPPED:
            return None
        if found.path not in self._files:
            self._files[found.path] = map_file(found.path)
        return found.part(self._files[found.path])

    def _link(self, tensors: list[CompiledTensor], made: list[Tensor], table: Sequence[Tensor | None]) -> None:
        for ct, t in zip(tensors, made, strict=True):
            if ct.view_src != NONE:
                t.view_src = table[ct.view_src] or self._unallocated(ct.view_src)
            if ct.src:
                t.src = [None if s == NONE else table[s] or self._unallocated(s) for s in ct.src]

    def _unallocated(self, at: int) -> Tensor:
        """What an allocated context sees of a tensor that every build of a graph makes anew: one without memory."""
        t = self._stand_ins.get(at)
        if t is None:
            ct = [ct for tensors in self.compiled.contexts for ct in tensors][at]
            t = self._stand_ins[at] = ct.make(self.indices.take())
        return t

    def build(self, name: str) -> CGraph:
        """Build a graph anew: new tensors for its nodes and for the contexts without a buffer type.

        Raises ScenarioError for a graph that is not there.
        """
        compiled = self.compiled.graphs[graph_called(self.model, name)]
        sched = self.start()
        if sched.is_reset:
            self._used.clear()
        n_new = len(compiled.nodes) + self.persistent.count(None)
        take = iter(self._take(name, n_new))
        make = self._make
        table: list[Tensor] = []
        if n_new > len(compiled.nodes):
            fresh: list[tuple[CompiledTensor, Tensor]] = []
            at = 0
            for spec, tensors in zip(self.model.contexts, self.compiled.contexts, strict=True):
                if spec.buft is None:
                    for ct in tensors:
                        t = make(ct, next(take))
                        fresh.append((ct, t))
                        table.append(t)
                else:
                    table += self.persistent[at : at + len(tensors)]  # type: ignore[arg-type]
                at += len(tensors)
            self._link([ct for ct, _ in fresh], [t for _, t in fresh], table)
        else:
            table += self.persistent  # type: ignore[arg-type]
        nodes = [make(ct, index) for ct, index in zip(compiled.nodes, take, strict=True)]
        table += nodes
        if not self._borrows:
            # The last one is that of NONE.
            linked: list[Tensor | None] = [*table, None]
            for ct, t in zip(compiled.nodes, nodes, strict=True):
                t.src = [linked[s] for s in ct.src]
                t.view_src = linked[ct.view_src]
        for node_at, context, offset in compiled.placed:
            buffer = self.placed[self.model.contexts[context].name]
            table[node_at].buffer, table[node_at].data = buffer, buffer.base + offset
        graph = CGraph(self.compiled.cgraph_size, self.indices.top)
        compiled.build(graph, table.__getitem__)
        # Rebuilt graphs go to the end: the last one is the newest.
        self.newest.pop(name, None)
        self.newest[name] = (graph, table)
        ids = compiled.ids
        self.undone = [id for id in self._unread if id in ids and graph.contains(table[ids[id]])]
        for id in self.undone:
            del self._unread[id]
        return graph

    def _take(self, name: str, n: int) -> list[int]:
        """`n` indices for new tensors of a graph; those of its builds that nobody can refer to come again.

        Other graphs have others: what an earlier split left in a build may be a view of theirs.
        """
        pool, used = self._pools.setdefault(name, []), self._used.get(name, 0)
        if used + n > len(pool):
            pool += self.indices.take_many(used + n - len(pool))
        self._used[name] = used + n
        return pool[used : used + n]

    @abstractmethod
    def reserve(self, name: str) -> Plan:
        """The step that plans the memory of a new build of the graph."""

    @abstractmethod
    def alloc(self, name: str) -> Plan:
        """A new build of the graph with the memory that it is computed in."""

    def _plan_step(self, step: str, name: str) -> Plan:
        """One of `plan_steps`: its plan, the newest of `plans`."""
        self._clear_log()
        with collector_paused():
            try:
                plan = self._plan(step, name)
            except GgmlError as e:
                plan = self._failed(e, name, step)
        self.plans.append(plan)
        return plan

    def _clear_log(self) -> None:
        self.log.clear()
        if self.sched is not None and self.sched.debug_lines:
            self.sched.debug_lines.clear()

    @abstractmethod
    def _plan(self, step: str, name: str) -> Plan:
        """The plan of a step. Raises GgmlError if ggml would not go on."""

    def plan_of(self, graph: CGraph, name: str, step: str, error: PlanError | None = None) -> Plan:
        """The state after a step of the graph called `name`; with `error`, what stood when ggml refused to go on."""
        return plan_of(self.start(), graph, name, step, self.log, error)

    def as_computed(self, plan: Plan) -> Plan:
        """The newest plan, with the error with which ggml ends when it computes what was planned (`compute_error`):
        where a backend is to compute what it does not support.
        """
        from ggmltool.ggml.sched.unchecked import check_supported

        if plan.ok and self.sched is not None:
            try:
                check_supported(self.sched)
            except GgmlError as error:
                error.explanation += f"\n{plan.step} {plan.graph} itself succeeds: this comes when it is computed"
                return replace(plan, compute_error=tuple(error.as_dict().items()))
        return plan

    def failure(self, plan: Plan) -> GgmlError:
        """The error behind a plan that is not ok."""
        return self._errors[id(plan)]

    def _failed(self, error: GgmlError, name: str | None, step: str) -> Plan:
        backends = [(b.name, b.device.buft.name) for b in self.backends]
        lines = self.sched.debug_lines if self.sched is not None else None
        plan = failed_plan(error, name, step, backends, self.log, self.model.ggml, lines)
        self._errors[id(plan)] = error
        return plan

    def step(self, step: Step, number: int | None = None) -> Plan | dict[str, NDArray[Any]] | None:
        """One step of a scenario: the plan of reserve and alloc, the values of get, None for the others.

        `number` is the step's, by default one more than that of the step before. A step that ggml would not survive
        gives its failed plan, which is also the last of `plans`. What rests on freed memory has no value: `get` leaves
        it out, and `freed.uses` has it.
        """
        self.number = self.number + 1 if number is None else number
        if step.kind in self.plan_steps:
            return self._plan_step(step.kind, step.graph or "")
        try:
            sched = self.start()
            match step.kind:
                case "reset":
                    sched.reset()
                case "compute":
                    self.compute(step.graph or "")
                case "set":
                    for name, data in step.data:
                        self.set(name, data)
                case "get":
                    values = {}
                    for id in step.tensors:
                        with suppress(UseAfterFree):
                            values[id] = self.get(id)
                    return values
        except GgmlError as e:
            if self.sched is None:
                # Devices and contexts are made for the first plan, whatever comes before it.
                step = next((s for s in self.model.steps if s.kind in ("reserve", "alloc")), step)
            self.plans.append(self._failed(e, step.graph, step.kind))
            return self.plans[-1]
        return None

    @abstractmethod
    def compute(self, name: str, watch: Watch | None = None, wait: bool = True) -> None:
        """The step `compute` of a graph. Raises GgmlError if ggml would not go on.

        Without `values` the scheduler allocates where it has to, and nothing is computed. `watch` is called with
        every node after it was computed. Without `wait` GPUs of this machine may still be computing when it returns,
        and the scheduler's `synchronize` waits for them.
        """

    @abstractmethod
    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """ggml_backend_sched_set_eval_callback, of a ggml that has it."""

    def old_copies(self, name: str) -> list[str]:
        """The copies that an earlier split put into the newest build, where `compute` would split it again."""
        return []

    def tensor(self, id: str, to: Literal["set", "get"] = "set") -> Tensor:
        """The newest tensor of this id, `to` write or read its bytes, rather one that its graph uses; where no graph
        with it was built yet, that of the first that has it, and if there is no graph at all, one without memory.

        Raises ScenarioError for an id that no graph and no context has.
        """
        if not isinstance(id, str):
            raise no_tensor(self.model, id, ())
        self.start()
        built: list[Tensor] = []
        for name in reversed(self.newest):
            at = self.compiled.graphs[name].ids.get(id)
            if at is not None:
                build, table = self.newest[name]
                if build.contains(table[at]):
                    return table[at]
                built.append(table[at])
        if built:
            return built[0]
        at = self.compiled.ids.get(id)
        t = None if at is None else self.persistent[at]
        if t is not None:
            return t
        graph = next((g for g in self.compiled.graphs.values() if id in g.ids), None)
        if graph is not None:
            self.build(graph.name)
            return self.newest[graph.name][1][graph.ids[id]]
        if at is not None:
            return self._unallocated(at)
        ids = [*self.compiled.ids, *(i for g in self.compiled.graphs.values() for i in g.ids)]
        raise no_tensor(self.model, id, ids)

    def set(self, id: str, data: Data | object) -> None:
        """The step `set`: ggml_backend_tensor_set of the whole tensor; `data` as a file has it, or an array.

        Raises ScenarioError for an id that is not there and for data that do not fit.
        """
        t = self.tensor(id)
        from ggmltool.scenario.data import Data

        if not isinstance(data, Data):
            from ggmltool.scenario.read_data import parse_data

            try:
                data = parse_data(data, t.type, t.ne, self.model.folder)
            except Mistake as mistake:
                message = f"data of {t.id}: {mistake.message}"
                raise ScenarioError(message, self.model.source, None, mistake.expected) from None
        from ggmltool.ggml.values.transfer import check_access

        if root_of(t) not in self.persistent:
            self._unread[id] = None
        check_access("ggml_backend_tensor_set", "write", t, 0, t.nbytes)
        if self.addresses.has_freed and self.freed.set(t):
            return
        if not self.values:
            return
        data.write(t, self.listener)

    def get(self, id: str) -> NDArray[Any]:
        """The step `get`: the tensor's values, shape `ne` reversed; float32 unless the type is an integer.

        Raises UseAfterFree where they rest on memory that was freed.
        """
        from ggmltool.ggml.values.transfer import announce_get

        t = self.tensor(id, "get")
        announce_get(t, self.listener)
        if self.addresses.has_freed:
            self.freed.get(t)
        return values_of(t)

    def check_get(self, id: str) -> None:
        """Raises what `get` raises for a tensor without memory; nothing is read."""
        from ggmltool.ggml.values.transfer import check_access

        t = self.tensor(id, "get")
        check_access("ggml_backend_tensor_get", "read", t, 0, t.nbytes)

    def rests_on(self, t: Tensor) -> Outgrown | None:
        """The freed memory that a tensor's bytes lie in or were computed from; None if they are as ggml has them."""
        return self.freed.freed(t) if self.addresses.has_freed else None

    def run(self, steps: Iterable[Step]) -> list[Plan]:
        """All steps in order, up to one that fails; the plans of its reserve and alloc steps."""
        for step in steps:
            self.step(step)
            if self.plans and not self.plans[-1].ok:
                break
        return self.plans


def values_of(t: Tensor) -> NDArray[Any]:
    """A copy of a tensor's values: shape `ne` reversed, float32 for every floating and quantized type."""
    from ggmltool.ggml.values.arrays import HostArrays

    check_memory(8 * nelements(t), f"reading {t.label}", bounds_of(t), "ggml_backend_tensor_get")
    arrays = HostArrays()
    values: NDArray[Any] = arrays.raw(t) if t.type.name in ("i8", "i16", "i32", "i64") else arrays.f32(t)
    return values.copy()
