"""A graph with what it needs in the memory of one backend, as comparing takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ggmltool.ggml.buffer import AddressSpace
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import NotComputable
from ggmltool.ggml.events import Listener
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.graph_copy import Copier, GraphCompute
from ggmltool.ggml.op import FIRST_GLU_KEY, FIRST_UNARY_KEY, KEY_NAMES, VIEW_OPS, Op, keys_of
from ggmltool.ggml.ops import load
from ggmltool.ggml.ops.registry import KERNELS
from ggmltool.ggml.tensor import Tensor, op_desc
from ggmltool.ggml.values.arrays import HostArrays
from ggmltool.scenario.data import INTEGER_BITS, UniformData
from ggmltool.scenario.errors import ScenarioError, did_you_mean, quoted
from ggmltool.scenario.run.compiled import NONE, Compiled, CompiledTensor
from ggmltool.scenario.spec import GraphSpec, TensorSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OneBackendGraph:
    """A graph with the tensors it needs, and no others, in one context that is allocated on one backend.

    `copier` is what copies graphs in the release.
    """

    def __init__(
        self, compiled: Compiled, name: str, backend: Backend, events: Listener | None, copier: type[Copier] = Copier
    ) -> None:
        self.backend = backend
        self.copier = copier
        self.events = events
        self.indices = IndexSpace()
        self.addresses = AddressSpace()
        self.context = Context(indices=self.indices, name="compare")
        spec = compiled.graphs[name]
        tensors = [*(t for context in compiled.contexts for t in context), *spec.nodes]
        self._specs: list[TensorSpec] = list(compiled.model.tensors())
        needed = _needed(tensors, spec.expand)
        self._made = {at: self.context.add(tensors[at].make(0)) for at in needed}
        for at, t in self._made.items():
            ct = tensors[at]
            t.src = [None if s == NONE else self._made[s] for s in ct.src]
            if ct.view_src != NONE:
                t.view_src = self._made[ct.view_src]
        self.graph = CGraph(compiled.cgraph_size, self.indices.top)
        spec.build(self.graph, self._made.__getitem__)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors that are pre-allocated."""
        return sum(t.nbytes for t in self.context.tensors if t.view_src is None)

    def allocate(
        self, seed: int | None, given: Mapping[str, NDArray[Any]] | None = None
    ) -> tuple[list[str], list[str]]:
        """Give the tensors memory and values; the ids of those without data: which got values, and which are zero.

        The values of a tensor without data are those that are `given` (shape `ne` reversed), else random ones from -1
        to 1, made with `seed` (None: all are zero). Integers are zero, since they may be indices, and so are types
        that cannot be quantized here.
        """
        self.copier.alloc_ctx_tensors(self.context, self.backend.device.buft, self.addresses)
        made_up, zero = [], []
        for at, t in self._made.items():
            if at >= len(self._specs) or t.view_src is not None or t.buffer is None or not t.nbytes:
                continue
            data = self._specs[at].data
            if data is not None:
                data.write(t, self.events)
            elif given is not None and t.id in given:
                HostArrays().put(t, given[t.id])
            else:
                zero.append(t.id)
                if seed is not None and t.type.name not in INTEGER_BITS:
                    with suppress(NotComputable):
                        UniformData(seed + at).write(t, self.events)
                        made_up.append(zero.pop())
        return made_up, zero


def _needed(tensors: Sequence[CompiledTensor], expand: Sequence[int]) -> list[int]:
    """Which of a graph's tensors it uses, as sources or as what its views see, in their order."""
    seen: set[int] = set()
    todo = list(expand)
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            ct = tensors[at]
            todo += [s for s in (*ct.src, ct.view_src) if s != NONE]
    return sorted(seen)


def read_injections(texts: Sequence[str], graph: GraphSpec, source: str) -> dict[str, int]:
    """`NODE=OP` each: the op key whose kernel computes a node, by the node's id.

    Raises ScenarioError for a node that the graph does not have or that computes nothing, and for an op that has no
    kernel or is the node's own.
    """
    load()
    nodes = {n.id: n for n in graph.nodes}
    out: dict[str, int] = {}
    for text in texts:
        id, equals, name = text.rpartition("=")
        if not equals or not id:
            raise ScenarioError(
                f"{quoted(text)} is not an injection", source, None, "expected NODE=OP, for example y=add"
            )
        if id not in nodes:
            hint = did_you_mean(id, nodes)
            raise ScenarioError(f"graph {graph.name} has no node {quoted(id)}", source, None, hint)
        try:
            keys = keys_of(name.lower())
        except KeyError:
            raise ScenarioError(f"{name} is not an op", source, None, did_you_mean(name, KEY_NAMES)) from None
        spec = nodes[id]
        of_node = Tensor(spec.type, spec.ne, spec.nb, spec.op, spec.op_params)
        if of_node.is_view_op:
            raise ScenarioError(f"{id} is a {op_desc(of_node)}, which computes nothing that could be wrong", source)
        if len(keys) > 1 or _op_of(keys[0]) in VIEW_OPS or KERNELS.get(_op_of(keys[0])) is None:
            raise ScenarioError(f"{name} has no kernel of its own", source, None, "name an op that computes something")
        if keys[0] == of_node.key:
            raise ScenarioError(f"{id} is a {op_desc(of_node)} already", source, None, "name another op")
        out[id] = keys[0]
    return out


def broken(compute: GraphCompute, backend: Backend, wrong: Mapping[str, int], source: str) -> GraphCompute:
    """`compute` with other ops' kernels for some nodes on `backend`: op keys by the nodes' ids.

    It raises ScenarioError where such a kernel cannot take the sources of the node.
    """

    def compute_broken(b: Backend, nodes: Sequence[Tensor]) -> None:
        if b is not backend:
            compute(b, nodes)
            return
        for n in nodes:
            key = wrong.get(n.id)
            if key is None:
                compute(b, [n])
                continue
            try:
                compute(b, [_disguised(n, key)])
            except Exception as error:  # a kernel takes for granted what its op's constructor has checked
                hint = "take an op with sources of these shapes and types"
                message = f"the kernel of {KEY_NAMES[key].upper()} cannot compute {n.id}, a {op_desc(n)}"
                raise ScenarioError(message, source, None, hint) from error

    return compute_broken


def _op_of(key: int) -> int:
    return Op.GLU if key >= FIRST_GLU_KEY else Op.UNARY if key >= FIRST_UNARY_KEY else key


def _disguised(n: Tensor, key: int) -> Tensor:
    """The node in its memory, with its sources and parameters, as one of another op."""
    t = n.clone(n.index)
    op = Op(_op_of(key))
    params = n.op_params
    if key >= FIRST_UNARY_KEY:
        function = key - (FIRST_GLU_KEY if key >= FIRST_GLU_KEY else FIRST_UNARY_KEY)
        params = (function, *(params[1:] if n.op == op else ()))
    t.set_op(op, params, *n.src)
    t.view_src = n.view_src
    t.buffer = n.buffer
    t.data = n.data
    return t
