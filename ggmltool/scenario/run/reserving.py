"""A run on a ggml that reserves: graphs are reserved and allocated, and what is allocated can be computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ggmltool.ggml.errors import GgmlFailed
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.parts import scheduler_of
from ggmltool.ggml.sched.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.run import Run

if TYPE_CHECKING:
    from ggmltool.ggml.sched.callbacks import EvalCallback
    from ggmltool.ggml.sched.compute import Watch


class ReservingRun(Run):
    """A scenario with the steps `reserve`, `alloc` and `compute`."""

    plan_steps = ("reserve", "alloc")
    sched: Scheduler | None
    _held = ""

    @property
    def held(self) -> str:
        """The graph that the scheduler has allocated, which is what it computes; "" if it has none."""
        return self._held if self.sched is not None and self.sched.is_alloc else ""

    def start(self) -> Scheduler:
        """Make the devices, allocate the contexts that have a buffer type, and make the scheduler."""
        return cast("Scheduler", super().start())

    def _make_scheduler(self) -> Scheduler:
        options = self.model.scheduler
        sched = scheduler_of(self.model.release)(
            self.backends,
            self.indices,
            self.addresses,
            self.bufts.values(),
            self.compiled.graph_size,
            options.parallel,
            options.op_offload,
            self.listener,
            self.model.release,
        )
        if options.copy_callback:
            from ggmltool.ggml.sched.used_experts import copy_callback

            sched.set_copy_callback(copy_callback(options.copy_callback, sched))
        if options.past is not None:
            from ggmltool.ggml.sched.past import go_on_from

            go_on_from(options.past, sched)
        return sched

    def start_behind(self, other: ReservingRun) -> Scheduler:
        """Go on with the devices and the scheduler of another run, whose scenario has the same: for two that a program
        would give to one scheduler. Contexts are this run's own.
        """
        self.indices, self.addresses, self.log = other.indices, other.addresses, other.log
        self.bufts, self.backends = other.bufts, other.backends
        self._make_contexts()
        self.sched = other.start()
        return self.sched

    def reserve(self, name: str) -> Plan:
        """The step `reserve`: ggml_backend_sched_reserve of a new build of the graph."""
        return self._plan_step("reserve", name)

    def alloc(self, name: str) -> Plan:
        """The step `alloc`: ggml_backend_sched_alloc_graph of a new build of the graph."""
        return self._plan_step("alloc", name)

    def _plan(self, step: str, name: str) -> Plan:
        sched = self.start()
        graph = self.build(name)
        table = self.newest[name][1]
        for at, backend in self.compiled.graphs[name].assigned:
            sched.set_tensor_backend(table[at], backend)
        past = self.model.scheduler.past
        if past is not None and past.copies and not self.plans:
            from ggmltool.ggml.sched.past import give_copies

            ids = self.compiled.graphs[name].ids
            give_copies(past, sched, lambda id: table[ids[id]] if id in ids else None)
        if not (sched.reserve(graph) if step == "reserve" else sched.alloc_graph(graph)):
            raise self._not_allocated("ggml_backend_sched_alloc_graph")
        self._held = name
        plan = self.plan_of(graph, name, step)
        if self.debug:
            self.debug_records.append(sched.debug_record)
        if self.values and step == "alloc":
            self._write_data(name, ())
        return plan

    def compute(self, name: str, watch: Watch | None = None, wait: bool = True) -> None:
        """The step `compute`: ggml_backend_sched_graph_compute of the newest build of the graph.

        Where the scheduler holds an allocated graph, it computes that one, whatever graph it is given. Without `values`
        the scheduler allocates where it has to, and nothing is computed. `watch` is called with every node after it was
        computed. Without `wait` it is ggml_backend_sched_graph_compute_async: GPUs of this machine
        may still be computing when it returns, and the scheduler's `synchronize` waits for them. Raises GgmlError if
        ggml would not go on.
        """
        sched = self.start()
        if name not in self.newest:
            self.build(name)
        graph, table = self.newest[name]
        was_alloc = sched.is_alloc
        if not was_alloc:
            # The scheduler refers to this build until the next reset: a new one takes other indices.
            self._used[name] = len(self._pools[name])
        placed = () if was_alloc else [t for t in table if t.buffer is not None]
        allocated = sched.alloc_to_compute(graph)
        if allocated and not was_alloc:
            self._held = name
            if self.values:
                self._write_data(name, placed)
        if allocated:
            # What `set` wrote to the tensors of the graph is of use now.
            self.undone = []
            if self._unread and self.held in self.newest:
                held, held_table = self.newest[self.held]
                computed = {t.id for t in held_table if held.contains(t)}
                self._unread = {id: None for id in self._unread if id not in computed}
        if allocated and self.addresses.has_freed:
            sched.freed = self.freed
        if allocated and self.values:
            from ggmltool.ggml.sched.compute import graph_compute

            graph_compute(sched, graph, watch, wait)
        else:
            if allocated:
                if sched.freed is not None:
                    sched.freed.computes(sched.splits[: sched.n_splits], sched.copy_of)
                sched.computed()
            if wait:
                sched.synchronize()
        if not allocated:
            raise self._not_allocated("ggml_backend_sched_graph_compute")

    def _not_allocated(self, function: str) -> GgmlFailed:
        return GgmlFailed(function, "the graph could not be allocated", None, "; ".join(self.log))

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """ggml_backend_sched_set_eval_callback: who is asked about every node when a graph is computed."""
        self.start().set_eval_callback(callback)

    def old_copies(self, name: str) -> list[str]:
        """The copies that an earlier split put into the newest build of a graph, where `compute` would split it again.

        ggml_backend_sched_split_graph replaces sources by copies for good. Split a second time, such a build has
        nothing to copy: the copies keep what they hold, in memory that others may get.
        """
        if self.sched is None or self.sched.is_alloc or name not in self.newest:
            return []
        graph, table = self.newest[name]
        own = {id(t) for t in table}
        found = (s.name for n in graph.nodes for s in n.src if s is not None and id(s) not in own)
        return list(dict.fromkeys(found))

    def _write_data(self, name: str, placed: Iterable[Tensor]) -> None:
        """Write the data of the tensors that the scheduler has just given memory; `placed` had theirs before."""
        table = self.newest[name][1]
        kept = {id(t) for t in placed}
        at = 0
        for spec in self.model.contexts:
            for t_spec in spec.tensors:
                if spec.buft is None and t_spec.data is not None:
                    t = table[at]
                    if t.buffer is not None and id(t) not in kept:
                        if self.addresses.has_freed:
                            self.freed.written(t)
                        t_spec.data.write(t, self.listener)
                at += 1
