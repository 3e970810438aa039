"""ggml_gallocr of January 2024: gives the tensors of a graph memory node by node, straight from tallocrs.

There is no plan: measuring a graph and allocating one are the same walk, with tallocrs that measure or that are real.
"""

from __future__ import annotations

from collections.abc import Sequence

from ggmltool.ggml.best_fit import BestFitTallocr
from ggmltool.ggml.errors import GgmlCrash, LineAssert, advice
from ggmltool.ggml.events import AllocationStarted, Entered, Left, Listener, NotReused, Reused
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import Tensor, are_same_layout

BARRIER = -1
"""In `parse_seq`: what was computed since the last barrier gives its memory back here."""

CAN_INPLACE = frozenset(
    (
        Op.SCALE, Op.DIAG_MASK_ZERO, Op.DIAG_MASK_INF, Op.ADD, Op.ADD1, Op.SUB, Op.MUL, Op.DIV, Op.SQR, Op.SQRT,
        Op.LOG, Op.UNARY, Op.ROPE, Op.RMS_NORM, Op.SOFT_MAX,
    )
)  # fmt: skip
"""ggml_op_can_inplace of then."""

_FILE = "ggml-alloc.c"


class DirectGallocr:
    """A graph allocator. `n_children` and `n_views` are its hash values, by a tensor's index.

    `inplace` has the nodes that were put into the memory of a source: their `view_src` is set to it. `parse_seq`
    gives another order of nodes, with barriers (none: the graph's order, and every node is one).
    """

    __slots__ = ("_ids", "_tallocs", "events", "inplace", "n_children", "n_views", "parse_seq")

    def __init__(self, events: Listener | None = None) -> None:
        self.events = events
        self.parse_seq: tuple[int, ...] = ()
        self.n_children: list[int] = []
        self.n_views: list[int] = []
        self.inplace: set[int] = set()
        self._ids: Sequence[int] = ()
        self._tallocs: list[BestFitTallocr | None] = []

    def alloc_graph(self, talloc: BestFitTallocr, nodes: list[Tensor], n_tensors: int) -> int:
        """ggml_gallocr_alloc_graph: a graph in one allocator's memory; the bytes it needed at most."""
        self._walk("ggml_gallocr_alloc_graph", nodes, [0] * n_tensors, [talloc])
        return talloc.max_size

    def alloc_graph_n(
        self, nodes: list[Tensor], hash_size: int, ids: Sequence[int], tallocs: Sequence[BestFitTallocr]
    ) -> None:
        """ggml_gallocr_alloc_graph_n: `ids` gives the number of every tensor's allocator, by its index (-1: none).

        Raises LineAssert where memory is short or a view has nothing to look at, GgmlCrash where a tensor that needs
        memory has no allocator.
        """
        if hash_size < len(nodes):
            raise LineAssert(
                "ggml_gallocr_alloc_graph_n",
                _FILE,
                675,
                "hash_size >= (size_t)(graph->n_nodes + graph->n_leafs)",
                f"the scheduler's graph has {len(nodes)} nodes and copies, its hash set {hash_size} slots; "
                f"{advice('sched_tensors')}",
            ).of("sched_tensors", len(nodes))
        self._walk("ggml_gallocr_alloc_graph_n", nodes, ids, tallocs)

    def _walk(self, function: str, nodes: list[Tensor], ids: Sequence[int], tallocs: Sequence[BestFitTallocr]) -> None:
        """ggml_tallocr_alloc_graph_impl."""
        if self.events:
            self.events(Entered(function))
        self.n_children = [0] * len(ids)
        self.n_views = [0] * len(ids)
        self.inplace = set()
        self._ids = ids
        self._tallocs = [*tallocs, None]
        self._count(nodes)
        if self.parse_seq:
            self._allocate_in_order(nodes, self.parse_seq)
        else:
            for i in range(len(nodes)):
                self._allocate(i, nodes[i])
                self._update_parents(nodes[i])
        if self.events:
            self.events(Left(function))

    def _count(self, nodes: list[Tensor]) -> None:
        """Count children and views; views of what has memory already get it now."""
        if self.events:
            self.events(AllocationStarted(-1, ""))
        n_children, n_views = self.n_children, self.n_views
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

    def _allocate_in_order(self, nodes: list[Tensor], parse_seq: Sequence[int]) -> None:
        last_barrier = 0
        for i, number in enumerate(parse_seq):
            if number != BARRIER:
                self._allocate(number, nodes[number])
                continue
            for done in parse_seq[last_barrier:i]:
                self._update_parents(nodes[done])
            last_barrier = i + 1

    def _allocate(self, i: int, n: Tensor) -> None:
        """Memory for a node and, before it, for its sources."""
        if self.events:
            self.events(AllocationStarted(i, n.label))
        for parent in n.src:
            if parent is None:
                break
            if not parent.data:
                self._allocate_node(parent)
        if not n.data:
            self._allocate_node(n)

    def _tallocr(self, t: Tensor) -> BestFitTallocr | None:
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

    def _allocate_node(self, n: Tensor) -> None:
        """allocate_node, of a tensor without memory: a view, in the memory of a source, or anew."""
        if n.view_src is not None:
            self._init_view(n)
            return
        alloc = self._tallocr(n)
        if n.op in CAN_INPLACE and n.src:
            if alloc is None:
                raise _no_allocr("ggml_tallocr_is_own", n)
            if self._reuse(alloc, n):
                return
        if alloc is None:
            raise _no_allocr("ggml_tallocr_alloc", n)
        alloc.alloc(n)

    def _reuse(self, alloc: BestFitTallocr, n: Tensor) -> bool:
        """Whether the node could be put into the memory of a source, or of what that is a view of."""
        for parent in n.src:
            if parent is None:
                return False
            why_not = self._why_not(alloc, n, parent)
            if why_not:
                if self.events:
                    self.events(NotReused(n.label, parent.label, why_not))
                continue
            root = parent.view_src or parent
            n.view_src = root
            self.n_views[root.index] += 1
            self._init_view(n)
            self.inplace.add(n.index)
            if self.events:
                self.events(Reused(n.label, root.label, alloc.name, 0, n.data - alloc.base))
            return True
        return False

    def _why_not(self, alloc: BestFitTallocr, n: Tensor, parent: Tensor) -> str:
        """Why a node cannot be computed in the memory of this source; "" where it can."""
        if not alloc.is_own(parent):
            return f"it is not in the memory of {alloc.name}"
        children, views = self.n_children[parent.index], self.n_views[parent.index]
        if not parent.data:
            return "it has no memory"
        if children != 1 or views != 0:
            return f"it is still in use, by {children} nodes and {views} views"
        if not are_same_layout(n, parent):
            return "the layouts differ"
        root = parent.view_src
        if root is None:
            return ""
        children, views = self.n_children[root.index], self.n_views[root.index]
        if views != 1 or children != 0:
            return f"what it is a view of, {root.label}, is still in use, by {children} nodes and {views} views"
        if root.data != parent.data:
            return f"it is a view into the middle of {root.label}"
        return ""

    def _update_parents(self, n: Tensor) -> None:
        """The node is computed: give back the sources that nobody needs any more."""
        n_children, n_views = self.n_children, self.n_views
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


def _no_allocr(function: str, t: Tensor) -> GgmlCrash:
    return GgmlCrash(
        function,
        "a read at the address NULL",
        f"{t.label} has no backend, and so no allocator: no rule of the scheduler gave it one; "
        f"{advice('old_no_allocr')}",
    )
