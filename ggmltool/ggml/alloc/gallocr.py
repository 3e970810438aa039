"""ggml_gallocr: the graph allocator. Plans an offset for every tensor of a graph, then places them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ggmltool.ggml.alloc.common import INVALID, AnyGallocr, HashNodes, NodeAlloc, TensorAlloc, VBuffer
from ggmltool.ggml.alloc.dyn_tallocr import DynTallocr
from ggmltool.ggml.buffer import AddressSpace, BufferType, tensor_alloc, view_init
from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, GgmlError, GgmlFailed, advice
from ggmltool.ggml.events import ReallocNeeded
from ggmltool.ggml.op import INPLACE_OPS, Op
from ggmltool.ggml.tensor import FLAG_INPUT, FLAG_OUTPUT, Tensor
from ggmltool.ggml.version import VBUFFER_MAX_CHUNKS, hash_size
from ggmltool.ggml.why import Why

_MIB = 1024.0 * 1024.0
_CALL_RESERVE = "cannot reallocate multi buffer graph automatically, call reserve"
_Outgrows = Callable[[Tensor, TensorAlloc], ReallocNeeded | None]
_TooLarge = tuple[ReallocNeeded, Tensor, Tensor | None]
"""What is too large for the plan: why, the node, and its source where that is the one."""


class Gallocr(AnyGallocr):
    """A graph allocator over `bufts`, one buffer id each; equal types share a planner and a buffer, of up to
    `max_chunks` chunks. Its places are the plan that was reserved last, and `buffers` are made for it. Results of
    `inplace_ops` may take the memory of a source.

    `debug_log` takes the lines that a debug build logs of new plans (None: a release build).
    """

    reserve_function = "ggml_gallocr_reserve_n_impl"
    """In which buffers are made anew, as a debug build logs it."""
    logs_first_buffers = False
    """Whether it logs so of the first buffer of all, too."""

    __slots__ = ("_leaf_allocs", "_node_allocs", "_unsettled", "addresses", "can_inplace", "debug_log", "max_chunks")

    buf_tallocs: list[DynTallocr]

    def __init__(
        self,
        bufts: list[BufferType],
        addresses: AddressSpace,
        max_chunks: int = VBUFFER_MAX_CHUNKS,
        inplace_ops: frozenset[Op] = INPLACE_OPS,
    ) -> None:
        self._node_allocs: list[NodeAlloc] = []
        self._leaf_allocs: list[TensorAlloc] = []
        self._unsettled = False
        super().__init__(bufts)
        self.can_inplace = bytes(op in inplace_ops for op in Op)
        self.addresses = addresses
        self.max_chunks = max_chunks
        self.buffers = [None] * len(bufts)
        self.buf_tallocs = []
        for i, buft in enumerate(bufts):
            first = bufts.index(buft)
            self.buf_tallocs.append(self.buf_tallocs[first] if first < i else self.new_planner(buft))
        self.debug_log: Callable[[str], None] | None = None

    def new_planner(self, buft: BufferType) -> DynTallocr:
        """ggml_dyn_tallocr_new: the planner of a buffer type."""
        return DynTallocr(buft.alignment, buft.max_size, self.max_chunks)

    def reserve_n(
        self,
        nodes: list[Tensor],
        leafs: list[Tensor],
        node_ids: list[int] | None,
        leaf_ids: list[int] | None,
        n_tensors: int,
    ) -> bool:
        """ggml_gallocr_reserve_n: plan the graph anew and make buffers that hold it.

        `node_ids` and `leaf_ids` give the buffer id of each node and leaf (None: all 0), `n_tensors` bounds the
        tensors' indices.
        """
        min_hash_size = len(nodes) + len(leafs)
        min_hash_size += min_hash_size // 4
        if self.hash_size < min_hash_size:
            self.hash_size = hash_size(min_hash_size)
        self.settle()
        self.planned_nodes = nodes
        self.planned_leafs = leafs
        self.refused = None
        for tallocr in self.buf_tallocs:
            tallocr.reset()
        self._alloc_graph_impl(nodes, leafs, node_ids, leaf_ids, n_tensors)
        self._check_hash_set(nodes, leafs)
        self._unsettled = True
        self._realloc_buffers()
        return True

    def _check_hash_set(self, nodes: list[Tensor], leafs: list[Tensor]) -> None:
        """Abort where ggml's hash set would be full: its size leaves out roots of views, which take slots."""
        views = [t for t in (*nodes, *leafs) if t.view_src is not None]
        if len(nodes) + len(leafs) + len(views) <= self.hash_size:
            return
        # Most roots are in the graph, or roots of several views.
        at_most = {t.index for t in (*nodes, *leafs)}
        at_most.update(t.view_src.index for t in views if t.view_src is not None)
        if len(at_most) <= self.hash_size:
            return
        keys = {t.index: t for t in (*nodes, *leafs)}
        n_own = len(keys)
        for n in nodes:
            roots = [n.view_src if n.op else None, *(s.view_src for s in n.src if s is not None)]
            keys.update((r.index, r) for r in roots if r is not None)
        if len(keys) > self.hash_size:
            outside = list(keys.values())[n_own:]
            raise GgmlAbort(
                "ggml_hash_find_or_insert",
                "fatal error",
                None,
                f"the allocator's hash set has {self.hash_size} slots for {len(nodes)} nodes and {len(leafs)} leafs; "
                f"with the roots of views that are not in the graph it would need {len(keys)}. "
                f"One of them is {outside[0].label}: make it a source of some node, or look at fewer such tensors",
            ).of("gallocr_slots", len(keys))

    @property
    def node_allocs(self) -> list[NodeAlloc]:
        """The places of the last graph: of each node its own and those of its sources."""
        self.settle()
        return self._node_allocs

    @node_allocs.setter
    def node_allocs(self, allocs: list[NodeAlloc]) -> None:
        self._node_allocs = allocs

    @property
    def leaf_allocs(self) -> list[TensorAlloc]:
        """The places of the last graph's leafs."""
        self.settle()
        return self._leaf_allocs

    @leaf_allocs.setter
    def leaf_allocs(self, allocs: list[TensorAlloc]) -> None:
        self._leaf_allocs = allocs

    def settle(self) -> None:
        """Write down the places of the graph that was reserved last: of nodes, their sources, and leafs.

        ggml does so when it reserves. Here it is enough before something becomes of the tensors: before
        they are given memory, and before the scheduler makes other copies of the same objects.
        """
        if not self._unsettled:
            return
        self._unsettled = False
        nodes, leafs = self.planned_nodes, self.planned_leafs
        hn = self.hash_nodes
        allocs: list[TensorAlloc | None] = [None] * len(hn.allocated)

        def alloc_of(t: Tensor) -> TensorAlloc:
            i = t.index
            alloc = allocs[i]
            if alloc is None:
                if t.view_src is not None or t.data:
                    alloc = INVALID
                else:
                    b = hn.buffer_id[i]
                    alloc = TensorAlloc(b, hn.chunk[i], hn.offset[i], hn.size[i])
                allocs[i] = alloc
            return alloc

        self._node_allocs = [
            (
                allocs[n.index] or alloc_of(n),
                tuple([INVALID if s is None else allocs[s.index] or alloc_of(s) for s in n.src]),
            )
            for n in nodes
        ]
        self._leaf_allocs = [alloc_of(leaf) for leaf in leafs]

    def _realloc_buffers(self) -> None:
        for i, tallocr in enumerate(self.buf_tallocs):
            first = self.buf_tallocs.index(tallocr)
            if first < i:
                self.buffers[i] = self.buffers[first]
            buffer = self.buffers[i]
            realloc = buffer is None
            new_size = 0
            for c, chunk in enumerate(tallocr.chunks):
                new_size += chunk.max_size
                if chunk.max_size > (buffer.chunk_size(c) if buffer is not None else 0):
                    realloc = True
            if realloc:
                self.growing(self.bufts[i], buffer.size() if buffer is not None else 0, new_size)
                sizes = [self.bufts[i].buffer_size(chunk.max_size) for chunk in tallocr.chunks]
                if buffer is not None:
                    buffer.free(new_size, self.addresses)
                self.buffers[i] = VBuffer(self.bufts[i], sizes, self.addresses)

    def growing(self, buft: BufferType, size: int, new_size: int) -> None:
        """A buffer of `size` bytes (0: there is none) is about to be made anew with `new_size`."""
        if size or self.logs_first_buffers:
            sizes = f"from size {size / _MIB:.2f} MiB to {new_size / _MIB:.2f} MiB"
            self.say(f"{self.reserve_function}: reallocating {buft.name} buffer {sizes}")

    def _alloc_graph_impl(
        self,
        nodes: list[Tensor],
        leafs: list[Tensor],
        node_ids: list[int] | None,
        leaf_ids: list[int] | None,
        n_tensors: int,
    ) -> None:
        """ggml_gallocr_alloc_graph_impl: leafs, then explicit inputs, then node by node with what it frees."""
        hn = self.hash_nodes = HashNodes(n_tensors)
        n_children, n_views, allocated = hn.n_children, hn.n_views, hn.allocated
        allocate = self._allocate_node
        node_ids = node_ids if node_ids is not None else [0] * len(nodes)
        leaf_ids = leaf_ids if leaf_ids is not None else [0] * len(leafs)
        for leaf, b in zip(leafs, leaf_ids, strict=False):
            if b < 0 or not leaf.data:
                allocate(leaf, b)

        for node, b in zip(nodes, node_ids, strict=False):
            root = node.view_src
            # A view without an op is how the scheduler ties a tensor to the copy made of it; it is no use of its root.
            if root is not None and node.op:
                n_views[root.index] += 1
            if node.flags & FLAG_INPUT:
                allocate(node, b)
            for s in node.src:
                if s is not None:
                    n_children[s.index] += 1
                    if s.flags & FLAG_INPUT:
                        allocate(s, b)

        for node, b in zip(self._in_turn(nodes), node_ids, strict=False):
            if b < 0:
                allocate(node, b)
            src = node.src
            for s in src:
                if s is not None and not (allocated[s.index] or s.data or s.view_src is not None or s.buffer):
                    allocate(s, b)
            if node.view_src is None and not (allocated[node.index] or node.data or node.buffer):
                allocate(node, b)
            for s in src:
                if s is None:
                    continue
                k = s.index
                left = n_children[k] = n_children[k] - 1
                if left or n_views[k]:
                    continue
                if allocated[k]:
                    self._free_node(s)
                elif s.view_src is not None:
                    root = s.view_src
                    k = root.index
                    left = n_views[k] = n_views[k] - 1
                    if not left and n_children[k] == 0 and allocated[k]:
                        self._free_node(root)

    def _in_turn(self, nodes: list[Tensor]) -> Iterable[Tensor]:
        """The nodes, as their turn comes."""
        return nodes

    def _allocate_node(self, node: Tensor, buffer_id: int) -> None:
        """ggml_gallocr_allocate_node: in the memory of a source where that is allowed, else the best fit."""
        if buffer_id < 0:
            self.refused = node
            raise GgmlAssert(
                "ggml_gallocr_allocate_node",
                "buffer_id >= 0",
                f"{node.name or node.id} has no backend: it is a leaf that no node uses directly (only a view or a "
                f"reshape of it is used, or nothing); {advice('buffer_id')}",
            )
        i = node.index
        allocated = self.hash_nodes.allocated
        if node.data or node.buffer is not None or allocated[i] or node.view_src is not None:
            return
        allocated[i] = 1
        if self.can_inplace[node.op]:
            parent = self._parent_to_take_over(node)
            if parent is not None:
                self._take_over(node, parent)
                if self.bufts[self.hash_nodes.buffer_id[i]].alloc_size is not None:
                    self._free_extra_space(node, parent)
                return
        self._place(node, buffer_id)

    def _parent_to_take_over(self, node: Tensor) -> Tensor | None:
        """The first source in whose memory a node is computed; None if there is no such source."""
        hn = self.hash_nodes
        allocated, n_children = hn.allocated, hn.n_children
        for parent in node.src:
            # Two of the reasons of `_why_not`, asked here: most sources are out by one of them.
            if parent is None or not allocated[parent.index] or n_children[parent.index] != 1:
                continue
            if self._why_not(node, parent) is None:
                return parent
        return None

    def _why_not(self, node: Tensor, parent: Tensor) -> Why | None:
        """Why a node is not computed in the memory of this source; None if it is."""
        hn = self.hash_nodes
        k = parent.index
        if not hn.allocated[k]:
            return _why_not_allocated(parent)
        if parent.flags & FLAG_OUTPUT:
            return Why.OUTPUT
        if parent.type is not node.type or parent.ne != node.ne or parent.nb != node.nb:
            return Why.LAYOUT
        if hn.n_views[k]:
            return Why.VIEWS
        return None if hn.n_children[k] == 1 else Why.CHILDREN

    def _take_over(self, node: Tensor, parent: Tensor) -> None:
        """A node gets the place of its source."""
        hn = self.hash_nodes
        i, k = node.index, parent.index
        hn.buffer_id[i] = hn.buffer_id[k]
        hn.size[i] = hn.size[k]
        hn.chunk[i] = hn.chunk[k]
        hn.offset[i] = hn.offset[k]
        hn.allocated[k] = 0

    def _place(self, node: Tensor, buffer_id: int) -> None:
        """A node gets a place of its own."""
        hn = self.hash_nodes
        i = node.index
        buft = self.bufts[buffer_id]
        size = hn.size[i] = node.nbytes if buft.plain else buft.get_alloc_size(node)
        hn.buffer_id[i] = buffer_id
        try:
            hn.chunk[i], hn.offset[i] = self.buf_tallocs[buffer_id].alloc(size)
        except GgmlError as error:
            self.refused = node
            error.explanation += f", when {node.label} was to be placed in {buft.name}"
            raise

    def _free_extra_space(self, node: Tensor, parent: Tensor) -> None:
        """ggml_gallocr_free_extra_space: give back what the parent had and the node does not need."""
        hn = self.hash_nodes
        i, k = node.index, parent.index
        parent_size = hn.size[k]
        node_size = hn.size[i] = self.bufts[hn.buffer_id[i]].get_alloc_size(node)
        if parent_size < node_size:
            raise GgmlAssert(
                "ggml_gallocr_free_extra_space",
                "parent_size >= node_size",
                f"{node.name} would be computed in the memory of {parent.name}, which has {parent_size} bytes, "
                f"and needs {node_size}",
            )
        tallocr = self.buf_tallocs[hn.buffer_id[k]]
        a = tallocr.alignment
        parent_size = (parent_size + a - 1) // a * a
        node_size = (node_size + a - 1) // a * a
        if parent_size > node_size:
            tallocr.free_bytes((hn.chunk[k], hn.offset[k] + node_size), parent_size - node_size)

    def _free_node(self, node: Tensor) -> None:
        """ggml_gallocr_free_node: outputs are never freed."""
        if node.flags & FLAG_OUTPUT:
            return
        hn = self.hash_nodes
        i = node.index
        b = hn.buffer_id[i]
        try:
            self.buf_tallocs[b].free_bytes((hn.chunk[i], hn.offset[i]), hn.size[i])
        except GgmlError as error:
            self.refused = node
            error.explanation += f", when {node.label} was given back to {self.bufts[b].name}; {advice('free_blocks')}"
            raise
        hn.allocated[i] = 0

    def needs_realloc(self, nodes: list[Tensor], leafs: list[Tensor]) -> ReallocNeeded | None:
        """ggml_gallocr_needs_realloc: why the plan cannot serve this graph, None if it can."""
        function = "ggml_gallocr_needs_realloc"
        if len(self.node_allocs) != len(nodes):
            self.say(f"{function}: graph has different number of nodes")
            return ReallocNeeded(Why.N_NODES, "", len(self.node_allocs), len(nodes))
        if len(self.leaf_allocs) != len(leafs):
            self.say(f"{function}: graph has different number of leafs")
            return ReallocNeeded(Why.N_LEAFS, "", len(self.leaf_allocs), len(leafs))
        for why, node, source in self._too_large(nodes, self._node_needs_realloc):
            what = f"node {node.name}" if source is None else f"src {why.slot} ({source.name}) of node {node.name}"
            self.say(f"{function}: {what} is not valid")
            return why
        return None

    def outgrown(self, nodes: list[Tensor]) -> Iterator[ReallocNeeded]:
        """Every node and every source for which the plan has no place or too small a one; ggml stops at the first.

        For a graph with as many nodes as the plan.
        """
        return (why for why, _, _ in self._too_large(nodes, self._outgrows))

    def _too_large(self, nodes: list[Tensor], outgrows: _Outgrows) -> Iterator[_TooLarge]:
        for node, (dst, srcs) in zip(nodes, self.node_allocs, strict=True):
            if not node.data and node.view_src is None:
                why = outgrows(node, dst)
                if why is not None:
                    yield why._replace(node=node.label), node, None
            n = len(srcs)
            for j, s in enumerate(node.src):
                if s is not None and not s.data and s.view_src is None:
                    why = outgrows(s, srcs[j] if j < n else INVALID)
                    if why is not None:
                        yield why._replace(node=node.label, slot=j), node, s

    def _outgrows(self, t: Tensor, planned: TensorAlloc) -> ReallocNeeded | None:
        """Whether a tensor that needs memory has no place in the plan, or too small a one."""
        if planned.buffer_id < 0:
            return ReallocNeeded(Why.PREALLOCATED, t.label, None, t.nbytes)
        buft = self.bufts[planned.buffer_id]
        size = t.nbytes if buft.plain else buft.get_alloc_size(t)
        if planned.size_max >= size:
            return None
        return ReallocNeeded(Why.LARGER, t.label, planned.size_max, size)

    _node_needs_realloc = _outgrows
    """ggml_gallocr_node_needs_realloc, whose answer is true where the plan is enough; this one's is not None."""

    def alloc_graph(self, nodes: list[Tensor], leafs: list[Tensor], n_tensors: int) -> bool:
        """ggml_gallocr_alloc_graph: give every tensor the memory the plan has for it.

        False when the plan does not serve the graph and there are several buffers (then reserve_n is the caller's).
        """
        why = self.needs_realloc(nodes, leafs)
        if why is not None:
            self.realloc_needed(why)
            if len(self.buffers) != 1:
                return False
            if not self.reserve_n(nodes, leafs, None, None, n_tensors):
                return False
        self._init_tensors(nodes, leafs)
        return True

    def alloc_reserved(self, nodes: list[Tensor], leafs: list[Tensor]) -> None:
        """ggml_gallocr_alloc_graph of the graph that was reserved just now, whose plan serves it."""
        self._init_tensors(nodes, leafs)

    def _init_tensors(self, nodes: list[Tensor], leafs: list[Tensor]) -> None:
        """Put every tensor where the plan has it."""
        init = self._init_tensor
        for leaf, planned in zip(leafs, self.leaf_allocs, strict=True):
            init(leaf, planned)
        for node, (dst, srcs) in zip(nodes, self.node_allocs, strict=True):
            n = len(srcs)
            for j, s in enumerate(node.src):
                if s is not None and (not s.data or s.buffer is None):
                    init(s, srcs[j] if j < n else INVALID)
            init(node, dst)

    def realloc_needed(self, why: ReallocNeeded) -> None:
        """The plan does not serve a graph: it is planned again at once if there is one buffer."""
        what = "reallocating buffers automatically" if len(self.buffers) == 1 else _CALL_RESERVE
        self.say(f"ggml_gallocr_alloc_graph: {what}")

    def say(self, line: str) -> None:
        """A line that a debug build logs."""
        if self.debug_log is not None:
            self.debug_log(line)

    def _init_tensor(self, t: Tensor, planned: TensorAlloc) -> None:
        """ggml_gallocr_init_tensor."""
        root = t.view_src
        if root is not None:
            if t.buffer is None and root.buffer is not None:
                view_init(t)
        elif not t.data:
            buffers = self.buffers[planned.buffer_id] if planned.buffer_id >= 0 else None
            if buffers is None:
                raise GgmlFailed(
                    "ggml_gallocr_init_tensor",
                    "the reserved plan has no place for a tensor",
                    None,
                    f"{t.name or t.id} was pre-allocated in the graph that was reserved, and is not now; ggml reads "
                    "beyond its tables here",
                )
            if planned.chunk >= len(buffers.chunks):
                raise GgmlAssert(
                    "ggml_backend_buffer_get_base",
                    "buffer",
                    f"{t.name or t.id} is planned in a chunk of no bytes, for which no buffer was made",
                )
            tensor_alloc(buffers.chunks[planned.chunk], t, planned.offset)

    def get_buffer_size(self, buffer_id: int) -> int:
        """ggml_gallocr_get_buffer_size: bytes; 0 for an id that shares the buffer of an earlier one."""
        buffer = self.buffers[buffer_id]
        if buffer is None or any(b is buffer for b in self.buffers[:buffer_id]):
            return 0
        return buffer.size()


def _why_not_allocated(parent: Tensor) -> Why:
    """Why no memory of the allocator's belongs to a source."""
    if parent.view_src is not None:
        return Why.IS_VIEW
    return Why.PREALLOCATED if parent.data or parent.buffer is not None else Why.TAKEN_OVER
