"""What a step of the ggml of January 2024 did, in the form of the golden plans that lie beside the project."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from ggmltool.ask.splits.sched_debug import pass_print
from ggmltool.ggml.buffer import Buffer
from ggmltool.ggml.errors import GgmlCrash, LineAssert
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.plan import Plan
from ggmltool.ggml.releases.january_2024.scheduler import Scheduler
from ggmltool.ggml.sched.plans import copies_of
from ggmltool.ggml.tensor import Tensor, root_of
from ggmltool.scenario.load import load_spec
from ggmltool.scenario.run.measured import MeasuredRun
from ggmltool.scenario.scenario import Scenario
from ggmltool.scenario.spec import Step

SOME = Path(__file__).parent / "plans_2024_01"
ALL = Path(__file__).resolve().parents[3] / "shared" / "golden" / "2024-01"
MAX_TEXTS = 24
"""Nodes of a graph of which the golden plans keep the print of every pass."""

Result = dict[str, Any]


def files() -> list[Path]:
    """The golden plans: all of them where they lie beside the project, else the few in it."""
    return sorted(ALL.glob("*.json.gz")) or sorted(SOME.glob("*.json.gz"))


def read(file: Path) -> dict[str, Any]:
    """A golden plan."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        content: dict[str, Any] = json.load(stream)
    return content


class Player:
    """Does the steps of a scenario and says of each what the golden plans say."""

    def __init__(self, scenario: dict[str, Any], steps: list[str]) -> None:
        model = load_spec({**scenario, "steps": steps}, ggml="2024-01")
        run = Scenario(model).start(debug=True)
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

    def _after(self, number: int, s: Scheduler) -> None:
        def state(t: Tensor) -> list[str | None]:
            return [self._backend(s.ids[t.index]), s.causes[t.index] or ""]

        graph = self.graph
        self.passes[str(number)] = {"nodes": [*map(state, graph.nodes)], "leafs": [*map(state, graph.leafs)]}

    def _backend(self, b: int) -> str | None:
        return self.sched.names[b] if b >= 0 else None

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
            "sanity": "".join(f"{line}\n" for line in sched.sanity),
            "nodes": [self._node(i, t) for i, t in enumerate(self.graph.nodes)],
            "leafs": [self._leaf(i, t) for i, t in enumerate(self.graph.leafs)],
            "copies": self._copies(),
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
            "log": "".join(f"{line}\n" for line in (done.debug_log or ())[len(sched.sanity) :]),
            "n_splits": sched.n_splits,
            "buffer_sizes": dict(done.buffer_sizes),
        }
        if step.kind == "measure":
            out["measured"] = dict(done.measured)
            assert in_use is not sched.tallocs
        return out

    def _splits(self) -> list[Result]:
        return [
            {
                "id": i,
                "backend": self._backend(sp.backend_id),
                "i_start": sp.i_start,
                "i_end": sp.i_end,
                "inputs": [t.label for t in sp.inputs],
            }
            for i, sp in enumerate(self.sched.splits[: self.sched.n_splits])
        ]

    def _refusal(self, plan: Plan) -> Result:
        error = self.run.failure(plan)
        if isinstance(error, GgmlCrash):
            return {"crash": "SIGSEGV"}
        assert isinstance(error, LineAssert)
        sanity = "".join(f"{line}\n" for line in self.sched.sanity) if "4" in self.passes else ""
        abort = {
            "kind": error.kind,
            "file": error.file,
            "function": error.function,
            "condition": error.condition,
            "printed": sanity + error.printed,
        }
        return {"abort": abort}

    def _tensor(self, i: int, t: Tensor) -> Result:
        s = self.sched
        return {
            "index": i,
            "id": t.id,
            "name": t.name,
            "op": Op(t.op).name,
            "type": t.type.name,
            "ne": list(t.ne),
            "nb": list(t.nb),
            "backend": self._backend(s.assigned[t.index]),
            "cause": s.assigned_causes[t.index] or "",
        }

    def _node(self, i: int, t: Tensor) -> Result:
        split = next(k for k, sp in enumerate(self.sched.splits) if sp.i_start <= i < sp.i_end)
        src = [None if s is None else s.label for s in t.src]
        return self._tensor(i, t) | {"split": split, "src": src} | self._view(t) | self._memory(t)

    def _leaf(self, i: int, t: Tensor) -> Result:
        return self._tensor(i, t) | self._view(t) | self._memory(t)

    def _view(self, t: Tensor) -> Result:
        root = t.view_src
        return {
            "view_src": root.label if root is not None else None,
            "inplace": t.index in self.sched.gallocr.inplace,
        }

    def _memory(self, t: Tensor) -> Result:
        root = root_of(t)
        has_memory = root.buffer is not None and bool(t.data)
        return {
            "buffer": self.owners[t.buffer] if t.buffer is not None else None,
            "memory": self.owners[root.buffer] if root.buffer is not None and has_memory else None,
            "offset": t.data - root.buffer.base if root.buffer is not None and has_memory else None,
            "alloc_size": t.buffer.buft.get_alloc_size(t) if t.buffer is not None and t.view_src is None else None,
        }

    def _copies(self) -> list[Result]:
        s = self.sched
        return [
            {
                "name": copy.name,
                "of": t.label,
                "backend": s.names[b],
                "copy": 0,
                "assigned": self._backend(s.assigned[copy.index]),
                "cause": s.assigned_causes[copy.index] or "",
                "ne": list(copy.ne),
                "nb": list(copy.nb),
            }
            | self._memory(copy)
            for t, b, _, copy in copies_of(s)
        ]
