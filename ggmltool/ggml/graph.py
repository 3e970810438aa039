"""ggml_cgraph: leafs and nodes in the order ggml_build_forward_expand finds them, with use counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ggmltool.ggml.build_order import BuildOrder
from ggmltool.ggml.errors import GgmlAssert, advice
from ggmltool.ggml.hash_set import HashSet
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM, Tensor
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, hash_size


class CGraph:
    """A graph of at most `size` nodes and `size` leafs.

    `use_counts` is indexed by a tensor's index, as the state lists of scheduler and allocator are. `was_split`: a
    scheduler has put copies in place of sources. `visited` are nodes and leafs in the order they were first met.
    """

    __slots__ = ("_partial", "_visited", "leafs", "nodes", "size", "use_counts", "visited", "was_split")

    def __init__(self, size: int = DEFAULT_GRAPH_SIZE, n_tensors: int = 0) -> None:
        self.size = size
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._visited = bytearray(n_tensors)
        self.use_counts: list[int] = [0] * n_tensors
        self.visited: list[Tensor] = []
        self._partial = False
        self.was_split = False

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @property
    def n_leafs(self) -> int:
        return len(self.leafs)

    def use_count(self, t: Tensor) -> int:
        """How often a tensor of this graph is a source (a double edge counts twice, a cast's edge to itself once)."""
        return self.use_counts[t.index] if t.index < len(self.use_counts) else 0

    def again(self) -> CGraph:
        """The same graph for one more split, which changes the order of nodes and their sources: these are the caller's
        to put back.
        """
        made = CGraph(self.size)
        made.nodes = self.nodes[:]
        made.leafs = self.leafs
        made.use_counts = self.use_counts
        made.visited = self.visited
        made._visited = self._visited
        made._partial = self._partial
        return made

    def with_leafs(self, leafs: list[Tensor], exchanged: Iterable[tuple[Tensor, Tensor]]) -> CGraph:
        """The graph as it would be built with these leafs in their order, where some edges lead to others:
        `exchanged` has a pair (before, now) for each.
        """
        made = self.again()
        made.leafs = leafs
        made.use_counts = self.use_counts[:]
        made._visited = self._visited[:]
        made.visited = [*leafs, *self.nodes]
        for t in self.leafs:
            made._visited[t.index] = 0
        for t in leafs:
            made._grow(t.index)
            made._visited[t.index] = 1
        for before, now in exchanged:
            made.use_counts[before.index] -= 1
            made.use_counts[now.index] += 1
        return made

    def hash_set(self, addresses: Callable[[Tensor], int]) -> HashSet:
        """The graph's visited_hash_set, slots and all, for tensors at these addresses."""
        made = HashSet(2 * self.size)
        for t in self.visited:
            made.find_or_insert(addresses(t))
        return made

    def contains(self, t: Tensor) -> bool:
        """Whether a tensor was visited: it is a node or a leaf of this graph."""
        return t.index < len(self._visited) and self._visited[t.index] == 1

    def build_forward_expand(self, tensor: Tensor) -> None:
        """ggml_build_forward_expand: add `tensor` and everything it needs that is not there yet."""
        self._build(tensor, True)

    def build_forward_order(self, tensor: Tensor) -> None:
        """ggml_build_forward_order: the same without marking the nodes for computing."""
        self._partial = True
        self._build(tensor, False)

    def build_in_order(self, order: BuildOrder, tensor_of: Callable[[int], Tensor]) -> None:
        """The calls that `order` is of, on a graph that is empty so far and has room for all of it."""
        counts = self.use_counts
        visited = self.visited = [tensor_of(i) for i in order.visited]
        if visited:
            self._grow(max([t.index for t in visited]))
        seen = self._visited
        for t, n in zip(visited, order.use_counts, strict=True):
            counts[t.index] = n
            seen[t.index] = 1
        for i in order.computed:
            tensor_of(i).flags |= FLAG_COMPUTE
        for i, name in order.unnamed:
            t = tensor_of(i)
            t.name = t.name or name
        self.nodes = [tensor_of(i) for i in order.nodes]
        self.leafs = [tensor_of(i) for i in order.leafs]

    def _grow(self, index: int) -> None:
        missing = index + 1 - len(self._visited)
        if missing > 0:
            missing = max(missing, len(self._visited))
            self._visited.extend(bytes(missing))
            self.use_counts.extend([0] * missing)

    def _build(self, tensor: Tensor, compute: bool) -> None:
        n_old = len(self.nodes)
        self._visit(tensor, compute)
        if compute and self._partial:
            self._mark_compute(tensor)
        if len(self.nodes) > n_old and self.nodes[-1] is not tensor:
            raise GgmlAssert(
                "ggml_build_forward_impl",
                "cgraph->nodes[cgraph->n_nodes - 1] == tensor",
                f"{tensor.name or tensor.id} is a leaf with sources of its own",
            )

    def _visit(self, root: Tensor, compute: bool) -> None:
        """ggml_visit_parents_graph, with a stack of its own so that deep graphs are no matter."""
        visited = self._visited
        if root.index >= len(visited):
            self._grow(root.index)
        if visited[root.index]:
            return
        counts = self.use_counts
        flag = FLAG_COMPUTE if compute else 0
        visited[root.index] = 1
        order = self.visited
        order.append(root)
        if root.op:
            root.flags |= flag
        stack: list[tuple[Tensor, int]] = []
        t, j = root, 0
        while True:
            src = t.src
            n = len(src)
            while j < n:
                s = src[j]
                j += 1
                if s is None:
                    continue
                i = s.index
                if i >= len(visited):
                    self._grow(i)
                counts[i] += 1
                if not visited[i]:
                    visited[i] = 1
                    order.append(s)
                    if s.op:
                        s.flags |= flag
                    if s.src:
                        stack.append((t, j))
                        t, j = s, 0
                        src = s.src
                        n = len(src)
                    else:
                        self._add(s)
            self._add(t)
            if not stack:
                return
            t, j = stack.pop()

    def _add(self, t: Tensor) -> None:
        if t.op == Op.NONE and not t.flags & FLAG_PARAM:
            leafs = self.leafs
            if len(leafs) >= self.size:
                raise self._full("leafs", t)
            if not t.name:
                t.name = f"leaf_{len(leafs)}"
            leafs.append(t)
        else:
            nodes = self.nodes
            if len(nodes) >= self.size:
                raise self._full("nodes", t)
            if not t.name:
                t.name = f"node_{len(nodes)}"
            nodes.append(t)

    def _full(self, what: str, t: Tensor) -> GgmlAssert:
        slots = hash_size(2 * self.size)
        if len(self.visited) > slots:
            # Tensors take their slots on the way down, before any becomes a node: ggml never came this far.
            return GgmlAssert(
                "ggml_visit_parents_graph",
                "node_hash_pos != GGML_HASHSET_FULL",
                f"the graph was made for {self.size} nodes, its hash set has {slots} slots, and "
                f"{self.visited[slots].label or 'a tensor'} is one more; {advice('cgraph_full')}",
            ).of("cgraph_slots", slots + 1)
        return GgmlAssert(
            "ggml_visit_parents_graph",
            f"cgraph->n_{what} < cgraph->size",
            f"the graph was made for {self.size} {what}, and {t.label or 'a tensor'} is one more; "
            f"{advice('cgraph_full')}",
        ).of(f"cgraph_{what}", self.size + 1)

    def _mark_compute(self, tensor: Tensor) -> None:
        stack = [tensor]
        seen: set[int] = set()
        while stack:
            t = stack.pop()
            if t.index in seen:
                continue
            seen.add(t.index)
            if t.op != Op.NONE:
                t.flags |= FLAG_COMPUTE
            stack.extend(s for s in t.src if s is not None)
