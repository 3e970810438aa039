"""What a plan does not say of a tensor: its bytes, where it comes from, its own sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ggmltool.ggml.context import Context
from ggmltool.ggml.releases.release import Release
from ggmltool.ggml.tensor import Dims, Tensor, dims
from ggmltool.scenario.run.run import Run

if TYPE_CHECKING:
    from ggmltool.scenario.spec import ScenarioSpec

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


class TensorInfo(NamedTuple):
    """A tensor of the scenario.

    `nbytes` is ggml_nbytes, `op` ggml_op_desc (the function's name for UNARY and GLU), `symbol` ggml's sign for the
    op in drawings, `flags` the bits of ggml_tensor_flag.
    `src` are the ids of its sources as written, before the scheduler put copies in their place; `address` is where
    the tensor's struct lies (simulated), `has_data` whether it has memory before the graph is allocated.

    A log knows less: there `type` is "", and `nbytes` can be `slack` bytes too small, since ggml prints whole K and M.
    """

    id: str
    name: str
    type: str
    ne: Dims
    nbytes: int
    op: str = "NONE"
    symbol: str = "none"
    flags: int = 0
    src: tuple[str | None, ...] = ()
    view_src: str | None = None
    address: int = 0
    has_data: bool = False
    slack: int = 0

    @property
    def shape(self) -> str:
        """`f32[4, 3]`; "" if it is not known."""
        return f"{self.type}{dims(self.ne)}" if self.type else ""


Tensors = Mapping[str, TensorInfo]
"""The tensors of a graph and of the contexts, by id."""


def tensor_infos(model: ScenarioSpec, graph: str) -> dict[str, TensorInfo]:
    """What views want to know of the tensors of the contexts and of one graph, by id.

    Addresses are simulated: each context has an arena of its own, as does the graph.
    """
    from ggmltool.ggml.op import KEY_NAMES, Op, op_key
    from ggmltool.ggml.tensor import cut_name, nbytes_of

    infos: dict[str, TensorInfo] = {}
    release = model.release
    arenas = [(c.tensors, c.buft is not None) for c in model.contexts]
    for number, (tensors, allocated) in enumerate([*arenas, (model.graphs[graph].nodes, False)]):
        address = FIRST + number * STEP + release.object_size
        for t in tensors:
            nbytes = nbytes_of(t.type, t.ne, t.nb)
            infos[t.id] = TensorInfo(
                id=t.id,
                name=cut_name(t.name),
                type=t.type.name,
                ne=t.ne,
                nbytes=nbytes,
                op=KEY_NAMES[op_key(t.op, t.op_params)].upper(),
                symbol=Op(t.op).symbol,
                flags=t.flags,
                src=t.src,
                view_src=t.view_src,
                address=address,
                has_data=allocated and nbytes > 0,
            )
            address += release.tensor_overhead()
    return infos
