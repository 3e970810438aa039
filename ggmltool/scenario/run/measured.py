"""A run on the ggml of January 2024: one graph is measured, then graphs are computed in that memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from ggmltool.ggml.buffer import Buffer, BufferType
from ggmltool.ggml.context import Context
from ggmltool.ggml.errors import GgmlError, LineAssert
from ggmltool.ggml.events import TensorWritten
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.parts import measuring_scheduler_of
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.scenario.errors import ScenarioError
from ggmltool.scenario.run.run import Run

if TYPE_CHECKING:
    from ggmltool.ggml.events import Listener
    from ggmltool.ggml.releases.parts import MeasuringScheduler
    from ggmltool.ggml.sched.callbacks import EvalCallback
    from ggmltool.ggml.sched.compute import Watch
    from ggmltool.scenario.data import Data


class _LateWrites:
    """The `pending` data of tensors, by their index."""

    def __init__(self, pending: dict[int, tuple[Tensor, Data]], listener: Listener | None) -> None:
        self._pending = pending
        self._listener = listener
        self._told: set[int] = set()

    def tell(self, t: Tensor) -> None:
        index = root_of(t).index
        if index in self._pending and index not in self._told:
            self._told.add(index)
            found = self._pending[index][0]
            if found.buffer is not None and self._listener:
                self._listener(TensorWritten(found.label, found.buffer.buft.name, 0, found.nbytes))

    def write(self, t: Tensor) -> None:
        found, data = self._pending.pop(root_of(t).index, (t, None))
        if data is not None and found.buffer is not None:
            data.write(found)


class MeasuredRun(Run):
    """A scenario with the steps `measure` and `compute`, of which each builds its graph anew."""

    plan_steps = ("measure", "compute")
    sched: MeasuringScheduler | None

    def start(self) -> MeasuringScheduler:
        """Make the devices, allocate the contexts that have a buffer type, and make the scheduler."""
        return cast("MeasuringScheduler", super().start())

    def _make_scheduler(self) -> MeasuringScheduler:
        return measuring_scheduler_of(self.model.release)(
            self.backends,
            self.indices,
            self.addresses,
            self.bufts.values(),
            self.compiled.graph_size,
            self.model.cpu_base_misalign,
            self.listener,
            self.model.release,
        )

    def _alloc_context(self, ctx: Context, buft: BufferType, usage: int) -> list[Buffer]:
        """One buffer, or none; views of what has memory know its address from the beginning."""
        see_roots(ctx.tensors)
        scheduler = measuring_scheduler_of(self.model.release)
        return scheduler.alloc_context(ctx, buft, self.addresses, usage, self.model.cpu_base_misalign)

    def build(self, name: str) -> CGraph:
        """Build a graph anew. Views of what has memory know its address from the beginning."""
        graph = super().build(name)
        see_roots(self.newest[name][1])
        return graph

    def _place(self, name: str) -> CGraph:
        """Build a graph, allocate what the scenario gives to an allocator, and make the user's assignments."""
        sched = self.start()
        graph = self.build(name)
        table = self.newest[name][1]
        at = 0
        for spec in self.model.contexts:
            end = at + len(spec.tensors)
            if spec.tallocr is not None:
                b = sched.names.index(spec.tallocr)
                for t, t_spec in zip(table[at:end], spec.tensors, strict=True):
                    if t.view_src is None:
                        sched.alloc_tensor(b, t)
                        if self.values and t_spec.data is not None and t.buffer is not None and not sched.is_measure:
                            t_spec.data.write(t, self.listener)
            at = end
        for number, backend in self.compiled.graphs[name].assigned:
            sched.set_tensor_backend(table[number], backend)
        return graph

    def reserve(self, name: str) -> Plan:
        """What comes closest to reserving: `measure`."""
        return self.measure(name)

    def alloc(self, name: str) -> Plan:
        """What `compute` does before it computes; a scheduler that has measured nothing measures this graph first."""
        if self.sched is None or self.sched.is_measure:
            plan = self.measure(name)
            if not plan.ok:
                return plan
        return self._plan_step("alloc", name)

    def _plan(self, step: str, name: str) -> Plan:
        if step == "measure":
            graph = self._place(name)
            self.start().init_measure(graph)
        elif step == "alloc":
            step = "compute"
            sched = self.start()
            sched.reset()
            sched.alloc_to_compute(self._place(name))
        else:
            self._compute(name)
        return self.plan_of(self.newest[name][0], name, step)

    def _failed(self, error: GgmlError, name: str | None, step: str) -> Plan:
        return super()._failed(error, name, "compute" if step == "alloc" else step)

    def measure(self, name: str) -> Plan:
        """The step `measure`: ggml_backend_sched_init_measure of a new build of the graph."""
        return self._plan_step("measure", name)

    def _compute(self, name: str, watch: Watch | None = None) -> None:
        sched = self.start()
        sched.reset()
        graph = self._place(name)
        prepare = self._write_when_read(name) if self.values else None
        self.times = sched.graph_compute(graph, self.values, watch, prepare)

    def _write_when_read(self, name: str) -> _LateWrites | None:
        """What writes the data of the tensors that get memory with the graph.

        Before that their memory may be another tensor's: with that ggml a program had to give inputs to an allocator
        first.
        """
        table = self.newest[name][1]
        specs = [(spec.tallocr, t_spec) for spec in self.model.contexts for t_spec in spec.tensors]
        pending = {
            t.index: (t, t_spec.data)
            for t, (tallocr, t_spec), kept in zip(table, specs, self.persistent, strict=False)
            if kept is None and tallocr is None and t_spec.data is not None
        }
        return _LateWrites(pending, self.listener) if pending else None

    def compute(self, name: str, watch: Watch | None = None, wait: bool = True) -> None:
        """The step `compute`: a reset, then ggml_backend_sched_graph_compute of a new build of the graph."""
        self._clear_log()
        self._compute(name, watch)
        self.plans.append(self.plan_of(self.newest[name][0], name, "compute"))

    def set_eval_callback(self, callback: EvalCallback | None) -> None:
        """Raises ScenarioError: there is no such call."""
        raise ScenarioError(f"ggml {self.model.ggml} has no eval callback", self.model.source, None, "")

    def tensor(self, id: str, to: Literal["set", "get"] = "set") -> Tensor:
        """The newest tensor of this id, `to` write or read its bytes.

        Raises LineAssert if it has no memory, as long as its graph was only measured too.
        """
        t = super().tensor(id, to)
        buffer = root_of(t).buffer
        if buffer is None or not (buffer in self.buffers or buffer in self.start().compute_buffers()):
            raise LineAssert(
                f"ggml_backend_tensor_{to}",
                "ggml-backend.c",
                197 if to == "set" else 207,
                'tensor->data != NULL && "tensor not allocated"',
                f"{id} has no memory before its graph is computed: `compute` builds the graph and allocates it; give "
                "the tensor's context a buft or a tallocr" + (", and its data there" if to == "set" else ""),
            )
        return t


def see_roots(tensors: list[Tensor]) -> None:
    """What ggml_new_tensor_impl does for a view of something that has memory: it gets its address at once."""
    for t in tensors:
        root = t.view_src
        if root is not None and root.data and not t.data:
            t.data = root.data + t.view_offs
