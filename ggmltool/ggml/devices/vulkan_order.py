"""The order in which Vulkan 0.20.2 runs a split: nodes that do not wait for each other stand together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ggmltool.ggml.device import Keep
from ggmltool.ggml.op import EMPTY_OPS, Op
from ggmltool.ggml.tensor import Tensor

_LOOK_AHEAD = 20
FOLLOWERS = 15
"""How far from a node those are looked for that continue it."""

_ROPE_FOLLOWERS = 10

_O = Op
KEPT: tuple[tuple[int, ...], ...] = (
    (
        _O.SOFT_MAX, _O.RESHAPE, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP, _O.DIV,
        _O.RESHAPE,
    ),
    (
        _O.UNARY, _O.RESHAPE, _O.ADD, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP, _O.DIV,
        _O.RESHAPE,
    ),
    (
        _O.UNARY, _O.SQRT, _O.RESHAPE, _O.ADD, _O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SUM_ROWS, _O.CLAMP,
        _O.DIV, _O.RESHAPE,
    ),
    (_O.SOFT_MAX, _O.RESHAPE, _O.ARGSORT, _O.VIEW, _O.GET_ROWS),
    (_O.ARGSORT, _O.VIEW, _O.GET_ROWS, _O.RESHAPE, _O.SOFT_MAX, _O.RESHAPE),
    (_O.MUL, _O.SIN, _O.SQR, _O.MUL, _O.ADD),
)  # fmt: skip
"""Runs of ops that one shader computes (a choice of experts, the snake activation): they are never taken apart."""


def by_first(patterns: Iterable[tuple[int, ...]]) -> dict[int, list[tuple[int, ...]]]:
    """Runs of ops by the op that they begin with."""
    out: dict[int, list[tuple[int, ...]]] = {}
    for pattern in patterns:
        out.setdefault(pattern[0], []).append(pattern)
    return out


_KEPT_BY_FIRST = by_first(KEPT)

FUSED: frozenset[tuple[int, int]] = frozenset(
    (
        (Op.RMS_NORM, Op.MUL),
        (Op.MUL_MAT, Op.ADD),
        (Op.MUL_MAT_ID, Op.ADD_ID),
        (Op.MUL_MAT_ID, Op.MUL),
        (Op.ADD, Op.ADD),
        (Op.SSM_CONV, Op.ADD),
        (Op.SSM_CONV, Op.UNARY),
    )
)
"""Ops that one shader computes if they stand side by side, though the second needs the first."""


def graph_optimize(nodes: list[Tensor], _: Callable[[Tensor], int], __: Keep) -> list[Tensor]:
    """ggml_vk_graph_optimize: the nodes of a split in the order Vulkan runs them."""
    return Ordering(nodes).run()


class Ordering:
    """The nodes, which of them have their place already (`used`), and the order so far (`out`).

    `kept` are the runs that are never taken apart, `fused` the pairs that stand side by side, `stored` the ops whose
    results a shader also sets rows to. `ids` tell the nodes apart, `roots` the tensors whose memory they have,
    `sources` are the ids of what they need.
    """

    kept: Mapping[int, Sequence[tuple[int, ...]]] = _KEPT_BY_FIRST
    fused: frozenset[tuple[int, int]] = FUSED
    stored: frozenset[int] = frozenset((int(Op.ROPE),))

    def __init__(self, nodes: list[Tensor]) -> None:
        self.nodes = nodes
        self.n = len(nodes)
        self.used = bytearray(self.n)
        self.ids = [id(node) for node in nodes]
        self.roots = [id(node if node.view_src is None else node.view_src) for node in nodes]
        self.sources = [frozenset(id(s) for s in node.src if s is not None) for node in nodes]
        self.done: set[int] = set()
        self.out: list[Tensor] = []
        self.first = 0

    def run(self) -> list[Tensor]:
        while self.first < self.n:
            pattern = self.kept_at(self.first)
            if pattern:
                self.place_whole(pattern)
                continue
            taken = self._real_nodes()
            if self.nodes[taken[-1]].op != Op.ADD:
                # After an addition may come what is fused with it: no view may stand between.
                taken += self._views(taken)
            self._place(taken)
        return self.out[: self.n]

    def _place(self, indices: range | list[int]) -> None:
        for i in indices:
            self.out.append(self.nodes[i])
            self.done.add(id(self.nodes[i]))
            self.used[i] = 1
        while self.first < self.n and self.used[self.first]:
            self.first += 1

    def place_whole(self, pattern: tuple[int, ...]) -> None:
        """Place the run of ops with which the first node that is left begins."""
        self._place(range(self.first, self.first + len(pattern)))

    def kept_at(self, start: int) -> tuple[int, ...]:
        """The run of ops from `start` on that is not to be taken apart; () if there is none."""
        for pattern in self.kept.get(self.nodes[start].op, ()):
            if self.matches(pattern, start):
                return pattern
        return ()

    def matches(self, pattern: tuple[int, ...], start: int) -> bool:
        """Whether the nodes from `start` on are a run of these ops, none of which has its place."""
        n = len(pattern)
        if self.n - start < n or any(self.used[start : start + n]):
            return False
        return all(self.nodes[start + k].op == op for k, op in enumerate(pattern))

    def _window(self) -> range:
        return range(self.first + 1, min(self.first + _LOOK_AHEAD, self.n))

    def _real_nodes(self) -> list[int]:
        """The first node that is left, and those soon after it that need not wait for any node that is left."""
        nodes = self.nodes
        taken = [self.first]
        for j in self._window():
            if self.used[j] or nodes[j].op in EMPTY_OPS or self.is_kept(j):
                continue
            if self._waits(j, taken):
                continue
            taken.append(j)
            self.take_followers(j, taken)
        return taken

    def is_kept(self, j: int) -> bool:
        """Whether node `j` waits, since it belongs to what is not taken apart."""
        return bool(self.kept_at(j))

    def _waits(self, j: int, taken: list[int]) -> bool:
        """Whether node `j` needs one that is left and that it cannot be fused with."""
        fusible = self.fusible(j, taken)
        return any(c != fusible and self.needs(j, c) for c in range(self.first, j) if not self.used[c])

    def fusible(self, j: int, taken: list[int]) -> int:
        """The node before `j` with which it can be fused, -1 if that is none."""
        c = j - 1
        return c if c == taken[-1] and (self.nodes[c].op, self.nodes[j].op) in self.fused else -1

    def needs(self, j: int, c: int) -> bool:
        """Whether a node has another as a source, or both are in the memory of one tensor."""
        return self.ids[c] in self.sources[j] or self.roots[c] == self.roots[j]

    def _views(self, taken: list[int]) -> list[int]:
        """The views soon after the first node whose sources have their place, or get it now."""
        out: list[int] = []
        have = set(taken)
        for j in self._window():
            if self.used[j] or self.nodes[j].op not in EMPTY_OPS:
                continue
            left = (c for c in range(self.first, j) if not self.used[c] and c not in have)
            if not any(self.needs(j, c) for c in left):
                out.append(j)
                have.add(j)
        return out

    def take_followers(self, j: int, taken: list[int]) -> None:
        """Take what is fused with node `j` although other nodes stand between."""
        op, before = self.nodes[j].op, self.nodes[j - 1].op
        last = j
        if op == Op.MUL and before == Op.RMS_NORM:
            last = self.take(self.rope_of(j), taken, j)
        if self.nodes[last].op in self.stored:
            self.take_set_rows(last, taken)
        if (op == Op.ADD_ID and before == Op.MUL_MAT_ID) or (op == Op.ADD and before == Op.MUL_MAT):
            self.take(self.follower(j, Op.MUL if op == Op.ADD_ID else Op.ADD, True), taken, j)
        if op == Op.ADD and before == Op.SSM_CONV:
            self.take(self.follower(j, Op.UNARY, False), taken, j)

    def take(self, k: int | None, taken: list[int], otherwise: int) -> int:
        """Take node `k`, if there is one, else stay with another."""
        if k is None:
            return otherwise
        taken.append(k)
        self.used[k] = 1
        return k

    def follower(self, j: int, op: int, needs_other: bool) -> int | None:
        """A node of this op that continues `j`; its other source is there already, where it has to be."""
        for k in range(j + 1, min(j + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if node.op == op and node.src[0] is self.nodes[j]:
                other = node.src[1] if needs_other else None
                if other is None or other.op == Op.NONE or id(other) in self.done:
                    return k
        return None

    def rope_of(self, j: int) -> int | None:
        """The rotation of what node `j` makes."""
        for k in range(j + 1, min(j + FOLLOWERS, self.n)):
            node = self.nodes[k]
            if node.op == Op.ROPE and node.src[0] is self.nodes[j]:
                others = [s for s in node.src[1:3] if s is not None]
                if all(s.op == Op.NONE for s in others):
                    return k
        return None

    def take_set_rows(self, made: int, taken: list[int]) -> None:
        """Take the view of what a node makes and the rows that are set to it, which one shader computes with it."""
        view: int | None = None
        for k in range(made + 1, min(made + _ROPE_FOLLOWERS, self.n)):
            node = self.nodes[k]
            if view is None:
                if node.op == Op.VIEW and node.src[0] is self.nodes[made]:
                    view = k
            elif node.op == Op.SET_ROWS and node.src[0] is self.nodes[view]:
                for i in (view, k):
                    taken.append(i)
                    self.used[i] = 1
                return
