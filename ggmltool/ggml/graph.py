"""ggml_cgraph: leafs and nodes in the order ggml_build_forward_expand finds them, with use counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ggmltool.ggml.errors import GgmlAbort, GgmlAssert, advice
from ggmltool.ggml.op import Op
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_PARAM, Tensor
from ggmltool.ggml.version import DEFAULT_GRAPH_SIZE, HASH_SHIFT, hash_size

NONE = -1
"""No tensor."""


class BuildOrder(NamedTuple):
    """The numbers of a graph's tensors: all in the order they are met, nodes, leafs, and the nodes to be computed.

    `use_counts` are those of `visited`. `unnamed` are the nodes and leafs that have no name until they are added.
    """

    visited: tuple[int, ...]
    use_counts: tuple[int, ...]
    nodes: tuple[int, ...]
    leafs: tuple[int, ...]
    computed: tuple[int, ...]
    unnamed: tuple[tuple[int, str], ...]


def build_order(
    roots: Iterable[tuple[int, bool]], tensors: Sequence[Tensor], sources: Sequence[Sequence[int]]
) -> BuildOrder | None:
    """What calls for `roots` come to: of ggml_build_forward_expand, or ggml_build_forward_order where the second is
    false. `sources` are those of each of the `tensors`, NONE for a hole.

    None for what ggml would not build: a root that is a leaf with sources of its own.
    """
    uses = [0] * len(tensors)
    seen = bytearray(len(tensors))
    visited: list[int] = []
    added: list[int] = []
    computed: list[int] = []
    for root, is_computed in roots:
        n = len(added)
        if not seen[root]:
            _visit(root, sources, uses, seen, visited, added)
        if len(added) > n and sources[root] and _is_leaf(tensors[root]):
            return None
        if is_computed:
            computed.append(root)
    nodes = tuple([i for i in added if not _is_leaf(tensors[i])])
    leafs = tuple([i for i in added if _is_leaf(tensors[i])])
    return BuildOrder(
        tuple(visited),
        tuple([uses[i] for i in visited]),
        nodes,
        leafs,
        _with_sources(computed, tensors, sources),
        (*_unnamed("leaf", leafs, tensors), *_unnamed("node", nodes, tensors)),
    )


def _visit(
    root: int, sources: Sequence[Sequence[int]], uses: list[int], seen: bytearray, visited: list[int], added: list[int]
) -> None:
    """ggml_visit_parents_graph: a tensor is met before its sources, and added behind them."""
    seen[root] = 1
    visited.append(root)
    stack = [(root, iter(sources[root]))]
    while stack:
        i, rest = stack[-1]
        for s in rest:
            if s == NONE:
                continue
            uses[s] += 1
            if not seen[s]:
                seen[s] = 1
                visited.append(s)
                if sources[s]:
                    stack.append((s, iter(sources[s])))
                    break
                added.append(s)
        else:
            added.append(i)
            stack.pop()


def _is_leaf(t: Tensor) -> bool:
    return t.op == Op.NONE and not t.flags & FLAG_PARAM


def _with_sources(roots: list[int], tensors: Sequence[Tensor], sources: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The ops that are needed for the roots, and the roots."""
    seen = bytearray(len(tensors))
    found: list[int] = []
    while roots:
        i = roots.pop()
        if not seen[i]:
            seen[i] = 1
            if tensors[i].op:
                found.append(i)
            roots += [s for s in sources[i] if s != NONE and not seen[s]]
    return tuple(found)


def _unnamed(kind: str, numbers: Sequence[int], tensors: Sequence[Tensor]) -> list[tuple[int, str]]:
    return [(i, f"{kind}_{k}") for k, i in enumerate(numbers) if not tensors[i].name]


FULL = -1
"""GGML_HASHSET_FULL: the key is not there and there is no room for it."""


def hash_of(address: int, shift: int = HASH_SHIFT) -> int:
    """ggml_hash: the address without its last bits (four, which alignment makes zero)."""
    return address >> shift


class HashSet:
    """A ggml_hash_set for at least `min_size` addresses. `keys` has the address in every slot, None where free; `shift`
    is the release's `hash_shift`.

    Scheduler and allocator only count what would be in their sets; this one is made when somebody wants to see the
    slots.
    """

    __slots__ = ("keys", "shift", "size")

    def __init__(self, min_size: int, shift: int = HASH_SHIFT) -> None:
        self.shift = shift
        self.size = hash_size(min_size)
        self.keys: list[int | None] = [None] * self.size

    def __len__(self) -> int:
        return sum(key is not None for key in self.keys)

    def __contains__(self, address: int) -> bool:
        """ggml_hash_contains."""
        slot = self.find(address)
        return slot != FULL and self.keys[slot] == address

    def find(self, address: int) -> int:
        """ggml_hash_find: the slot that has the address, or that it would get; FULL where there is neither."""
        start = slot = hash_of(address, self.shift) % self.size
        while self.keys[slot] is not None and self.keys[slot] != address:
            slot = (slot + 1) % self.size
            if slot == start:
                return FULL
        return slot

    def find_or_insert(self, address: int) -> int:
        """ggml_hash_find_or_insert: the address's slot, taken if it was free. Raises GgmlAbort when all are taken."""
        slot = self.find(address)
        if slot == FULL:
            raise GgmlAbort(
                "ggml_hash_find_or_insert",
                "fatal error",
                explanation=f"all {self.size} slots of the hash set are taken",
            )
        self.keys[slot] = address
        return slot

    def reset(self) -> None:
        """ggml_hash_set_reset: forget everything, keep the size."""
        self.keys = [None] * self.size

    def probes(self, address: int) -> int:
        """How many slots a look-up of the address visits: 1 where nothing collides."""
        slot = self.find(address)
        return self.size if slot == FULL else (slot - hash_of(address, self.shift)) % self.size + 1


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
        visited = self.visited = list(map(tensor_of, order.visited))
        if visited:
            self._grow(max([t.index for t in visited]))
        seen = self._visited
        for t, n in zip(visited, order.use_counts, strict=True):
            counts[t.index] = n
            seen[t.index] = 1
        for t in map(tensor_of, order.computed):
            t.flags |= FLAG_COMPUTE
        for i, name in order.unnamed:
            t = tensor_of(i)
            t.name = t.name or name
        self.nodes = list(map(tensor_of, order.nodes))
        self.leafs = list(map(tensor_of, order.leafs))

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
