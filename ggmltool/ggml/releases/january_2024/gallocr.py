"""ggml_gallocr of January 2024: gives the tensors of a graph memory node by node, straight from tallocrs.

There is no plan: measuring a graph and allocating one are the same walk, with tallocrs that measure or that are real.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from ggmltool.ggml.alloc.common import INVALID, AnyGallocr, HashNodes, TensorAlloc
from ggmltool.ggml.buffer import BufferType
from ggmltool.ggml.errors import GgmlCrash, LineAssert, advice
from ggmltool.ggml.events import Allocated, AllocationStarted, Entered, Event, Freed, Left, Listener, NotReused, Reused
from ggmltool.ggml.op import Op
from ggmltool.ggml.releases.january_2024.tallocr import Tallocr
from ggmltool.ggml.tensor import Tensor, are_same_layout
from ggmltool.ggml.why import NO_FACTS, Facts, Why

CAN_INPLACE = frozenset(
    (
        Op.SCALE, Op.DIAG_MASK_ZERO, Op.DIAG_MASK_INF, Op.ADD, Op.ADD1, Op.SUB, Op.MUL, Op.DIV, Op.SQR, Op.SQRT,
        Op.LOG, Op.UNARY, Op.ROPE, Op.RMS_NORM, Op.SOFT_MAX,
    )
)  # fmt: skip
"""ggml_op_can_inplace of January 2024."""

_FILE = "ggml-alloc.c"


class Gallocr(AnyGallocr):
    """A graph allocator over the allocators of a scheduler, one buffer id each; they share no memory, and `names` are
    what their memories are called.

    A node that is put into the memory of a source has its `view_src` set to it. `placed` are tensors that were given to
    an allocator before the walk. With `tell` it tells what it does, and writes down where it placed the tensors of each
    graph.
    """

    __slots__ = ("_holders", "_ids", "_tallocs", "placed", "tell")

    inplace: set[int]

    def __init__(self, bufts: Sequence[BufferType], names: Sequence[str], tell: Listener | None) -> None:
        super().__init__([copy(buft) for buft in bufts])
        for buft, name in zip(self.bufts, names, strict=True):
            buft.name = name
        self.buf_tallocs = ()
        self.inplace = set()
        self.placed: Sequence[tuple[Tallocr, Tensor]] = ()
        self._ids: Sequence[int] = ()
        self._tallocs: list[Tallocr | None] = []
        self.tell = tell
        self._holders: dict[int, Tensor] = {}
        """The node that was computed last in the memory of a tensor, by that one's index."""

    def alloc_graph_n(
        self,
        nodes: list[Tensor],
        leafs: list[Tensor],
        hash_size: int,
        ids: Sequence[int],
        tallocs: Sequence[Tallocr],
    ) -> None:
        """ggml_gallocr_alloc_graph_n: `ids` gives the number of every tensor's allocator, by its index (-1: none).

        Raises LineAssert if memory is short or a view has nothing to look at, GgmlCrash where a tensor that needs
        memory has no allocator.
        """
        if hash_size < len(nodes):
            raise LineAssert(
                "ggml_gallocr_alloc_graph_n",
                _FILE,
                675,
                "hash_size >= (size_t)(graph->n_nodes + graph->n_leafs)",
                f"the scheduler's graph has {len(nodes)} nodes and copies, its hash set {hash_size} slots; "
                f"{advice('hash_too_small')}",
            ).of("sched_tensors", len(nodes))
        self.hash_size = hash_size
        self.planned_nodes, self.planned_leafs = nodes, leafs
        self.buf_tallocs = tallocs
        self._walk(nodes, ids, tallocs)
        if self.tell:
            self.node_allocs = [
                (self._place_of(n), tuple(INVALID if s is None else self._place_of(s) for s in n.src)) for n in nodes
            ]
            self.leaf_allocs = [self._place_of(t) for t in leafs]

    def _place_of(self, t: Tensor) -> TensorAlloc:
        tallocr = self._tallocr(t)
        if t.view_src is not None or tallocr is None or t.buffer is not tallocr.buffer:
            return INVALID
        return TensorAlloc(self._ids[t.index], 0, t.data - tallocr.base, t.buffer.buft.get_alloc_size(t))

    def _say(self, event: Event) -> None:
        if self.tell:
            self.tell(event)

    def _say_place(self, alloc: Tallocr, t: Tensor) -> None:
        if self.tell:
            self.tell(Allocated(t.label, alloc.name, 0, t.data - alloc.base, alloc.size_of(t)))

    def _walk(self, nodes: list[Tensor], ids: Sequence[int], tallocs: Sequence[Tallocr]) -> None:
        """ggml_tallocr_alloc_graph_impl, in the graph's order: ggml's `parse_seq` is never set by its scheduler."""
        self._say(Entered("ggml_gallocr_alloc_graph_n"))
        self._holders = {}
        self.hash_nodes = HashNodes(len(ids))
        self.refused = None
        self.inplace = set()
        self._ids = ids
        self._tallocs = [*tallocs, None]
        self._say(AllocationStarted(-1, ""))
        for alloc, t in self.placed:
            self._say_place(alloc, t)
        self._count(nodes)
        for i, n in enumerate(nodes):
            self._say(AllocationStarted(i, n.label))
            self._allocate(n)
            self._update_parents(n)
        self._say(Left("ggml_gallocr_alloc_graph_n"))

    def _count(self, nodes: list[Tensor]) -> None:
        """Count children and views; views of what has memory already get it now."""
        n_children, n_views = self.hash_nodes.n_children, self.hash_nodes.n_views
        for n in nodes:
            root = n.view_src
            if root is not None:
                n_views[root.index] += 1
                if n.buffer is None and n.data:
                    self._init_view(n)
            for parent in n.src:
                if parent is None:
                    break
                n_children[parent.index] += 1
                if parent.view_src is not None and parent.buffer is None and parent.data:
                    self._init_view(parent)

    def _allocate(self, n: Tensor) -> None:
        """Memory for a node and, before it, for its sources."""
        for parent in n.src:
            if parent is None:
                break
            if not parent.data:
                self._give_memory(parent)
        if not n.data:
            self._give_memory(n)

    def _tallocr(self, t: Tensor) -> Tallocr | None:
        """node_tallocr."""
        return self._tallocs[self._ids[t.index]]

    def _init_view(self, view: Tensor) -> None:
        """init_view: a view belongs to the buffer of its own allocator; its bytes are its root's."""
        alloc = self._tallocr(view)
        root = view.view_src
        if root is None or not root.data:
            of = f", of {root.label}," if root is not None else ""
            raise LineAssert(
                "init_view",
                _FILE,
                459,
                "view->view_src != NULL && view->view_src->data != NULL",
                f"{view.label} is a view{of} which has no memory yet: its nodes come later in the scheduler's graph, "
                "or nothing gives it any",
            )
        if alloc is None:
            raise _no_allocr("init_view", view)
        view.buffer = alloc.buffer
        view.data = root.data + view.view_offs

    def _give_memory(self, n: Tensor) -> None:
        """allocate_node, of a tensor without memory: a view, in the memory of a source, or anew."""
        if n.view_src is not None:
            self._init_view(n)
            return
        alloc = self._tallocr(n)
        self.refused = n
        if n.op in CAN_INPLACE and n.src:
            if alloc is None:
                raise _no_allocr("ggml_tallocr_is_own", n)
            if self._reuse(alloc, n):
                self._placed(alloc, n)
                return
        if alloc is None:
            raise _no_allocr("ggml_tallocr_alloc", n)
        alloc.alloc(n)
        self._say_place(alloc, n)
        self._placed(alloc, n)
        self.hash_nodes.allocated[n.index] = 1

    def _placed(self, alloc: Tallocr, n: Tensor) -> None:
        """Write the place down in the tensor's hash node."""
        self.refused = None
        self.hash_nodes.buffer_id[n.index] = self._ids[n.index]
        self.hash_nodes.offset[n.index] = n.data - alloc.base

    def _reuse(self, alloc: Tallocr, n: Tensor) -> bool:
        """Whether the node could be put into the memory of a source, or of what that is a view of."""
        for parent in n.src:
            if parent is None:
                return False
            why = self._why_not(alloc, n, parent)
            if why is None:
                self._take_over(alloc, n, parent.view_src or parent)
                return True
            if self.tell:
                self.tell(NotReused(n.label, parent.label, why, self._facts(why, alloc, parent)))
        return False

    def _take_over(self, alloc: Tallocr, n: Tensor, root: Tensor) -> None:
        """A node becomes a view of a source, or of what that is a view of."""
        n.view_src = root
        self.hash_nodes.n_views[root.index] += 1
        self._init_view(n)
        self.inplace.add(n.index)
        holder = self._holders.get(root.index, root)
        self._say(Reused(n.label, holder.label, alloc.name, 0, n.data - alloc.base))
        self._holders[root.index] = n

    def _why_not(self, alloc: Tallocr, n: Tensor, parent: Tensor) -> Why | None:
        """Why a node cannot be computed in the memory of this source; None if it can."""
        if not alloc.is_own(parent):
            return Why.OTHER_BUFFER
        hn = self.hash_nodes
        if not parent.data:
            return Why.NO_MEMORY
        if hn.n_children[parent.index] != 1 or hn.n_views[parent.index] != 0:
            return Why.IN_USE
        if not are_same_layout(n, parent):
            return Why.LAYOUT
        root = parent.view_src
        if root is None:
            return None
        if hn.n_views[root.index] != 1 or hn.n_children[root.index] != 0:
            return Why.ROOT_IN_USE
        return Why.INSIDE_ROOT if root.data != parent.data else None

    def _facts(self, why: Why, alloc: Tallocr, parent: Tensor) -> Facts:
        hn, root = self.hash_nodes, parent.view_src or parent
        match why:
            case Why.OTHER_BUFFER:
                return Facts(buft=alloc.name)
            case Why.IN_USE:
                return Facts(n_children=hn.n_children[parent.index], n_views=hn.n_views[parent.index])
            case Why.ROOT_IN_USE:
                n_children, n_views = hn.n_children[root.index], hn.n_views[root.index]
                return Facts(tensor=root.label, n_children=n_children, n_views=n_views)
            case Why.INSIDE_ROOT:
                return Facts(tensor=root.label)
            case _:
                return NO_FACTS

    def _update_parents(self, n: Tensor) -> None:
        """The node is computed: give back the sources that nobody needs any more."""
        n_children, n_views = self.hash_nodes.n_children, self.hash_nodes.n_views
        for parent in n.src:
            if parent is None:
                break
            i = parent.index
            n_children[i] -= 1
            if n_children[i] == 0 and n_views[i] == 0:
                root = parent.view_src
                if root is None:
                    self._free_node(parent)
                    continue
                i = root.index
                n_views[i] -= 1
                if n_views[i] == 0 and n_children[i] == 0:
                    self._free_node(root)

    def _free_node(self, n: Tensor) -> None:
        alloc = self._tallocr(n)
        if alloc is None:
            raise _no_allocr("ggml_tallocr_is_own", n)
        alloc.free_tensor(n)
        self.hash_nodes.allocated[n.index] = 0
        holder = self._holders.pop(n.index, n)
        if self.tell and alloc.is_own(n):
            self.tell(Freed(holder.label, alloc.name, 0, n.data - alloc.base, alloc.size_of(n)))


def _no_allocr(function: str, t: Tensor) -> GgmlCrash:
    return GgmlCrash(
        function,
        "a read at the address NULL",
        f"{t.label} has no backend, and so no allocator: no rule of the scheduler gave it one; "
        f"{advice('old_no_allocr')}",
    )
