"""The order in which Metal 0.20.2 runs a split: nodes that do not wait for each other stand together."""

from __future__ import annotations

from typing import NamedTuple

from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.devices.combinators import ops
from ggmltool.ggml.op import EMPTY_OPS
from ggmltool.ggml.tensor import FLAG_COMPUTE, FLAG_OUTPUT, Tensor, are_same_shape

_MAX_FUSE = 16
_LOOK_AHEAD = 64

_STARTS_A_GROUP = ops("ADD NORM RMS_NORM")
_JOINS_A_GROUP = ops("ADD MUL NORM RMS_NORM")
_MAY_BE_PASSED = frozenset(EMPTY_OPS) | ops(
    "MUL_MAT MUL_MAT_ID ROPE NORM RMS_NORM GROUP_NORM L2_NORM SUM_ROWS SSM_CONV SSM_SCAN CLAMP TRI DIAG MUL ADD SUB "
    "DIV GLU SCALE UNARY GET_ROWS SET_ROWS SET CPY CONT REPEAT"
)
"""Ops that may move, and that others may move in front of."""


class Range(NamedTuple):
    """The memory of a tensor: bytes [first, last) of what `of` names: a buffer, or a tensor without memory itself."""

    of: int
    first: int
    last: int


class Group(NamedTuple):
    """Nodes that one kernel computes: the memory that they read, and that they write."""

    nodes: list[Tensor]
    reads: list[Range]
    writes: list[Range]

    @property
    def is_empty(self) -> bool:
        return self.nodes[0].op in EMPTY_OPS


class _Ranges:
    """ggml_mem_ranges: memory that is read and written by nodes that may run at the same time."""

    def __init__(self) -> None:
        self._reads: dict[int, list[Range]] = {}
        self._writes: dict[int, list[Range]] = {}

    def clear(self) -> None:
        self._reads.clear()
        self._writes.clear()

    def add(self, group: Group) -> None:
        for r in group.reads:
            self._reads.setdefault(r.of, []).append(r)
        for w in group.writes:
            self._writes.setdefault(w.of, []).append(w)

    def is_free_for(self, group: Group) -> bool:
        """Whether a group reads nothing that is written, and writes nothing that is read or written."""
        if self._writes and any(_meets(self._writes.get(r.of), r) for r in group.reads):
            return False
        return not any(_meets(self._reads.get(w.of), w) or _meets(self._writes.get(w.of), w) for w in group.writes)


def _meets(ranges: list[Range] | None, r: Range) -> bool:
    # As in ggml, a range that ends where another begins counts as meeting it, seen from the first of the two.
    return ranges is not None and any(r.first < other.last and r.last >= other.first for other in ranges)


def graph_optimize(nodes: list[Tensor], use_count: UseCount, _: Keep) -> list[Tensor]:
    """ggml_graph_optimize of the Metal backend: the nodes of a split in the order Metal runs them.

    Nodes that a kernel can fuse stay together.
    """
    return reorder(_groups(nodes, use_count))


def reorder(groups: list[Group]) -> list[Tensor]:
    """ggml_metal_graph_optimize_reorder: where a group has to wait for one before it, groups further down that need
    not wait are pulled in front of it.
    """
    out: list[Tensor] = []
    used = bytearray(len(groups))
    running, skipped = _Ranges(), _Ranges()
    for i, group in enumerate(groups):
        if used[i]:
            continue
        if not group.is_empty and not running.is_free_for(group):
            skipped.clear()
            skipped.add(group)
            for k in range(i + 1, min(i + _LOOK_AHEAD, len(groups))):
                later = groups[k]
                if used[k]:
                    continue
                if later.nodes[0].op not in _MAY_BE_PASSED:
                    break
                if (later.is_empty or running.is_free_for(later)) and skipped.is_free_for(later):
                    running.add(later)
                    out += later.nodes
                    used[k] = 1
                else:
                    skipped.add(later)
            running.clear()
        running.add(group)
        out += group.nodes
    return out


def _groups(nodes: list[Tensor], use_count: UseCount) -> list[Group]:
    out = []
    i = 0
    while i < len(nodes):
        n = _fusible(nodes, i, use_count) if nodes[i].op in _STARTS_A_GROUP else 1
        members = nodes[i : i + n]
        reads = [memory_of(s) for node in members for s in node.src if s is not None]
        out.append(Group(members, reads, [memory_of(members[-1])]))
        i += n
    return out


def _fusible(nodes: list[Tensor], i: int, use_count: UseCount) -> int:
    """How many nodes from `i` on one kernel may compute (ggml_can_fuse over the longest run of such ops)."""
    n = 0
    while i + n < len(nodes) and n < _MAX_FUSE:
        node = nodes[i + n]
        if n and not (node.op in _JOINS_A_GROUP and _hands_on(nodes[i + n - 1], node, use_count)):
            break
        if not node.flags & FLAG_COMPUTE:
            break
        n += 1
    return max(n, 1)


def _hands_on(before: Tensor, node: Tensor, use_count: UseCount) -> bool:
    """Whether nobody but `node` needs the result before it, so that it never has to be written."""
    if before.view_src is not None or before.flags & FLAG_OUTPUT or use_count(before) != 1:
        return False
    return before in node.src[:2] and are_same_shape(node, before)


def memory_of(t: Tensor) -> Range:
    """The memory of a tensor, or of what it is a view of, with all that it takes there."""
    root = t if t.view_src is None else t.view_src
    if root.buffer is None:
        return Range(id(root), 0, 1024)
    return Range(id(root.buffer), root.data, root.data + root.buffer.buft.get_alloc_size(root))
