"""ggml_backend_graph_copy and ggml_backend_compare_graph_backend: one graph on two backends, node by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ggmltool.ggml.alloc.tallocr import alloc_ctx_tensors_from_buft
from ggmltool.ggml.buffer import AddressSpace, Buffer, BufferType, view_init
from ggmltool.ggml.context import Context, IndexSpace
from ggmltool.ggml.device import Backend
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, advice
from ggmltool.ggml.events import Computed, Entered, Left, Listener, Logged, Synchronized
from ggmltool.ggml.graph import CGraph
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.release import Release, Rules
from ggmltool.ggml.tensor import Tensor
from ggmltool.ggml.values.transfer import tensor_copy
from ggmltool.ggml.version import hash_size

_STRUCTS = Release("", "", "", "", Rules())
"""The sizes of what contexts are made of, whichever release copies."""

GraphCompute = Callable[[Backend, Sequence[Tensor]], None]
"""Computes nodes on a backend, in order: the source of the kernels."""

CompareCallback = Callable[[int, Tensor, Tensor], bool]
"""Called with a node's index, the node, and its copy; the answer says whether to go on."""

BeforeCallback = Callable[[Tensor, Tensor], None]
"""Called with a node and its copy when everything before them is computed, and they are not."""


@dataclass(frozen=True, slots=True)
class GraphCopy:
    """ggml_backend_graph_copy: a graph's nodes anew on another backend, with its own memory.

    `graph` has the nodes only, in order: no leafs, no use counts. `copies` maps each tensor of the original to its
    copy. What is pre-allocated is in `ctx_allocated`, views are in `ctx_unallocated`.
    """

    graph: CGraph
    buffers: list[Buffer]
    ctx_allocated: Context
    ctx_unallocated: Context
    copies: dict[Tensor, Tensor]

    def free(self, indices: IndexSpace) -> None:
        """ggml_backend_graph_copy_free: the copies are used no more, and their indices may be given out again."""
        indices.give_back([t.index for ctx in (self.ctx_allocated, self.ctx_unallocated) for t in ctx.tensors])


def graph_copy(
    backend: Backend,
    graph: CGraph,
    indices: IndexSpace,
    addresses: AddressSpace,
    events: Listener | None = None,
    copier_class: type[Copier] | None = None,
) -> GraphCopy | None:
    """ggml_backend_graph_copy: the nodes of an allocated graph and all they need, with their values, on `backend`.

    None where the backend has no memory for them. Raises GgmlAssert if a tensor has no memory. `copier_class` is how a
    release copies (None: as today's).
    """
    function = "ggml_backend_graph_copy"
    if events:
        events(Entered(function))
    copier = (copier_class or Copier)(graph, indices)
    for node in graph.nodes:
        copier.dup(node)
    buffers = copier.alloc_ctx_tensors(copier.ctx_allocated, backend.device.buft, addresses)
    if not buffers:
        if events:
            events(Logged("error", f"{copier.prefix}failed to allocate buffer for graph copy\n"))
            events(Left(function))
        return None
    for node in graph.nodes:
        copier.init(node, events)
    made = CGraph(graph.size)
    made.nodes = [copier.copies[node] for node in graph.nodes]
    copier.ctx_allocated.new_object("graph", _STRUCTS.graph_nbytes(graph.size, False))
    if events:
        events(Left(function))
    return GraphCopy(made, buffers, copier.ctx_allocated, copier.ctx_unallocated, copier.copies)


class Copier:
    """Makes the tensors of a graph anew. `copies` has those that are complete, by their originals.

    `prefix` begins what is logged.
    """

    prefix = "ggml_backend_graph_copy: "

    def __init__(self, graph: CGraph, indices: IndexSpace) -> None:
        self.slots = hash_size(hash_size(2 * graph.size))
        mem_size = _STRUCTS.tensor_overhead() * self.slots + _STRUCTS.graph_overhead(graph.size, False)
        self.ctx_allocated = Context(mem_size, indices=indices, name="ctx_allocated")
        self.ctx_unallocated = Context(mem_size, indices=indices, name="ctx_unallocated")
        self.copies: dict[Tensor, Tensor] = {}
        self._seen: set[Tensor] = set()
        self._done: set[Tensor] = set()

    @staticmethod
    def alloc_ctx_tensors(ctx: Context, buft: BufferType, addresses: AddressSpace) -> list[Buffer]:
        """ggml_backend_alloc_ctx_tensors; an empty list if there is nothing to allocate."""
        return alloc_ctx_tensors_from_buft(ctx, buft, addresses)

    def needs(self, t: Tensor) -> Iterator[Tensor]:
        """What has to be there before `t`, in the order in which it is made."""
        if t.view_src is not None:
            yield t.view_src
        yield from self.sources(t)

    def sources(self, t: Tensor) -> Iterator[Tensor]:
        """The sources that are copied."""
        return (s for s in t.src if s is not None)

    def unallocated(self, t: Tensor) -> GgmlError:
        """The refusal of a tensor without memory."""
        return GgmlAssert(
            "graph_copy_dup_tensor",
            'src->data && "graph must be allocated"',
            f"{t.label} has no memory; {advice('buffer_not_set')}",
        )

    def full(self) -> GgmlError:
        """The refusal of a tensor that is one more than there are slots."""
        return GgmlAbort(
            "ggml_hash_insert",
            "fatal error",
            None,
            f"the graph's hash set has {self.slots} slots, and its nodes need more tensors than that",
        )

    def view_init(self, made: Tensor) -> None:
        """ggml_backend_view_init of a copy."""
        view_init(made)

    def dup(self, root: Tensor) -> None:
        """graph_copy_dup_tensor: `root` anew, then what it views, then its sources, each once.

        A tensor that is met while it is still being made stays out: the copy of a cast has no edge to itself.
        """
        if root in self._seen:
            return
        stack = [(root, self._new(root), self.needs(root))]
        while stack:
            t, made, needs = stack[-1]
            s = next(needs, None)
            if s is None:
                stack.pop()
                self._link(t, made)
            elif s not in self._seen:
                stack.append((s, self._new(s), self.needs(s)))

    def _new(self, t: Tensor) -> Tensor:
        """ggml_dup_tensor_layout, in the context of what has memory or in that of the views."""
        if not t.data:
            raise self.unallocated(t)
        self._seen.add(t)
        if len(self._seen) > self.slots:
            raise self.full()
        made = (self.ctx_allocated if t.view_src is None else self.ctx_unallocated).dup_tensor(t)
        made.set_layout(t.ne, t.nb)
        return made

    def _link(self, t: Tensor, made: Tensor) -> None:
        copies = self.copies
        if t.view_src is not None:
            made.view_src = copies.get(t.view_src)
            made.view_offs = t.view_offs
        made.set_op(Op(t.op), t.op_params, *self._copied(t))
        made.flags = t.flags
        made.name = t.name
        made.id = t.id
        made.fun = t.fun
        copies[t] = made

    def _copied(self, t: Tensor) -> list[Tensor | None]:
        return [None if s is None else self.copies.get(s) for s in t.src]

    def init(self, root: Tensor, events: Listener | None) -> None:
        """graph_copy_init_tensor: what `root` views first, then its own values or place, then its sources."""
        stack = [(root, False)]
        while stack:
            t, root_is_done = stack.pop()
            if not root_is_done:
                if t in self._done:
                    continue
                self._done.add(t)
                if t.view_src is not None and self.copies[t].view_src is not None:
                    stack += [(t, True), (t.view_src, False)]
                    continue
                tensor_copy(t, self.copies[t], events)
            else:
                self.view_init(self.copies[t])
            stack += [(s, False) for s in reversed(list(self.sources(t)))]


def compare_graph_backend(
    backend1: Backend,
    backend2: Backend,
    graph: CGraph,
    callback: CompareCallback,
    compute: GraphCompute,
    indices: IndexSpace,
    addresses: AddressSpace,
    events: Listener | None = None,
    test_nodes: Sequence[Tensor] = (),
    copier_class: type[Copier] | None = None,
    before: BeforeCallback | None = None,
) -> bool:
    """ggml_backend_compare_graph_backend: compute `graph` on `backend1`, a copy of it on `backend2`, and compare.

    Node by node: each by itself on the first backend, then on the second, then the callback gets both; views are
    computed and not compared, and the callback may end it. With `test_nodes` the whole graph is computed on each first,
    and only these are compared. Without them, `before` hears of every node that will be compared. False where the copy
    cannot be made. Raises GgmlAssert if no test node is in the graph.
    """
    function = "ggml_backend_compare_graph_backend"
    if events:
        events(Entered(function))
    copy = graph_copy(backend2, graph, indices, addresses, events, copier_class)
    if copy is None:
        if events:
            events(Left(function))
        return False
    pairs = list(zip(graph.nodes, copy.graph.nodes, strict=True))
    if test_nodes:
        _compute(backend1, graph.nodes, compute, events)
        _compute(backend2, copy.graph.nodes, compute, events)
        verified = False
        for i, (t1, t2) in enumerate(pairs):
            for test in test_nodes:
                if t1 is test:
                    callback(i, t1, t2)
                    verified = True
        if not verified:
            names = ", ".join(t.label for t in test_nodes)
            raise GgmlAssert(function, "verified", f"none of {names} is a node of the graph")
    else:
        for i, (t1, t2) in enumerate(pairs):
            if before is not None and not t1.is_view_op:
                before(t1, t2)
            _compute(backend1, [t1], compute, events)
            _compute(backend2, [t2], compute, events)
            if not t1.is_view_op and not callback(i, t1, t2):
                break
    copy.free(indices)
    if events:
        events(Left(function))
    return True


def _compute(backend: Backend, nodes: Sequence[Tensor], compute: GraphCompute, events: Listener | None) -> None:
    """ggml_backend_graph_compute: compute and wait."""
    if events:
        events(Computed(-1, backend.name, tuple(t.id for t in nodes)))
    compute(backend, nodes)
    if events:
        events(Synchronized(backend.name))
