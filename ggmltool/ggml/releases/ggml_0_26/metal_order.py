"""The order in which Metal of ggml 0.26 runs a split, and what has to stay in memory meanwhile.

From llama.cpp b11549, ggml/src/ggml-metal: ggml_backend_metal_graph_optimize (ggml-metal.cpp), ggml_graph_optimize
(ggml-metal-common.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ggmltool.ggml.device import Keep, UseCount
from ggmltool.ggml.devices.metal import Group, memory_of, reorder
from ggmltool.ggml.op import EMPTY_OPS, Op
from ggmltool.ggml.releases.ggml_0_26 import metal_patterns as fits
from ggmltool.ggml.releases.ggml_0_26.fusing import can_fuse, keep_until
from ggmltool.ggml.releases.ggml_0_26.metal_patterns import Match
from ggmltool.ggml.tensor import Tensor, are_same_shape

MAX_FUSED = 16
"""GGML_METAL_FUSION_MAX: nodes that stand together at most."""


class Pattern(NamedTuple):
    """Ops in a row that one kernel may compute: `raw` with the views between them, `ops` without.

    In a chain each node reads the one before, has its shape, and only the last is used by others; `fits` is what is
    asked besides. What is no chain `fits` alone decides about.
    """

    raw: tuple[Op, ...]
    ops: tuple[Op, ...]
    fits: Callable[[Match], bool]
    is_chain: bool


def _chain(fits: Callable[[Match], bool], *ops: Op) -> Pattern:
    return Pattern(ops, ops, fits, True)


def _with_views(fits: Callable[[Match], bool], *raw: Op) -> Pattern:
    return Pattern(raw, tuple(op for op in raw if op not in EMPTY_OPS), fits, False)


_NORMS = (Op.NORM, Op.RMS_NORM)
_CHOICE = (Op.SOFT_MAX, Op.RESHAPE, Op.ARGSORT, Op.VIEW, Op.GET_ROWS)
_SCALED = (Op.SCALE,)
_NORMALIZED = (Op.RESHAPE, Op.SUM_ROWS, Op.CLAMP, Op.DIV, Op.RESHAPE)


PATTERNS: tuple[Pattern, ...] = (
    *(_chain(fits.norm, norm, Op.MUL) for norm in _NORMS),
    *(_chain(fits.norm, norm, Op.MUL, Op.ADD) for norm in _NORMS),
    *(_chain(fits.scaled_norm, norm, Op.SCALE) for norm in _NORMS),
    *(_chain(fits.sums, *[Op.ADD] * n) for n in range(2, 8)),
    _chain(fits.snake, Op.MUL, Op.SIN, Op.SQR, Op.MUL, Op.ADD),
    _with_views(fits.kept_states, Op.GATED_DELTA_NET, Op.CPY),
    *(
        _with_views(fits.choice_of_experts, *_CHOICE, *rest)
        for rest in ((), _SCALED, _NORMALIZED, _NORMALIZED + _SCALED)
    ),
    *(_with_views(fits.weighted_sum, Op.MUL, *[Op.VIEW] * n, *[Op.ADD] * (n - 1)) for n in range(2, 9)),
    _chain(fits.silu_of_convolution, Op.SSM_CONV, Op.UNARY),
    _chain(fits.residual, Op.MUL_MAT, Op.ADD),
)
"""All that Metal fuses; of two patterns of one length that fit the first counts."""


def _by_first(patterns: Iterable[Pattern], length: Callable[[Pattern], int]) -> dict[int, list[Pattern]]:
    """Patterns by their first op, the longest first."""
    out: dict[int, list[Pattern]] = {}
    for pattern in sorted(patterns, key=length, reverse=True):
        out.setdefault(pattern.raw[0], []).append(pattern)
    return out


_BY_OPS = _by_first(PATTERNS, lambda pattern: len(pattern.ops))
_BY_RAW = _by_first(PATTERNS, lambda pattern: len(pattern.raw))


class Fusing:
    """What may be fused among the nodes of a split."""

    def __init__(self, nodes: list[Tensor], use_count: UseCount) -> None:
        self._nodes = nodes
        self._use_count = use_count
        self._ops = [node.op for node in nodes]
        self._computed = [i for i, op in enumerate(self._ops) if op not in EMPTY_OPS]
        """Where the nodes are that compute something."""

        self._place = {i: place for place, i in enumerate(self._computed)}

    def length(self, first: int) -> int:
        """ggml_metal_fusion_max: how many nodes from `first` on stay together, with the views between them.

        Patterns that follow each other count together.
        """
        begin = self._place.get(first)
        if begin is None:
            return 1
        end = begin
        while end < len(self._computed) and (n := self._longest(begin, end)) and end - begin + n <= MAX_FUSED:
            end += n
        return 1 if end == begin else min(MAX_FUSED, self._computed[end - 1] - first + 1)

    def _longest(self, begin: int, at: int) -> int:
        """How many of the computed nodes from place `at` on the longest pattern has that fits there (0: none).

        Only the next 16 from `begin` on are looked at.
        """
        places = self._computed[at : begin + MAX_FUSED]
        if not places:
            return 0
        for pattern in _BY_OPS.get(self._ops[places[0]], ()):
            n = len(pattern.ops)
            if n <= len(places) and all(self._ops[i] == op for i, op in zip(places, pattern.ops, strict=False)):
                match = Match(pattern.raw, self._nodes, places[:n], self._use_count)
                if (not pattern.is_chain or _is_chain(match.members, self._use_count)) and pattern.fits(match):
                    return n
        return 0


def _is_chain(members: Sequence[Tensor], use_count: UseCount) -> bool:
    for before, node in pairwise(members):
        if before not in node.src[:2] or not are_same_shape(node, before):
            return False
    return can_fuse(members, members[-1:], use_count)


def keep_sources(nodes: list[Tensor], keep: Keep) -> None:
    """ggml_metal_fusion_add_alloc_deps: what is read where the ops of a pattern stand in a row, whether or not they fit
    it, is kept until the last of them.
    """
    ops = [node.op for node in nodes]
    i = 0
    while i < len(nodes):
        n = next((len(p.raw) for p in _BY_RAW.get(ops[i], ()) if tuple(ops[i : i + len(p.raw)]) == p.raw), 0)
        if n:
            keep_until(nodes[i : i + n], nodes[i + n - 1], keep)
        i += max(n, 1)


def graph_optimize(nodes: list[Tensor], use_count: UseCount, keep: Keep) -> list[Tensor]:
    """ggml_backend_metal_graph_optimize: nodes that one kernel may compute stay together, views between them too.

    What stands in a row as in a pattern of the kernels keeps its sources until the end of it, as the nodes stood.
    """
    keep_sources(nodes, keep)
    fusing = Fusing(nodes, use_count)
    groups = []
    i = 0
    while i < len(nodes):
        n = fusing.length(i)
        groups.append(_group(nodes[i : i + n]))
        i += n
    return reorder(groups)


def _group(members: list[Tensor]) -> Group:
    """Reads what is not of its own, writes the results of all its nodes."""
    own = set(map(id, members))
    reads = [memory_of(s) for node in members for s in node.src if s is not None and id(s) not in own]
    return Group(members, reads, [memory_of(node) for node in members])
