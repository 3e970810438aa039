"""The contexts of a run as arenas with addresses: where every tensor's struct lies, in a simulated address space."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggmltool.ggml.context import Context
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Tensor
from ggmltool.scenario.run import Run

FIRST = 0x5555_0000_0000
STEP = 0x1_0000_0000
"""Arena `i` begins at FIRST + i * STEP."""
BUFFERS = 0x5554_0000_0000
BUFFERS_STEP = 0x100
"""The struct of buffer `i` lies at BUFFERS + i * BUFFERS_STEP."""
EXTRAS = 0x5553_0000_0000
EXTRAS_STEP = 0x480
"""What an older CUDA backend keeps besides of the tensor with index `i` lies at EXTRAS + i * EXTRAS_STEP."""


def arenas(run: Run, graph: str, table: Sequence[Tensor]) -> list[Context]:
    """The contexts of the scenario, in order, with their tensors of one build of `graph`; then the context of the
    graph (its nodes and the cgraph) and the one the scheduler keeps its copies and dependencies in.

    `table` are the tensors of the build: those of the contexts, then the nodes. A context is as large as what is in
    it. A graph that is built again lies where it lay before.
    """
    out: list[Context] = []
    release = run.model.release
    at = 0
    for spec in run.model.contexts:
        out.append(_arena(len(out), spec.name, table[at : at + len(spec.tensors)], release))
        at += len(spec.tensors)
    made = _arena(len(out), f"graph {graph}", table[at:], release)
    made.new_object("graph", release.graph_nbytes(run.compiled.cgraph_size))
    out.append(made)
    sched = run.sched
    out.append(_arena(len(out), "scheduler", sched.arena.made() if sched is not None else (), release))
    return out


def _arena(number: int, name: str, tensors: Iterable[Tensor], release: Release) -> Context:
    ctx = Context(base=FIRST + number * STEP, name=name)
    for t in tensors:
        ctx.new_object("tensor", release.tensor_size, t)
        ctx.tensors.append(t)
    return ctx


def addresses(contexts: Sequence[Context], run: Run) -> dict[int, int]:
    """Where each tensor's struct lies, by the tensor's index; also of copies of an earlier split, to which a build
    that is split again still points.
    """
    if run.sched is not None:
        made = _arena(len(contexts) - 1, "scheduler", run.sched.arena.slots, run.model.release)
        contexts = [*contexts[:-1], made]
    return {o.tensor.index: ctx.base + o.offset for ctx in contexts for o in ctx.objects() if o.tensor is not None}
