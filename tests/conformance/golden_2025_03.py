"""What a run as the ggml of March 2025 decides, written down as the golden files have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ggmltool
from ggmltool.ask.splits.sched_debug import sched_debug
from ggmltool.ggml.buffer import Buffer
from ggmltool.ggml.errors import DebugAssert, GgmlAssert, GgmlError
from ggmltool.ggml.releases.march_2025.scheduler import Scheduler
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run.run import Run
from ggmltool.scenario.steps import default_steps
from tests.conformance.golden import Golden, alloc_size, joined

LAST_ASSIGNING_PASS = 4


class Recorder(Golden):
    """Does steps and keeps, for each of them, all that a golden file has of it."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        loaded = ggmltool.load({**scenario, "ggml": "2025-03"})
        assert default_steps(loaded.model.graphs)[0].kind == "reserve"
        self.run: Run = loaded.start(debug=True)
        sched = self.run.start()
        assert isinstance(sched, Scheduler)
        self.sched = sched
        self.names = _names_of_buffers(self.run)
        self.passes: dict[str, Any] = {}
        self.passed_lines = self.split_lines = 0
        sched.on_pass = self._after

    def contexts(self) -> dict[str, Any]:
        """Every context with a buffer type: its bytes, and where its tensors lie."""
        out = {}
        at = 0
        for spec in self.run.model.contexts:
            tensors = self.run.persistent[at : at + len(spec.tensors)]
            at += len(spec.tensors)
            if spec.buft is not None:
                own = [
                    b for b, name in self.names if name == f"ctx:{spec.name}" or name.startswith(f"ctx:{spec.name}#")
                ]
                held = {t.id: self._memory(t) for t in tensors if t is not None}
                # Several buffers are held by one more, which is as large as all of them.
                size = sum(b.size for b in own) * (2 if len(own) > 1 else 1)
                out[spec.name] = {"buft": spec.buft, "size": size, "tensors": held}
        return out

    def step(self, text: str) -> dict[str, Any]:
        """One step as the golden files have its result."""
        kind, _, graph = text.partition(" ")
        if kind == "reset":
            self.sched.reset()
            return {"step": text, "ok": True}
        s = self.sched
        s.debug_lines.clear()
        self.passes = {}
        self.passed_lines = self.split_lines = 0
        nodes = s.nodes
        plan = self.run.reserve(graph) if kind == "reserve" else self.run.alloc(graph)
        out: dict[str, Any] = {"step": text, "ok": plan.ok}
        if self.passes:
            out["passes"] = self.passes
        lines = s.debug_lines
        if self.passes and lines[: self.passed_lines]:
            out["log_pass"] = joined(lines[: self.passed_lines])
        if s.nodes is not nodes:
            out["text"] = sched_debug(s.debug_record, counts=False)
            out["splits"] = self._splits()
        if not plan.ok:
            out["abort"] = _abort(self.run.failure(plan), joined(lines[max(self.passed_lines, self.split_lines) :]))
            return out
        graph_built = self.run.newest[graph][0]
        out["log"] = joined(lines[self.split_lines :])
        reserves = kind == "reserve"
        out["nodes"] = [
            self._tensor(i, t) | self._in_split(i, t) | self._place(t, reserves)
            for i, t in enumerate(graph_built.nodes)
        ]
        out["leafs"] = [self._tensor(i, t) | self._place(t, reserves) for i, t in enumerate(graph_built.leafs)]
        out["copies"] = self._copies(graph, reserves)
        out["graph_copy"] = {"nodes": [t.label for t in s.nodes], "leafs": [t.label for t in s.leafs]}
        out["n_splits"] = s.n_splits
        out["buffer_sizes"] = {name: s.get_buffer_size(b) for b, name in enumerate(s.names)}
        out["plan_sizes"] = {name: s.gallocr.buf_tallocs[b].max_size(0) for b, name in enumerate(s.names)}
        return out

    def _after(self, number: int, s: Scheduler) -> None:
        if number > LAST_ASSIGNING_PASS:
            self.split_lines = len(self.sched.debug_lines)
            return
        self.passed_lines = len(self.sched.debug_lines)
        graph = s.seen_graphs[-1]
        self.passes[str(number)] = self._pass(graph.nodes, graph.leafs)

    def _copies(self, graph: str, is_reserve: bool) -> list[dict[str, Any]]:
        """Copies of the splits' inputs, then the pipeline copies of graph inputs in the order of the file."""
        s = self.sched
        order = list(self.run.compiled.graphs[graph].ids)
        of_splits = [(t, split.backend_id) for split in s.splits[: s.n_splits] for t in split.inputs]
        of_graph = [(t, s.assigned[t.index]) for t in sorted(s.graph_inputs, key=lambda t: order.index(t.id))]
        out = []
        for t, b in (*of_splits, *of_graph):
            for c, copy in enumerate((s.made_copies[t.index] or [])[b] or []):
                place = self._place(copy, is_reserve)
                if is_reserve:
                    place = {"plan": place["plan"]} if "plan" in place else place
                out.append(self._copy(t, b, c, copy) | place)
        return out

    def _place(self, t: Tensor, is_reserve: bool) -> dict[str, Any]:
        out = self._memory(t)
        if is_reserve and t.view_src is None and t.buffer is None:
            hn = self.sched.gallocr.hash_nodes
            b = hn.buffer_id[t.index]
            out["plan"] = {"buffer_id": b, "buffer": self.sched.names[b], "offset": hn.offset[t.index]}
        return out

    def _memory(self, t: Tensor) -> dict[str, Any]:
        root = t.view_src or t
        out: dict[str, Any] = {"buffer": self._name(t.buffer), "memory": self._name(root.buffer), "offset": None}
        if root.buffer is not None:
            out["offset"] = root.data + t.view_offs - root.buffer.base
        return out | {"alloc_size": alloc_size(t)}

    def _name(self, buffer: Buffer | None) -> str | None:
        if buffer is None:
            return None
        return next((name for b, name in self.names if b is buffer), f"sched:{buffer.buft.name}")


def _names_of_buffers(run: Run) -> list[tuple[Buffer, str]]:
    """`ctx:NAME`, and `ctx:NAME#k` for further buffers of the same context."""
    out: list[tuple[Buffer, str]] = []
    left = list(run.buffers)
    at = 0
    for spec in run.model.contexts:
        tensors = run.persistent[at : at + len(spec.tensors)]
        at += len(spec.tensors)
        if spec.buft is None:
            continue
        used = {id(t.buffer) for t in tensors if t is not None and t.view_src is None}
        own = [b for b in left if id(b) in used]
        left = [b for b in left if id(b) not in used]
        out += [(b, f"ctx:{spec.name}#{k}" if k else f"ctx:{spec.name}") for k, b in enumerate(own)]
    return out


def _abort(error: GgmlError, printed: str) -> dict[str, Any]:
    kind = "assert" if isinstance(error, DebugAssert) else "abort"
    is_alloc = error.function.startswith(("ggml_gallocr_", "ggml_dyn_tallocr_", "ggml_tallocr_"))
    out: dict[str, Any] = {
        "kind": kind,
        "file": "ggml-alloc.c" if is_alloc else "ggml-backend.cpp",
        "function": error.function,
        "condition": error.condition or error.message,
        "printed": printed,
    }
    if kind == "abort" and isinstance(error, GgmlAssert):
        out["assertion"] = True
    return out
