"""What a step of the ggml of January 2024 did, in the form of the golden plans that lie beside the project."""

from __future__ import annotations

from typing import Any

from ggmltool.ask.splits.sched_debug import pass_print
from ggmltool.ggml.buffer import Buffer
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.january_2024.scheduler import Scheduler
from ggmltool.ggml.sched.plans import copies_of
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.measured import MeasuredRun
from ggmltool.scenario.scenario import LoadedScenario
from ggmltool.scenario.spec import Step
from tests.conformance.golden import Golden, Result, alloc_size, joined

MAX_TEXTS = 24
"""Nodes of a graph of which the golden plans keep the print of every pass."""


class Player(Golden):
    """Does the steps of a scenario and says of each what the golden plans say."""

    def __init__(self, scenario: dict[str, Any], steps: list[str]) -> None:
        model = load_spec({**scenario, "steps": steps}, ggml="2024-01")
        run = LoadedScenario(model).start(debug=True)
        assert isinstance(run, MeasuredRun)
        self.run = run
        self.steps = model.steps
        self.sched: Scheduler = run.start()
        self.sched.on_pass = self._after
        self.passes: dict[str, Any] = {}
        self.owners: dict[Buffer, str] = {}
        for ctx in run.contexts:
            self.owners.update({t.buffer: f"ctx:{ctx.name}" for t in ctx.tensors if t.buffer is not None})

    @property
    def graph(self) -> CGraph:
        return next(reversed(self.run.newest.values()))[0]

    def _after(self, number: int, _: object) -> None:
        self.passes[str(number)] = self._pass(self.graph.nodes, self.graph.leafs)

    def contexts(self) -> dict[str, Any]:
        """The contexts that have a buffer type."""
        bufts = {c.name: c.buft for c in self.run.model.contexts}
        return {
            ctx.name: {
                "buft": bufts[ctx.name],
                "size": sum({t.buffer: t.buffer.size for t in ctx.tensors if t.buffer is not None}.values()),
                "tensors": {t.id: self._memory(t) for t in ctx.tensors},
            }
            for ctx in self.run.contexts
        }

    def result(self, step: Step) -> Result:
        """Do a step, and say what came of it."""
        self.passes = {}
        for tallocr, name in zip(self.sched.tallocs, self.sched.names, strict=True):
            self.owners[tallocr.buffer] = f"sched:{name}"
        in_use = self.sched.tallocs
        sched, buffers = self.sched, self.run.buffers
        done = self.run.step(step)
        assert isinstance(done, Plan)
        assert buffers is self.run.buffers
        out: Result = {"step": str(step), "ok": done.ok}
        if self.passes:
            graph = self.graph
            prints = {str(p.number): p for p in sched.printed}
            out["passes"] = self.passes
            if len(graph.nodes) <= MAX_TEXTS:
                out["texts"] = {number: pass_print(p) for number, p in prints.items()}
            if "4" in prints:
                out["text"] = pass_print(prints["4"], title=False)
                out["splits"] = self._splits()
        if not done.ok:
            return out | self._refusal(done)
        out |= {
            "sanity": joined(sched.sanity),
            "nodes": [self._row(i, t) | self._in_split(i, t) for i, t in enumerate(self.graph.nodes)],
            "leafs": [self._row(i, t) for i, t in enumerate(self.graph.leafs)],
            "copies": [self._copy(t, b, 0, copy) | self._memory(copy) for t, b, _, copy in copies_of(sched)],
            "graph_copy": [t.label for t in sched.nodes],
            "tallocs": {
                t.backend: {
                    "align_offset": t.align_offset,
                    "max_size": t.max_size,
                    "buffer_size": t.buffer_size,
                    "free_blocks": [list(block) for block in t.free_blocks],
                }
                for t in done.tallocs
            },
            "log": joined(list(done.debug_log or ())[len(sched.sanity) :]),
            "n_splits": sched.n_splits,
            "buffer_sizes": dict(done.buffer_sizes),
        }
        if step.kind == "measure":
            out["measured"] = dict(done.measured)
            assert in_use is not sched.tallocs
        return out

    def _refusal(self, plan: Plan) -> Result:
        error = self.run.failure(plan)
        if isinstance(error, GgmlCrash):
            return {"crash": "SIGSEGV"}
        assert isinstance(error, LineAssert)
        sanity = joined(self.sched.sanity) if "4" in self.passes else ""
        abort = {
            "kind": error.kind,
            "file": error.file,
            "function": error.function,
            "condition": error.condition,
            "printed": sanity + error.printed,
        }
        return {"abort": abort}

    def _row(self, i: int, t: Tensor) -> Result:
        return self._tensor(i, t) | {"inplace": t.index in self.sched.gallocr.inplace} | self._memory(t)

    def _memory(self, t: Tensor) -> Result:
        root = root_of(t)
        has_memory = root.buffer is not None and bool(t.data)
        return {
            "buffer": self.owners[t.buffer] if t.buffer is not None else None,
            "memory": self.owners[root.buffer] if root.buffer is not None and has_memory else None,
            "offset": t.data - root.buffer.base if root.buffer is not None and has_memory else None,
            "alloc_size": alloc_size(t),
        }
